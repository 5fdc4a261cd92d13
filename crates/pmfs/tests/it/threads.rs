//! Several threads on one volume, their cores taken away where a seed says, and the power cut at a
//! fence that it picks: whatever the medium keeps, each thread finds what its last call that
//! returned left, or what the call under way would leave.
//!
//! A failure names the seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Machine, Mutex, Profile, splitmix64};
use drive::pm::{Domain, Pending, PmSim, PmState};
use vfs::kind::Volume;
use vfs::{Creator, FileSystem, RenameFlags, path};

use crate::harness::{DESIGNS, empty, findings, mount};

const THREADS: u64 = 4;
/// Calls of each thread.
const STEPS: u64 = 24;
/// States looked at for each cut.
const STATES: u64 = 4;
const MACHINE: &str = "xeon-4116";

/// The names of a thread and what they hold.
type Files = BTreeMap<String, Vec<u8>>;

fn bytes(thread: u64, step: u64) -> Vec<u8> {
    let len = 1 + splitmix64(thread << 32 | step) % 9000;
    (0..len).map(|n| splitmix64(thread << 40 | step << 20 | n) as u8).collect()
}

/// The call that a thread makes at a step, in directories that all share: on the volume if there is
/// one, and on what the thread has by then.
fn step(fs: Option<&dyn FileSystem>, files: &mut Files, thread: u64, step: u64) -> vfs::Result<()> {
    let round = step / 6;
    let (one, other) = (format!("x/{thread}-{round}"), format!("y/{thread}-{round}"));
    let split = |name: &str| (name.as_bytes()[..1].to_vec(), name.as_bytes()[2..].to_vec());
    let ((x, name), (y, _)) = (split(&one), split(&other));
    let old = format!("y/{thread}-{}", round.wrapping_sub(1));
    match step % 6 {
        0 => drop(files.insert(one.clone(), Vec::new())),
        1 | 2 => {
            let more = bytes(thread, step);
            files.get_mut(&one).expect("made before").extend(more);
        }
        3 => {
            let moved = files.remove(&one).expect("made before");
            files.insert(other.clone(), moved);
        }
        4 => drop(files.remove(&old)),
        _ => {
            files.get_mut(&other).expect("moved before").truncate(100);
        }
    }
    let Some(fs) = fs else { return Ok(()) };
    let at = |path: &[u8]| path::resolve(fs, path, true).map(|attr| attr.ino);
    let (x, y) = (at(&x)?, at(&y)?);
    match step % 6 {
        0 => fs.create(x, &name, 0o644, Creator::default()).map(drop),
        1 | 2 => {
            let ino = fs.lookup(x, &name)?.ino;
            let more = bytes(thread, step);
            let end = fs.getattr(ino)?.size;
            fs.write(ino, end, &more).map(|written| assert_eq!(written, more.len()))
        }
        3 => fs.rename(x, &name, y, &name, RenameFlags::empty()),
        4 if round == 0 => Ok(()),
        4 => fs.unlink(y, &old.as_bytes()[2..]),
        _ => {
            let size = Some(100.min(fs.lookup(y, &name)?.size));
            let set = vfs::SetAttr { size, ..vfs::SetAttr::default() };
            fs.setattr(fs.lookup(y, &name)?.ino, &set).map(drop)
        }
    }
}

fn files(thread: u64, steps: u64) -> Files {
    let mut files = Files::new();
    (0..steps).for_each(|n| step(None, &mut files, thread, n).expect("no volume, no error"));
    files
}

fn found(fs: &dyn FileSystem) -> vfs::Result<Files> {
    let mut files = Files::new();
    for dir in ["x", "y"] {
        let ino = fs.lookup(fs.root(), dir.as_bytes())?.ino;
        let mut names = Vec::new();
        fs.readdir(ino, 0, &mut |entry| {
            names.push(entry.name);
            true
        })?;
        for name in names.iter().filter(|name| !name.starts_with(b".")) {
            let ino = fs.lookup(ino, name)?.ino;
            let name = format!("{dir}/{}", String::from_utf8_lossy(name));
            files.insert(name, path::read_to_vec(fs, ino)?);
        }
    }
    Ok(files)
}

/// A cut: what it may leave, and how many calls of each thread had returned.
type Cut = (Pending, Vec<u64>);

/// Runs the threads and cuts at a fence that the seed picks.
fn run(state: PmState, seed: u64) -> Result<Option<Cut>, String> {
    let sim = PmSim::power_on(state, Domain::Memory);
    let fs: Arc<dyn Volume> = mount(sim.clone())?;
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..THREADS).map(|_| AtomicU64::new(0)).collect());
    let cut: Arc<Mutex<Option<Cut>>> = Arc::default();
    let fences = AtomicU64::new(0);
    let at = splitmix64(seed) % (THREADS * STEPS * 3);
    let (to, progress) = (cut.clone(), done.clone());
    sim.observe(Arc::new(move |pending| {
        if fences.fetch_add(1, Ordering::Relaxed) == at {
            let done = progress.iter().map(|done| done.load(Ordering::Relaxed)).collect();
            *to.lock() = Some((pending, done));
        }
    }));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (fs, done) = (fs.clone(), done.clone());
            cores::spawn("caller", Some(thread as usize), move || -> Result<(), String> {
                let mut files = Files::new();
                for number in 0..STEPS {
                    step(Some(&*fs), &mut files, thread, number)
                        .map_err(|error| format!("thread {thread}, step {number}: {error}"))?;
                    done[thread as usize].fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    threads.into_iter().try_for_each(cores::JoinHandle::join)?;
    fs.unmount().map_err(|error| error.to_string())?;
    findings(sim)?;
    Ok(cut.lock().take())
}

fn judge(state: PmState, done: &[u64]) -> Result<(), String> {
    let sim = PmSim::power_on(state, Domain::Memory);
    findings(sim.clone())?;
    let fs = mount(sim)?;
    let found = found(&*fs).map_err(|error| error.to_string())?;
    for (thread, &steps) in (0..).zip(done) {
        let prefix = format!("/{thread}-");
        let own: Files = found
            .iter()
            .filter(|it| it.0.contains(&prefix))
            .map(|(n, b)| (n.clone(), b.clone()))
            .collect();
        if own != files(thread, steps) && own != files(thread, steps + 1) {
            let names: Vec<_> = own.iter().map(|(name, bytes)| (name, bytes.len())).collect();
            return Err(format!("thread {thread} after {steps} calls finds {names:?}"));
        }
    }
    Ok(())
}

fn start(design: &str) -> PmState {
    let sim = PmSim::power_on(empty(design, 1 << 21), Domain::Process);
    let fs = mount(sim.clone()).expect("mount");
    for name in [b"x", b"y"] {
        fs.mkdir(fs.root(), name, 0o755, Creator::default()).expect("a directory");
    }
    fs.unmount().expect("unmount");
    sim.visible()
}

fn schedules(design: &str, count: u64) {
    let start = start(design);
    let profile = Profile::named(MACHINE).expect("known");
    let (mut cuts, mut states) = (0, 0);
    for seed in 0..count {
        let machine = Machine::simulated(&profile, seed);
        let machine = match seed % 2 {
            0 => machine.preempted(),
            _ => machine.preempted_at_most(1 + (seed / 2 % 3) as u32),
        };
        let state = start.clone();
        let cut = machine.run(|| run(state, seed)).map_err(|deadlock| deadlock.to_string());
        let cut =
            cut.and_then(|cut| cut).unwrap_or_else(|why| panic!("{design}, seed {seed}: {why}"));
        let Some((pending, done)) = cut else { continue };
        cuts += 1;
        for pick in 0..STATES {
            states += 1;
            judge(pending.pick(splitmix64(seed ^ pick << 32)), &done)
                .unwrap_or_else(|why| panic!("{design}, seed {seed}, state {pick}: {why}"));
        }
    }
    println!("{design}: {count} schedules, {cuts} cuts, {states} states");
    assert!(cuts * 10 >= count * 8, "{cuts} of {count} schedules were cut");
}

#[test]
fn threads_find_what_their_calls_left() {
    DESIGNS.into_iter().for_each(|design| schedules(design, 30));
}

#[test]
#[ignore = "minutes: 10,000 schedules"]
fn ten_thousand_schedules() {
    DESIGNS.into_iter().for_each(|design| schedules(design, 10_000));
}
