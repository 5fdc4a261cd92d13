//! The kernel's file systems: how they are made and checked, and what they promise.

use drive::{BLOCK_SIZE, Identify};
use vfs::kind::{Format, Habits, Promise, Technique};

use crate::{Error, Result};

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The one that we have as well.
    F2fs,
    /// In ordered mode, as it is mounted by default.
    Ext4,
    /// With its log on the drive.
    Xfs,
    /// On one drive.
    Btrfs,
}

impl Foreign {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::F2fs, Self::Ext4, Self::Xfs, Self::Btrfs];

    /// By its name in `mount -t`.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::Usage(format!("unknown file system '{name}'; the kernel's are {known}"))
        })
    }

    /// That name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F2fs => "f2fs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// What it may leave after a cut that is a habit and not damage.
    pub(crate) fn habits(self) -> Habits {
        match self {
            Self::F2fs => f2fs::Format.habits(f2fs::technique::POSIX),
            _ => Habits::default(),
        }
    }

    /// Makes a volume on `devices`: one, or one for metadata and a zoned one.
    pub(crate) fn mkfs(self, devices: &[String]) -> Vec<String> {
        let words: &[&str] = match (self, devices.len()) {
            (Self::F2fs, 1) => &["mkfs.f2fs", "-f"],
            (Self::F2fs, _) => &["mkfs.f2fs", "-f", "-m", "-c"],
            // What a thread would write later is written now, so that cuts fall into the workload.
            (Self::Ext4, _) => &[
                "mke2fs",
                "-q",
                "-F",
                "-t",
                "ext4",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0",
            ],
            (Self::Xfs, _) => &["mkfs.xfs", "-q", "-f"],
            (Self::Btrfs, _) => &["mkfs.btrfs", "-q", "-f"],
        };
        with(words, devices.iter().rev())
    }

    /// Checks an unmounted volume and repairs nothing.
    pub(crate) fn check(self, devices: &[String]) -> Vec<String> {
        let words: &[&str] = match self {
            Self::F2fs => &["fsck.f2fs", "-f", "--dry-run"],
            Self::Ext4 => &["e2fsck", "-fn"],
            Self::Xfs => &["xfs_repair", "-n"],
            Self::Btrfs => &["btrfs", "check", "--readonly"],
        };
        with(words, devices.first().into_iter())
    }

    /// What the checker says is wrong, if anything.
    pub(crate) fn complaint(self, status: i32, said: &str) -> Option<String> {
        let line = |is: &dyn Fn(&str) -> bool| said.lines().find(|line| is(line));
        match self {
            // Its exit status is 0 whatever it finds.
            Self::F2fs => {
                let wrong = |l: &str| l.contains("[Fail]") || l.starts_with("[ASSERT]");
                line(&wrong).map(str::to_owned).or_else(|| (status != 0).then(|| last(said)))
            }
            _ => (status != 0).then(|| last(said)),
        }
    }

    /// The mount options of a technique, as Linux knows them; `None` if it does not know it.
    pub fn options(self, technique: &Technique) -> Option<String> {
        if self != Self::F2fs {
            return Some(String::new());
        }
        let all: Vec<&str> = technique.options.split(',').collect();
        let known = all.iter().filter(|option| **option != "nowp_check").copied();
        (!all.contains(&"oprw")).then(|| known.collect::<Vec<_>>().join(","))
    }

    /// All options of a mount: the technique's, the workload's, which are F2FS's, and `more`.
    pub(crate) fn mount_options(
        self,
        technique: &Technique,
        of_workload: &str,
        more: &str,
    ) -> String {
        let technique = self.options(technique).unwrap_or_default();
        let of_workload = if self == Self::F2fs { of_workload } else { "" };
        let all = [&technique, of_workload, more].join(",");
        all.split(',').filter(|option| !option.is_empty()).collect::<Vec<_>>().join(",")
    }

    /// What an fsync by `technique` promises there on such a drive. The kernel's F2FS says that
    /// `strict` is as good as ext4 (Documentation/filesystems/f2fs.rst); nothing says that an fsync
    /// is there completely or not at all.
    pub(crate) fn promise(self, technique: &Technique, drive: &Identify) -> Promise {
        let promise = match self {
            Self::F2fs => (technique.promise)(drive),
            _ => {
                let whole = drive.atomic_write as usize >= BLOCK_SIZE;
                Promise { durable: true, intact: true, atomic: false, whole, at_return: false }
            }
        };
        Promise { atomic: false, ..promise }
    }
}

fn with<'a>(words: &[&str], devices: impl Iterator<Item = &'a String>) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(devices.cloned()).collect()
}

fn last(said: &str) -> String {
    said.trim().lines().last().unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_goes_where_blocks_can_be_overwritten() {
        let devices = ["/dev/nvme0n1".to_owned(), "/dev/nvme0n2".to_owned()];
        let words = Foreign::F2fs.mkfs(&devices);
        assert_eq!(words.join(" "), "mkfs.f2fs -f -m -c /dev/nvme0n2 /dev/nvme0n1");
        assert_eq!(Foreign::F2fs.check(&devices).last(), Some(&devices[0]));
    }

    /// Also where Linux knows none of the technique's options.
    #[test]
    fn a_workload_keeps_its_options() {
        let plain = Technique { options: "nowp_check", ..*f2fs::technique::POSIX };
        assert_eq!(Foreign::F2fs.mount_options(&plain, ",mode=lfs", "ro"), "mode=lfs,ro");
        let strict = f2fs::technique::STRICT;
        assert_eq!(Foreign::F2fs.mount_options(strict, "", ""), "fsync_mode=strict");
        assert_eq!(Foreign::Ext4.mount_options(strict, ",mode=lfs", "sync"), "sync");
    }

    #[test]
    fn what_checkers_say_is_understood() {
        let f2fs = Foreign::F2fs;
        assert_eq!(f2fs.complaint(0, "[FSCK] x [Ok..]\n"), None);
        assert_eq!(f2fs.complaint(0, "a\n[FSCK] x [Fail]\n"), Some("[FSCK] x [Fail]".into()));
        assert_eq!(Foreign::Ext4.complaint(4, "a\nbad\n"), Some("bad".into()));
        assert!(Foreign::named("zfs").is_err());
    }
}
