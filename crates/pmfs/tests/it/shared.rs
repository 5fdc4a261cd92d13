//! Several threads overwrite one file, in the same segments and in others, each core with a log of
//! its own. Every page is the whole of one write; and a write that had returned before another
//! began, which has returned as well, is not to be seen any more: neither while the threads run,
//! nor after a cut, whose recovery has only the versions to tell what is newer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Machine, Mutex, Profile, splitmix64};
use drive::pm::{Domain, Pending, Pm, PmFault, PmFaulty, PmSim, PmState};
use vfs::kind::Volume;
use vfs::{Creator, FileSystem, Ino, path};

use crate::harness::{empty, findings, mount};

const BLOCK: u64 = 4096;
/// Three segments, the last one in part.
const PAGES: u64 = 150;
/// Pages that threads compete for, and which lie in all segments.
const HOT: u64 = 6;
const THREADS: u64 = 4;
const STEPS: u64 = 20;
const STATES: u64 = 4;
const MACHINE: &str = "xeon-4116";

/// A write of one page or two, which begins at `start` and ends at `end` of a common count.
#[derive(Clone, Debug)]
struct Write {
    pages: Vec<u64>,
    tag: u64,
    start: u64,
    end: Option<u64>,
}

fn bytes(tag: u64, pages: u64) -> Vec<u8> {
    (0..pages * BLOCK / 8)
        .flat_map(|word| splitmix64((tag << 16) | (word % 512)).to_le_bytes())
        .collect()
}

struct Run {
    fs: Arc<dyn Volume>,
    file: Ino,
    clock: AtomicU64,
    writes: Mutex<Vec<Write>>,
}

impl Run {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn thread(&self, thread: u64, seed: u64) -> Result<(), String> {
        for step in 0..STEPS {
            let random = splitmix64(seed ^ thread << 32 ^ step);
            let hot = random % HOT * (PAGES / HOT);
            let pages: Vec<u64> = (hot..hot + 1 + random % 7 / 6).filter(|p| *p < PAGES).collect();
            let tag = 1 + thread * STEPS + step;
            let (first, data) = (pages[0], bytes(tag, pages.len() as u64));
            let start = self.tick();
            let number = {
                let mut writes = self.writes.lock();
                writes.push(Write { pages, tag, start, end: None });
                writes.len() - 1
            };
            let written = self.fs.write(self.file, first * BLOCK, &data);
            if written.map_err(|error| error.to_string())? != data.len() {
                return Err("a short write".into());
            }
            let end = self.tick();
            self.writes.lock()[number].end = Some(end);
            let writes = self.writes.lock().clone();
            judge(&*self.fs, self.file, &writes, None)?;
        }
        Ok(())
    }
}

/// Every page is a write that nothing has replaced for certain. Without `cut`, the volume is in
/// use, and writes that begin meanwhile are not known.
fn judge(fs: &dyn FileSystem, file: Ino, writes: &[Write], cut: Option<u64>) -> Result<(), String> {
    for page in (0..HOT).map(|hot| hot * (PAGES / HOT)) {
        let mut found = vec![0; BLOCK as usize];
        fs.read(file, page * BLOCK, &mut found).map_err(|error| error.to_string())?;
        let here: Vec<&Write> = writes.iter().filter(|write| write.pages.contains(&page)).collect();
        let is = |write: &&&Write| found == bytes(write.tag, 1);
        let Some(seen) = here.iter().find(is) else {
            let is_first = found == bytes(0, 1);
            if is_first && here.iter().all(|write| write.end.is_none())
                || cut.is_none() && !is_first
            {
                continue;
            }
            return Err(format!("page {page} is no write, or the first one after others"));
        };
        let newer = here.iter().find(|it| seen.end.is_some_and(|end| it.start > end));
        if let Some(newer) = newer.filter(|newer| newer.end.is_some()) {
            return Err(format!("page {page} is {seen:?} although there was {newer:?}"));
        }
    }
    Ok(())
}

type Cut = (Pending, Vec<Write>);

fn run(state: PmState, seed: u64, fault: Option<PmFault>) -> Result<Option<Cut>, String> {
    let sim = PmSim::power_on(state, Domain::Memory);
    let pm: Arc<dyn Pm> = match fault {
        Some(fault) => PmFaulty::new(sim.clone(), fault),
        None => sim.clone(),
    };
    let fs = mount(pm)?;
    let file = fs.lookup(fs.root(), b"file").map_err(|error| error.to_string())?.ino;
    let (clock, writes) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let run = Arc::new(Run { fs: fs.clone(), file, clock, writes });
    let cut: Arc<Mutex<Option<Cut>>> = Arc::default();
    let (to, of, fences) = (cut.clone(), run.clone(), AtomicU64::new(0));
    let at = splitmix64(seed) % (THREADS * STEPS * 2);
    sim.observe(Arc::new(move |pending| {
        if fences.fetch_add(1, Ordering::Relaxed) == at {
            *to.lock() = Some((pending, of.writes.lock().clone()));
        }
    }));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let run = run.clone();
            cores::spawn("writer", Some(thread as usize), move || run.thread(thread, seed))
        })
        .collect();
    threads.into_iter().try_for_each(cores::JoinHandle::join)?;
    sim.observe(Arc::new(|_| ()));
    fs.unmount().map_err(|error| error.to_string())?;
    findings(sim)?;
    Ok(cut.lock().take())
}

fn recovered(state: PmState, writes: &[Write]) -> Result<(), String> {
    let sim = PmSim::power_on(state, Domain::Memory);
    findings(sim.clone())?;
    let fs = mount(sim)?;
    let file = fs.lookup(fs.root(), b"file").map_err(|error| error.to_string())?.ino;
    let size = fs.getattr(file).map_err(|error| error.to_string())?.size;
    if size != PAGES * BLOCK {
        return Err(format!("the file has {size} bytes"));
    }
    judge(&*fs, file, writes, Some(0))
}

fn start() -> PmState {
    let sim = PmSim::power_on(empty("pnova", 8 << 20), Domain::Process);
    let fs = mount(sim.clone()).expect("mount");
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).expect("a file").ino;
    path::write_all(&*fs, file, 0, &bytes(0, PAGES)).expect("space");
    fs.unmount().expect("unmount");
    sim.visible()
}

fn schedules(count: u64, fault: Option<PmFault>) -> Result<u64, String> {
    let (start, mut cuts) = (start(), 0);
    let profile = Profile::named(MACHINE).expect("known");
    for seed in 0..count {
        let machine = Machine::simulated(&profile, seed);
        let machine = match seed % 2 {
            0 => machine.preempted(),
            _ => machine.preempted_at_most(1 + (seed / 2 % 3) as u32),
        };
        let state = start.clone();
        let cut = machine.run(|| run(state, seed, fault)).map_err(|deadlock| deadlock.to_string());
        let cut = cut.and_then(|cut| cut).map_err(|why| format!("seed {seed}: {why}"))?;
        let Some((pending, writes)) = cut else { continue };
        cuts += 1;
        for pick in 0..STATES {
            recovered(pending.pick(splitmix64(seed ^ pick << 32)), &writes)
                .map_err(|why| format!("seed {seed}, state {pick}: {why}"))?;
        }
    }
    println!("{count} schedules, {cuts} cuts");
    Ok(cuts)
}

#[test]
fn overwrites_of_one_file_keep_their_order() {
    let cuts = schedules(30, None).unwrap_or_else(|why| panic!("{why}"));
    assert!(cuts > 20, "{cuts}");
}

/// A file that has just grown into a segment has no lock for that one yet.
#[test]
fn overwrites_are_read_together_with_a_segment_that_is_new() {
    let fs = mount(PmSim::power_on(empty("pnova", 8 << 20), Domain::Process)).expect("mount");
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).expect("a file").ino;
    let pages = [(0, 60), (60, 10), (0, 1)];
    for (tag, (first, count)) in (0..).zip(pages) {
        path::write_all(&*fs, file, first * BLOCK, &bytes(tag, count)).expect("space");
    }
    let mut found = vec![0; 70 * BLOCK as usize];
    assert_eq!(fs.read(file, 0, &mut found).expect("it is there"), found.len());
    assert!(found[..BLOCK as usize] == bytes(2, 1));
}

#[test]
fn contents_that_are_not_durable_are_noticed() {
    schedules(10, Some(PmFault::DropStream)).expect_err("entries for pages that a cut takes");
}

#[test]
#[ignore = "minutes: 10,000 schedules"]
fn ten_thousand_schedules_of_overwrites() {
    schedules(10_000, None).unwrap_or_else(|why| panic!("{why}"));
}
