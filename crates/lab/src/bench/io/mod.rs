//! The interfaces to a file or device side by side, with fio's loads and under fio's names.
//!
//! Interfaces run in turn, several rounds of all of them, because what a machine does differs from
//! minute to minute. A ratio is that of one round, and a figure the median of the rounds. An
//! interface that the kernel or the file refuses says so, and the others run.

mod place;
mod run;
mod table;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use drive::linux::interface::{Kind, Way};
use serde::Serialize;

use super::Spread;
use crate::{Error, Result};

use place::Place;
pub use place::lay_out;
use run::Round;

/// fio's `rw`: what is done, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Reads or writes.
    pub way: Way,
    /// Anywhere, not from front to back.
    pub random: bool,
}

impl Pattern {
    /// All of them, by fio's names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("randread", Self { way: Way::Read, random: true }),
        ("randwrite", Self { way: Way::Write, random: true }),
        ("read", Self { way: Way::Read, random: false }),
        ("write", Self { way: Way::Write, random: false }),
    ];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, pattern)| pattern == self);
        f.pad(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        let known = || Self::ALL.map(|(name, _)| name).join(", ");
        found
            .map(|(_, pattern)| pattern)
            .ok_or_else(|| Error::Usage(format!("unknown load '{name}'; known: {}", known())))
    }
}

/// What the interfaces work on.
#[derive(Clone, Debug)]
pub enum On {
    /// A file or device of this machine.
    Path(PathBuf),
    /// An emulated drive of this profile, in memory: for [`Kind::Drive`] only.
    Emulated(String),
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Job {
    /// On what.
    pub on: On,
    /// Which interfaces; ratios are to the first that works.
    pub kinds: Vec<Kind>,
    /// The load.
    pub pattern: Pattern,
    /// Bytes of a transfer.
    pub block: u64,
    /// Transfers at a time and job.
    pub depth: u16,
    /// Threads, each on a core of its own as far as there are cores.
    pub jobs: u16,
    /// Past the page cache.
    pub direct: bool,
    /// How much of the file or device is used, from its beginning; all of it by default.
    pub size: Option<u64>,
    /// A job of a round ends after so many transfers, if given.
    pub ios: Option<u64>,
    /// And after so many nanoseconds.
    pub runtime_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of places and bytes.
    pub seed: u64,
}

/// A comparison of the interfaces.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The file, device, or drive profile.
    pub on: String,
    /// How much of it was used.
    pub bytes: u64,
    /// fio's name of the load.
    pub rw: String,
    /// Bytes of a transfer.
    pub bs: u64,
    /// Transfers at a time and job, where the interface makes several.
    pub iodepth: u16,
    /// Jobs.
    pub numjobs: u16,
    /// Past the page cache.
    pub direct: bool,
    /// Rounds.
    pub rounds: u64,
    /// The seed.
    pub seed: u64,
    /// One per interface.
    pub interfaces: Vec<Row>,
}

/// One interface.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub ioengine: &'static str,
    /// Transfers at a time and job.
    pub iodepth: u16,
    /// What it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Why it did nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What a reader has to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<&'static str>,
}

/// What an interface did.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Transfers per second of all jobs.
    pub iops: Spread,
    /// Beside the first interface that works, round by round.
    pub over_first: Spread,
    /// Median latency in all rounds, microseconds.
    pub latency_us_p50: f64,
    /// 99th percentile.
    pub latency_us_p99: f64,
    /// 99.9th percentile.
    pub latency_us_p999: f64,
    /// The longest.
    pub latency_us_max: f64,
    /// CPU time of the process in the program, per transfer, microseconds.
    pub user_us_per_io: Spread,
    /// CPU time of the process in the kernel, per transfer, with its threads for rings.
    pub system_us_per_io: Spread,
    /// System calls per transfer, if they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_io: Option<Spread>,
    /// Times a thread had to wait, per transfer.
    pub waits_per_io: Spread,
}

impl Job {
    /// Runs all rounds of all interfaces. Calls `step` after each run.
    pub fn run(&self, step: &mut dyn FnMut()) -> Result<Comparison> {
        let place = Place::new(self)?;
        let mut refused: Vec<Option<String>> = vec![None; self.kinds.len()];
        let mut rounds: Vec<Vec<Round>> = Vec::new();
        rounds.resize_with(self.kinds.len(), Vec::new);
        for round in 0..self.rounds {
            for (i, &kind) in self.kinds.iter().enumerate() {
                if refused[i].is_none() {
                    match run::once(self, &place, kind, round) {
                        Ok(ran) => rounds[i].push(ran),
                        Err(why) => refused[i] = Some(why),
                    }
                }
                step();
            }
        }
        let works = refused.iter().position(Option::is_none);
        let first: Vec<f64> = works.map_or(Vec::new(), |i| iops(&rounds[i]).collect());
        let rows = self.kinds.iter().zip(&rounds).zip(refused).map(|((&kind, rounds), refused)| {
            let measured = if refused.is_none() { Some(measured(rounds, &first)?) } else { None };
            let iodepth = kind.depth(self.depth);
            let remark = kind.remark().filter(|_| refused.is_none());
            Ok(Row { ioengine: kind.name(), iodepth, measured, refused, remark })
        });
        let interfaces = rows.collect::<Result<_>>()?;
        Ok(Comparison {
            on: place.name(),
            bytes: place.bytes(),
            rw: self.pattern.to_string(),
            bs: self.block,
            iodepth: self.depth,
            numjobs: self.jobs,
            direct: self.direct,
            rounds: self.rounds,
            seed: self.seed,
            interfaces,
        })
    }
}

fn iops(rounds: &[Round]) -> impl Iterator<Item = f64> {
    rounds.iter().map(|round| round.ios as f64 * 1e9 / round.took_ns.max(1) as f64)
}

/// The rounds of one interface summed up; `first` are the rates of the one it is compared with.
fn measured(rounds: &[Round], first: &[f64]) -> Result<Measured> {
    let mut latency = super::histogram()?;
    for round in rounds {
        latency.add(&round.latency).map_err(|e| Error::Usage(format!("histogram: {e}")))?;
    }
    let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1e3;
    let per_io = |figure: fn(&Round) -> u64, unit: f64| {
        let each = |round: &Round| figure(round) as f64 / unit / round.ios.max(1) as f64;
        Spread::of(rounds.iter().map(each).collect())
    };
    let counted = rounds.iter().all(|round| round.calls.is_some());
    Ok(Measured {
        iops: Spread::of(iops(rounds).collect()),
        over_first: Spread::of(iops(rounds).zip(first).map(|(ours, first)| ours / first).collect()),
        latency_us_p50: us(0.5),
        latency_us_p99: us(0.99),
        latency_us_p999: us(0.999),
        latency_us_max: latency.max() as f64 / 1e3,
        user_us_per_io: per_io(|round| round.used.user_ns, 1e3),
        system_us_per_io: per_io(|round| round.used.system_ns, 1e3),
        calls_per_io: counted.then(|| per_io(|round| round.calls.unwrap_or(0), 1.0)),
        waits_per_io: per_io(|round| round.used.switches, 1.0),
    })
}

#[cfg(test)]
mod tests;
