//! What persistent memory costs (`[pm]`). A profile without it has the sockets' DRAM in its place.

use serde::Deserialize;

use super::{Bandwidth, Cost, Count, Profile, ProfileError, Sources, field, memory_time};
use crate::Nanos;

/// The memory of one node, as its own cores and those of others use it. Rates are in picoseconds
/// per KiB.
#[derive(Clone, Debug)]
pub(super) struct Pm {
    node_read: u64,
    node_stream: u64,
    core_read: u64,
    core_stream: u64,
    remote_read: u64,
    remote_stream: u64,
    /// How many times as long a line keeps its node busy if the core is on another.
    remote_share: u64,
    collapse: Option<Collapse>,
    write_back: Nanos,
    fence: Nanos,
}

/// A node falls to another rate when more cores than so many stream to it at once.
#[derive(Clone, Copy, Debug)]
struct Collapse {
    writers: u64,
    rate: u64,
}

/// The section's shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PmFile {
    node_read: Bandwidth,
    node_stream: Bandwidth,
    core_read: Bandwidth,
    core_stream: Bandwidth,
    remote_read: Bandwidth,
    remote_stream: Bandwidth,
    remote_share: Count,
    collapse: Option<CollapseFile>,
    write_back: Cost,
    fence: Cost,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollapseFile {
    writers: u64,
    gb_per_s: f64,
    source: String,
}

/// Paths of the section's numbers.
pub(super) const PATHS: [&str; 10] = [
    "pm.node_read",
    "pm.node_stream",
    "pm.core_read",
    "pm.core_stream",
    "pm.remote_read",
    "pm.remote_stream",
    "pm.collapse",
    "pm.remote_share",
    "pm.write_back",
    "pm.fence",
];

impl Pm {
    pub(super) fn new(file: PmFile, sources: &mut Sources) -> Result<Self, ProfileError> {
        let collapse = |file: CollapseFile, sources: &mut Sources| {
            if file.writers == 0 {
                return Err(field("pm.collapse.writers", "must not be 0".to_owned()));
            }
            let CollapseFile { writers, gb_per_s, source } = file;
            let rate = sources.bandwidth("pm.collapse", Bandwidth { gb_per_s, source })?;
            Ok(Collapse { writers, rate })
        };
        Ok(Self {
            node_read: sources.bandwidth("pm.node_read", file.node_read)?,
            node_stream: sources.bandwidth("pm.node_stream", file.node_stream)?,
            core_read: sources.bandwidth("pm.core_read", file.core_read)?,
            core_stream: sources.bandwidth("pm.core_stream", file.core_stream)?,
            remote_read: sources.bandwidth("pm.remote_read", file.remote_read)?,
            remote_stream: sources.bandwidth("pm.remote_stream", file.remote_stream)?,
            remote_share: sources.count("pm.remote_share", file.remote_share)?,
            collapse: file.collapse.map(|file| collapse(file, sources)).transpose()?,
            write_back: sources.cost("pm.write_back".into(), file.write_back)?,
            fence: sources.cost("pm.fence".into(), file.fence)?,
        })
    }

    /// The number called `name` in the section.
    pub(super) fn number_mut(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "node_read" => &mut self.node_read,
            "node_stream" => &mut self.node_stream,
            "core_read" => &mut self.core_read,
            "core_stream" => &mut self.core_stream,
            "remote_read" => &mut self.remote_read,
            "remote_stream" => &mut self.remote_stream,
            "remote_share" => &mut self.remote_share,
            "collapse" => &mut self.collapse.as_mut()?.rate,
            "write_back" => &mut self.write_back,
            "fence" => &mut self.fence,
            _ => return None,
        })
    }

    /// More writers of a node than this, and its rate falls.
    pub(super) fn writers(&self) -> Option<u64> {
        self.collapse.map(|collapse| collapse.writers)
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Core,
    Memory,
}

/// What moving some bytes takes.
pub(crate) struct PmTime {
    /// Of the core.
    pub(crate) core: Nanos,
    /// Of the node that has them.
    pub(crate) node: Nanos,
}

impl Profile {
    /// Whether persistent memory has costs of its own.
    pub(crate) fn has_pm(&self) -> bool {
        self.inner.pm.is_some()
    }

    /// What moving `bytes` between a core and a node takes. `writers` counts the cores that write
    /// to that node.
    pub(crate) fn pm_time(
        &self,
        bytes: u64,
        toward: Toward,
        is_remote: bool,
        writers: impl FnOnce() -> u64,
    ) -> Option<PmTime> {
        let pm = self.inner.pm.as_ref()?;
        let (core, node) = match (toward, is_remote) {
            (Toward::Core, false) => (pm.core_read, pm.node_read),
            (Toward::Core, true) => (pm.remote_read, pm.node_read),
            (Toward::Memory, false) => (pm.core_stream, pm.node_stream),
            (Toward::Memory, true) => (pm.remote_stream, pm.node_stream),
        };
        let falls = pm.collapse.filter(|fall| toward == Toward::Memory && writers() > fall.writers);
        let node = falls.map_or(node, |fall| fall.rate);
        let share = if is_remote { pm.remote_share } else { 1 };
        Some(PmTime { core: memory_time(bytes, core), node: memory_time(bytes, node) * share })
    }

    /// What writing back a line and a fence cost by themselves.
    pub(crate) fn pm_order(&self) -> Option<(Nanos, Nanos)> {
        self.inner.pm.as_ref().map(|pm| (pm.write_back, pm.fence))
    }
}
