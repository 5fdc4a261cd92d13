//! What `/sys/dev/block/MAJOR:MINOR` says about a device (Documentation/ABI/stable/sysfs-block).
//!
//! All of it is advice: where sysfs is not mounted, the ioctls and safe defaults decide.

use std::fs;
use std::path::PathBuf;

/// The directory of a device's whole disk.
pub(super) struct Sysfs {
    disk: PathBuf,
    /// Whether the device is a partition of that disk.
    pub(super) partition: bool,
}

impl Sysfs {
    /// The directory of the device with this `st_rdev`.
    pub(super) fn of(rdev: u64) -> Self {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        Self::at(PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
    }

    fn at(device: PathBuf) -> Self {
        let partition = device.join("partition").exists();
        // The link leads to the partition's directory, which is inside that of its disk.
        let disk = if partition { device.join("..") } else { device };
        Self { disk, partition }
    }

    /// An attribute's text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.disk.join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    /// An attribute that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A limit, where 0 means that there is none.
    pub(super) fn limit(&self, name: &str) -> Option<u32> {
        self.number(name).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_disk_of_a_partition() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let partition = dir.path().join("part1");
        fs::create_dir_all(partition.join("queue"))?;
        fs::create_dir_all(dir.path().join("queue"))?;
        fs::write(partition.join("partition"), "1\n")?;
        fs::write(dir.path().join("queue/max_open_zones"), "0\n")?;
        fs::write(dir.path().join("queue/zoned"), "host-managed\n")?;
        let sysfs = Sysfs::at(partition);
        assert!(sysfs.partition);
        assert_eq!(sysfs.text("queue/zoned").as_deref(), Some("host-managed"));
        assert_eq!(sysfs.number("queue/max_open_zones"), Some(0));
        assert_eq!(sysfs.limit("queue/max_open_zones"), None);
        assert_eq!(sysfs.text("queue/rotational"), None);
        Ok(())
    }
}
