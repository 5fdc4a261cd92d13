//! Nodes that a cut has torn, on a drive that writes no more than a sector whole.

use std::sync::Arc;

use drive::{Block, Blocks, Command, Drive, DriveState, Lba, Ssd, Timing};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::ondisk::inode::RawInodeBlock;
use f2fs::ondisk::node::RawNodeFooter;
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{self, Kind, findings, mount, power_on};

const PAGE: u64 = 4096;
const SECTOR: usize = 512;
const SECTORS: usize = PAGE as usize / SECTOR;
/// A page each that the inode points to, and a node of its own.
const PLACES: [u64; 2] = [PAGE, 2000 * PAGE];
const OPTIONS: [&str; 4] =
    ["fsync_mode=posix", "fsync_mode=strict", "fsync_mode=nobarrier", "fsync_mode=strict,oprw"];

/// A new volume on a drive that tears blocks.
fn formatted(options: &MkfsOptions) -> Arc<Ssd> {
    let drive = Ssd::new(Kind::Conventional.spec().tearing(), Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, options).unwrap();
    drive
}

/// What the drive holds after each of three fsyncs, which write to pages never written before; and
/// the file's number.
fn fsyncs(drive: &Arc<Ssd>, options: &str, name: &[u8]) -> ([DriveState; 3], Ino) {
    let fs = mount(drive, options);
    let file = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    let states = [0, 1, 2].map(|n| {
        for place in PLACES {
            fs.write(file, place + n * PAGE, &[n as u8 + 1; PAGE as usize]).unwrap();
        }
        fs.fsync(file, false).unwrap();
        // With nobarrier nothing else asks for it.
        drive.issue(0, 0, Command::Flush).expect("answered").result.unwrap();
        drive.survivors(1)
    });
    (states, file)
}

/// How many fsyncs are there: all or none of each.
fn found(state: &DriveState, options: &str) -> usize {
    let fs = mount(&power_on(state), options);
    let file = fs.lookup(fs.root(), b"file").unwrap();
    let pages = PLACES.map(|place| {
        let mut bytes = vec![0; 3 * PAGE as usize];
        let read = fs.read(file.ino, place, &mut bytes).unwrap();
        let versions = bytes[..read].chunks(PAGE as usize).zip(1..);
        versions.take_while(|(page, n)| page.iter().all(|byte| byte == n)).count()
    });
    assert_eq!(file.size, PLACES[1] + pages[1] as u64 * PAGE);
    assert_eq!(pages[0], pages[1]);
    pages[0]
}

fn put(state: &DriveState, lba: Lba, block: Block) -> DriveState {
    let drive = power_on(state);
    let write = Command::Write { lba, data: Blocks::from_iter([block]), fua: true };
    drive.issue(0, 0, write).expect("answered").result.unwrap();
    drive.survivors(1)
}

#[test]
fn an_fsync_ends_before_the_first_node_that_is_torn() {
    for features in [MkfsOptions::default(), harness::mkfs_options()] {
        for options in OPTIONS {
            let ([_, before, after], ino) = fsyncs(&formatted(&features), options, b"file");
            assert_eq!((found(&before, options), found(&after, options)), (2, 3), "{options}");
            let read = |state: &DriveState, lba| state.media().read(lba).unwrap();
            let is_node = |lba: &Lba| {
                let (old, new) = (read(&before, *lba), read(&after, *lba));
                old != new && RawNodeFooter::of(&new).ino.get() == ino as u32
            };
            let nodes: Vec<Lba> = (0..after.identify().blocks).filter(is_node).collect();
            assert_eq!(nodes.len(), 2, "{options}");
            for (lba, sector) in nodes.iter().flat_map(|&lba| (0..SECTORS).map(move |s| (lba, s))) {
                let at = sector * SECTOR..(sector + 1) * SECTOR;
                let (mut torn, old) = (read(&after, lba), read(&before, lba));
                torn.make_mut()[at.clone()].copy_from_slice(&old[at]);
                // A free block that is unchanged is not torn.
                let whole = torn == read(&after, lba);
                let state = put(&after, lba, torn);
                for with in [options, "", "ro"] {
                    let want = if whole { 3 } else { 2 };
                    let place = format!("sector {sector} of {lba:#x}, {options}, then {with}");
                    assert_eq!(found(&state, with), want, "{place}");
                }
                let drive = power_on(&state);
                mount(&drive, options).unmount().unwrap();
                assert_eq!(findings(&drive.survivors(1)), "");
            }
        }
    }
}

#[test]
fn a_name_that_leaves_no_room_makes_an_fsync_a_checkpoint() {
    for (len, nodes) in [(247, 6), (248, 0)] {
        let name = vec![b'n'; len];
        let drive = formatted(&MkfsOptions::default());
        let ([.., after], _) = fsyncs(&drive, "fsync_mode=posix", &name);
        let fs = mount(&power_on(&after), "");
        assert_eq!(fs.recovery().scanned_nodes, nodes, "a name of {len} bytes");
        assert!(fs.lookup(fs.root(), &name).is_ok_and(|file| file.size == PLACES[1] + 3 * PAGE));
    }
}

/// Linux writes no checkpoint at a mount that finds nothing to recover. It continues after ours,
/// and behind the names in its inodes there is nothing, or something old.
#[test]
fn what_linux_fsynced_after_our_checkpoint_is_recovered() {
    for (options, marks_all) in [("fsync_mode=posix", true), ("fsync_mode=strict", false)] {
        let ([.., mut state], ino) = fsyncs(&formatted(&MkfsOptions::default()), options, b"file");
        let mut nodes = 0;
        for lba in 0..state.identify().blocks {
            let mut block = state.media().read(lba).unwrap();
            let footer = RawNodeFooter::of_mut(block.make_mut());
            if footer.ino.get() != ino as u32 || footer.cp_ver.get() == 0 {
                continue;
            }
            let is_inode = footer.is_inode();
            footer.set_fsync(is_inode || marks_all);
            if is_inode {
                let inode = &mut RawInodeBlock::of_mut(block.make_mut()).i;
                inode.set_name(inode.pino.get(), b"file");
            }
            state = put(&state, lba, block);
            nodes += 1;
        }
        assert_eq!(nodes, 6, "{options}");
        for with in [options, "fsync_mode=strict,oprw", "ro"] {
            assert_eq!(found(&state, with), 3, "{options}, then {with}");
        }
    }
}

/// For the first fsync after a checkpoint nothing else shows who wrote it.
#[test]
fn a_first_fsync_that_is_torn_is_not_taken_for_one_of_linux() {
    for features in [MkfsOptions::default(), harness::mkfs_options()] {
        let drive = formatted(&features);
        let fs = mount(&drive, "fsync_mode=posix");
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        let before = drive.survivors(1);
        fs.write(file, 0, &[1; PAGE as usize]).unwrap();
        fs.fsync(file, false).unwrap();
        let after = drive.survivors(1);
        let read = |state: &DriveState, lba| state.media().read(lba).unwrap();
        let is_node = |lba: &Lba| RawNodeFooter::of(&read(&after, *lba)).ino.get() == file as u32;
        let lba = (0..after.identify().blocks).find(is_node).unwrap();
        for sector in 0..SECTORS {
            let at = sector * SECTOR..(sector + 1) * SECTOR;
            let (mut torn, old) = (read(&after, lba), read(&before, lba));
            torn.make_mut()[at.clone()].copy_from_slice(&old[at]);
            let whole = torn == read(&after, lba);
            let fs = mount(&power_on(&put(&after, lba, torn)), "");
            assert_eq!(fs.lookup(fs.root(), b"file").is_ok(), whole, "sector {sector}");
        }
    }
}
