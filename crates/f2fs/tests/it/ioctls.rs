//! The ioctls of Linux 4.16's F2FS by number, as a mount passes them on. Those about flags,
//! projects and atomic writes are the mount's own (`crates/fuse`).

use f2fs::F2fs;
use vfs::kind::{Ioctl, Volume};
use vfs::{Creator, Errno, FileSystem, Ino};

use crate::harness::{Kind, findings, mount, power_on};

const PAGE: u64 = 4096;

fn create(fs: &F2fs, name: &str, pages: u64, byte: u8) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    fs.write(ino, 0, &vec![byte; (pages * PAGE) as usize]).unwrap();
    fs.fsync(ino, false).unwrap();
    ino
}

fn bytes<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn call(fs: &F2fs, ino: Ino, number: u32, input: &[u8]) -> Result<Vec<u8>, Errno> {
    let call = Ioctl { number, input, privileged: true, atomic_writes: true };
    Volume::ioctl(fs, ino, call).map_err(|error| error.errno())
}

fn word(answer: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes(*answer.first_chunk().unwrap()))
}

#[test]
fn each_does_what_it_says() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "ipu_policy=0");
    let (root, ino) = (fs.root(), create(&fs, "file", 600, 5));
    let other = create(&fs, "other", 1, 6);
    let generation = |ino| word(&call(&fs, ino, 0x8008_7601, &[]).unwrap());
    assert_ne!(generation(ino), generation(other), "GETVERSION");
    assert_eq!(word(&call(&fs, ino, 0x8004_f50c, &[]).unwrap()) & 4, 4, "GET_FEATURES");
    let status = || fs.status();
    let before = status().cp_foreground_calls;
    call(&fs, root, 0xf507, &[]).unwrap();
    assert_eq!(status().cp_foreground_calls, before + 1, "WRITE_CHECKPOINT");
    for index in (0..600).step_by(2) {
        fs.write(ino, index * PAGE, &[9; PAGE as usize]).unwrap();
    }
    fs.sync().unwrap();
    call(&fs, root, 0x4004_f506, &1_u32.to_le_bytes()).unwrap();
    let moved = status().moved_blocks_foreground;
    assert!(moved > 0, "GARBAGE_COLLECT");
    let main = u64::from(status().main_blkaddr);
    create(&fs, "large", 1200, 8);
    call(&fs, root, 0x4018_f50b, &bytes([1, main, 56 * 512])).unwrap();
    assert!(status().moved_blocks_foreground > moved, "GARBAGE_COLLECT_RANGE");
    let outside = bytes([1, main - 1, 512]);
    assert_eq!(call(&fs, root, 0x4018_f50b, &outside), Err(Errno::INVAL));
    for index in (0..64).step_by(3) {
        fs.write(ino, index * PAGE, &[9; PAGE as usize]).unwrap();
    }
    fs.fsync(ino, false).unwrap();
    let answer = call(&fs, ino, 0xc010_f508, &bytes([0, 64 * PAGE])).unwrap();
    assert_eq!(answer, bytes([0, 64 * PAGE]), "DEFRAGMENT");
    call(&fs, ino, 0x4004_f50d, &1_u32.to_le_bytes()).unwrap();
    assert_eq!(word(&call(&fs, ino, 0x8004_f50e, &[]).unwrap()), 0, "GET_PIN_FILE");
    assert_eq!(fs.inode_flags(ino).unwrap() & 0x80_0000, 0x80_0000, "SET_PIN_FILE");
    call(&fs, ino, 0xf50f, &[]).unwrap();
    let trimmed = call(&fs, root, 0xc018_5879, &bytes([0, u64::MAX, 0])).unwrap();
    assert!(trimmed[8..16] > [0; 8][..] && trimmed[16..24] == [0; 8], "FITRIM");
    assert_eq!(call(&fs, root, 0x4008_f50a, &bytes([0])), Err(Errno::INVAL), "one device");
    for refused in [0xf503, 0xf504, 0x800c_6613, 0x4010_6614, 0x400c_6615] {
        assert_eq!(call(&fs, ino, refused, &[0; 32]), Err(Errno::OPNOTSUPP), "{refused:#x}");
    }
    assert_eq!(call(&fs, ino, 0xf5ff, &[]), Err(Errno::NOTTY));
    assert_eq!(call(&fs, ino, 0x4004_f506, &[1]), Err(Errno::INVAL), "too little input");
    call(&fs, root, 0x8004_587d, &0_u32.to_le_bytes()).unwrap();
    assert_eq!(call(&fs, root, 0xf507, &[]), Err(Errno::IO), "SHUTDOWN");
    fs.unmount().unwrap();
    let drive = power_on(&drive.power_off());
    let fs = mount(&drive, "");
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}

#[test]
fn only_who_may_administer_changes_the_volume() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let numbers = [
        0x4004_f506,
        0xf507,
        0xc010_f508,
        0x4008_f50a,
        0x4018_f50b,
        0x4004_f50d,
        0xc018_5879,
        0x8004_587d,
    ];
    for number in numbers {
        let call = Ioctl { number, input: &[0; 32], privileged: false, atomic_writes: false };
        let refused = Volume::ioctl(&fs, fs.root(), call).unwrap_err().errno();
        assert_eq!(refused, Errno::PERM, "{number:#x}");
    }
}

#[test]
fn a_moved_range_leaves_a_hole() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let (from, to) = (create(&fs, "from", 200, 1), create(&fs, "to", 10, 2));
    fs.write(from, 200 * PAGE, b"the end").unwrap();
    let range = |from: u64, to: Ino, at: u64, len: u64| bytes([to, from * PAGE, at * PAGE, len]);
    let moved = |ino, range: Vec<u8>| call(&fs, ino, 0xc020_f509, &range);
    moved(from, range(100, to, 5, 0)).unwrap();
    let size = |ino| fs.getattr(ino).unwrap().size;
    assert_eq!((size(from), size(to)), (200 * PAGE + 7, 105 * PAGE + 7));
    let byte = |ino, at: u64| {
        let mut byte = [0];
        fs.read(ino, at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 99, 100, 199].map(|page| byte(from, page * PAGE)), [1, 1, 0, 0]);
    assert_eq!([0, 4, 5, 104].map(|page| byte(to, page * PAGE)), [2, 2, 1, 1]);
    assert_eq!(byte(to, 105 * PAGE + 2), b'e');
    // To the front of the same file, over itself.
    (0..100).for_each(|n| _ = fs.write(from, n * PAGE, &[n as u8 + 1; PAGE as usize]).unwrap());
    moved(from, range(10, from, 5, 90 * PAGE)).unwrap();
    assert!((5..95).all(|page| byte(from, page * PAGE) == page as u8 + 6));
    assert!((95..100).all(|page| byte(from, page * PAGE) == 0));
    for (wrong, at, len) in [(10, 11, 5 * PAGE), (1, 0, 100), (300, 0, PAGE), (1, 0, u64::MAX)] {
        assert_eq!(moved(from, range(wrong, from, at, len)), Err(Errno::INVAL));
    }
    assert_eq!(moved(fs.root(), range(0, to, 0, PAGE)), Err(Errno::INVAL), "a directory");
    fs.set_pin_file(to, true).unwrap();
    assert_eq!(moved(from, range(0, to, 0, PAGE)), Err(Errno::OPNOTSUPP), "pinned");
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "");
}
