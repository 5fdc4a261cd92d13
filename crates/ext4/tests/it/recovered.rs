//! What a cut leaves, and what recovery makes of it, with every way to do an fsync.

use vfs::kind::Format as _;
use vfs::{Creator, FileSystem};

use crate::harness::Image;

/// The superblock's totals are stale while a volume is mounted: that is no error, before recovery
/// or behind it.
#[test]
fn a_cut_volume_is_sound_and_its_totals_are_right_after_recovery() {
    for technique in ext4::Format.techniques() {
        let name = technique.name;
        let image = Image::with_features(64, technique.make);
        let fs = image.mount_with(technique.options);
        for nr in 0..20_u8 {
            let new = fs.create(fs.root(), &[b'a' + nr], 0o644, Creator::default()).unwrap();
            fs.write(new.ino, 0, &[nr; 9000]).unwrap();
            if nr % 10 == 0 {
                fs.fsync(new.ino, false).unwrap();
            } else if nr == 15 {
                fs.sync().unwrap();
            }
        }
        // No unmount: the power fails.
        drop(fs);
        let drive = image.drive();
        let checked = ext4::Format.check(&drive).unwrap();
        assert!(checked.findings.is_empty() && !checked.clean_unmount, "{name}: {checked:?}");
        assert!(!ext4::Format.recover(&drive).unwrap().clean, "{name}");
        drop(drive);
        image.assert_clean(name);
    }
}
