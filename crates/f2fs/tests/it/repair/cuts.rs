//! The power fails during a repair, at every command. The next repair ends where an undisturbed one
//! does, and no file has lost anything through the cut.

use std::sync::Arc;

use drive::{Command, CutPoint, Drive, DriveState, Spec, Ssd, Timing, Trace};
use f2fs::check::{CheckOptions, check};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::ondisk::superblock::Superblock;
use f2fs::repair::{RepairOptions, repair};
use f2fs::{F2fs, MountOptions};
use queue::BlockQueue;
use vfs::ops::{Tree, snapshot};
use vfs::{Creator, FileSystem};

/// A drive whose unflushed blocks survive a cut in any combination.
fn spec(zoned: bool) -> Spec {
    if zoned {
        Spec::named("zn540-noplp").unwrap().zone_size(1024, 768).zones(32, 5)
    } else {
        Spec::named("conventional-noplp").unwrap().blocks(16 * 1024)
    }
}

fn power_on(state: &DriveState) -> Arc<Ssd> {
    Ssd::power_on(state.clone(), Timing::Instant, 0)
}

/// A volume with files, then damaged in its metadata.
fn damaged_volume(zoned: bool) -> DriveState {
    let ssd = Ssd::new(spec(zoned), Timing::Instant, 3).unwrap();
    let drive: Arc<dyn Drive> = ssd.clone();
    format(&drive, &MkfsOptions::default()).unwrap();
    let fs = F2fs::mount(drive.clone(), &MountOptions::default()).unwrap();
    let nobody = Creator::default();
    for i in 0..12_u64 {
        let dir = fs.mkdir(fs.root(), format!("d{i}").as_bytes(), 0o755, nobody).unwrap().ino;
        let file = fs.create(dir, b"file", 0o644, nobody).unwrap().ino;
        fs.write(file, 0, &vec![i as u8 + 1; 5000 * i as usize + 10]).unwrap();
    }
    fs.unmount().unwrap();
    let queue = BlockQueue::new(drive);
    let (sb, _) = Superblock::select(|addr| Ok(queue.read_block(addr.into())?)).unwrap();
    let change = |addr: u32, change: &dyn Fn(&mut [u8; 4096])| {
        let mut block = queue.read_block(addr.into()).unwrap();
        change(block.make_mut());
        let data = drive::Blocks::from_iter([block]);
        queue.run(Command::Write { lba: addr.into(), data, fua: true }).unwrap();
    };
    // The second superblock; four nodes of the NAT, in both copies; types and maps of the SIT.
    change(1, &|bytes| bytes[1100] ^= 1);
    for copy in [sb.nat_blkaddr, sb.nat_blkaddr + 512] {
        change(copy, &|bytes| {
            for nid in [5, 8, 9, 14] {
                bytes[nid * 9 + 5] ^= 4;
            }
        });
    }
    for copy in [sb.sit_blkaddr, sb.sit_blkaddr + sb.sit_blocks()] {
        change(copy, &|bytes| bytes[1..74 * 20].fill(0x11));
    }
    ssd.survivors(0)
}

fn tree_of(state: &DriveState) -> Tree {
    let drive: Arc<dyn Drive> = power_on(state);
    let fs = F2fs::mount(drive, &"ro".parse().unwrap()).unwrap();
    snapshot(&fs).unwrap()
}

/// Repairs the volume on the drive; returns what the drive then holds.
fn repaired(state: &DriveState, what: &str) -> DriveState {
    let ssd = power_on(state);
    let drive: Arc<dyn Drive> = ssd.clone();
    let report = repair(&drive, &RepairOptions::default());
    let report = report.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(report.left.is_empty(), "{what}: {}", super::kit::lines(&report.left));
    let after = check(&drive, &CheckOptions::default()).unwrap();
    assert!(after.is_clean(), "{what}: {}", super::kit::lines(&after.findings));
    ssd.survivors(0)
}

/// The commands of an undisturbed repair that change something, or order what does.
fn writes(damaged: &DriveState) -> Vec<u64> {
    let trace = Arc::new(Trace::new(power_on(damaged)));
    let drive: Arc<dyn Drive> = trace.clone();
    repair(&drive, &RepairOptions::default()).unwrap();
    let log = trace.take();
    let is_write = |line: &&str| !line.starts_with("R ") && !line.starts_with("Z ");
    (0..).zip(log.iter().map(String::as_str)).filter(|(_, l)| is_write(l)).map(|(n, _)| n).collect()
}

fn cut_everywhere(zoned: bool) {
    let damaged = damaged_volume(zoned);
    let expected = tree_of(&repaired(&damaged, "undisturbed"));
    let points = writes(&damaged);
    assert!(points.len() > 10, "{points:?}");
    for point in points {
        for seed in [point, point + 1000] {
            let ssd = power_on(&damaged);
            ssd.cut_at(CutPoint::Command(point), seed);
            let drive: Arc<dyn Drive> = ssd.clone();
            let _ = repair(&drive, &RepairOptions::default());
            let what = format!("zoned {zoned}, cut at command {point}, seed {seed}");
            let differences = expected.diff(&tree_of(&repaired(&ssd.survivors(seed), &what)));
            assert_eq!(differences, Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn conventional() {
    cut_everywhere(false);
}

#[test]
fn zoned() {
    cut_everywhere(true);
}
