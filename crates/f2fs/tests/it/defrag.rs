//! Files written in turns and laid out in one piece afterwards.

use vfs::ops::snapshot;
use vfs::{Creator, FileSystem};

use crate::harness::{self, Kind, findings, mount};

#[test]
fn files_become_contiguous_and_stay_what_they_are() {
    for kind in Kind::ALL {
        let drive = kind.formatted(1);
        let fs = mount(&drive, "");
        let who = Creator::default();
        let files: Vec<u64> =
            (0..3).map(|i| fs.create(fs.root(), &[b'a' + i], 0o644, who).unwrap().ino).collect();
        // One block of each in turn, every one made durable: they lie in between one another.
        for round in 0..300_u64 {
            for (i, &ino) in files.iter().enumerate() {
                if round % 50 != 49 || i == 0 {
                    fs.write(ino, round * 4096, &[(round + i as u64) as u8; 4096]).unwrap();
                    fs.fsync(ino, false).unwrap();
                }
            }
        }
        let was = snapshot(&fs).unwrap();
        for &ino in &files {
            let report = fs.defragment_file(ino).unwrap();
            assert!(report.extents_before > 100, "{kind:?}: {report:?}");
            // Holes part what lies side by side in the file, not on the drive; zones end a run.
            assert!(report.extents_after <= 12, "{kind:?}: {report:?}");
            assert!(report.blocks >= 294, "{report:?}");
            let again = fs.defragment_file(ino).unwrap();
            assert!(again.extents_after <= report.extents_after, "{again:?}");
        }
        assert!(was.diff(&snapshot(&fs).unwrap()).is_empty(), "{kind:?}");
        assert!(fs.defragment_file(fs.root()).is_err());
        fs.unmount().unwrap();
        drop(fs);
        drive.power_off();
        let state = drive.survivors(0);
        assert_eq!(findings(&state), "", "{kind:?}");
        let fs = mount(&harness::power_on(&state), "");
        assert!(was.diff(&snapshot(&fs).unwrap()).is_empty(), "{kind:?}, mounted again");
    }
}
