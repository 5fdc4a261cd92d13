//! Power cuts of a random workload, several lives of one volume in a row: what was fsynced is there
//! afterwards, every block is the file's own, and both judges find the recovered volume clean.

use vfs::FileSystem;

use crate::harness::tagged::{Cut, Promise, Tagged};
use crate::harness::{Kind, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean};

/// What a mode guarantees on a drive with a volatile cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// What was fsynced is there, and each block is the file's own.
    Everything,
    /// The volume is sound. A cut within an fsync may keep nodes and lose the data they point to.
    Structure,
}

/// One cut in each life at `every`-th events, from a volume that the life before left.
fn lives(kind: Kind, options: &str, seed: u64, mut check: impl FnMut(&Cut, &str)) {
    let mut cut = Cut { state: kind.formatted(seed).power_off(), promise: Promise::default() };
    for life in 0..8 {
        let drive = power_on(&cut.state);
        let fs = mount(&drive, options);
        let mut work = Tagged::new(seed * 100 + life, cut.promise.clone());
        let cuts = work.record(&drive, 7, seed + life);
        work.run(&fs, 30).unwrap();
        drive.unobserve();
        let mut cuts = std::mem::take(&mut *cuts.lock());
        let step = (cuts.len() / 5).max(1);
        for (i, cut) in cuts.iter().enumerate().step_by(step) {
            check(cut, &format!("{kind:?} -o {options} seed {seed} life {life} cut {i}"));
        }
        let last = (seed + life) as usize % cuts.len();
        cut = cuts.swap_remove(last);
    }
}

fn assert_recovers(cut: &Cut, options: &str, worth: Worth, name: &str, scratch: &Scratch) {
    let drive = power_on(&cut.state);
    let fs = mount(&drive, options);
    if worth == Worth::Everything {
        let broken = cut.promise.broken(&fs);
        assert!(broken.is_none(), "{name}: {broken:?}");
    }
    fs.unmount().unwrap();
    let state = drive.power_off();
    for finding in findings(&state).lines() {
        // Blocks that count although they lie above the write pointer.
        let above = finding.contains("write pointer: found") && finding.contains("should be above");
        let excused = options.contains("nowp_check") && above;
        assert!(excused, "{name}: {finding}");
    }
    let image = scratch.dir().join("image");
    dump(&state, &image);
    assert_fsck_clean(&image);
}

fn survives(kind: Kind, options: &str, worth: Worth) {
    let scratch = Scratch::new();
    let mut sampled = 0;
    lives(kind, options, 1, |cut, name| {
        sampled += 1;
        assert_recovers(cut, options, worth, name, &scratch);
    });
    assert!(sampled >= 40, "{sampled} cuts of 200 in all");
}

#[test]
fn conventional_strict() {
    survives(Kind::Conventional, "fsync_mode=strict", Worth::Everything);
}

#[test]
fn conventional_oprw() {
    survives(Kind::Conventional, "fsync_mode=strict,oprw", Worth::Everything);
}

#[test]
fn zoned_strict() {
    survives(Kind::Zoned, "fsync_mode=strict", Worth::Everything);
}

#[test]
fn zoned_oprw() {
    survives(Kind::Zoned, "oprw", Worth::Everything);
}

#[test]
fn conventional_posix() {
    survives(Kind::Conventional, "", Worth::Structure);
}

#[test]
fn zoned_posix() {
    survives(Kind::Zoned, "", Worth::Everything);
}

#[test]
fn zoned_posix_recovered_as_linux_does() {
    survives(Kind::Zoned, "nowp_check", Worth::Structure);
}
