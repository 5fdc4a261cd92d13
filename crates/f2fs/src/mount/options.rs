//! Mount options, under their names in `mount -t f2fs -o …`.

use std::fmt;
use std::str::FromStr;

use vfs::RootReserve;
use vfs::options::{
    Choice, MountOption, Options, Value, block_layer, parse_size, show_block_layer,
};

use crate::error::Error;
use crate::mount::attributes;
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

/// As in `mount -o`.
impl fmt::Display for FsyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Posix => "posix",
            Self::Strict => "strict",
            Self::Nobarrier => "nobarrier",
        })
    }
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

/// As in `mount -o`.
impl fmt::Display for AllocationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adaptive => "adaptive",
            Self::Lfs => "lfs",
        })
    }
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

/// As in `mount -o`.
impl fmt::Display for BackgroundGc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Sync => "sync",
        })
    }
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

/// As in `mount -o`.
impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Continue => "continue",
            Self::RemountRo => "remount-ro",
            Self::Panic => "panic",
        })
    }
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
        let mut ours = Vec::new();
        for given in list.split(',').filter(|given| !has_no_effect(given)) {
            for given in in_our_words(given) {
                match attributes::setting(&given) {
                    Some(setting) => options.settings.push(setting?),
                    None => ours.push(given),
                }
            }
        }
        // What was switched off can be switched on again by name.
        let (versions, others): (Vec<_>, Vec<_>) =
            ours.into_iter().partition(|given| names_version(given));
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
        let default = Self::default();
        f.write_str(if self.read_only { "ro" } else { "rw" })?;
        write!(f, ",fsync_mode={}", self.fsync_mode)?;
        let flags = [
            ("oprw", "nooprw", self.oprw, default.oprw),
            ("wp_check", "nowp_check", self.wp_check, default.wp_check),
            ("barrier", "nobarrier", self.barrier, default.barrier),
            ("flush_merge", "noflush_merge", self.flush_merge, default.flush_merge),
            ("roll_forward", "disable_roll_forward", self.roll_forward, default.roll_forward),
            ("atgc", "noatgc", self.atgc, default.atgc),
            ("hybrid", "nohybrid", self.hybrid, default.hybrid),
            ("discard", "nodiscard", self.discard, default.discard),
            ("extent_cache", "noextent_cache", self.extent_cache, default.extent_cache),
            ("inline_data", "noinline_data", self.inline_data, default.inline_data),
            ("inline_dentry", "noinline_dentry", self.inline_dentry, default.inline_dentry),
            ("inline_xattr", "noinline_xattr", self.inline_xattr, default.inline_xattr),
        ];
        for (on, off, is, usual) in flags {
            if is != usual {
                write!(f, ",{}", if is { on } else { off })?;
            }
        }
        let Self { mode, background_gc, errors, .. } = self;
        write!(f, ",mode={mode},background_gc={background_gc},errors={errors}")?;
        for (name, _) in QUOTAS.iter().zip(self.quota_limits).filter(|(_, limited)| *limited) {
            write!(f, ",{name}")?;
        }
        if let RootReserve { blocks: blocks @ 1.., uid, gid } = self.root_reserve {
            write!(f, ",reserve_root={blocks},resuid={uid},resgid={gid}")?;
        }
        if self.lookup_mode != default.lookup_mode {
            write!(f, ",lookup_mode={}", self.lookup_mode)?;
        }
        if let Some(range_lock) = self.range_lock {
            write!(f, ",range_lock={range_lock}")?;
        }
        if self.checkpoint_interval != default.checkpoint_interval {
            write!(f, ",checkpoint_interval={}", self.checkpoint_interval)?;
        }
        if self.cache_bytes != default.cache_bytes {
            write!(f, ",cache={}", self.cache_bytes)?;
        }
        if let Some(linux) = self.linux {
            write!(f, ",linux={linux}")?;
        }
        if !self.without.is_empty() {
            write!(f, ",without={}", self.without.join("+"))?;
        }
        self.settings.iter().try_for_each(|(name, value)| write!(f, ",{name}={value}"))?;
        show_block_layer(&self.queue).fmt(f)?;
        let faults =
            self.inject.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-"));
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() { Ok(()) } else { write!(f, ",inject={}", faults.join("+")) }
    }
}

type Opt = MountOption<MountOptions>;
type Chosen = Choice<MountOptions>;

const fn flag(name: &'static str, set: fn(&mut MountOptions)) -> Opt {
    Opt { name, value: Value::None { set } }
}

type SetText = fn(&mut MountOptions, &str) -> Result<(), String>;

const fn text(name: &'static str, form: &'static str, set: SetText) -> Opt {
    Opt { name, value: Value::Text { form, set } }
}

const fn choice(name: &'static str, set: fn(&mut MountOptions)) -> Chosen {
    Chosen { name, set }
}

const OPTIONS: Options<MountOptions> = Options {
    of: "f2fs",
    table: &[
        flag("ro", |o| o.read_only = true),
        flag("rw", |o| o.read_only = false),
        MountOption { name: "fsync_mode", value: Value::OneOf(&FSYNC_MODES) },
        flag("oprw", |o| o.oprw = true),
        flag("nooprw", |o| o.oprw = false),
        flag("wp_check", |o| o.wp_check = true),
        flag("nowp_check", |o| o.wp_check = false),
        flag("barrier", |o| o.barrier = true),
        flag("nobarrier", |o| o.barrier = false),
        flag("flush_merge", |o| o.flush_merge = true),
        flag("noflush_merge", |o| o.flush_merge = false),
        MountOption { name: "mode", value: Value::OneOf(&ALLOCATION_MODES) },
        flag("disable_roll_forward", |o| o.roll_forward = false),
        flag("norecovery", |o| o.roll_forward = false),
        MountOption { name: "background_gc", value: Value::OneOf(&BACKGROUND_GC) },
        MountOption { name: "errors", value: Value::OneOf(&ON_ERROR) },
        MountOption { name: "lookup_mode", value: Value::OneOf(&LOOKUP_MODES) },
        flag("atgc", |o| o.atgc = true),
        flag("noatgc", |o| o.atgc = false),
        text("checkpoint_interval", "SECONDS", set_checkpoint_interval),
        flag("hybrid", |o| o.hybrid = true),
        flag("nohybrid", |o| o.hybrid = false),
        MountOption { name: "range_lock", value: Value::OneOf(&RANGE_LOCKS) },
        flag("discard", |o| o.discard = true),
        flag("nodiscard", |o| o.discard = false),
        flag("extent_cache", |o| o.extent_cache = true),
        flag("noextent_cache", |o| o.extent_cache = false),
        flag("inline_data", |o| o.inline_data = true),
        flag("noinline_data", |o| o.inline_data = false),
        flag("inline_dentry", |o| o.inline_dentry = true),
        flag("noinline_dentry", |o| o.inline_dentry = false),
        flag("inline_xattr", |o| o.inline_xattr = true),
        flag("noinline_xattr", |o| o.inline_xattr = false),
        flag("quota", |o| o.quota_limits[0] = true),
        flag(QUOTAS[0], |o| o.quota_limits[0] = true),
        flag(QUOTAS[1], |o| o.quota_limits[1] = true),
        flag(QUOTAS[2], |o| o.quota_limits[2] = true),
        flag("noquota", |o| o.quota_limits = [false; 3]),
        text("reserve_root", "BLOCKS", |o, text| number(text, &mut o.root_reserve.blocks)),
        text("resuid", "UID", |o, text| number(text, &mut o.root_reserve.uid)),
        text("resgid", "GID", |o, text| number(text, &mut o.root_reserve.gid)),
        text("cache", "BYTES", set_cache),
        text("linux", "VERSION", set_linux),
        text("without", "NAME[+NAME...]", set_without),
        text("inject", "NAME[+NAME...]", set_inject),
    ],
    block_layer: block_layer(),
};

/// By the number of their [`crate::ondisk::quota::QuotaType`].
const QUOTAS: [&str; 3] = ["usrquota", "grpquota", "prjquota"];

const FSYNC_MODES: [Chosen; 3] = [
    choice("posix", |o| o.fsync_mode = FsyncMode::Posix),
    choice("strict", |o| o.fsync_mode = FsyncMode::Strict),
    choice("nobarrier", |o| o.fsync_mode = FsyncMode::Nobarrier),
];

const ALLOCATION_MODES: [Chosen; 2] = [
    choice("adaptive", |o| o.mode = AllocationMode::Adaptive),
    choice("lfs", |o| o.mode = AllocationMode::Lfs),
];

const BACKGROUND_GC: [Chosen; 3] = [
    choice("on", |o| o.background_gc = BackgroundGc::On),
    choice("off", |o| o.background_gc = BackgroundGc::Off),
    choice("sync", |o| o.background_gc = BackgroundGc::Sync),
];

const ON_ERROR: [Chosen; 3] = [
    choice("continue", |o| o.errors = OnError::Continue),
    choice("remount-ro", |o| o.errors = OnError::RemountRo),
    choice("panic", |o| o.errors = OnError::Panic),
];

const RANGE_LOCKS: [Chosen; 2] = [
    choice("inode", |o| o.range_lock = Some(RangeLock::Inode)),
    choice("page", |o| o.range_lock = Some(RangeLock::Page)),
];

const LOOKUP_MODES: [Chosen; 3] = [
    choice("auto", |o| o.lookup_mode = LookupMode::Auto),
    choice("perf", |o| o.lookup_mode = LookupMode::Perf),
    choice("compat", |o| o.lookup_mode = LookupMode::Compat),
];

fn set_checkpoint_interval(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    options.checkpoint_interval = seconds.ok_or("seconds, at least 1")?;
    Ok(())
}

/// Sets `to` to the number that `text` is.
fn number<T: FromStr>(text: &str, to: &mut T) -> Result<(), String> {
    *to = text.parse().map_err(|_| "a number")?;
    Ok(())
}

fn set_cache(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let bytes = parse_size(text).filter(|bytes| *bytes >= CACHE_BYTES_MIN);
    options.cache_bytes = bytes.ok_or("at least 1m, with k, m or g")?;
    Ok(())
}

/// Whether an option switches several others.
fn names_version(given: &str) -> bool {
    ["linux=", "without="].iter().any(|name| given.starts_with(name))
}

fn set_linux(options: &mut MountOptions, version: &str) -> Result<(), String> {
    options.linux = Some(version.parse()?);
    Ok(())
}

fn set_without(options: &mut MountOptions, names: &str) -> Result<(), String> {
    for name in names.split('+') {
        options.without.push(versions::named(name)?.name);
    }
    Ok(())
}

fn set_inject(options: &mut MountOptions, names: &str) -> Result<(), String> {
    for name in names.split('+') {
        options.inject |= Inject::named(name).ok_or_else(|| Inject::names().join(", "))?;
    }
    Ok(())
}

/// Smallest page cache that still holds all pages of one operation.
const CACHE_BYTES_MIN: u64 = 1 << 20;

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
