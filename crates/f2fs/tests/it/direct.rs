//! Reading and writing past the page cache: which files do, what is refused, what others see
//! meanwhile, and what a power cut leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use cores::{Machine, Profile};
use drive::{Drive, Lba, Timing};
use f2fs::mkfs::format;
use f2fs::{F2fs, MountOptions};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::kind::PageAt;
use vfs::{Errno, FallocateMode, FileSystem, Ino};

use crate::harness::files::{create, read};
use crate::harness::{self, Kind, findings, mount, power_on};

const PAGE: usize = 4096;

fn errno<T: std::fmt::Debug>(done: vfs::Result<T>) -> Errno {
    done.expect_err("it is not possible").errno()
}

/// Where the pages of a file are; `None` if in memory.
fn places(fs: &F2fs, ino: Ino) -> Vec<Option<Lba>> {
    let mut places = Vec::new();
    let known = fs.pages(ino, 0..1 << 20, &mut |_, page| {
        places.push(match page {
            PageAt::Drive(lba) => Some(lba),
            PageAt::Memory(_) => None,
        });
    });
    assert!(known.unwrap());
    places
}

/// A file of pages of ones that is durable and not in memory.
fn written(fs: &F2fs, name: &str, pages: usize) -> Ino {
    let ino = create(fs, name);
    assert_eq!(fs.write_direct(ino, 0, &vec![1; pages * PAGE]).unwrap(), pages * PAGE);
    fs.fsync(ino, false).unwrap();
    ino
}

#[test]
fn only_whole_sectors_where_the_cache_is_passed() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, "");
    let ino = written(&fs, "file", 3);
    let mut buf = vec![9; 2 * PAGE];
    for (offset, len) in [(1, PAGE), (256, PAGE), (0, PAGE - 1), (0, 511), (4095, 1)] {
        assert_eq!(errno(fs.read_direct(ino, offset, &mut buf[..len])), Errno::INVAL);
        assert_eq!(errno(fs.write_direct(ino, offset, &buf[..len])), Errno::INVAL);
    }
    // Whole sectors go through the cache, as in Linux.
    assert_eq!(fs.write_direct(ino, 512, &buf[..PAGE]).unwrap(), PAGE);
    let mut sectors = [0; 1024];
    assert_eq!(fs.read_direct(ino, 0, &mut sectors).unwrap(), 1024);
    assert!(sectors[..512].iter().all(|byte| *byte == 1));
    assert!(sectors[512..].iter().all(|byte| *byte == 9));
    assert_eq!(fs.write_direct(ino, 0, &[]).unwrap(), 0);
    assert_eq!(errno(fs.read_direct(fs.root(), 0, &mut buf)), Errno::ISDIR);
    assert_eq!(errno(fs.write_direct(fs.root(), 0, &buf)), Errno::ISDIR);

    // The end of the file need not be that of a block.
    fs.write(ino, 3 * PAGE as u64, b"tail").unwrap();
    fs.fsync(ino, false).unwrap();
    assert_eq!(fs.read_direct(ino, 2 * PAGE as u64, &mut buf).unwrap(), PAGE + 4);
    assert_eq!(&buf[PAGE..PAGE + 4], b"tail");
    assert_eq!(fs.read_direct(ino, 4 * PAGE as u64, &mut buf).unwrap(), 0);

    // Contents in the inode are read through the cache, and a direct write takes them out.
    let inline = create(&fs, "inline");
    fs.write(inline, 0, b"small").unwrap();
    assert_eq!(fs.read_direct(inline, 1, &mut buf[..2]).unwrap(), 2);
    assert_eq!(fs.write_direct(inline, PAGE as u64, &buf[..PAGE]).unwrap(), PAGE);
    assert_eq!(fs.read_direct(inline, 0, &mut buf).unwrap(), 2 * PAGE);
    assert_eq!((&buf[..5], buf[5]), (&b"small"[..], 0));

    // On zones all writes are of a log, so they are collected (`f2fs_force_buffered_io`).
    let fs = mount(&Kind::Zoned.formatted(1), "");
    let ino = create(&fs, "file");
    assert_eq!(fs.write_direct(ino, 1, &[7; 10]).unwrap(), 10);
    assert_eq!(fs.write_direct(ino, 0, &[7; 2 * PAGE]).unwrap(), 2 * PAGE);
    assert_eq!(places(&fs, ino), [None, None]);
}

#[test]
fn what_is_written_directly_is_on_the_drive_and_not_in_memory() {
    let fs = mount(&Kind::Conventional.formatted(1), "");
    let ino = written(&fs, "file", 100);
    assert!(places(&fs, ino).iter().all(Option::is_some));

    // Memory has the newer contents of one page and the same of another.
    let mut buf = vec![0; 100 * PAGE];
    fs.write(ino, 7 * PAGE as u64 + 10, &[2; 5]).unwrap();
    fs.read(ino, 9 * PAGE as u64, &mut buf[..PAGE]).unwrap();
    assert_eq!(fs.read_direct(ino, 0, &mut buf).unwrap(), 100 * PAGE);
    let newer = 7 * PAGE + 10..7 * PAGE + 15;
    assert!((0..buf.len()).all(|at| buf[at] == if newer.contains(&at) { 2 } else { 1 }));
    assert_eq!(places(&fs, ino)[8..10], [places(&fs, ino)[8], None], "a direct read evicts none");

    // A direct write takes both out of memory, and dirty pages beside it stay.
    fs.write(ino, 20 * PAGE as u64, &[4; 1]).unwrap();
    fs.write_direct(ino, 7 * PAGE as u64, &[3; 3 * PAGE]).unwrap();
    let absent: Vec<usize> = places(&fs, ino)
        .iter()
        .enumerate()
        .filter(|(_, at)| at.is_none())
        .map(|(i, _)| i)
        .collect();
    assert_eq!(absent, [20]);
    fs.read(ino, 0, &mut buf).unwrap();
    assert!(buf[7 * PAGE..10 * PAGE].iter().all(|byte| *byte == 3));
    assert_eq!((buf[20 * PAGE], buf[20 * PAGE + 1], buf[10 * PAGE]), (4, 1, 1));

    // A hole, and blocks that are promised but were never written.
    let sparse = create(&fs, "sparse");
    fs.fallocate(sparse, FallocateMode::empty(), 0, 2 * PAGE as u64).unwrap();
    fs.write_direct(sparse, 3 * PAGE as u64, &[5; PAGE]).unwrap();
    assert_eq!(fs.read_direct(sparse, 0, &mut buf).unwrap(), 4 * PAGE);
    assert!(buf[..3 * PAGE].iter().all(|byte| *byte == 0) && buf[3 * PAGE] == 5);
}

/// On a volume too large for write-back to update in place, a direct write still does, and so does
/// a small fsync (`ipu_policy`), but not where everything is a log.
#[test]
fn direct_writes_stay_where_blocks_are() {
    let drive: Arc<dyn Drive> = drive::ram(20 << 18);
    format(&drive, &harness::mkfs_options()).unwrap();
    for (options, stays) in [("mode=adaptive", true), ("mode=lfs", false)] {
        let fs = F2fs::mount(drive.clone(), &options.parse::<MountOptions>().unwrap()).unwrap();
        let ino = written(&fs, options, 4);
        let before = places(&fs, ino);
        fs.write_direct(ino, PAGE as u64, &[2; PAGE]).unwrap();
        let moved: Vec<bool> = places(&fs, ino).iter().zip(&before).map(|(a, b)| a != b).collect();
        assert_eq!(moved, [false, !stays, false, false], "'{options}'");
        fs.write(ino, 0, &[3; PAGE]).unwrap();
        fs.fsync(ino, false).unwrap();
        fs.write_direct(ino, 0, &[3; PAGE]).unwrap();
        assert_eq!(places(&fs, ino)[0] == before[0], stays, "'{options}': a small fsync");
        fs.write(ino, 0, &[3; PAGE]).unwrap();
        fs.sync().unwrap();
        fs.write_direct(ino, 0, &[3; PAGE]).unwrap();
        assert_ne!(places(&fs, ino)[0], before[0], "'{options}': write-back moves it");
        fs.unmount().unwrap();
    }
}

/// A completed direct write is in the drive's cache, but not yet durable.
#[test]
fn durable_only_with_an_fsync() {
    for options in ["", "fsync_mode=strict", "mode=lfs"] {
        let drive = Kind::Conventional.formatted(1);
        let fs = mount(&drive, options);
        let ino = written(&fs, "file", 8);
        fs.write_direct(ino, 0, &[2; 8 * PAGE]).unwrap();
        let (mut new, mut old) = (0, 0);
        for seed in 0..50 {
            let left = drive.survivors(seed);
            let data = read(&mount(&power_on(&left), ""), "file").expect("it was fsynced");
            for block in data.chunks(PAGE) {
                assert!(block.iter().all(|byte| *byte == block[0]), "{options}, seed {seed}: torn");
                match block[0] {
                    1 => old += 1,
                    2 => new += 1,
                    other => panic!("{options}, seed {seed}: {other}"),
                }
            }
        }
        assert!(old > 0, "{options}: {new} blocks were durable without an fsync");
        assert_eq!(new > 0, options != "mode=lfs", "only in place may it be there");

        // The blocks behind the end are found by a node, which the fsync writes.
        fs.write_direct(ino, 8 * PAGE as u64, &[2; PAGE]).unwrap();
        fs.fsync(ino, false).unwrap();
        for seed in 0..50 {
            let left = drive.survivors(seed);
            let data = read(&mount(&power_on(&left), ""), "file").expect("it was fsynced");
            assert_eq!((data.len(), data.iter().all(|byte| *byte == 2)), (9 * PAGE, true));
            assert_eq!(findings(&left), "", "{options}, seed {seed}");
        }
    }
}

/// Blocks of the file that threads share.
const BLOCKS: u64 = 6;
const WRITERS: u64 = 3;
const ROUNDS: u64 = 60;

/// For each block, the last version whose write had begun, and the last that was complete.
#[derive(Default)]
struct Versions {
    begun: [AtomicU64; BLOCKS as usize],
    done: [AtomicU64; BLOCKS as usize],
}

/// Writes the blocks of one writer and fsyncs, some directly and some not.
fn writer(fs: &F2fs, ino: Ino, versions: &Versions, me: u64, mut rng: Xoshiro256PlusPlus) {
    for version in 1..=ROUNDS {
        let block = me + WRITERS * rng.random_range(0..BLOCKS / WRITERS);
        let at = block * PAGE as u64;
        let data: Vec<u8> = version.to_le_bytes().repeat(PAGE / 8);
        versions.begun[block as usize].store(version, SeqCst);
        if rng.random_bool(0.5) {
            fs.write_direct(ino, at, &data).unwrap();
        } else {
            let half = PAGE / 2;
            fs.write(ino, at, &data[..half]).unwrap();
            fs.write(ino, at + half as u64, &data[half..]).unwrap();
        }
        versions.done[block as usize].store(version, SeqCst);
        match rng.random_range(0..8) {
            0 => fs.fsync(ino, false).unwrap(),
            1 => fs.write_checkpoint().unwrap(),
            2 => drop(fs.background_gc().unwrap()),
            _ => {}
        }
    }
}

/// Reads runs of blocks, directly or not: no half of a block is older than what was complete before
/// the read, nor newer than what had begun before it ended.
fn reader(fs: &F2fs, ino: Ino, versions: &Versions, mut rng: Xoshiro256PlusPlus) {
    let mut buf = vec![0; BLOCKS as usize * PAGE];
    for _ in 0..2 * ROUNDS {
        let first = rng.random_range(0..BLOCKS);
        let len = (BLOCKS - first) as usize * PAGE;
        let least: Vec<u64> = versions.done.iter().map(|version| version.load(SeqCst)).collect();
        let direct = rng.random_bool(0.6);
        let read = match direct {
            true => fs.read_direct(ino, first * PAGE as u64, &mut buf[..len]),
            false => fs.read(ino, first * PAGE as u64, &mut buf[..len]),
        };
        assert_eq!(read.unwrap(), len);
        for (half, bytes) in buf[..len].chunks(PAGE / 2).enumerate() {
            let block = first as usize + half / 2;
            let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let most = versions.begun[block].load(SeqCst);
            assert!(
                (least[block]..=most).contains(&version),
                "block {block}, direct {direct}: {version}, not {}..={most}",
                least[block]
            );
            assert!(bytes.chunks(8).all(|word| word == version.to_le_bytes()), "torn");
        }
    }
}

fn together(seed: u64, options: &str) {
    let drive = Kind::Conventional.formatted_at(seed, Timing::Virtual);
    let fs = Arc::new(mount(&drive, options));
    let ino = create(&fs, "shared");
    fs.write_direct(ino, 0, &[0; BLOCKS as usize * PAGE]).unwrap();
    let versions = Arc::new(Versions::default());
    let threads: Vec<_> = (0..WRITERS + 2)
        .map(|me| {
            let (fs, versions) = (fs.clone(), versions.clone());
            let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ me << 32);
            cores::spawn("direct", Some(me as usize), move || match me < WRITERS {
                true => writer(&fs, ino, &versions, me, rng),
                false => reader(&fs, ino, &versions, rng),
            })
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.fsync(ino, false).unwrap();
    let left = drive.cut(seed);
    let data = read(&mount(&power_on(&left), ""), "shared").expect("it was fsynced");
    for (block, bytes) in data.chunks(PAGE).enumerate() {
        let last = versions.done[block].load(SeqCst).to_le_bytes();
        assert!(bytes.chunks(8).all(|word| word == last), "block {block} after the cut");
    }
    assert_eq!(findings(&left), "");
}

/// A failed schedule names its seed and options.
#[test]
fn threads_agree_on_what_a_file_holds() {
    let profile = Profile::named("xeon-4116").unwrap();
    for options in ["", "mode=lfs", "fsync_mode=strict", "cache=1m"] {
        for seed in 0..40 {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = std::panic::AssertUnwindSafe(|| machine.run(|| together(seed, options)));
            let done = std::panic::catch_unwind(run);
            assert!(done.is_ok_and(|run| run.is_ok()), "seed {seed}, options '{options}'");
        }
    }
}
