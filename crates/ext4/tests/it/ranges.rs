//! Preallocation, holes and moved ranges, files without a name, and `O_DIRECT`, judged by e2fsck.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::Drive;
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::{Format as _, Volume};
use vfs::ops::fill;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, Seek, SetAttr, path};

use crate::harness::{Image, debugfs};

const PAGE: u64 = 4096;
const KEEP: FallocateMode = FallocateMode::KEEP_SIZE;
const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(KEEP);

fn errno<T>(done: vfs::Result<T>) -> Option<Errno> {
    done.err().map(|error| error.errno())
}

fn data(seed: u32, pages: u64) -> Vec<u8> {
    let mut data = vec![0; (pages * PAGE) as usize];
    fill(seed, 0, &mut data);
    data
}

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

#[test]
fn preallocated_blocks_read_as_zeroes_until_they_are_written() {
    let image = Image::new(32);
    {
        let fs = image.mount();
        let ino = create(&fs, b"file");
        fs.fallocate(ino, KEEP, 0, 64 * PAGE).unwrap();
        let attr = fs.getattr(ino).unwrap();
        assert_eq!((attr.size, attr.blocks), (0, 64 * 8));
        fs.fallocate(ino, FallocateMode::empty(), 0, 32 * PAGE).unwrap();
        fs.write(ino, 3 * PAGE + 5, b"written").unwrap();
        fs.write(ino, 9 * PAGE, &vec![7; 2 * PAGE as usize]).unwrap();
        fs.fsync(ino, false).unwrap();
        let places = |from| [Seek::Data, Seek::Hole].map(|seek| fs.lseek(ino, from, seek).unwrap());
        assert_eq!(places(0), [3 * PAGE, 0]);
        assert_eq!(places(9 * PAGE), [9 * PAGE, 11 * PAGE]);
        assert_eq!(errno(fs.lseek(ino, 11 * PAGE, Seek::Data)), Some(Errno::NXIO));
        // No unmount: the power fails.
    }
    let fs = image.mount();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    let all = path::read_to_vec(&fs, ino).unwrap();
    let mut right = vec![0; 32 * PAGE as usize];
    right[3 * PAGE as usize + 5..][..7].copy_from_slice(b"written");
    right[9 * PAGE as usize..11 * PAGE as usize].fill(7);
    assert_eq!(all, right);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("preallocated");
    let extents = debugfs(&image, &["ex file"]);
    assert!(extents.contains("Uninit"), "{extents}");
}

#[test]
fn a_range_of_many_extents_is_punched_and_collapsed() {
    let image = Image::new(64);
    let fs = image.mount();
    let ino = create(&fs, b"file");
    // Every other page: as many extents as pages.
    for page in (0..800).step_by(2) {
        fs.write(ino, page * PAGE, &data(page as u32 + 1, 1)).unwrap();
    }
    fs.fsync(ino, false).unwrap();
    let used = fs.getattr(ino).unwrap().blocks;
    assert!(used >= 400 * 8, "{used}");
    fs.fallocate(ino, PUNCH, 100 * PAGE + 7, 400 * PAGE).unwrap();
    assert!(fs.getattr(ino).unwrap().blocks <= used - 199 * 8);
    fs.fallocate(ino, FallocateMode::COLLAPSE_RANGE, 20 * PAGE, 500 * PAGE).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().size, 299 * PAGE);
    fs.fallocate(ino, FallocateMode::INSERT_RANGE, PAGE, 3 * PAGE).unwrap();
    let page = |at: u64| {
        let mut buf = vec![0; PAGE as usize];
        fs.read(ino, at * PAGE, &mut buf).unwrap();
        buf
    };
    assert_eq!(page(0), data(1, 1));
    assert_eq!(page(2), vec![0; PAGE as usize]);
    assert_eq!(page(5), data(3, 1), "page 2 was moved by 3");
    assert_eq!(page(23), data(521, 1), "page 520 by 500 down and 3 up");
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("moved");
    for (mode, offset, len, answer) in [
        (FallocateMode::COLLAPSE_RANGE, 0, 302 * PAGE, Errno::INVAL),
        (FallocateMode::COLLAPSE_RANGE, 7, PAGE, Errno::INVAL),
        (FallocateMode::INSERT_RANGE, 302 * PAGE, PAGE, Errno::INVAL),
        (FallocateMode::PUNCH_HOLE, 0, PAGE, Errno::OPNOTSUPP),
        (FallocateMode::empty(), 0, 1 << 45, Errno::FBIG),
        (FallocateMode::empty(), 0, 1 << 40, Errno::NOSPC),
    ] {
        let fs = image.mount();
        let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
        assert_eq!(errno(fs.fallocate(ino, mode, offset, len)), Some(answer), "{mode:?} {offset}");
        assert_eq!(errno(fs.fallocate(fs.root(), mode & KEEP, 0, 1)), Some(Errno::ISDIR));
    }
    image.mount().unmount().unwrap();
    image.assert_clean("refused");
}

/// Random pages of a file on a volume with a small log: one write-back maps a thousand extents.
#[test]
fn a_write_back_of_a_thousand_holes_fits_the_log() {
    let image = Image::new(64);
    let fs = image.mount();
    let ino = create(&fs, b"sparse");
    for page in (0..3_000).step_by(2) {
        fs.write(ino, page * PAGE, b"x").unwrap();
    }
    fs.fsync(ino, false).unwrap();
    let free = fs.statfs().unwrap().blocks_free;
    fs.setattr(ino, &SetAttr { size: Some(1), ..SetAttr::default() }).unwrap();
    fs.sync().unwrap();
    assert!(fs.statfs().unwrap().blocks_free >= free + 1_499);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("truncated");
}

#[test]
fn a_file_without_a_name_is_gone_or_gets_one() {
    let image = Image::new(16);
    {
        let fs = image.mount();
        let kept = fs.tmpfile(fs.root(), 0o600, Creator::default()).unwrap().ino;
        let lost = fs.tmpfile(fs.root(), 0o600, Creator::default()).unwrap().ino;
        for ino in [kept, lost] {
            fs.write(ino, 0, b"contents").unwrap();
        }
        assert_eq!(fs.getattr(kept).unwrap().nlink, 0);
        fs.link(kept, fs.root(), b"kept").unwrap();
        assert_eq!(fs.getattr(kept).unwrap().nlink, 1);
        fs.fsync(kept, false).unwrap();
        fs.fsync(lost, false).unwrap();
        let closed = fs.tmpfile(fs.root(), 0o600, Creator::default()).unwrap().ino;
        fs.release(closed);
        assert_eq!(errno(fs.getattr(closed)), Some(Errno::NOENT));
        // No unmount: the power fails.
    }
    let fs = image.mount();
    assert_eq!(fs.orphans(), 1);
    let kept = fs.lookup(fs.root(), b"kept").unwrap().ino;
    assert_eq!(path::read_to_vec(&fs, kept).unwrap(), b"contents");
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("recovered");
}

#[test]
fn direct_and_cached_see_the_same() {
    let image = Image::new(32);
    let fs = image.mount();
    let ino = create(&fs, b"file");
    for (offset, len) in [(1, 512), (0, 513), (511, 1)] {
        assert_eq!(errno(fs.write_direct(ino, offset, &vec![0; len])), Some(Errno::INVAL));
        assert_eq!(errno(fs.read_direct(ino, offset, &mut vec![0; len])), Some(Errno::INVAL));
    }
    // New blocks, then the same ones, then sectors of one.
    fs.write_direct(ino, 0, &data(1, 8)).unwrap();
    fs.write_direct(ino, 2 * PAGE, &data(2, 3)).unwrap();
    fs.write_direct(ino, PAGE + 512, &vec![9; 1024]).unwrap();
    let mut right = data(1, 8);
    right[2 * PAGE as usize..5 * PAGE as usize].copy_from_slice(&data(2, 3));
    right[PAGE as usize + 512..][..1024].fill(9);
    assert_eq!(path::read_to_vec(&fs, ino).unwrap(), right);
    // What is only in memory is read from there.
    fs.write(ino, 6 * PAGE, &data(3, 1)).unwrap();
    right[6 * PAGE as usize..7 * PAGE as usize].copy_from_slice(&data(3, 1));
    let mut buf = vec![0; 10 * PAGE as usize];
    assert_eq!(fs.read_direct(ino, 0, &mut buf).unwrap() as u64, 8 * PAGE);
    assert_eq!(buf[..8 * PAGE as usize], right);
    // And what was read before does not hide what was written past it.
    fs.write_direct(ino, 0, &data(4, 1)).unwrap();
    right[..PAGE as usize].copy_from_slice(&data(4, 1));
    assert_eq!(path::read_to_vec(&fs, ino).unwrap(), right);
    // Written, but not mapped as written: unwritten blocks.
    fs.fallocate(ino, KEEP, 8 * PAGE, 4 * PAGE).unwrap();
    fs.write_direct(ino, 8 * PAGE, &data(5, 2)).unwrap();
    fs.fsync(ino, false).unwrap();
    drop(fs);
    let fs = image.mount();
    right.extend(data(5, 2));
    assert_eq!(path::read_to_vec(&fs, ino).unwrap(), right);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("direct");
}

/// A file of so many extents that cutting it takes several transactions, and another thread that
/// writes behind the new end in between: what was cut off does not come back.
#[test]
fn a_write_during_a_long_truncation_reads_zeroes_in_front() {
    const PAGES: u64 = 1600;
    let cut_and_write = || {
        let drive: Arc<dyn Drive> = drive::ram(32 << 10);
        Format.make(&drive).unwrap();
        let fs = Arc::new(Ext4::mount(drive, &MountOptions::default()).unwrap());
        let ino = create(&*fs, b"file");
        fs.write(ino, 0, &vec![1; (PAGES * PAGE) as usize]).unwrap();
        fs.sync().unwrap();
        for page in (0..PAGES).step_by(2) {
            fs.fallocate(ino, PUNCH, page * PAGE, PAGE).unwrap();
        }
        let cutter = {
            let fs = fs.clone();
            cores::spawn("cutter", Some(1), move || {
                fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            })
        };
        while fs.getattr(ino).unwrap().size > 0 {
            cores::sleep(1_000);
        }
        fs.write(ino, PAGES * PAGE, b"behind").unwrap();
        let front = path::read_to_vec(&*fs, ino).unwrap();
        cutter.join();
        fs.unmount().unwrap();
        front[..(PAGES * PAGE) as usize].iter().filter(|byte| **byte != 0).count()
    };
    let profile = Profile::named("xeon-4116").unwrap();
    let left = Machine::simulated(&profile, 1).run(cut_and_write).unwrap();
    assert_eq!(left, 0, "bytes that were cut off");
}

/// The same where contents are in the log, whose blocks are revoked one by one.
#[test]
fn a_write_during_a_long_truncation_of_logged_contents_reads_zeroes_in_front() {
    const PAGES: u64 = 2000;
    let drive: Arc<dyn Drive> = drive::ram(32 << 10);
    Format.make(&drive).unwrap();
    let fs = Arc::new(Ext4::mount(drive, &"data=journal".parse().unwrap()).unwrap());
    for round in 0..50 {
        let ino = create(&*fs, b"file");
        fs.write(ino, 0, &vec![1; (PAGES * PAGE) as usize]).unwrap();
        fs.fsync(ino, false).unwrap();
        let cutter = {
            let fs = fs.clone();
            cores::spawn("cutter", None, move || {
                fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            })
        };
        while fs.getattr(ino).unwrap().size > 0 {
            std::hint::spin_loop();
        }
        fs.write(ino, PAGES * PAGE, b"behind").unwrap();
        let front = path::read_to_vec(&*fs, ino).unwrap();
        cutter.join();
        assert!(front[..(PAGES * PAGE) as usize].iter().all(|byte| *byte == 0), "round {round}");
        fs.unlink(fs.root(), b"file").unwrap();
    }
}
