//! Damaged tables: an error that names the place, or a finding; never a panic or an endless loop.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Blocks, Command, Drive, Lba, Output};
use plainfs::Format;
use vfs::kind::Format as _;
use vfs::ops::{apply, parse};
use vfs::{Errno, path};

const BLOCKS: u64 = 1 << 12;
/// One block of bitmap, then the inode table.
const TABLE: Lba = 2;
/// Fields of an inode, by byte.
const NLINK: usize = 4;
const SIZE: usize = 24;
const DIRECT: usize = 56;
const INDIRECT: usize = DIRECT + 4 * 34;

/// A volume with `/d` (inode 2), `/d/f` of 200 kB (inode 3) and `/s`, a link (inode 4).
fn volume() -> Arc<dyn Drive> {
    let drive: Arc<dyn Drive> = drive::ram(BLOCKS);
    Format.make(&drive).expect("it is made");
    let fs = Format.mount(drive.clone(), "").expect("it mounts");
    let script = "mkdir d 755\ncreate d/f 644\nwrite d/f 0+200000 seed=7\nsymlink d/f s\n";
    for op in parse(script).expect("operations") {
        apply(&*fs, &op).expect("it is done");
        // So that inodes are numbered in this order.
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

fn set(drive: &Arc<dyn Drive>, inode: usize, field: usize, value: u32) {
    change(drive, TABLE, inode * 256 + field, &value.to_le_bytes());
}

fn pointer(drive: &Arc<dyn Drive>, inode: usize, field: usize) -> u32 {
    let at = inode * 256 + field;
    u32::from_le_bytes(read(drive, TABLE)[at..at + 4].try_into().expect("four bytes"))
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
    let cases: [(Damage, &str); 13] = [
        (|d| set(d, 3, 0, 0o770_644), "inode 3: mode"),
        (|d| set(d, 3, NLINK, 0), "inode 3: link count"),
        (|d| set(d, 3, SIZE + 4, 1), "inode 3: size"),
        (|d| set(d, 2, SIZE, 100), "inode 2: size"),
        (|d| set(d, 4, SIZE, 0), "inode 4: size"),
        (|d| set(d, 3, DIRECT, BLOCKS as u32), "inode 3: pointer"),
        (|d| set(d, 3, DIRECT, 1), "inode 3: pointer"),
        (|d| set(d, 2, DIRECT, 0), "inode 2: pointer: found 0"),
        (|d| change(d, pointer(d, 3, INDIRECT).into(), 0, &[0xff; 4]), "inode 3: pointer"),
        // The whole table gone, the root, an inode that has a name.
        (|d| set(d, 1, 0, 0), "inode 1: root"),
        (|d| set(d, 4, 0, 0), "inode 1: entry: found inode 4"),
        // A directory in itself, and a name that is none.
        (|d| change(d, pointer(d, 2, DIRECT).into(), 0, &[2]), "inode 2: names"),
        (|d| change(d, pointer(d, 2, DIRECT).into(), 8, b"/"), "inode 2: name"),
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
    let cases: [(Damage, &str); 4] = [
        (|d| set(d, 3, NLINK, 5), "inode 3: link count: found 5, should be 1"),
        (|d| change(d, 1, 100, &[0xff]), "bitmap: found in use, should be free"),
        (|d| change(d, 1, 0, &[0]), "block 0x0: bitmap: found free, should be in use"),
        (|d| set(d, 3, DIRECT, pointer(d, 3, DIRECT + 4)), "a block of its own"),
    ];
    for (i, (damage, want)) in cases.into_iter().enumerate() {
        let drive = volume();
        damage(&drive);
        let (words, mounted) = told(&drive);
        assert!(words.contains(want), "case {i}: {words}");
        assert_eq!(mounted, Ok(()), "case {i}");
    }
}

/// Every file as large as can be, all of the same blocks: no more is read than there is.
#[test]
fn a_table_that_claims_too_much_is_refused() {
    let drive = volume();
    let block = pointer(&drive, 3, DIRECT);
    let list: Vec<u8> = block.to_le_bytes().repeat(BLOCK_SIZE / 4);
    change(&drive, pointer(&drive, 3, INDIRECT).into(), 0, &list);
    let same = pointer(&drive, 3, INDIRECT);
    (0..16).for_each(|i| set(&drive, 3, INDIRECT + 4 * i, same));
    let (words, mounted) = told(&drive);
    assert!(words.contains("no more blocks than the volume has"), "{words}");
    assert_eq!(mounted.expect_err("it must not mount").0, Errno::UCLEAN);
}

/// Any byte of the tables may be anything.
#[test]
fn random_bytes_never_panic() {
    let sound = volume();
    let tables: Vec<Block> = (0..=TABLE + 1).map(|lba| read(&sound, lba)).collect();
    let mut random = 1_u64;
    let mut next = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % end
    };
    let mut mounts = 0;
    for _ in 0..3000 {
        let (lba, byte) = (next(TABLE + 1), next(5 * 256) as usize);
        change(&sound, lba, byte, &[next(256) as u8]);
        drop(Format.check(&sound));
        if let Ok(fs) = Format.mount(sound.clone(), "") {
            mounts += 1;
            path::walk(&*fs, fs.root(), &mut |_, _| Ok(())).expect("a tree");
        }
        if next(4) == 0 {
            for (lba, block) in (0..).zip(&tables) {
                change(&sound, lba, 0, &block[..]);
            }
        }
    }
    assert!((1..3000).contains(&mounts), "{mounts}");
}
