//! Mount options, under the names `mount -t f2fs -o …` knows them by.

use std::str::FromStr;

use bitflags::bitflags;

use crate::error::Error;

/// `fsync_mode=`: what an fsync does beyond writing data and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncMode {
    /// One flush at the end. Durable on return; on a drive with a volatile cache a cut *during* an
    /// overwrite's fsync may keep the node and lose the data it points to.
    #[default]
    Posix,
    /// An fsync is recovered whole, or the file is as its last fsync or the last checkpoint had it
    /// ([`crate::fsync::Plan::atomic`]). A flush before and after the nodes; with `oprw`
    /// one at the end.
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
    /// Only whole free segments; the one mode zoned drives can have.
    Lfs,
}

/// `background_gc=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundGc {
    /// Cost-benefit cleaning when asked for by [`crate::F2fs::background_gc`].
    #[default]
    On,
    /// Only when space runs out.
    Off,
    /// As `On`, but choosing victims as when space has run out.
    Sync,
}

/// `errors=`: what a failed write of the volume leads to. In each case nothing more is written.
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

bitflags! {
    /// Deliberate faults. Each breaks one promise so that a campaign can show that it would notice.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Inject: u32 {
        /// fsync ends without its flush.
        const DROP_FLUSH = 1;
        /// Strict leaves out the flush between data and nodes, as Linux 6.3 does on zones.
        const DROP_PREFLUSH = 2;
        /// Recovery believes every pointer, as with `nowp_check`.
        const SKIP_WP_CHECK = 4;
        /// New inodes are not marked for dentry recovery.
        const DROP_DENT_MARK = 8;
        /// The checkpoint's last block is written without flush or FUA.
        const PLAIN_CHECKPOINT = 16;
        /// Roll-forward does nothing.
        const SKIP_ROLL_FORWARD = 32;
        /// Strict marks every node of an fsync, not the last one only.
        const MARK_EVERY_NODE = 64;
        /// fsync does not wait for the nodes ahead of its own.
        const NO_CHAIN_ORDER = 128;
        /// Two fsyncs of one file run at once.
        const NO_TURN = 256;
        /// What an fsync has to do is decided when it begins, and not again.
        const DECIDE_ONCE = 512;
        /// The checkpoint's last block does not wait for what other threads have submitted.
        const EARLY_TAIL = 1024;
        /// No fault: recovery reads the chain one block at a time.
        const RECOVER_NO_READ_AHEAD = 2048;
        /// No fault: recovery applies every version of a node, as Linux does, not the last only.
        const RECOVER_EVERY_VERSION = 4096;
        /// Recovery believes nodes that a cut has torn.
        const BELIEVE_TORN = 8192;
    }
}

/// The faults by the names the command line uses.
const INJECT_NAMES: [(&str, Inject); 14] = [
    ("drop-flush", Inject::DROP_FLUSH),
    ("drop-preflush", Inject::DROP_PREFLUSH),
    ("skip-wp-check", Inject::SKIP_WP_CHECK),
    ("drop-dent-mark", Inject::DROP_DENT_MARK),
    ("plain-checkpoint", Inject::PLAIN_CHECKPOINT),
    ("skip-roll-forward", Inject::SKIP_ROLL_FORWARD),
    ("mark-every-node", Inject::MARK_EVERY_NODE),
    ("no-chain-order", Inject::NO_CHAIN_ORDER),
    ("no-turn", Inject::NO_TURN),
    ("decide-once", Inject::DECIDE_ONCE),
    ("early-tail", Inject::EARLY_TAIL),
    ("recover-no-read-ahead", Inject::RECOVER_NO_READ_AHEAD),
    ("recover-every-version", Inject::RECOVER_EVERY_VERSION),
    ("believe-torn", Inject::BELIEVE_TORN),
];

impl FromStr for Inject {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self, Error> {
        INJECT_NAMES.iter().find(|(n, _)| *n == name).map(|(_, fault)| *fault).ok_or_else(|| {
            let known: Vec<_> = INJECT_NAMES.iter().map(|(n, _)| *n).collect();
            Error::usage(format!("inject={name}: known faults are {}", known.join(", ")))
        })
    }
}

/// How a volume is mounted. `Default` is what Linux does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing is changed, except that recovery still happens unless switched off.
    pub read_only: bool,
    /// `fsync_mode=posix|strict|nobarrier`.
    pub fsync_mode: FsyncMode,
    /// `oprw`: fsync no longer waits between data and nodes, for recovery judges data by the
    /// zones' write pointers (thesis §5). With `fsync_mode=strict` it is atomic all the same, and
    /// does without write pointers.
    pub oprw: bool,
    /// Cleared by `nowp_check`: recovery believes every pointer, as Linux's does. What was fsynced
    /// under `oprw` needs the check, whoever mounts the volume after the cut.
    pub wp_check: bool,
    /// Cleared by `nobarrier`: no flushes anywhere.
    pub barrier: bool,
    /// `flush_merge`/`noflush_merge`: fsyncs that wait for a flush at the same time share one.
    pub flush_merge: bool,
    /// `mode=adaptive|lfs`; zoned drives are always `lfs`.
    pub mode: AllocationMode,
    /// Cleared by `disable_roll_forward` and `norecovery`.
    pub roll_forward: bool,
    /// `background_gc=on|off|sync`.
    pub background_gc: BackgroundGc,
    /// `checkpoint_interval=SECONDS`: what `cp_interval` is at first.
    pub checkpoint_interval: u64,
    /// `errors=continue|remount-ro|panic`.
    pub errors: OnError,
    /// `discard`/`nodiscard`.
    pub discard: bool,
    /// `inline_data`/`noinline_data`: small files inside their inode.
    pub inline_data: bool,
    /// `inline_dentry`/`noinline_dentry`: small directories inside their inode.
    pub inline_dentry: bool,
    /// `inline_xattr`/`noinline_xattr`: room for attributes inside new inodes.
    pub inline_xattr: bool,
    /// `cache=BYTES` (with k, m, g): page cache limit. The node cache may use a quarter of it.
    pub cache_bytes: u64,
    /// `inject=NAME[+NAME…]`.
    pub inject: Inject,
    /// What the clock says for as long as the volume is mounted; `None` asks the machine. For
    /// images that have to come out the same every time.
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
            checkpoint_interval: 60,
            errors: OnError::Continue,
            discard: true,
            inline_data: true,
            inline_dentry: true,
            inline_xattr: true,
            cache_bytes: 256 << 20,
            inject: Inject::empty(),
            frozen_time: None,
        }
    }
}

impl FromStr for MountOptions {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        for option in list.split(',').filter(|o| !o.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            options.set(name, value)?;
        }
        Ok(options)
    }
}

impl MountOptions {
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Error> {
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("fsync_mode", Some("posix")) => self.fsync_mode = FsyncMode::Posix,
            ("fsync_mode", Some("strict")) => self.fsync_mode = FsyncMode::Strict,
            ("fsync_mode", Some("nobarrier")) => self.fsync_mode = FsyncMode::Nobarrier,
            ("oprw", None) => self.oprw = true,
            ("nooprw", None) => self.oprw = false,
            ("wp_check", None) => self.wp_check = true,
            ("nowp_check", None) => self.wp_check = false,
            ("barrier", None) => self.barrier = true,
            ("nobarrier", None) => self.barrier = false,
            ("flush_merge", None) => self.flush_merge = true,
            ("noflush_merge", None) => self.flush_merge = false,
            ("mode", Some("adaptive")) => self.mode = AllocationMode::Adaptive,
            ("mode", Some("lfs")) => self.mode = AllocationMode::Lfs,
            ("disable_roll_forward" | "norecovery", None) => self.roll_forward = false,
            ("background_gc", Some("on")) => self.background_gc = BackgroundGc::On,
            ("background_gc", Some("off")) => self.background_gc = BackgroundGc::Off,
            ("errors", Some("continue")) => self.errors = OnError::Continue,
            ("errors", Some("remount-ro")) => self.errors = OnError::RemountRo,
            ("errors", Some("panic")) => self.errors = OnError::Panic,
            ("background_gc", Some("sync")) => self.background_gc = BackgroundGc::Sync,
            ("checkpoint_interval", Some(text)) => {
                let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
                self.checkpoint_interval = seconds.ok_or_else(|| {
                    Error::usage(format!("checkpoint_interval={text}: want seconds, at least 1"))
                })?;
            }
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("inline_data", None) => self.inline_data = true,
            ("noinline_data", None) => self.inline_data = false,
            ("inline_dentry", None) => self.inline_dentry = true,
            ("noinline_dentry", None) => self.inline_dentry = false,
            ("inline_xattr", None) => self.inline_xattr = true,
            ("noinline_xattr", None) => self.inline_xattr = false,
            ("cache", Some(size)) => self.cache_bytes = parse_size(size)?,
            ("inject", Some(names)) => {
                for name in names.split('+') {
                    self.inject |= name.parse()?;
                }
            }
            _ => {
                let given = value.map_or_else(|| name.to_owned(), |v| format!("{name}={v}"));
                return Err(Error::usage(format!("{given}: not a mount option of f2fs")));
            }
        }
        Ok(())
    }
}

/// Smallest page cache that still holds what one operation touches.
const CACHE_BYTES_MIN: u64 = 1 << 20;

fn parse_size(text: &str) -> Result<u64, Error> {
    let wrong = || Error::usage(format!("cache={text}: want at least 1m, with k, m or g"));
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes >= CACHE_BYTES_MIN).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_as_mount_takes_them() {
        let o: MountOptions =
            "ro,fsync_mode=strict,oprw,cache=8m,inject=drop-flush+skip-wp-check".parse().unwrap();
        assert!(o.read_only && o.oprw && o.fsync_mode == FsyncMode::Strict);
        assert_eq!(o.cache_bytes, 8 << 20);
        assert_eq!(o.inject, Inject::DROP_FLUSH | Inject::SKIP_WP_CHECK);
    }

    #[test]
    fn unknown_options_are_named() {
        for bad in ["fsync_mode=never", "cache=9x", "cache=99999999999g", "inject=x", "oprw=1"] {
            assert!(bad.parse::<MountOptions>().is_err(), "{bad}");
        }
    }
}
