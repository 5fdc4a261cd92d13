//! A mounted volume.

pub(crate) mod format;
mod fs;
pub(crate) mod options;
pub(crate) mod technique;
mod volume;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cores::{Mutex, PerCoreReadGuard, PerCoreRwLock, Rank, Stage};
use drive::pm::Pm;
use vfs::kind::Recovery;
use vfs::{Errno, FileKind, Ino, Result};

use crate::alloc::Space;
use crate::commit::Journal;
use crate::file::segments::Segments;
use crate::inode::node::{Inode, Node};
use crate::inode::numbers::Numbers;
use crate::inode::table::Table;
use crate::log::cores::CoreLogs;
use crate::ondisk::BLOCK;
use crate::ondisk::superblock::{CLEAN, Layout, STATE_AT};
use crate::recover::Recovered;
use options::MountOptions;

/// Number of the root directory.
pub(crate) const ROOT: Ino = 1;

/// A mounted volume.
pub(crate) struct Pmfs {
    pub(crate) pm: Arc<dyn Pm>,
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    pub(crate) space: Space,
    pub(crate) numbers: Numbers,
    pub(crate) inodes: Table,
    /// Protects the way up from directories. Held while one is moved to another.
    pub(crate) renames: Mutex<()>,
    /// Whether it is mounted. Shared by every call, exclusive for the unmount.
    gate: PerCoreRwLock<bool>,
    options: MountOptions,
    recovery: Recovery,
    /// A call has failed because of a damaged structure, so the volume is not marked clean.
    pub(crate) damaged: AtomicBool,
}

impl Pmfs {
    /// The last step of a mount: there is no other way to a `Pmfs` than through recovery.
    pub(crate) fn new(recovered: Recovered, options: MountOptions) -> Self {
        let Recovered { pm, layout, used, numbers, recovery } = recovered;
        if !options.read_only {
            mark(&*pm, 0);
        }
        let nodes: Vec<u64> = pm.info().nodes.iter().map(|node| node.range.end / BLOCK).collect();
        // They lie one behind the other, node 0 is the first.
        let near = if options.local { None } else { nodes.first().copied() };
        let space = Space::new(layout.data(), layout.cores, &nodes, &used, layout.reserve());
        Self {
            journal: Journal::new(&pm, &layout),
            space: space.within(near),
            numbers,
            inodes: Table::new(),
            renames: Mutex::ranked(Rank::Rename, "pmfs renames", ()),
            gate: PerCoreRwLock::ranked(Rank::Gate, "pmfs", true),
            options,
            recovery,
            damaged: AtomicBool::new(false),
            pm,
            layout,
        }
    }

    /// Holds off the unmount.
    fn enter(&self) -> Result<PerCoreReadGuard<'_, bool>> {
        cores::charge(Stage::Syscall);
        let gate = self.gate.read();
        if *gate { Ok(gate) } else { Err(Errno::IO.into()) }
    }

    /// As [`Pmfs::enter`], for a call that changes something.
    pub(crate) fn change(&self) -> Result<PerCoreReadGuard<'_, bool>> {
        if self.options.read_only { Err(Errno::ROFS.into()) } else { self.enter() }
    }

    /// How many logs of cores a file has.
    pub(crate) fn log_count(&self) -> usize {
        if self.options.core_logs { self.layout.cores as usize } else { 1 }
    }

    /// Prepares a file for overwrites that go their own way, if the mount asks for them.
    pub(crate) fn share(&self, mut inode: Inode) -> Inode {
        if self.options.shares() && inode.raw.kind() == Some(FileKind::Regular) {
            let segments = Segments::new(inode.raw.size.get(), self.options.segments);
            inode.segments = Some(Box::new(segments));
            let cores = match inode.cores.take() {
                Some(cores) => cores.grow(self.log_count()),
                None => CoreLogs::new(self.log_count()),
            };
            inode.cores = Some(Box::new(cores));
        }
        inode
    }

    /// The inode in memory.
    pub(crate) fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        cores::charge(Stage::Inode);
        let node = self.inodes.get(ino, || {
            let inode = Inode::load(&*self.pm, &self.layout, ino)?;
            Ok(inode.map(|inode| self.share(inode)))
        });
        node.inspect_err(|error| {
            if error.errno() == Errno::UCLEAN {
                self.damaged.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        })
    }
}

/// Durably sets the volume's state.
fn mark(pm: &dyn Pm, state: u64) {
    use drive::pm::typed::{Obj, fence};
    enum State {}
    let word = Obj::<State>::settled(pm, STATE_AT, 8);
    let _set = fence(pm, word.store(0, &state.to_le_bytes()).write_back());
}

/// Whether the last unmount was clean.
pub(crate) fn is_clean(pm: &dyn Pm) -> bool {
    pm.load(STATE_AT) == CLEAN
}
