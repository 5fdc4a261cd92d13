//! One interface in one round: so many jobs that start together.

use std::io;
use std::sync::Arc;

use cores::Nanos;
use drive::linux::interface::{Interface, Kind, Setup, Target, Usage};
use hdrhistogram::Histogram;

use super::Job;
use super::place::Place;
use crate::bench::start::Start;
use crate::workload::Rng;
use crate::{bench, now_ns};

/// What one interface did in one round.
pub(super) struct Round {
    pub(super) ios: u64,
    /// From the first start to the last end.
    pub(super) took_ns: Nanos,
    pub(super) latency: Histogram<u64>,
    pub(super) used: Usage,
    pub(super) calls: Option<u64>,
}

/// One job's part of it.
struct Part {
    began: Nanos,
    ended: Nanos,
    ios: u64,
    latency: Histogram<u64>,
    /// Closed only when the time is taken: closing a ring takes long.
    interface: Box<dyn Interface>,
    /// System calls before it began.
    calls: u64,
}

/// What one job does.
struct Work {
    kind: Kind,
    setup: Setup,
    target: Target,
    /// The blocks it uses: the first, and how many.
    first: u64,
    blocks: u64,
    random: bool,
    ios: u64,
    runtime_ns: Nanos,
    rng: Rng,
}

/// Runs `kind` once; the error says in a line why it cannot be.
pub(super) fn once(job: &Job, place: &Place<'_>, kind: Kind, round: u64) -> Result<Round, String> {
    let target = place.open(kind)?;
    let start = Arc::new(Start::new());
    let jobs = u64::from(job.jobs);
    let threads: Vec<_> = (0..job.jobs)
        .map(|n| {
            let setup = place.setup(n, round);
            let share = place.blocks() / jobs;
            let (first, blocks) = match job.pattern.random {
                true => (0, place.blocks()),
                false => (u64::from(n) * share, share),
            };
            let work = Work {
                kind,
                setup,
                target: target.clone(),
                first,
                blocks,
                random: job.pattern.random,
                ios: job.ios.unwrap_or(u64::MAX),
                runtime_ns: job.runtime_ns,
                rng: Rng::new(job.seed ^ round, u64::from(n)),
            };
            let (start, core) = (start.clone(), usize::from(n) % cores::core_count());
            cores::spawn("bench io", Some(core), move || work.run(&start))
        })
        .collect();
    let prepared = start.wait_for(jobs);
    let before = Usage::now();
    start.say(prepared);
    let parts: Vec<_> = threads.into_iter().map(cores::JoinHandle::join).collect();
    let used = Usage::now().since(&before);
    let parts: Result<Vec<Option<Part>>, String> = parts.into_iter().collect();
    sum_up(parts?.into_iter().flatten().collect(), used)
}

fn sum_up(parts: Vec<Part>, used: Usage) -> Result<Round, String> {
    let began = parts.iter().map(|part| part.began).min().unwrap_or(0);
    let ended = parts.iter().map(|part| part.ended).max().unwrap_or(0);
    let mut latency = bench::histogram().map_err(|error| error.to_string())?;
    let (mut ios, mut calls) = (0, Some(0));
    for part in &parts {
        latency.add(&part.latency).map_err(|error| error.to_string())?;
        ios += part.ios;
        let since = part.interface.calls().map(|now| now - part.calls);
        calls = calls.zip(since).map(|(all, some)| all + some);
    }
    Ok(Round { ios, took_ns: ended - began, latency, used, calls })
}

impl Work {
    /// Opens the interface, waits for the word, and works. `None` if it was told to give up.
    fn run(self, start: &Start) -> Result<Option<Part>, String> {
        let preparing = start.prepare();
        let kind = self.kind;
        let explain = |error: io::Error| kind.explain(&error);
        let mut interface = kind.open(&self.target, &self.setup).map_err(explain)?;
        // What can never work fails here, and not in the middle of a measurement.
        let mut probed = Vec::new();
        interface.start(0, self.first * self.setup.block as u64).map_err(explain)?;
        interface.wait(&mut probed).map_err(explain)?;
        let latency = bench::histogram().map_err(|error| error.to_string())?;
        if !preparing.line_up() {
            return Ok(None);
        }
        let began = now_ns();
        let calls = interface.calls().unwrap_or(0);
        let part = Part { began, ended: began, ios: 0, latency, interface, calls };
        self.measure(part).map(Some).map_err(explain)
    }

    /// Keeps as many transfers under way as it may, until it has made enough or time is up, and
    /// then waits for the last ones.
    fn measure(mut self, mut part: Part) -> io::Result<Part> {
        let depth = self.kind.depth(self.setup.depth);
        let mut begun = vec![0; usize::from(depth)];
        let mut free: Vec<u16> = (0..depth).rev().collect();
        let deadline = part.began.saturating_add(self.runtime_ns);
        let (mut started, mut now) = (0, part.began);
        loop {
            while started < self.ios
                && now < deadline
                && let Some(slot) = free.pop()
            {
                begun[usize::from(slot)] = now_ns();
                part.interface.start(slot, self.place(started))?;
                started += 1;
            }
            if started == part.ios {
                part.ended = now;
                return Ok(part);
            }
            let before = free.len();
            part.interface.wait(&mut free)?;
            now = now_ns();
            for &slot in &free[before..] {
                let since = now.saturating_sub(begun[usize::from(slot)]);
                part.latency.saturating_record(since.max(1));
                part.ios += 1;
            }
        }
    }

    /// Where transfer number `n` goes, in bytes.
    fn place(&mut self, n: u64) -> u64 {
        let offset = if self.random { self.rng.below(self.blocks) } else { n % self.blocks };
        (self.first + offset) * self.setup.block as u64
    }
}
