//! The options of mount(8) that every file system has. Others are left to the file system that is
//! mounted.

use rustix::mount::MountFlags;

use crate::atime::{Atime, AtimePolicy};
use crate::server::Behaviour;

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`.
    pub read_only: bool,
    /// `noatime`, `relatime`, `strictatime`.
    pub atime: Atime,
    /// `allow_other`; root's mounts have it unless `noallow_other` is given.
    pub allow_other: Option<bool>,
    /// `writeback`: the kernel collects writes, so it may take longer until a write(2) without
    /// fsync is safe.
    pub writeback: bool,
    /// Cleared by `noacl`.
    pub acl: bool,
    /// `threads=N`; if not given, as many as suit the machine.
    pub threads: Option<usize>,
    /// `busy_poll=USEC`: how long a thread that has answered looks for the next request before it
    /// sleeps. If not given, 20 where waking another CPU is dear, and otherwise 0.
    pub busy_poll: Option<u32>,
    /// `io_uring`: requests come over rings, if the kernel offers that.
    pub io_uring: bool,
    /// The volume may change under the mount: the kernel asks again for every name and attribute,
    /// and keeps contents only while a file is open ([`crate::KernelCache`]).
    pub uncached: bool,
    nodiratime: bool,
    flags: MountFlags,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            atime: Atime::default(),
            allow_other: None,
            writeback: false,
            acl: true,
            threads: None,
            busy_poll: None,
            io_uring: false,
            uncached: false,
            nodiratime: false,
            flags: MountFlags::empty(),
        }
    }
}

/// The most microseconds of `busy_poll`.
const BUSY_POLL_MAX: u32 = 10_000;

/// Options that mount(8) handles itself, but may still pass to a helper.
const FOR_MOUNT: [&str; 20] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "silent",
    "loud",
    "default_permissions",
    "async",
    "norelatime",
    "nostrictatime",
    "nolazytime",
    "iversion",
];

/// Options with a value that mean nothing here: a comment, and what mount tables show of a mount
/// and mount(8) passes back on a remount.
const OF_MOUNTED: [&str; 7] =
    ["comment", "user_id", "group_id", "max_read", "blksize", "subtype", "fsname"];

/// Options that set or clear a flag of mount(2).
const FLAGS: [(&str, MountFlags, bool); 14] = [
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("noatime", MountFlags::NOATIME, true),
];

impl MountOptions {
    /// The defaults, with so many threads.
    pub fn with_threads(threads: usize) -> Self {
        Self { threads: Some(threads), ..Self::default() }
    }

    /// Takes the options that it knows from a comma-separated `list`, and returns the others.
    ///
    /// # Errors
    ///
    /// One line naming the option that makes no sense.
    pub fn parse(list: &str) -> Result<(Self, Vec<String>), String> {
        let mut options = Self::default();
        let mut rest = Vec::new();
        for option in list.split(',').filter(|option| !option.is_empty()) {
            if !options.take(option)? {
                rest.push(option.to_owned());
            }
        }
        options.read_only = options.flags.contains(MountFlags::RDONLY);
        options.nodiratime = options.flags.contains(MountFlags::NODIRATIME);
        Ok((options, rest))
    }

    /// Whether users other than the one who mounted it may use the mount.
    pub(crate) fn allows_other(&self) -> bool {
        self.allow_other.unwrap_or_else(|| rustix::process::getuid().is_root())
    }

    /// The flags of mount(2).
    pub(crate) fn flags(&self) -> MountFlags {
        self.flags
    }

    pub(crate) fn behaviour(&self) -> Behaviour {
        Behaviour {
            atime: AtimePolicy { atime: self.atime, nodiratime: self.nodiratime },
            dirsync: self.flags.intersects(MountFlags::DIRSYNC | MountFlags::SYNCHRONOUS),
            writeback: self.writeback,
            acl: self.acl,
            read_only: self.read_only,
            io_uring: self.io_uring,
            uncached: self.uncached,
            can_wait: self.threads != Some(1) && !self.io_uring,
        }
    }

    fn take(&mut self, option: &str) -> Result<bool, String> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.flags.set(*flag, *on);
        }
        match option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value))) {
            ("noatime", None) => self.atime = Atime::Never,
            ("relatime" | "atime", None) => self.set_atime(Atime::Relative),
            ("strictatime", None) => self.set_atime(Atime::Strict),
            ("allow_other", None) => self.allow_other = Some(true),
            ("noallow_other", None) => self.allow_other = Some(false),
            ("writeback" | "writeback_cache", None) => self.writeback = true,
            ("io_uring", None) => self.io_uring = true,
            ("acl", None) => self.acl = true,
            ("noacl", None) => self.acl = false,
            ("threads", Some(count)) => self.threads = Some(threads(count)?),
            ("busy_poll", Some(time)) => self.busy_poll = Some(busy_poll(time)?),
            (name, Some(_)) if OF_MOUNTED.contains(&name) => {}
            (name, None) if FOR_MOUNT.contains(&name) => {}
            (name, None) if FLAGS.iter().any(|(flag, ..)| *flag == name) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_atime(&mut self, atime: Atime) {
        self.atime = atime;
        self.flags.set(MountFlags::NOATIME, false);
    }
}

fn threads(count: &str) -> Result<usize, String> {
    let number = count.parse().ok().filter(|n| (1..=256).contains(n));
    number.ok_or_else(|| format!("threads={count}: expected a number from 1 to 256"))
}

fn busy_poll(time: &str) -> Result<u32, String> {
    let number = time.parse().ok().filter(|n| *n <= BUSY_POLL_MAX);
    number.ok_or_else(|| {
        format!("busy_poll={time}: expected microseconds, from 0 to {BUSY_POLL_MAX}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_or_left() {
        let list = "noauto,x-systemd.automount,nosuid,ro,noatime,threads=3,busy_poll=50,\
                    fsync_mode=oprw,cache=8m";
        let (options, rest) = MountOptions::parse(list).unwrap();
        assert!(options.read_only && options.atime == Atime::Never);
        assert_eq!((options.threads, options.busy_poll), (Some(3), Some(50)));
        assert!(options.flags.contains(MountFlags::NOSUID | MountFlags::RDONLY));
        assert_eq!(rest, ["fsync_mode=oprw", "cache=8m"]);
    }

    #[test]
    fn the_last_option_counts() {
        let (options, _) = MountOptions::parse("ro,rw,noatime,strictatime,nodev,dev").unwrap();
        assert!(!options.read_only && options.atime == Atime::Strict);
        assert_eq!(options.flags, MountFlags::empty());
        for wrong in ["threads=0", "busy_poll=10001", "busy_poll=1ms"] {
            assert!(MountOptions::parse(wrong).is_err(), "{wrong}");
        }
    }
}
