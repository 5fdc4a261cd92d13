//! Mount options, under their names in `mount -t f2fs -o …`.

use std::fmt;
use std::str::FromStr;

use vfs::RootReserve;
use vfs::options::{BlockLayer, Options, fault_names, put_number, set_faults, show_some};

use crate::error::Error;
use crate::mount::attributes::{self, Settings};
pub use crate::mount::inject::Inject;
use crate::mount::linux_options::{LookupMode, has_no_effect, in_our_words};
use crate::mount::range_lock::RangeLock;
use crate::mount::versions::{self, Version};

/// `fsync_mode=`: what an fsync does beyond writing data and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncMode {
    /// One flush at the end. Durable on return. On a drive with a volatile cache, a cut *during*
    /// the fsync of an overwrite may keep the node and lose the data it points to.
    #[default]
    Posix,
    /// An fsync is recovered whole, or else the file is as its last fsync or the last checkpoint
    /// left it ([`crate::fsync::Plan::atomic`]). A flush before and after the nodes; with `oprw`
    /// only one, at the end.
    Strict,
    /// No flush at all: for drives that cannot lose what they have acknowledged.
    Nobarrier,
}

/// `mode=`: where new blocks may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationMode {
    /// Whole free segments first; free slots of used ones (SSR) when space runs low.
    #[default]
    Adaptive,
    /// Only whole free segments. Zoned drives allow nothing else.
    Lfs,
}

/// `background_gc=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundGc {
    /// Cost-benefit cleaning, when [`crate::F2fs::background_gc`] asks for it.
    #[default]
    On,
    /// Only when space runs out.
    Off,
    /// As `On`, but victims are chosen as when space has run out.
    Sync,
}

/// `errors=`: what happens after a failed write. In each case nothing more is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Changes fail with `EIO`, reads go on.
    #[default]
    Continue,
    /// Changes fail with `EROFS`, reads go on.
    RemountRo,
    /// The process aborts.
    Panic,
}

/// How a volume is mounted. `Default` is what Linux does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing can be changed. Recovery still happens, unless switched off.
    pub read_only: bool,
    /// `fsync_mode=posix|strict|nobarrier`.
    pub fsync_mode: FsyncMode,
    /// `oprw`: fsync no longer waits between data and nodes, because recovery judges data by the
    /// zones' write pointers (thesis §5). With `fsync_mode=strict` an fsync is still atomic, and
    /// does not need write pointers.
    pub oprw: bool,
    /// Cleared by `nowp_check`: recovery believes every pointer, as Linux's does. Fsyncs made under
    /// `oprw` need the check at the first mount after the cut, whatever the mode of that mount.
    pub wp_check: bool,
    /// Cleared by `nobarrier`: nothing ever flushes.
    pub barrier: bool,
    /// `flush_merge`/`noflush_merge`: fsyncs that wait for a flush at the same time share one.
    pub flush_merge: bool,
    /// `mode=adaptive|lfs`; zoned drives are always `lfs`.
    pub mode: AllocationMode,
    /// Cleared by `disable_roll_forward` and `norecovery`.
    pub roll_forward: bool,
    /// `background_gc=on|off|sync`.
    pub background_gc: BackgroundGc,
    /// `atgc`/`noatgc`: cleaned by age, if the volume is at least `atgc_age_threshold` old.
    pub atgc: bool,
    /// `checkpoint_interval=SECONDS`: the first value of `cp_interval`.
    pub checkpoint_interval: u64,
    /// `errors=continue|remount-ro|panic`.
    pub errors: OnError,
    /// `lookup_mode=auto|perf|compat`.
    pub lookup_mode: LookupMode,
    /// `hybrid`/`nohybrid`: nodes on the first device, data on the others (hybridF2FS).
    pub hybrid: bool,
    /// `range_lock=inode|page`; `None` is `page` with `hybrid`, and `inode` without.
    pub range_lock: Option<RangeLock>,
    /// `discard`/`nodiscard`.
    pub discard: bool,
    /// `extent_cache`/`noextent_cache`: where runs of blocks are is kept in memory.
    pub extent_cache: bool,
    /// `inline_data`/`noinline_data`: small files inside their inode.
    pub inline_data: bool,
    /// `inline_dentry`/`noinline_dentry`: small directories inside their inode.
    pub inline_dentry: bool,
    /// `inline_xattr`/`noinline_xattr`: room for attributes inside new inodes.
    pub inline_xattr: bool,
    /// `usrquota`, `grpquota`, `prjquota`: the limits of owners, groups and projects count. What
    /// they use is always kept, if the volume has quota files.
    pub quota_limits: [bool; 3],
    /// `reserve_root=BLOCKS`, `resuid=UID`, `resgid=GID`: free blocks for root and these.
    pub root_reserve: RootReserve,
    /// `cache=BYTES` (with k, m, g): page cache limit. Nodes may use another quarter of it, nodes
    /// that wait for a checkpoint a half (at least 4 MiB, at most 64), and the indexes of large
    /// directories an eighth.
    pub cache_bytes: u64,
    /// `sched=none|mq-deadline`, `zone_order=lock|plug`, `nr_requests=N`, `nr_hw_queues=N`, `poll`:
    /// the block layer.
    pub queue: queue::Options,
    /// `inject=NAME[+NAME…]`.
    pub inject: Inject,
    /// `linux=VERSION`: without what came to F2FS after this version of Linux.
    pub linux: Option<Version>,
    /// `without=NAME[+NAME…]`: without these changes of F2FS ([`versions::PATCHES`]).
    pub without: Vec<&'static str>,
    /// A checkpoint waits until the drive has been told what it freed.
    pub(crate) discard_waits: bool,
    /// `NAME=VALUE` of attributes that can be set on a mounted volume, too ([`crate::Knobs`]).
    pub settings: Vec<(&'static str, u64)>,
    /// The time of day for as long as the volume is mounted; `None` asks the machine. For images
    /// that must come out the same every time.
    pub frozen_time: Option<vfs::Timespec>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            fsync_mode: FsyncMode::Posix,
            oprw: false,
            wp_check: true,
            barrier: true,
            flush_merge: true,
            mode: AllocationMode::Adaptive,
            roll_forward: true,
            background_gc: BackgroundGc::On,
            atgc: false,
            checkpoint_interval: 60,
            errors: OnError::Continue,
            lookup_mode: LookupMode::Auto,
            discard: true,
            hybrid: false,
            range_lock: None,
            extent_cache: true,
            inline_data: true,
            inline_dentry: true,
            inline_xattr: true,
            quota_limits: [false; 3],
            root_reserve: RootReserve::default(),
            cache_bytes: 256 << 20,
            queue: queue::Options::default(),
            inject: Inject::empty(),
            linux: None,
            without: Vec::new(),
            discard_waits: false,
            settings: Vec::new(),
            frozen_time: None,
        }
    }
}

impl AsMut<queue::Options> for MountOptions {
    fn as_mut(&mut self) -> &mut queue::Options {
        &mut self.queue
    }
}

impl FromStr for MountOptions {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        let ours = list.split(',').filter(|given| !has_no_effect(given)).flat_map(in_our_words);
        // What was switched off can be switched on again by name.
        let (versions, others): (Vec<_>, Vec<_>) = ours.partition(|given| names_version(given));
        OPTIONS.set_list(&mut options, &versions.join(","))?;
        versions::apply_to_options(&mut options);
        OPTIONS.set_list(&mut options, &others.join(","))?;
        attributes::check_known(options.settings.iter().map(|(name, _)| *name), &options)?;
        Ok(options)
    }
}

/// As the kernel would show them in `/proc/mounts`: whatever differs from the defaults, and always
/// the modes.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&OPTIONS.show(self))
    }
}

type Row<V> = vfs::options::Row<MountOptions, V>;

const OPTIONS: Options<MountOptions> = Options {
    of: "f2fs",
    table: &[
        &Row::words(&[("ro", true), ("rw", false)], |o| &mut o.read_only).shown_if(|_| true),
        &Row::one_of("fsync_mode", FSYNC_MODES, |o| &mut o.fsync_mode).shown_if(|_| true),
        &Row::words(&[("oprw", true), ("nooprw", false)], |o| &mut o.oprw),
        &Row::words(&[("wp_check", true), ("nowp_check", false)], |o| &mut o.wp_check),
        &Row::words(&[("barrier", true), ("nobarrier", false)], |o| &mut o.barrier),
        &Row::words(&[("flush_merge", true), ("noflush_merge", false)], |o| &mut o.flush_merge),
        &Row::words(&[("disable_roll_forward", false), ("norecovery", false)], |o| {
            &mut o.roll_forward
        }),
        &Row::words(&[("atgc", true), ("noatgc", false)], |o| &mut o.atgc),
        &Row::words(&[("hybrid", true), ("nohybrid", false)], |o| &mut o.hybrid),
        &Row::words(&[("discard", true), ("nodiscard", false)], |o| &mut o.discard),
        &Row::words(&[("extent_cache", true), ("noextent_cache", false)], |o| &mut o.extent_cache),
        &Row::words(&[("inline_data", true), ("noinline_data", false)], |o| &mut o.inline_data),
        &Row::words(&[("inline_dentry", true), ("noinline_dentry", false)], |o| {
            &mut o.inline_dentry
        }),
        &Row::words(&[("inline_xattr", true), ("noinline_xattr", false)], |o| &mut o.inline_xattr),
        &Row::one_of("mode", ALLOCATION_MODES, |o| &mut o.mode).shown_if(|_| true),
        &Row::one_of("background_gc", BACKGROUND_GC, |o| &mut o.background_gc).shown_if(|_| true),
        &Row::one_of("errors", ON_ERROR, |o| &mut o.errors).shown_if(|_| true),
        // By the number of their [`crate::ondisk::quota::QuotaType`].
        &Row::words(&[("usrquota", true), ("quota", true)], |o| &mut o.quota_limits[0]),
        &Row::words(&[("grpquota", true)], |o| &mut o.quota_limits[1]),
        &Row::words(&[("prjquota", true)], |o| &mut o.quota_limits[2]),
        &Row::words(&[("noquota", [false; 3])], |o| &mut o.quota_limits),
        &Row::text("reserve_root", "BLOCKS", set_number, u64::to_string, |o| {
            &mut o.root_reserve.blocks
        }),
        &Row::text("resuid", "UID", set_number, u32::to_string, |o| &mut o.root_reserve.uid)
            .shown_if(|o| o.root_reserve.blocks > 0),
        &Row::text("resgid", "GID", set_number, u32::to_string, |o| &mut o.root_reserve.gid)
            .shown_if(|o| o.root_reserve.blocks > 0),
        &Row::one_of("lookup_mode", LOOKUP_MODES, |o| &mut o.lookup_mode),
        &Row::one_of("range_lock", RANGE_LOCKS, |o| &mut o.range_lock),
        &Row::text("checkpoint_interval", "SECONDS", set_seconds, u64::to_string, |o| {
            &mut o.checkpoint_interval
        }),
        &Row::cache(|o| &mut o.cache_bytes),
        &Row::text("linux", "VERSION", set_linux, show_some, |o| &mut o.linux),
        &Row::text(
            "without",
            "NAME[+NAME...]",
            set_without,
            |all| all.join("+"),
            |o| &mut o.without,
        ),
        &Settings,
        &BlockLayer,
        &Row::text(
            "inject",
            "NAME[+NAME...]",
            set_inject,
            |all| fault_names(all).join("+"),
            |o| &mut o.inject,
        ),
    ],
};

const FSYNC_MODES: &[(&str, FsyncMode)] = &[
    ("posix", FsyncMode::Posix),
    ("strict", FsyncMode::Strict),
    ("nobarrier", FsyncMode::Nobarrier),
];

const ALLOCATION_MODES: &[(&str, AllocationMode)] =
    &[("adaptive", AllocationMode::Adaptive), ("lfs", AllocationMode::Lfs)];

const BACKGROUND_GC: &[(&str, BackgroundGc)] =
    &[("on", BackgroundGc::On), ("off", BackgroundGc::Off), ("sync", BackgroundGc::Sync)];

const ON_ERROR: &[(&str, OnError)] = &[
    ("continue", OnError::Continue),
    ("remount-ro", OnError::RemountRo),
    ("panic", OnError::Panic),
];

const RANGE_LOCKS: &[(&str, Option<RangeLock>)] =
    &[("inode", Some(RangeLock::Inode)), ("page", Some(RangeLock::Page))];

const LOOKUP_MODES: &[(&str, LookupMode)] =
    &[("auto", LookupMode::Auto), ("perf", LookupMode::Perf), ("compat", LookupMode::Compat)];

fn set_seconds(to: &mut u64, text: &str) -> Result<(), String> {
    put_number(to, text, 1.., "seconds, at least 1")
}

fn set_number<N: FromStr + PartialOrd>(to: &mut N, text: &str) -> Result<(), String> {
    put_number(to, text, .., "a number")
}

/// Whether an option switches several others.
fn names_version(given: &str) -> bool {
    ["linux=", "without="].iter().any(|name| given.starts_with(name))
}

fn set_linux(to: &mut Option<Version>, version: &str) -> Result<(), String> {
    *to = Some(version.parse()?);
    Ok(())
}

fn set_without(to: &mut Vec<&'static str>, names: &str) -> Result<(), String> {
    for name in names.split('+') {
        to.push(versions::named(name)?.name);
    }
    Ok(())
}

fn set_inject(to: &mut Inject, names: &str) -> Result<(), String> {
    let all_known = names.split('+').all(|name| set_faults(to, name));
    if all_known { Ok(()) } else { Err(fault_names(&Inject::all()).join(", ")) }
}

#[cfg(test)]
mod tests {
    use queue::Scheduler;

    use super::*;

    #[test]
    fn options_as_mount_takes_them() {
        let o: MountOptions =
            "ro,fsync_mode=strict,oprw,cache=8m,inject=drop-flush+skip-wp-check".parse().unwrap();
        assert!(o.read_only && o.oprw && o.fsync_mode == FsyncMode::Strict);
        assert_eq!(o.cache_bytes, 8 << 20);
        assert_eq!(o.inject, Inject::DROP_FLUSH | Inject::SKIP_WP_CHECK);
        let list = "sched=mq-deadline,zone_order=lock,nr_requests=4,nr_hw_queues=1,poll";
        let o: MountOptions = list.parse().unwrap();
        assert!(o.queue.polled && o.queue.scheduler == Scheduler::MqDeadline);
        assert_eq!((o.queue.nr_requests, o.queue.nr_hw_queues), (Some(4), Some(1)));
        assert!(o.to_string().ends_with(list), "{o}");
    }

    /// Of every row.
    #[test]
    fn what_is_shown_sets_the_same() {
        for (name, form) in OPTIONS.table.iter().flat_map(|row| row.forms()) {
            let numbers = || (0..=1).map(|number| format!("{name}={number}"));
            let parses = |given: &String| given.parse::<MountOptions>().is_ok();
            let given = match form {
                Some("N" | "UID" | "GID" | "BLOCKS" | "SECONDS") => format!("{name}=7"),
                Some("NUMBER") => numbers().find(parses).unwrap_or_else(|| panic!("{name}")),
                Some("BYTES") => format!("{name}=8m"),
                Some("VERSION") => format!("{name}=3.14"),
                Some("NAME[+NAME...]") if name == "without" => {
                    format!("{name}=inline_data+gc_idle")
                }
                Some("NAME[+NAME...]") => format!("{name}=drop-flush+trust-reads"),
                Some(value) => format!("{name}={value}"),
                None => name.to_owned(),
            };
            for before in ["", "reserve_root=1,", "hybrid,noatgc,nobarrier,"] {
                if name.starts_with("res") && before != "reserve_root=1," {
                    // Without a reserve, it does not matter whose it is.
                    continue;
                }
                let options: MountOptions = format!("{before}{given}").parse().unwrap();
                let again: MountOptions = options.to_string().parse().unwrap();
                assert_eq!(again, options, "{before}{given}: {options}");
            }
        }
    }

    #[test]
    fn unknown_options_are_named() {
        for bad in ["cache=9x", "cache=99999999999g", "inject=x", "oprw=1", "sched=bfq"] {
            assert!(bad.parse::<MountOptions>().is_err(), "{bad}");
        }
        let error = "ro,fsync_mode=foo".parse::<MountOptions>().unwrap_err();
        let said = "fsync_mode=foo: unknown value; expected posix, strict or nobarrier";
        assert_eq!(error.to_string(), said);
        for bad in ["nr_requests=0", "nr_requests=65536", "nr_hw_queues=-1", "nr_hw_queues="] {
            let error = bad.parse::<MountOptions>().unwrap_err();
            let said = format!("{bad}: unknown value; expected a number from 1 to 65535");
            assert_eq!(error.to_string(), said);
        }
    }
}
