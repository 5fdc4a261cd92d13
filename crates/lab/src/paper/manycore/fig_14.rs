//! Figures 14 and 15: the block layer over ramdisk-mq on 120 cores, by hardware queues and by
//! `nr_requests`.
//!
//! The load is that of the authors' published scripts (their repository `Ramdisk_mq`, `exp_many`):
//! fio, 4 KiB random reads of the raw drive, one job per core, 128 requests of each under way
//! (`iodepth=128`). Here each job reads in a stretch of its own, so that the drive's memory is not
//! what cores meet at. The tags and the lines around them are Linux's up to 4.20, which was the
//! kernel of that time ([`Linux::V4`]), and cores are mapped to queues as `blk_mq_map_queues` did:
//! core modulo queues, so every queue is shared by cores of all sockets.
//!
//! A request keeps its tag until its job takes the completion. With 128 under way, 1,024 tags are
//! enough for 8 cores per hardware queue: for 64 cores at 8 queues, for 120 at 15. There the curves
//! of the study bend. In the driver as the authors published it, requests end within `queue_rq`;
//! then a core has one tag at a time, and the rows "ended in queue_rq" show that nothing bends at
//! the number of tags.

use std::collections::VecDeque;
use std::sync::Arc;

use cores::Stage;
use drive::{Command, Memory};
use queue::{BlockQueue, Linux, Options, Ticket};

use super::{Kind, Row};
use crate::workload::Rng;
use crate::{Error, Result, machine_named, now_ns};

/// The study's testbed: eight sockets of 15 cores.
pub(super) const MACHINE: &str = "e7-8870v2-120";
const CORES: u64 = 120;

/// 400 MB, as the scripts make it.
const BLOCKS: u64 = 419_430_400 / drive::BLOCK_SIZE as u64;

/// fio's `iodepth` in the scripts.
pub(super) const UNDER_WAY: usize = 128;

/// Reads of a job before the clock starts: enough to have all under way, and tags run out.
const WARM_UP: u64 = 200;
const READS: u64 = 400;

const STEPS: [u64; 6] = [20, 40, 60, 80, 100, 120];

/// What differs between the curves.
#[derive(Clone, Copy)]
struct Setting {
    queues: u16,
    nr_requests: u16,
    /// The drive ends requests before `queue_rq` returns.
    ends_at_once: bool,
}

/// Thousand reads per second at each of [`STEPS`].
struct Curve([f64; STEPS.len()]);

impl Curve {
    fn at(&self, jobs: u64) -> f64 {
        STEPS.iter().position(|step| *step == jobs).map_or(f64::NAN, |at| self.0[at])
    }

    /// How much more the second number of cores does than the first.
    fn gain(&self, from: u64, to: u64) -> f64 {
        self.at(to) / self.at(from)
    }
}

/// Figure 14.
pub(super) fn hardware_queues(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let few = curve(&mut rows, setting(8, 1024), seed)?;
    let enough = curve(&mut rows, setting(15, 1024), seed)?;
    let many = curve(&mut rows, setting(30, 1024), seed)?;
    let slope = (few.at(60) - few.at(40)) / 20.0 / (few.at(40) / 40.0);
    rows.push(outcome("8 queues: a core beyond 40 over one below", "less", slope).within(0.1, 0.9));
    rows.push(outcome("8 queues: 80 cores over 60", "falls", few.gain(60, 80)).within(0.2, 0.98));
    rows.push(outcome("8 queues: 120 cores over 60", "falls", few.gain(60, 120)).within(0.2, 0.98));
    for (queues, curve) in [(15, enough), (30, many)] {
        let what = format!("{queues} queues: 120 cores over 60");
        rows.push(outcome(what, "scales", curve.gain(60, 120)).within(1.5, 2.1));
    }
    let ended = Setting { ends_at_once: true, ..setting(8, 1024) };
    curve(&mut rows, ended, seed)?;
    Ok(rows)
}

/// Figure 15.
pub(super) fn nr_requests(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let default = curve(&mut rows, setting(8, 1024), seed)?;
    let more = curve(&mut rows, setting(8, 4096), seed)?;
    let gains = [
        ("1,024 requests: 60 cores over 40", "scales", default.gain(40, 60), (1.2, 1.6)),
        ("1,024 requests: 80 cores over 60", "no more", default.gain(60, 80), (0.2, 1.05)),
        ("4,096 requests: 60 cores over 40", "scales", more.gain(40, 60), (1.2, 1.6)),
        ("4,096 requests: 80 cores over 60", "scales", more.gain(60, 80), (1.1, 1.4)),
        ("4,096 requests: 120 cores over 80", "no more", more.gain(80, 120), (0.2, 1.05)),
    ];
    for (what, paper, ours, (low, high)) in gains {
        rows.push(outcome(what, paper, ours).within(low, high));
    }
    for nr_requests in [1024, 4096] {
        let ended = Setting { ends_at_once: true, ..setting(8, nr_requests) };
        curve(&mut rows, ended, seed)?;
    }
    Ok(rows)
}

fn setting(queues: u16, nr_requests: u16) -> Setting {
    Setting { queues, nr_requests, ends_at_once: false }
}

fn outcome(what: impl Into<String>, paper: &str, ours: f64) -> Row {
    Row::new(Kind::Outcome, what, paper, ours, "x")
}

/// Runs one curve, and adds its points to the table. The study gives no figures for them.
fn curve(rows: &mut Vec<Row>, setting: Setting, seed: u64) -> Result<Curve> {
    let Setting { queues, nr_requests, ends_at_once } = setting;
    let mut curve = Curve([0.0; STEPS.len()]);
    for (at, jobs) in STEPS.into_iter().enumerate() {
        curve.0[at] = rate(setting, jobs, seed)?;
        let how = if ends_at_once { ", ended in queue_rq" } else { "" };
        let what = format!("{queues} queues of {nr_requests}{how}, {jobs} cores");
        rows.push(Row::new(Kind::Outcome, what, "", curve.0[at], "KIOPS"));
    }
    Ok(curve)
}

/// Thousand reads per second of `jobs` jobs, one per core from the first on.
fn rate(setting: Setting, jobs: u64, seed: u64) -> Result<f64> {
    let Setting { queues, nr_requests, ends_at_once } = setting;
    let nanos = machine_named(MACHINE, seed)?.run(|| {
        let options = Options { linux: Linux::V4, polled: !ends_at_once, ..Options::default() };
        let drive = Memory::ramdisk_mq(BLOCKS, queues, nr_requests);
        let queue = Arc::new(BlockQueue::with(drive, options));
        run_jobs(&queue, jobs, WARM_UP, seed)?;
        let begun = now_ns();
        run_jobs(&queue, jobs, READS, seed + 1)?;
        Ok::<_, Error>(now_ns() - begun)
    })??;
    Ok((jobs * READS) as f64 / nanos as f64 * 1e6)
}

fn run_jobs(queue: &Arc<BlockQueue>, jobs: u64, reads: u64, seed: u64) -> Result<()> {
    let spawn = |core| {
        let queue = queue.clone();
        let job = Job { first: core * (BLOCKS / CORES), chance: Rng::new(seed, core) };
        cores::spawn("fio", Some(core as usize), move || job.run(&queue, reads))
    };
    let threads: Vec<_> = (0..jobs).map(spawn).collect();
    threads.into_iter().try_for_each(cores::JoinHandle::join)
}

/// One job of fio.
struct Job {
    first: u64,
    chance: Rng,
}

impl Job {
    fn run(mut self, queue: &BlockQueue, reads: u64) -> Result<()> {
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        for _ in 0..reads {
            let lba = self.first + self.chance.below(BLOCKS / CORES);
            let mut read = Command::Read { lba, blocks: 1 };
            let _span = cores::span(Stage::Syscall);
            let ticket = loop {
                match queue.try_submit(read) {
                    Ok(ticket) => break ticket,
                    Err(back) => read = back,
                }
                match under_way.pop_front() {
                    Some(oldest) => reap(queue, oldest)?,
                    // It has no tag for which another job might wait, so it may sleep.
                    None => break queue.submit(read),
                }
            };
            under_way.push_back(ticket);
            if under_way.len() == UNDER_WAY
                && let Some(oldest) = under_way.pop_front()
            {
                reap(queue, oldest)?;
            }
        }
        under_way.into_iter().try_for_each(|ticket| reap(queue, ticket))
    }
}

pub(super) fn reap(queue: &BlockQueue, ticket: Ticket) -> Result<()> {
    let _span = cores::span(Stage::Syscall);
    let read = queue.wait(ticket).map(drop);
    read.map_err(|error| Error::Usage(format!("a read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curves_have_the_studys_shape() {
        for run in [hardware_queues, nr_requests] {
            let rows = run(1).expect("it runs");
            let off: Vec<_> = rows.iter().filter(|row| row.agrees == Some(false)).collect();
            assert!(off.is_empty(), "{off:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_rate() {
        let run = || rate(setting(8, 1024), 70, 5).expect("it runs");
        assert_eq!(run(), run());
    }
}
