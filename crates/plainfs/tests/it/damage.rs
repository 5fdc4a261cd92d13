//! Damaged tables: an error that names the place, or a finding; never a panic or an endless loop.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Blocks, Command, Drive, Lba, Output};
use plainfs::Format;
use vfs::kind::Format as _;
use vfs::ops::{apply, parse};
use vfs::{Errno, path};

const BLOCKS: u64 = 1 << 12;
/// The map, 16 bytes for each block: inode and slot.
const MAP: Lba = 1;
/// The first block behind the map is the root. `volume` has these at its inodes' addresses.
const ROOT: Lba = MAP + BLOCKS / 256;
const D: Lba = ROOT + 1;
const F: Lba = D + 2;
const S: Lba = F + 1 + 1 + 200_000_u64.div_ceil(BLOCK_SIZE as u64);
/// Fields of an inode, by byte.
const NLINK: usize = 4;
const SIZE: usize = 24;

/// A volume with `/d`, `/d/f` of 200 kB, and `/s`, a link.
fn volume() -> Arc<dyn Drive> {
    let drive: Arc<dyn Drive> = drive::ram(BLOCKS);
    Format.make(&drive).expect("it is made");
    let fs = Format.mount(drive.clone(), "").expect("it mounts");
    let script = "mkdir d 755\ncreate d/f 644\nwrite d/f 0+200000 seed=7\nsymlink d/f s\n";
    for op in parse(script).expect("operations") {
        apply(&*fs, &op).expect("it is done");
        // So that blocks are taken in this order.
        fs.sync().expect("it is written");
    }
    fs.unmount().expect("it is clean");
    drive
}

fn call(drive: &Arc<dyn Drive>, command: Command) -> Output {
    drive.submit(0, 0, command);
    drive.wait(0).expect("one command is under way").result.expect("it works")
}

fn read(drive: &Arc<dyn Drive>, lba: Lba) -> Block {
    match call(drive, Command::Read { lba, blocks: 1 }) {
        Output::Data(mut data) => data.pop().expect("one block"),
        other => panic!("{other:?}"),
    }
}

fn change(drive: &Arc<dyn Drive>, lba: Lba, byte: usize, bytes: &[u8]) {
    let mut block = read(drive, lba);
    block.make_mut()[byte..byte + bytes.len()].copy_from_slice(bytes);
    let data = Blocks::from_iter([block]);
    call(drive, Command::Write { lba, data, fua: false });
}

fn set(drive: &Arc<dyn Drive>, inode: Lba, field: usize, value: u32) {
    change(drive, inode, field, &value.to_le_bytes());
}

fn set_owner(drive: &Arc<dyn Drive>, lba: Lba, inode: Lba, slot: u64) {
    let owner = [inode.to_le_bytes(), slot.to_le_bytes()].concat();
    change(drive, MAP + lba / 256, (lba % 256) as usize * 16, &owner);
}

/// The block of this slot of an inode.
fn block(drive: &Arc<dyn Drive>, inode: Lba, slot: u64) -> Lba {
    let owner = [inode.to_le_bytes(), slot.to_le_bytes()].concat();
    let is_it = |lba: &Lba| {
        let at = (lba % 256) as usize * 16;
        read(drive, MAP + lba / 256)[at..at + 16] == owner[..]
    };
    (ROOT..BLOCKS).find(is_it).expect("there is one")
}

/// What a check says, and what a mount does.
fn told(drive: &Arc<dyn Drive>) -> (String, Result<(), (Errno, String)>) {
    let found = Format.check(drive).expect("there is a volume").findings;
    let words = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let mounted = Format.mount(drive.clone(), "").map(drop).map_err(|error| match error {
        vfs::kind::Error::Volume(error) => (error.errno(), error.to_string()),
        other => panic!("{other}"),
    });
    (words, mounted)
}

#[test]
fn a_sound_volume_has_no_findings() {
    let (words, mounted) = told(&volume());
    assert_eq!((words.as_str(), mounted), ("", Ok(())));
}

#[test]
fn a_value_that_cannot_be_stops_the_mount() {
    type Damage = fn(&Arc<dyn Drive>);
    let cases: [(Damage, &str); 12] = [
        (|d| set(d, F, 0, 0o770_644), "inode 0x14: mode"),
        (|d| set(d, F, SIZE + 4, 1 << 30), "inode 0x14: size"),
        (|d| set(d, D, SIZE, 5000), "inode 0x12: size"),
        (|d| set(d, D, SIZE, 8), "inode 0x12: entry"),
        (|d| set(d, S, SIZE, 0), "inode 0x11: name"),
        // A file larger than any, and a directory without contents.
        (|d| set_owner(d, block(d, F, 2), F, u64::MAX), "inode 0x12: name"),
        (|d| set_owner(d, block(d, D, 1), 0, 0), "inode 0x12: size"),
        // The root gone, and an inode that has a name.
        (|d| set_owner(d, ROOT, 0, 0), "inode 0x11: root"),
        (|d| set_owner(d, S, 0, 0), "inode 0x11: entry: found block"),
        // Names of nothing and of the directory itself, and one that is none.
        (|d| change(d, block(d, D, 1), 0, &[0]), "inode 0x12: entry: found block 0x0"),
        (|d| change(d, block(d, D, 1), 0, &[D as u8]), "inode 0x12: name"),
        (|d| change(d, block(d, D, 1), 9, b"/"), "inode 0x12: name"),
    ];
    for (i, (damage, want)) in cases.into_iter().enumerate() {
        let drive = volume();
        damage(&drive);
        let (words, mounted) = told(&drive);
        assert!(words.contains(want), "case {i}: {words}");
        let (errno, said) = mounted.expect_err("it must not mount");
        assert_eq!(errno, Errno::UCLEAN, "case {i}");
        assert!(said.contains("found") && said.contains("should be"), "case {i}: {said}");
    }
}

/// As ext2 without e2fsck: what only disagrees is found by a check and does not stop a mount.
#[test]
fn what_disagrees_is_found() {
    type Damage = fn(&Arc<dyn Drive>);
    let cases: [(Damage, &str); 5] = [
        (|d| set(d, F, NLINK, 5), "inode 0x14: link count: found 5, should be 1"),
        (|d| set(d, F, NLINK, 0), "inode 0x14: link count: found 0, should be 1"),
        (|d| set_owner(d, 4000, 77, 1), "block 0xfa0: owner: found inode 0x4d, should be none"),
        (|d| set_owner(d, 4000, F, 1), "block 0xfa0: owner: found as of 0x16, should be its own"),
        (|d| set_owner(d, 4000, 4000, 0), "block 0xfa0: owner: found inode 0xfa0"),
    ];
    for (i, (damage, want)) in cases.into_iter().enumerate() {
        let drive = volume();
        damage(&drive);
        let (words, mounted) = told(&drive);
        assert!(words.contains(want), "case {i}: {words}");
        assert_eq!(mounted, Ok(()), "case {i}");
    }
}

/// A map that gives one file every block, or one page of it: no more is kept than there is room
/// for, and no more is told than anybody reads.
#[test]
fn a_map_that_claims_too_much_is_refused() {
    let drive = volume();
    (S + 2..BLOCKS).for_each(|lba| set_owner(&drive, lba, F, lba));
    let (words, mounted) = told(&drive);
    assert!(words.contains("No space left"), "{words}");
    assert_eq!(mounted.expect_err("it must not mount").0, Errno::UCLEAN);
    (S + 2..BLOCKS).for_each(|lba| set_owner(&drive, lba, F, 1));
    assert_eq!(Format.check(&drive).expect("there is a volume").findings.len(), 64);
}

/// Any byte of the tables may be anything.
#[test]
fn random_bytes_never_panic() {
    let sound = volume();
    // The superblock, the beginning of the map, all inodes and directories.
    let places = [0, MAP, ROOT, D, F, S, block(&sound, ROOT, 1), block(&sound, D, 1)];
    let tables = places.map(|lba| read(&sound, lba));
    let mut random = 1_u64;
    let mut next = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % end
    };
    let mut mounts = 0;
    for _ in 0..3000 {
        let lba = places[next(places.len() as u64) as usize];
        let byte = next(if lba == MAP { 16 * (S + 2) } else { 64 }) as usize;
        change(&sound, lba, byte, &[next(256) as u8]);
        drop(Format.check(&sound));
        if let Ok(fs) = Format.mount(sound.clone(), "") {
            mounts += 1;
            path::walk(&*fs, fs.root(), &mut |_, _| Ok(())).expect("a tree");
        }
        if next(4) == 0 {
            for (lba, block) in places.into_iter().zip(&tables) {
                change(&sound, lba, 0, &block[..]);
            }
        }
    }
    assert!((1..3000).contains(&mounts), "{mounts}");
}
