//! Several threads on one volume, on real cores and on virtual ones in virtual time.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, DriveState, Ssd, Timing};
use f2fs::F2fs;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino};

use crate::harness::{self, Kind};

const THREADS: usize = 6;
const ROUNDS: u64 = 40;

/// Each thread has its own file and a block of a shared one, and fsyncs both again and again; one
/// writes checkpoints in between.
fn work(fs: &F2fs, shared: Ino, me: usize) {
    let name = format!("own {me}");
    let own = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    for round in 0..ROUNDS {
        let stamp = [(me as u64 * ROUNDS + round) as u8; 4096];
        fs.write(own, round % 9 * 4096, &stamp).unwrap();
        fs.fsync(own, false).unwrap();
        fs.write(shared, me as u64 * 4096, &stamp).unwrap();
        fs.fsync(shared, round % 2 == 0).unwrap();
        if me == 0 && round % 8 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// Runs all threads and cuts the power when the last fsync has returned.
fn run(state: DriveState, timing: Timing, options: &str) -> DriveState {
    let drive = Ssd::power_on(state, timing, 7);
    let fs = Arc::new(harness::mount(&drive, options));
    let shared = fs.create(fs.root(), b"shared", 0o644, Creator::default()).unwrap().ino;
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let fs = fs.clone();
            cores::spawn("worker", Some(me % cores::core_count()), move || work(&fs, shared, me))
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    drive.cut(11)
}

fn verify(state: DriveState) {
    let drive = Ssd::power_on(state, Timing::Instant, 1);
    let fs = harness::mount(&drive, "");
    let shared = fs.lookup(fs.root(), b"shared").unwrap().ino;
    for me in 0..THREADS {
        let mut block = [0; 4096];
        fs.read(shared, me as u64 * 4096, &mut block).unwrap();
        let last = (me as u64 * ROUNDS + ROUNDS - 1) as u8;
        assert!(block.iter().all(|byte| *byte == last), "thread {me} in the shared file");
        let own = fs.lookup(fs.root(), format!("own {me}").as_bytes()).unwrap().ino;
        for index in 0..9 {
            fs.read(own, index * 4096, &mut block).unwrap();
            let round = (0..ROUNDS).rev().find(|round| round % 9 == index).unwrap();
            let expected = (me as u64 * ROUNDS + round) as u8;
            assert!(block.iter().all(|byte| *byte == expected), "thread {me}, block {index}");
        }
    }
    fs.unmount().unwrap();
    let dynamic: Arc<dyn Drive> = drive;
    let report = f2fs::check::check(&dynamic, &f2fs::check::CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Schedules of a preempted machine that each test explores.
const SCHEDULES: u64 = 20;

#[test]
fn fsyncs_of_many_threads_survive_on_real_cores() {
    for kind in Kind::ALL {
        for options in ["", "fsync_mode=strict"] {
            let state = kind.formatted(1).power_off();
            let after = Machine::real().run(|| run(state, Timing::Instant, options)).unwrap();
            verify(after);
        }
    }
}

#[test]
fn fsyncs_of_many_threads_survive_on_virtual_cores() {
    let profile = Profile::named("xeon-4116").unwrap();
    for kind in Kind::ALL {
        for (seed, options) in [(1, ""), (2, "fsync_mode=strict"), (3, "oprw")] {
            if options == "oprw" && kind == Kind::Conventional {
                continue; // No write pointers to recover by: the mount refuses it.
            }
            for seed in seed * 1000..seed * 1000 + SCHEDULES {
                let state = kind.formatted(1).power_off();
                let machine = Machine::simulated(&profile, seed).preempted();
                verify(machine.run(|| run(state, Timing::Virtual, options)).unwrap());
            }
        }
    }
}

/// Overwrites a block in a log, an fsync each time, while another thread writes checkpoints. What a
/// power cut leaves after each fsync in `watched`.
fn fsync_across_segments(watched: std::ops::Range<u32>) -> Vec<(u32, DriveState)> {
    let drive = Kind::Conventional.formatted_at(1, Timing::Virtual);
    let fs = Arc::new(harness::mount(&drive, "mode=lfs"));
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
    let (file, other) = (create("file").unwrap().ino, create("other").unwrap().ino);
    let ended = Arc::new(cores::Mutex::named("ended", false));
    let (checkpoints, end) = (fs.clone(), ended.clone());
    let checkpoints = cores::spawn("checkpoints", Some(1), move || {
        while !*end.lock() {
            checkpoints.setxattr(other, b"user.a", b"b", vfs::XattrMode::Set).unwrap();
            checkpoints.write_checkpoint().unwrap();
        }
    });
    let mut left = Vec::new();
    for n in 0..watched.end {
        fs.write(file, 0, &[0; 4096]).unwrap();
        fs.write(file, 0, &n.to_le_bytes()).unwrap();
        fs.fsync(file, false).unwrap();
        if watched.contains(&n) {
            left.push((n, drive.survivors(n.into())));
        }
    }
    *ended.lock() = true;
    checkpoints.join();
    left
}

/// At the end of a segment an fsync that began under the shared lock goes on under the exclusive
/// one, perhaps after another thread's checkpoint, which has not made its data durable.
#[test]
fn an_fsync_that_crosses_segments_survives_beside_checkpoints() {
    let profile = Profile::named("xeon-4116").unwrap();
    for seed in 0..SCHEDULES {
        let machine = Machine::simulated(&profile, seed).preempted();
        for (n, state) in machine.run(|| fsync_across_segments(440..515)).unwrap() {
            let fs = harness::mount(&Ssd::power_on(state, Timing::Instant, 1), "");
            let file = fs.lookup(fs.root(), b"file").unwrap().ino;
            let mut found = [0; 4];
            fs.read(file, 0, &mut found).unwrap();
            assert_eq!(u32::from_le_bytes(found), n, "seed {seed}");
        }
    }
}

/// Blocks of the file that is read while it is written, more than the smallest cache holds.
const SHARED_PAGES: u64 = 400;

/// Writes every block of `file` with the number of the round, one fsync in between now and then.
fn overwrite(fs: &F2fs, file: Ino, rounds: u8) {
    for round in 1..=rounds {
        for page in 0..SHARED_PAGES {
            fs.write(file, page * 4096, &[round; 4096]).unwrap();
            if page % 50 == 0 {
                fs.fsync(file, false).unwrap();
            }
        }
        if round % 4 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// Reads blocks of `file` in its own order: each is whole, and none is ever older than when it was
/// last seen.
fn watch(fs: &F2fs, file: Ino, step: u64) {
    let mut seen = vec![0; SHARED_PAGES as usize];
    let mut block = [0; 4096];
    for n in 0..SHARED_PAGES * 12 {
        let page = n * step % SHARED_PAGES;
        fs.read(file, page * 4096, &mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == block[0]), "block {page} is of two rounds");
        assert!(block[0] >= seen[page as usize], "block {page} went back");
        seen[page as usize] = block[0];
    }
}

fn read_and_write(drive: Arc<Ssd>, options: &str) {
    let fs = Arc::new(harness::mount(&drive, options));
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    overwrite(&fs, file, 1);
    let mut threads = Vec::new();
    for (core, step) in [(1, 1), (2, 7), (3, 399)] {
        let fs = fs.clone();
        let core = core % cores::core_count();
        threads.push(cores::spawn("reader", Some(core), move || watch(&fs, file, step)));
    }
    overwrite(&fs, file, 10);
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.unmount().unwrap();
    assert_eq!(harness::findings(&drive.power_off()), "");
}

/// Reads ask the drive with the volume free; their results must still be valid when they return.
#[test]
fn reads_beside_writes_never_go_back() {
    let profile = Profile::named("xeon-4116").unwrap();
    for kind in Kind::ALL {
        let options = "cache=1m";
        Machine::real().run(|| read_and_write(kind.formatted(1), options)).unwrap();
        for seed in 0..SCHEDULES {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = || read_and_write(kind.formatted_at(1, Timing::Virtual), options);
            machine.run(run).unwrap();
        }
    }
}

/// Rounds in which a name is replaced while others look at it.
const REPLACEMENTS: u64 = 60;

/// Replaces the file `name` again and again by one that is a block longer or, in the end, shorter,
/// filled with the number of its blocks.
fn replace(fs: &F2fs, dir: Ino) {
    for round in 0..REPLACEMENTS {
        let blocks = 1 + round % 5;
        let new = fs.create(dir, b"new", 0o644, Creator::default()).unwrap().ino;
        fs.write(new, 0, &vec![blocks as u8; blocks as usize * 4096]).unwrap();
        fs.rename(dir, b"new", dir, b"name", vfs::RenameFlags::empty()).unwrap();
        if round % 7 == 0 {
            fs.fsync(new, false).unwrap();
        }
        if round % 25 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// The name is always there, once, and what it leads to is of one piece.
fn look(fs: &F2fs, dir: Ino) {
    let mut buf = vec![0; 6 * 4096];
    for _ in 0..REPLACEMENTS {
        let attr = fs.lookup(dir, b"name").unwrap();
        assert_eq!(attr.size % 4096, 0);
        if fs.open(attr.ino).is_ok() {
            // The number may be that of the next file already, before or behind its one write.
            let read = fs.read(attr.ino, 0, &mut buf).unwrap();
            let size = fs.getattr(attr.ino).unwrap().size;
            assert!(read == 0 || read as u64 == size, "contents and attributes of two files");
            assert!(buf[..read].iter().all(|byte| u64::from(*byte) == size / 4096));
            fs.release(attr.ino);
        }
        let mut found = 0;
        fs.readdir(dir, 0, &mut |entry| {
            found += u32::from(entry.name == b"name");
            true
        })
        .unwrap();
        assert_eq!(found, 1, "times that the name is listed");
    }
}

/// Looks at a directory of `names` other names while one of its names is replaced.
fn look_and_replace(drive: Arc<Ssd>, names: usize) {
    let fs = Arc::new(harness::mount(&drive, "cache=1m"));
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    for n in 0..names {
        fs.create(dir, format!("other {n}").as_bytes(), 0o644, Creator::default()).unwrap();
    }
    fs.create(dir, b"name", 0o644, Creator::default()).unwrap();
    let threads: Vec<_> = (1..4)
        .map(|core| {
            let fs = fs.clone();
            let core = core % cores::core_count();
            cores::spawn("looker", Some(core), move || look(&fs, dir))
        })
        .collect();
    replace(&fs, dir);
    threads.into_iter().for_each(cores::JoinHandle::join);
    fs.unmount().unwrap();
    assert_eq!(harness::findings(&drive.power_off()), "");
}

/// Look-ups run under the volume's shared lock, concurrently with renames: in the inode of a small
/// directory, and in the blocks of a large one.
#[test]
fn names_are_seen_whole_beside_their_replacement() {
    let profile = Profile::named("xeon-4116").unwrap();
    for (kind, names) in [(Kind::Conventional, 3), (Kind::Zoned, 900)] {
        Machine::real().run(|| look_and_replace(kind.formatted(1), names)).unwrap();
        for seed in 0..SCHEDULES {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = || look_and_replace(kind.formatted_at(1, Timing::Virtual), names);
            machine.run(run).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        }
    }
}

/// Directories whose names are indexed, one or two more than there is room for with `cache=1m`.
const DIRECTORIES: usize = 8;
/// Names that each of them keeps.
const KEPT: usize = 1300;
/// Names that each thread moves through all of them.
const MOVED: usize = 25;

fn directories(fs: &F2fs) -> Vec<Ino> {
    let find = |n| fs.lookup(fs.root(), format!("dir {n}").as_bytes()).unwrap().ino;
    (0..DIRECTORIES).map(find).collect()
}

/// A drive with large directories.
fn with_large_directories(kind: Kind) -> DriveState {
    let drive = kind.formatted(1);
    let fs = harness::mount(&drive, "");
    for n in 0..DIRECTORIES {
        let name = format!("dir {n}");
        let dir = fs.mkdir(fs.root(), name.as_bytes(), 0o755, Creator::default()).unwrap().ino;
        let first = fs.create(dir, b"kept 0", 0o644, Creator::default()).unwrap().ino;
        for n in 1..KEPT {
            fs.link(first, dir, format!("kept {n}").as_bytes()).unwrap();
        }
    }
    fs.unmount().unwrap();
    drive.power_off()
}

/// Makes names, moves each from directory to directory, and removes it. Before and after each
/// step it is where it should be, and other names are where they always were.
fn move_names(fs: &F2fs, me: usize) {
    let dirs = directories(fs);
    let is_there = |dir, name: &[u8]| fs.lookup(dir, name).is_ok();
    for n in 0..MOVED {
        let name = format!("{n} of {me}").into_bytes();
        fs.create(dirs[0], &name, 0o644, Creator::default()).unwrap();
        for (i, (&from, &to)) in dirs.iter().zip(&dirs[1..]).enumerate() {
            assert!(is_there(from, &name) && !is_there(to, &name), "{n} of {me}, step {i}");
            fs.rename(from, &name, to, &name, vfs::RenameFlags::empty()).unwrap();
            assert!(is_there(to, &name) && !is_there(from, &name), "{n} of {me}, step {i}");
            let kept = format!("kept {}", (n * 37 + i * 11 + me) % KEPT);
            assert!(is_there(to, kept.as_bytes()), "{kept} in directory {}", i + 1);
        }
        fs.unlink(dirs[DIRECTORIES - 1], &name).unwrap();
        assert!(!is_there(dirs[DIRECTORIES - 1], &name));
    }
}

fn move_at_once(drive: &Arc<Ssd>) {
    let fs = Arc::new(harness::mount(drive, "cache=1m"));
    let threads = (0..4).map(|me| {
        let fs = fs.clone();
        cores::spawn("mover", Some(me % cores::core_count()), move || move_names(&fs, me))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    for dir in directories(&fs) {
        let mut names = 0;
        fs.readdir(dir, 0, &mut |_| {
            names += 1;
            true
        })
        .unwrap();
        assert_eq!(names, KEPT + 2);
    }
    fs.unmount().unwrap();
    assert_eq!(harness::findings(&drive.power_off()), "");
}

/// The indexes of large directories are made, changed, looked at and dropped by many at once.
#[test]
fn names_of_large_directories_are_where_they_should_be() {
    let profile = Profile::named("xeon-4116").unwrap();
    for kind in Kind::ALL {
        let state = with_large_directories(kind);
        let drive = harness::power_on(&state);
        Machine::real().run(|| move_at_once(&drive)).unwrap();
        for seed in 0..SCHEDULES {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = || move_at_once(&Ssd::power_on(state.clone(), Timing::Virtual, seed));
            machine.run(run).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        }
    }
}

/// Blocks that nobody has taken before threads append to their files.
const LEFT: u64 = 300;

/// A byte that says whose block this is.
fn stamp(me: usize, page: u64) -> u8 {
    (me as u64 * 61 + page) as u8 | 1
}

/// Appends blocks and parts of blocks until there is no room. How many pages the file has then.
fn append(fs: &F2fs, file: Ino, me: usize) -> u64 {
    for page in 0.. {
        let (offset, len) = if page % 3 == 2 { (500, 1000) } else { (0, 4096) };
        match fs.write(file, page * 4096 + offset, &vec![stamp(me, page); len]) {
            Ok(written) => assert_eq!(written, len),
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                return page;
            }
        }
        if page % 16 == 0 {
            fs.fsync(file, false).unwrap();
        }
    }
    unreachable!("no file is without end")
}

/// All take the last blocks at once, and each block is taken once.
fn fill(drive: &Arc<Ssd>) {
    let fs = Arc::new(harness::mount(drive, ""));
    let make = |name: &str| fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
    let files: Vec<Ino> = (0..4).map(|me| make(&format!("own {me}")).unwrap().ino).collect();
    // Inline contents would have to move into blocks of their own first.
    files.iter().for_each(|file| assert_eq!(fs.write(*file, 0, &[1; 4096]).unwrap(), 4096));
    let rest = make("rest").unwrap().ino;
    let taken = (fs.statfs().unwrap().blocks_free - LEFT) * 4096;
    // Their direct nodes take some of what is left.
    fs.fallocate(rest, FallocateMode::empty(), 0, taken - taken / 1000).unwrap();
    let appenders = files.iter().enumerate().map(|(me, file)| {
        let (fs, file) = (fs.clone(), *file);
        cores::spawn("append", Some(me % cores::core_count()), move || append(&fs, file, me))
    });
    let appenders: Vec<_> = appenders.collect();
    let pages: Vec<u64> = appenders.into_iter().map(cores::JoinHandle::join).collect();
    let left = fs.statfs().unwrap().blocks_free;
    assert!(left <= 1, "{left} blocks are left, {pages:?}");
    fs.unmount().unwrap();
    drop(fs);
    let state = drive.power_off();
    assert_eq!(harness::findings(&state), "");
    let fs = harness::mount(&harness::power_on(&state), "");
    for (me, (file, pages)) in files.iter().zip(pages).enumerate() {
        for page in 0..pages {
            let mut byte = [0];
            fs.read(*file, page * 4096 + 700, &mut byte).unwrap();
            assert_eq!(byte[0], stamp(me, page), "file {me}, page {page}");
        }
    }
}

#[test]
fn files_that_grow_at_once_share_what_is_left() {
    let profile = Profile::named("xeon-4116").unwrap();
    for kind in Kind::ALL {
        let state = kind.formatted(1).power_off();
        let drive = harness::power_on(&state);
        Machine::real().run(|| fill(&drive)).unwrap();
        for seed in 0..SCHEDULES {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = || fill(&Ssd::power_on(state.clone(), Timing::Virtual, seed));
            machine.run(run).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        }
    }
}
