//! Atomic writes: after every cut, what is written between start and commit is there completely or
//! not at all, and what was committed is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cores::{Machine, Mutex, Profile};
use drive::{DriveState, Ssd, Timing};
use f2fs::F2fs;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, Seek, SetAttr};

use crate::harness::{Kind, dump, findings, mount, power_on};
use crate::judge::{Scratch, assert_fsck_clean};

const PAGE: usize = 4096;
/// Pages of the file that is written atomically, at first.
const PAGES: usize = 400;
/// Atomic writes of a run. Some do not fit the cache, so they are written back before they are
/// committed; some are aborted.
const ROUNDS: usize = 7;
/// Ways in which each cut is taken.
const SURVIVORS: u64 = 2;

/// Where and how.
#[derive(Clone, Copy, Debug)]
struct Setup {
    kind: Kind,
    options: &'static str,
    seed: u64,
}

/// What is left of a volume at one event of its drive.
struct Cut {
    event: u64,
    begun: usize,
    committed: usize,
    state: DriveState,
}

/// One atomic write: what goes where, and whether it is committed.
struct Round {
    writes: Vec<(usize, Vec<u8>)>,
    commits: bool,
}

fn rounds(seed: u64) -> Vec<Round> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut round = |n: usize| {
        // The cache is of 256 pages.
        let count = if n.is_multiple_of(3) { 60 } else { 6 };
        let mut write = |_| {
            let at = rng.random_range(0..PAGES * PAGE + n * 5 * PAGE);
            let len = rng.random_range(1..8 * PAGE);
            (at, vec![rng.random(); len])
        };
        Round { writes: (0..count).map(&mut write).collect(), commits: n % 4 != 2 }
    };
    (0..ROUNDS).map(&mut round).collect()
}

/// The file's contents after each commit.
fn versions(rounds: &[Round]) -> Vec<Vec<u8>> {
    let mut versions = vec![vec![0xaa; PAGES * PAGE]];
    for round in rounds.iter().filter(|round| round.commits) {
        let mut next = versions[versions.len() - 1].clone();
        apply(&mut next, &round.writes);
        versions.push(next);
    }
    versions
}

fn apply(contents: &mut Vec<u8>, writes: &[(usize, Vec<u8>)]) {
    for (at, data) in writes {
        contents.resize(contents.len().max(at + data.len()), 0);
        contents[*at..at + data.len()].copy_from_slice(data);
    }
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn contents(fs: &F2fs, ino: Ino) -> Vec<u8> {
    let mut found = vec![0; fs.getattr(ino).unwrap().size as usize + 1];
    let len = fs.read(ino, 0, &mut found).unwrap();
    assert_eq!(len + 1, found.len(), "what is read, and the size");
    found.truncate(len);
    found
}

fn write(fs: &F2fs, ino: Ino, at: usize, data: &[u8]) {
    assert_eq!(fs.write(ino, at as u64, data).unwrap(), data.len());
}

impl Setup {
    /// Runs all rounds beside a thread that makes others durable, and takes cuts.
    fn run(self, rounds: &[Round]) -> Vec<Cut> {
        let drive = self.kind.formatted_at(self.seed, Timing::Virtual);
        let fs = Arc::new(mount(&drive, &format!("cache=1m,{}", self.options)));
        let file = create(&fs, "file");
        write(&fs, file, 0, &versions(&[])[0]);
        fs.sync().unwrap();
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let (cuts, seen, seed) = (Arc::new(Mutex::new(Vec::new())), counts.clone(), self.seed);
        let (into, mut event) = (cuts.clone(), 0);
        drive.observe(Box::new(move |_, moment| {
            event += 1;
            let (begun, committed) =
                (seen.0.load(Ordering::Relaxed), seen.1.load(Ordering::Relaxed));
            for n in 0..SURVIVORS {
                let state = moment.survivors(seed ^ event << 8 ^ n);
                into.lock().push(Cut { event, begun, committed, state });
            }
        }));
        let done = Arc::new(AtomicBool::new(false));
        let (beside, ends) = (fs.clone(), done.clone());
        let other = cores::spawn("other", Some(1), move || disturb(&beside, &ends));
        for round in rounds {
            fs.start_atomic_write(file).unwrap();
            for (at, data) in &round.writes {
                write(&fs, file, *at, data);
                cores::sleep(20_000);
            }
            if round.commits {
                counts.0.fetch_add(1, Ordering::Relaxed);
                fs.commit_atomic_write(file).unwrap();
                counts.1.fetch_add(1, Ordering::Relaxed);
            } else {
                fs.abort_atomic_write(file).unwrap();
            }
        }
        // The last one is never ended.
        fs.start_atomic_write(file).unwrap();
        write(&fs, file, 0, &[0xee; 50 * PAGE]);
        fs.sync().unwrap();
        done.store(true, Ordering::Relaxed);
        other.join();
        drive.unobserve();
        std::mem::take(&mut *cuts.lock())
    }

    /// What is wrong with what a cut left.
    fn judge(self, cut: &Cut, versions: &[Vec<u8>]) -> Result<DriveState, String> {
        let drive = power_on(&cut.state);
        let options = self.options.split(",inject").next().unwrap();
        let mount = |options: &str| {
            let fs = F2fs::mount(drive.clone(), &options.parse().unwrap());
            let fs = fs.map_err(|error| format!("mount -o {options}: {error}"))?;
            let file = fs.lookup(fs.root(), b"file").map_err(|error| error.to_string())?;
            let found = contents(&fs, file.ino);
            if versions[cut.committed..=cut.begun].contains(&found) {
                return Ok(fs);
            }
            let known = versions.iter().position(|version| *version == found);
            let wanted = cut.committed..=cut.begun;
            Err(format!("-o {options}: version {known:?}, not one of {wanted:?}"))
        };
        mount(&format!("ro,{options}"))?;
        let fs = mount(options)?;
        fs.unmount().map_err(|error| format!("unmount: {error}"))?;
        let state = drive.power_off();
        let found = findings(&state);
        if found.is_empty() { Ok(state) } else { Err(found) }
    }

    /// What every `step`-th cut shows that must not be there.
    fn broken(self, step: usize) -> Vec<String> {
        let rounds = rounds(self.seed);
        let versions = versions(&rounds);
        let profile = Profile::named("xeon-4116").unwrap();
        let cuts = Machine::simulated(&profile, self.seed).run(|| self.run(&rounds)).unwrap();
        assert!(cuts.len() > 200, "{self:?}: {} cuts", cuts.len());
        let scratch = Scratch::new();
        let mut broken = Vec::new();
        let mut judged = 0;
        for cut in cuts.iter().step_by(step) {
            judged += 1;
            match self.judge(cut, &versions) {
                Err(what) => broken.push(format!("{self:?}, event {}: {what}", cut.event)),
                Ok(state) if judged % 50 == 0 => {
                    let image = scratch.dir().join("image");
                    dump(&state, &image);
                    assert_fsck_clean(&image);
                }
                Ok(_) => {}
            }
        }
        println!("{self:?}: {judged} of {} cuts, {} broken", cuts.len(), broken.len());
        broken
    }
}

/// Makes others durable, by fsync and by checkpoint, and cleans.
fn disturb(fs: &F2fs, done: &AtomicBool) {
    let mut n = 0;
    while !done.load(Ordering::Relaxed) {
        let file = create(fs, &format!("other {n}"));
        write(fs, file, 0, &[n as u8; 3 * PAGE]);
        fs.fsync(file, false).unwrap();
        match n % 5 {
            1 => fs.sync().unwrap(),
            3 => assert!(matches!(errno(fs.garbage_collect(true)), None | Some(Errno::NODATA))),
            _ => {}
        }
        cores::sleep(150_000);
        n += 1;
    }
}

const CONVENTIONAL: [&str; 4] =
    ["", "fsync_mode=strict", "fsync_mode=strict,oprw", "mode=lfs,fsync_mode=nobarrier"];
const ZONED: [&str; 4] = ["", "fsync_mode=strict", "oprw", "fsync_mode=strict,oprw"];

fn all_or_nothing(kind: Kind, modes: &[&'static str], seed: u64, step: usize) {
    for options in modes {
        let broken = Setup { kind, options, seed }.broken(step);
        assert!(
            broken.is_empty(),
            "{} broken: {:#?}",
            broken.len(),
            &broken[..broken.len().min(9)]
        );
    }
}

#[test]
fn a_cut_leaves_all_or_nothing_on_a_conventional_drive() {
    all_or_nothing(Kind::Conventional, &CONVENTIONAL, 1, 3);
}

#[test]
fn a_cut_leaves_all_or_nothing_on_zones() {
    all_or_nothing(Kind::Zoned, &ZONED, 1, 3);
}

#[test]
#[ignore = "long: every cut of several seeds"]
fn every_cut_leaves_all_or_nothing() {
    for seed in 2..5 {
        all_or_nothing(Kind::Conventional, &CONVENTIONAL, seed, 1);
        all_or_nothing(Kind::Zoned, &ZONED, seed, 1);
    }
}

#[test]
fn what_orders_a_commit_is_needed() {
    for (kind, options) in [
        (Kind::Conventional, "inject=drop-preflush"),
        (Kind::Conventional, "fsync_mode=strict,inject=drop-flush"),
        (Kind::Zoned, "fsync_mode=strict,oprw,inject=drop-flush"),
        (Kind::Zoned, "oprw,nowp_check"),
    ] {
        let setup = Setup { kind, options, seed: 1 };
        assert!(!setup.broken(2).is_empty(), "{setup:?}: nothing was noticed");
    }
}

/// A volume with one file of a few pages, durable.
struct Scene {
    drive: Arc<Ssd>,
    fs: F2fs,
    file: Ino,
}

impl Scene {
    fn new(kind: Kind, options: &str) -> Self {
        let drive = kind.formatted(1);
        let fs = mount(&drive, options);
        let file = create(&fs, "file");
        write(&fs, file, 0, &[1; 20 * PAGE]);
        fs.sync().unwrap();
        Self { drive, fs, file }
    }

    fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(|kind| Self::new(kind, "cache=1m"))
    }

    /// What is in the file after a cut now.
    fn after_cut(&self) -> Vec<u8> {
        let fs = mount(&power_on(&self.drive.survivors(3)), "");
        contents(&fs, fs.lookup(fs.root(), b"file").unwrap().ino)
    }

    /// Unmounts and asks both judges; what is in the file afterwards.
    fn finish(self) -> Vec<u8> {
        self.fs.unmount().unwrap();
        let state = self.drive.power_off();
        assert_eq!(findings(&state), "");
        let scratch = Scratch::new();
        let image = scratch.dir().join("image");
        dump(&state, &image);
        assert_fsck_clean(&image);
        let fs = mount(&power_on(&state), "");
        contents(&fs, fs.lookup(fs.root(), b"file").unwrap().ino)
    }
}

fn errno<T>(result: Result<T, impl Into<vfs::Error>>) -> Option<Errno> {
    result.err().map(|error| error.into().errno())
}

#[test]
fn what_is_written_is_seen_at_once_and_durable_with_the_commit() {
    for on in Scene::all() {
        let old = contents(&on.fs, on.file);
        let writes = [(100, vec![2; 10]), (5 * PAGE, vec![3; PAGE]), (30 * PAGE + 7, vec![4; 9])];
        let mut new = old.clone();
        apply(&mut new, &writes);
        on.fs.start_atomic_write(on.file).unwrap();
        for (at, data) in &writes {
            write(&on.fs, on.file, *at, data);
        }
        assert_eq!(contents(&on.fs, on.file), new);
        assert_eq!(on.fs.lseek(on.file, 0, Seek::Hole).unwrap(), new.len() as u64);
        on.fs.fsync(on.file, false).unwrap();
        on.fs.sync().unwrap();
        assert_eq!(on.after_cut(), old);
        // No more is needed for a second start.
        on.fs.start_atomic_write(on.file).unwrap();
        on.fs.commit_atomic_write(on.file).unwrap();
        assert_eq!(contents(&on.fs, on.file), new);
        assert_eq!(on.after_cut(), new);
        on.fs.commit_atomic_write(on.file).unwrap();
        assert_eq!(on.finish(), new);
    }
}

#[test]
fn an_abort_leaves_what_was() {
    type End = fn(&Scene);
    // On request, when the file is last closed, or at unmount.
    let ends: [(End, bool); 3] = [
        (|on| on.fs.abort_atomic_write(on.file).unwrap(), true),
        (|on| on.fs.release(on.file), true),
        (|_| {}, false),
    ];
    for (end, ends_at_once) in ends {
        for on in Scene::all() {
            let old = contents(&on.fs, on.file);
            let free = on.fs.statfs().unwrap().blocks_free;
            on.fs.open(on.file).unwrap();
            on.fs.start_atomic_write(on.file).unwrap();
            // Far behind the end: nodes are made for it.
            for at in [3 * PAGE, 3000 * PAGE] {
                write(&on.fs, on.file, at, &[9; 200 * PAGE]);
            }
            on.fs.sync().unwrap();
            end(&on);
            if ends_at_once {
                assert_eq!(contents(&on.fs, on.file), old);
                assert_eq!(on.fs.statfs().unwrap().blocks_free, free);
            }
            assert_eq!(on.after_cut(), old);
            assert_eq!(on.finish(), old);
        }
    }
}

#[test]
fn space_is_taken_by_the_write() {
    for on in Scene::all() {
        let filler = create(&on.fs, "filler");
        let room = on.fs.statfs().unwrap().blocks_free as usize;
        for at in 0..room - 40 {
            write(&on.fs, filler, at * PAGE, &[7; PAGE]);
        }
        on.fs.sync().unwrap();
        let old = contents(&on.fs, on.file);
        on.fs.start_atomic_write(on.file).unwrap();
        let mut new = old.clone();
        let mut refused = 0;
        for n in 0..100 {
            let written = (at(n), vec![5; PAGE]);
            match errno(on.fs.write(on.file, written.0 as u64, &written.1)) {
                None => apply(&mut new, &[written]),
                Some(Errno::NOSPC) => refused += 1,
                other => panic!("write {n}: {other:?}"),
            }
        }
        assert!((1..100).contains(&refused), "{refused} writes were refused");
        assert_eq!(contents(&on.fs, on.file), new);
        on.fs.commit_atomic_write(on.file).unwrap();
        assert_eq!(on.after_cut(), new);
        assert_eq!(on.finish(), new);
    }
    /// Overwrites first, then pages behind the end, some of which need nodes.
    fn at(n: usize) -> usize {
        if n < 15 { n * PAGE } else { n * 500 * PAGE }
    }
}

#[test]
fn what_cannot_be_written_atomically_says_so() {
    let on = Scene::new(Kind::Conventional, "");
    let dir = on.fs.mkdir(on.fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    assert_eq!(errno(on.fs.start_atomic_write(dir)), Some(Errno::INVAL));
    let pinned = create(&on.fs, "pinned");
    on.fs.set_pin_file(pinned, true).unwrap();
    assert_eq!(errno(on.fs.start_atomic_write(pinned)), Some(Errno::INVAL));
    on.fs.start_atomic_write(on.file).unwrap();
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(errno(on.fs.setattr(on.file, &cut)), Some(Errno::BUSY));
    let grown = on.fs.fallocate(on.file, FallocateMode::empty(), 0, 1 << 20);
    assert_eq!(errno(grown), Some(Errno::BUSY));
    assert_eq!(errno(on.fs.set_pin_file(on.file, true)), Some(Errno::BUSY));
    assert_eq!(errno(on.fs.defragment(on.file, 0, 1 << 20)), Some(Errno::BUSY));
    on.finish();
}

/// Small contents leave the inode; a second name makes the commit a checkpoint; a file without a
/// name is freed, together with what lies over it.
#[test]
fn files_of_every_kind_are_written_atomically() {
    for on in Scene::all() {
        let small = create(&on.fs, "small");
        write(&on.fs, small, 0, b"inline");
        on.fs.link(on.file, on.fs.root(), b"second").unwrap();
        let nameless = create(&on.fs, "nameless");
        on.fs.open(nameless).unwrap();
        on.fs.unlink(on.fs.root(), b"nameless").unwrap();
        let mut expected = BTreeMap::new();
        for ino in [small, on.file, nameless] {
            let mut new = contents(&on.fs, ino);
            on.fs.start_atomic_write(ino).unwrap();
            write(&on.fs, ino, 3, b"atomic");
            on.fs.commit_atomic_write(ino).unwrap();
            apply(&mut new, &[(3, b"atomic".to_vec())]);
            assert_eq!(contents(&on.fs, ino), new);
            expected.insert(ino, new);
            on.fs.start_atomic_write(ino).unwrap();
            write(&on.fs, ino, 0, &[9; 5 * PAGE]);
        }
        let cut = mount(&power_on(&on.drive.survivors(5)), "");
        for ino in [small, on.file] {
            assert_eq!(contents(&cut, ino), expected[&ino]);
        }
        on.fs.release(nameless);
        assert_eq!(errno(on.fs.getattr(nameless)), Some(Errno::NOENT));
        let file = on.file;
        assert_eq!(on.finish(), expected[&file]);
    }
}

#[test]
fn a_commit_that_recovery_can_judge_takes_one_flush() {
    for (kind, options, flushes) in [
        (Kind::Conventional, "", 2),
        (Kind::Conventional, "fsync_mode=strict,oprw", 1),
        (Kind::Zoned, "fsync_mode=strict", 2),
        (Kind::Zoned, "oprw", 1),
        (Kind::Zoned, "oprw,nobarrier", 0),
    ] {
        let on = Scene::new(kind, options);
        let before = on.drive.stats().flushes;
        on.fs.start_atomic_write(on.file).unwrap();
        write(&on.fs, on.file, 5 * PAGE, &[2; 4 * PAGE]);
        on.fs.commit_atomic_write(on.file).unwrap();
        assert_eq!(on.drive.stats().flushes - before, flushes, "{kind:?} {options}");
    }
}
