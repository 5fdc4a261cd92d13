//! F2FS as a version of Linux has it: `linux=3.8` … `linux=4.16` switch off what came later, and
//! `without=NAME` a single change, so that what each was worth can be measured.
//!
//! The rows are those of the study of F2FS's versions (its table 1), and the defaults that changed
//! along with them.

use std::fmt;
use std::str::FromStr;

use crate::mount::attributes::{Geometry, IpuPolicy, Knobs};
use crate::mount::options::{AllocationMode, MountOptions};

/// A version of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u16,
    minor: u16,
}

impl Version {
    const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// The first with F2FS, and the last whose changes are told apart.
    const OLDEST: Self = Self::new(3, 8);
    const NEWEST: Self = Self::new(4, 16);
    /// The last of the third series.
    const END_OF_3: Self = Self::new(3, 19);
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.');
        let parsed = parts.and_then(|(a, b)| Some(Self::new(a.parse().ok()?, b.parse().ok()?)));
        let exists = |version: &Self| version.major > 3 || *version <= Self::END_OF_3;
        let known = parsed.filter(|v| (Self::OLDEST..=Self::NEWEST).contains(v) && exists(v));
        known.ok_or_else(|| format!("a version from {} to {}", Self::OLDEST, Self::NEWEST))
    }
}

/// As in `mount -o`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether an attribute that came with Linux `since` is there in `version`. Ours always are.
pub(crate) fn has_attribute(version: Version, since: &str) -> bool {
    let Some((major, minor)) = since.split_once('.') else { return true };
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Version::new(major, minor) <= version,
        _ => true,
    }
}

/// A change of F2FS.
pub struct Patch {
    /// Its name.
    pub name: &'static str,
    /// The version that brought it.
    pub since: Version,
    /// What it is about: `read`, `write`, `gc` or `trim`.
    pub area: &'static str,
    /// How F2FS was before it.
    pub before: &'static str,
    /// The attributes that it brought, which cannot be set without it.
    pub attributes: &'static [&'static str],
    options: fn(&mut MountOptions),
    knobs: fn(&mut Knobs, &Geometry),
}

const fn patch(
    name: &'static str,
    since: (u16, u16),
    area: &'static str,
    before: &'static str,
) -> Patch {
    let since = Version::new(since.0, since.1);
    Patch { name, since, area, before, attributes: &[], options: |_| (), knobs: |_, _| () }
}

/// The changes that can be switched off, oldest first.
pub const PATCHES: [Patch; 19] = [
    Patch {
        knobs: |knobs, _| knobs.ra_node_pages = 0,
        ..patch("node_readahead", (3, 10), "read", "each node is read when it is needed")
    },
    Patch {
        attributes: &["gc_min_sleep_time", "gc_max_sleep_time", "gc_no_gc_sleep_time"],
        knobs: |knobs, _| {
            // GC_THREAD_MIN_SLEEP_TIME, GC_THREAD_MAX_SLEEP_TIME, GC_THREAD_NOGC_SLEEP_TIME.
            (knobs.gc_min_sleep_time, knobs.gc_max_sleep_time) = (30_000, 60_000);
            knobs.gc_no_gc_sleep_time = 300_000;
        },
        ..patch("gc_sleep_time", (3, 12), "gc", "the gc thread sleeps for 30 to 60 s, or for 300 s")
    },
    Patch {
        attributes: &["gc_idle"],
        ..patch("gc_idle", (3, 12), "gc", "victims of the gc thread are chosen by cost-benefit")
    },
    Patch {
        options: |options| options.inline_data = false,
        ..patch(
            "inline_data",
            (3, 14),
            "write",
            "the contents of small files have blocks of their own",
        )
    },
    Patch {
        attributes: &["ipu_policy", "min_ipu_util"],
        knobs: |knobs, _| knobs.ipu_policy = 0,
        ..patch("ipu_policy", (3, 14), "write", "nothing is overwritten in place")
    },
    Patch {
        attributes: &["max_small_discards"],
        ..patch(
            "max_small_discards",
            (3, 14),
            "trim",
            "of how many short runs the drive is told cannot be set",
        )
    },
    Patch {
        attributes: &["ram_thresh"],
        knobs: |knobs, _| knobs.ram_thresh = 1,
        ..patch("ram_thresh", (3, 15), "read", "how much memory tables may take cannot be set")
    },
    Patch {
        options: |options| options.flush_merge = false,
        ..patch("flush_merge", (3, 16), "write", "each fsync has a flush of its own")
    },
    Patch {
        knobs: |knobs, _| knobs.ipu_policy = 0,
        ..patch("ipu_fsync", (3, 18), "write", "nothing is overwritten in place by default")
    },
    Patch {
        options: |options| options.extent_cache = false,
        ..patch("extent_cache", (4, 1), "read", "each look-up of a block goes through the nodes")
    },
    Patch {
        knobs: |knobs, _| knobs.cp_interval = u64::MAX,
        ..patch("cp_interval", (4, 4), "write", "no checkpoint is written because time has passed")
    },
    Patch {
        options: |options| options.discard_waits = true,
        ..patch("async_discard", (4, 11), "trim", "a checkpoint tells the drive and waits for it")
    },
    Patch {
        knobs: |knobs, _| knobs.min_hot_blocks = 0,
        ..patch("hot_small_io", (4, 12), "write", "small writes go to the log of large ones")
    },
    Patch {
        knobs: |knobs, _| knobs.max_small_discards = 0,
        ..patch("small_discards", (4, 12), "trim", "the drive is told of whole segments only")
    },
    Patch {
        attributes: &["gc_urgent", "gc_urgent_sleep_time"],
        ..patch("gc_urgent", (4, 14), "gc", "the gc thread waits until the volume is idle")
    },
    Patch {
        knobs: |knobs, _| (knobs.discard_granularity, knobs.discard_idle_interval) = (1, 0),
        ..patch(
            "discard_granularity",
            (4, 14),
            "trim",
            "the drive is told of every run, idle or not",
        )
    },
    Patch {
        knobs: |knobs, _| knobs.min_ssr_sections = 1,
        ..patch(
            "min_ssr_sections",
            (4, 15),
            "write",
            "logs fill holes one section above the reserve",
        )
    },
    Patch {
        knobs: |knobs, volume| {
            if volume.mode() == AllocationMode::Adaptive && knobs.ipu_policy != 0 {
                knobs.ipu_policy = IpuPolicy::FSYNC.bits().into();
            }
            knobs.discard_granularity = knobs.discard_granularity.max(16);
        },
        ..patch("small_volumes", (4, 18), "write", "volumes up to 16 GiB are used like larger ones")
    },
    // Not a change of Linux: we clean later than it does.
    Patch {
        knobs: |knobs, volume| knobs.fg_gc_sections = volume.reserved_sections(),
        ..patch("late_gc", (u16::MAX, 0), "gc", "cleaning begins when only the reserve is left")
    },
];

/// The change with this name.
pub(crate) fn named(name: &str) -> Result<&'static Patch, String> {
    let found = PATCHES.iter().find(|patch| patch.name == name);
    found.ok_or_else(|| PATCHES.map(|patch| patch.name).join(", "))
}

/// The change without which an attribute cannot be set, if these options switch it off by name.
pub(crate) fn needed_for(attribute: &str, options: &MountOptions) -> Option<&'static str> {
    let without = PATCHES.iter().filter(|patch| options.without.contains(&patch.name));
    let mut without = without.filter(|patch| patch.attributes.contains(&attribute));
    without.next().map(|patch| patch.name)
}

/// Those that are switched off by these options.
fn switched_off(options: &MountOptions) -> impl Iterator<Item = &'static Patch> {
    let (linux, without) = (options.linux, options.without.clone());
    PATCHES.iter().rev().filter(move |patch| {
        linux.is_some_and(|linux| patch.since > linux) || without.contains(&patch.name)
    })
}

/// Switches off what the options say, as far as it is an option itself.
pub(crate) fn apply_to_options(options: &mut MountOptions) {
    for patch in switched_off(options).collect::<Vec<_>>() {
        (patch.options)(options);
    }
}

/// The same, as far as it is an attribute: the newest change first, as if time went back.
pub(crate) fn apply_to_knobs(options: &MountOptions, knobs: &mut Knobs, volume: &Geometry) {
    switched_off(options).for_each(|patch| (patch.knobs)(knobs, volume));
}
