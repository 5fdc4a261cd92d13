//! Recovery of volumes that are nearly full: cut over and over, it must need no more room and no
//! more of the drive's resources the tenth time than the first, and must find what the cleaner
//! moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use cores::Mutex;
use drive::{Command, Drive, DriveState, Event, EventKind, Spec, Ssd, Timing};
use f2fs::F2fs;
use f2fs::mkfs::format;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::{Creator, FileSystem};

use crate::harness::{findings, mkfs_options, power_on};

const PAGE: usize = 4096;
/// Pages of a file.
const PAGES: u64 = 16;
/// Cuts in a row, each during the recovery from the one before.
const CUTS: usize = 12;

/// What is in each page of each file: the byte it is filled with.
type Contents = BTreeMap<(usize, u64), u8>;

/// A drive after a cut, and what was acknowledged and what was written by then.
struct Cut {
    state: DriveState,
    acked: Contents,
    written: Contents,
}

fn name(file: usize) -> String {
    format!("f{file}")
}

/// Where a recovery is cut.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Anywhere.
    Any,
    /// As the block arrives that would make its checkpoint count.
    LastBlock,
    /// As the block arrives that would make the checkpoint count of the cleaning behind it.
    Cleaning,
}

/// Fills a volume up to 99% of what statfs says, overwrites and fsyncs for a while, and is cut
/// during the last fsync.
fn cut_when_full(spec: Spec, options: &str, seed: u64) -> Cut {
    let drive = Ssd::new(spec, Timing::Instant, seed).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &mkfs_options()).unwrap();
    let fs = F2fs::mount(dynamic, &options.parse().unwrap()).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut files, mut written) = (Vec::new(), Contents::new());
    let total = fs.statfs().unwrap().blocks;
    while fs.statfs().unwrap().blocks_free * 100 > total {
        let file = fs.create(fs.root(), name(files.len()).as_bytes(), 0o644, Creator::default());
        let file = file.unwrap().ino;
        fs.write(file, 0, &vec![1; PAGES as usize * PAGE]).unwrap();
        written.extend((0..PAGES).map(|page| ((files.len(), page), 1)));
        files.push(file);
    }
    fs.sync().unwrap();
    let mut acked = written.clone();
    let rounds = rng.random_range(1..400);
    for round in 0..rounds {
        let file = rng.random_range(0..files.len());
        for _ in 0..rng.random_range(1..4) {
            let (page, byte) = (rng.random_range(0..PAGES), (round % 250) as u8 + 2);
            fs.write(files[file], page * PAGE as u64, &[byte; PAGE]).unwrap();
            written.insert((file, page), byte);
        }
        if round + 1 < rounds {
            fs.fsync(files[file], false).unwrap();
            acked.clone_from(&written);
        }
    }
    let cuts = Arc::new(Mutex::new(vec![drive.survivors(seed)]));
    let into = cuts.clone();
    drive.observe(Box::new(move |_, moment| into.lock().push(moment.survivors(seed))));
    let last = rng.random_range(0..files.len());
    fs.fsync(files[last], false).unwrap();
    drive.unobserve();
    let mut cuts = std::mem::take(&mut *cuts.lock());
    let state = cuts.swap_remove(rng.random_range(0..cuts.len()));
    Cut { state, acked, written }
}

fn is_last_block(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::Command { command: Command::Write { fua: true, .. }, .. })
}

/// A mount, and what it would leave were it cut.
fn recovered(state: &DriveState, options: &str, at: At, seed: u64) -> Result<DriveState, String> {
    let drive = power_on(state);
    let states = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let (into, mut rng) = (states.clone(), Xoshiro256PlusPlus::seed_from_u64(seed));
    drive.observe(Box::new(move |event, moment| {
        let mut into = into.lock();
        let read = matches!(event.kind, EventKind::Command { command: Command::Read { .. }, .. });
        if read {
            return;
        }
        let left = moment.survivors(rng.random());
        if is_last_block(event) {
            into.1.push(left.clone());
        }
        into.0.push(left);
    }));
    let mounted = F2fs::mount(drive.clone(), &options.parse().unwrap());
    drive.unobserve();
    drop(mounted.map_err(|error| error.to_string())?);
    let (any, last) = std::mem::take(&mut *states.lock());
    let chosen = match at {
        At::LastBlock => last.into_iter().next(),
        At::Cleaning if last.len() > 1 => last.into_iter().nth(1),
        At::Any | At::Cleaning => {
            let n = Xoshiro256PlusPlus::seed_from_u64(!seed).random_range(0..any.len());
            any.into_iter().nth(n)
        }
    };
    Ok(chosen.expect("a recovery writes a checkpoint"))
}

fn assert_contents(fs: &F2fs, cut: &Cut, what: &str) {
    for (&(file, page), &acked) in &cut.acked {
        let ino = fs.lookup(fs.root(), name(file).as_bytes()).unwrap().ino;
        let mut found = [0; PAGE];
        fs.read(ino, page * PAGE as u64, &mut found).unwrap();
        let allowed = [acked, cut.written[&(file, page)]];
        let is_whole = found == [found[0]; PAGE];
        assert!(
            is_whole && allowed.contains(&found[0]),
            "{what}: file {file} page {page}: {} of {allowed:?}",
            found[0]
        );
    }
}

fn survives(spec: &Spec, options: &str, at: At, seed: u64) {
    let what = format!("-o {options}, cut {at:?}, seed {seed}");
    let cut = cut_when_full(spec.clone(), options, seed);
    let mut state = cut.state.clone();
    for n in 0..CUTS {
        let left = recovered(&state, options, at, seed ^ n as u64);
        state = left.unwrap_or_else(|error| panic!("{what}: after {n} cuts: {error}"));
    }
    let drive = power_on(&state);
    let fs = F2fs::mount(drive.clone(), &options.parse().unwrap());
    let fs = fs.unwrap_or_else(|error| panic!("{what}: the last mount: {error}"));
    assert_contents(&fs, &cut, &what);
    fs.unmount().unwrap();
    assert_eq!(findings(&drive.power_off()), "", "{what}");
}

/// `SEED=7 SEEDS=1` repeats seed 7. Each seed has its own options and its own drive.
fn survive(spec: &Spec, options: &[&str]) {
    let number =
        |name, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let from: u64 = number("SEED", 0);
    for seed in from..from + number("SEEDS", 4) {
        let options = options[seed as usize % options.len()];
        let spec = if seed / 2 % 2 == 0 { spec.clone() } else { spec.clone().unkind() };
        for at in [At::Any, At::LastBlock, At::Cleaning] {
            survives(&spec, options, at, seed);
        }
    }
}

#[test]
fn zones() {
    let spec = Spec::named("zn540-noplp").unwrap().zone_size(1024, 768).zones(80, 5);
    survive(&spec, &["oprw", "fsync_mode=strict"]);
}

#[test]
fn conventional() {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(16 * 1024);
    survive(&spec, &["mode=lfs", "fsync_mode=strict,oprw", ""]);
}

/// A block is overwritten in place where the cleaner has put it, before a checkpoint knows that
/// place: the fsync has to record it.
#[test]
fn what_is_overwritten_where_the_cleaner_put_it_is_found_there() {
    /// A page that a node beside the inode points to.
    const FAR: u64 = 1000;
    let spec = Spec::named("conventional-noplp").unwrap().blocks(16 * 1024);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &mkfs_options()).unwrap();
    let fs = F2fs::mount(dynamic, &"".parse().unwrap()).unwrap();
    let make = |name: &str| {
        let made = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
        let file = made.unwrap().ino;
        fs.write(file, FAR * PAGE as u64, &[1; 8 * PAGE]).unwrap();
        file
    };
    let total = fs.statfs().unwrap().blocks;
    let mut files = Vec::new();
    while fs.statfs().unwrap().blocks_free * 100 > total * 4 {
        files.push((name(files.len()), make(&name(files.len()))));
    }
    fs.sync().unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..600 {
        let gone = rng.random_range(0..files.len());
        fs.unlink(fs.root(), files[gone].0.as_bytes()).unwrap();
        files[gone].0 = format!("new{round}");
        files[gone].1 = make(&files[gone].0);
        let (name, file) = &files[rng.random_range(0..files.len())];
        let (page, byte) = (FAR + rng.random_range(0..8), (round % 250) as u8 + 2);
        fs.write(*file, page * PAGE as u64, &[byte; PAGE]).unwrap();
        fs.fsync(*file, false).unwrap();
        let left = F2fs::mount(power_on(&drive.survivors(round)), &"".parse().unwrap()).unwrap();
        let found = left.lookup(left.root(), name.as_bytes()).unwrap().ino;
        let mut block = [0; PAGE];
        left.read(found, page * PAGE as u64, &mut block).unwrap();
        assert!(block == [byte; PAGE], "round {round}: page {page} of {name} has {}", block[0]);
    }
    assert!(fs.cleaned_sections() > 10, "{} sections cleaned", fs.cleaned_sections());
}
