//! The emulated drive beside its closed form: what a profile promises, and what the model does, in
//! simulated time. It is driven by one thread that takes no time.

use std::sync::Arc;

use cores::{Machine, Nanos, Profile as MachineProfile};
use drive::{BLOCK_SIZE, Block, Command, Drive, Lba, Profile, Spec, Ssd, Timing};
use serde::Serialize;

use crate::{Error, Result, now_ns};

/// Lengths of a write, in blocks, up to the longest transfer.
const LENGTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Zones written side by side.
const WRITERS: [u64; 6] = [1, 2, 4, 8, 12, 14];
const WRITERS_MAX: u64 = 14;
/// Flushes and lone writes per figure.
const REPEATS: u64 = 400;
/// Longer than the drive needs for anything it does with one buffer.
const IDLE: Nanos = 100_000_000;
/// How often the buffer is filled before a sustained rate is taken.
const FILLS: u64 = 8;

/// One figure, twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What is looked at.
    pub curve: &'static str,
    /// Blocks of a write, blocks that are dirty, or writers.
    pub x: u64,
    /// Of the values.
    pub unit: &'static str,
    /// What the emulated drive did.
    pub model: f64,
    /// What the formula says.
    pub formula: f64,
}

impl Figure {
    /// How far the model is from the formula, in percent.
    pub fn off_percent(&self) -> f64 {
        if self.formula == 0.0 { 0.0 } else { (self.model / self.formula - 1.0) * 100.0 }
    }
}

/// All curves of the profile called `name`.
pub fn run(name: &str, seed: u64) -> Result<Vec<Figure>> {
    let profile = Profile::named(name).map_err(|e| Error::Usage(e.to_string()))?;
    let lengths: Vec<u64> = LENGTHS
        .into_iter()
        .filter(|blocks| *blocks <= u64::from(profile.max_transfer_blocks.value))
        .collect();
    let rig = Rig { profile, seed };
    let mut figures = Vec::new();
    for &blocks in &lengths {
        let formula = rig.profile.write_ns(blocks) / 1e3;
        figures.push(Figure {
            curve: "write, idle drive",
            x: blocks,
            unit: "us",
            model: rig.lone_write(blocks)? / 1e3,
            formula,
        });
    }
    for &blocks in &lengths {
        figures.push(Figure {
            curve: "flush, dirty blocks",
            x: blocks,
            unit: "us",
            model: rig.flush(blocks)? / 1e3,
            formula: rig.profile.flush_ns(blocks) / 1e3,
        });
    }
    let longest = lengths.last().copied().unwrap_or(1);
    for blocks in [1, longest] {
        for writers in WRITERS {
            let (rate, latency) = rig.sustained(writers, blocks)?;
            let [rates, latencies] = if blocks == 1 {
                ["4 KiB writers, rate", "4 KiB writers, latency"]
            } else {
                ["long writers, rate", "long writers, latency"]
            };
            let formula = rig.profile.write_bytes_per_s(writers, blocks) / 1e6;
            figures.push(Figure { curve: rates, x: writers, unit: "MB/s", model: rate, formula });
            let formula = rig.profile.sustained_write_ns(writers, blocks) / 1e3;
            let model = latency / 1e3;
            figures.push(Figure { curve: latencies, x: writers, unit: "us", model, formula });
        }
    }
    figures.sort_by_key(|figure| figure.curve);
    Ok(figures)
}

struct Rig {
    profile: Profile,
    seed: u64,
}

impl Rig {
    /// Mean time in ns of a write of `blocks` blocks to an idle drive.
    fn lone_write(&self, blocks: u64) -> Result<f64> {
        self.on_drive(|host| {
            let mut total = 0;
            for _ in 0..REPEATS {
                total += host.write(0, blocks)?;
                host.flush()?;
            }
            Ok(total as f64 / REPEATS as f64)
        })
    }

    /// Mean time in ns of a flush with `dirty` blocks in the buffer.
    fn flush(&self, dirty: u64) -> Result<f64> {
        self.on_drive(|host| {
            let mut total = 0;
            for _ in 0..REPEATS {
                host.write(0, dirty)?;
                total += host.flush()?;
                cores::sleep(IDLE);
            }
            Ok(total as f64 / REPEATS as f64)
        })
    }

    /// MB/s, and the mean time in ns of a write, for `writers` that write continuously, once they
    /// have filled the buffer a few times.
    fn sustained(&self, writers: u64, blocks: u64) -> Result<(f64, f64)> {
        let before = FILLS * self.profile.buffer() / blocks + 100 * writers;
        self.on_drive(|host| {
            let mut sent = vec![0; writers as usize];
            for writer in 0..writers {
                sent[writer as usize] = host.submit(writer, blocks);
            }
            let (mut from, mut waited) = (0, 0);
            for n in 0..2 * before {
                if n == before {
                    (from, waited) = (now_ns(), 0);
                }
                let writer = host.next()?;
                waited += now_ns() - sent[writer as usize];
                sent[writer as usize] = host.submit(writer, blocks);
            }
            let seconds = (now_ns() - from) as f64 / 1e9;
            let bytes = (before * blocks * BLOCK_SIZE as u64) as f64;
            Ok((bytes / seconds / 1e6, waited as f64 / before as f64))
        })
    }

    /// Runs `job` on a new drive and a virtual machine.
    fn on_drive<T>(&self, job: impl FnOnce(&mut Host) -> Result<T>) -> Result<T> {
        let machine =
            MachineProfile::named("uniform-1").map_err(|e| Error::Usage(e.to_string()))?;
        let spec = Spec::new(self.profile.clone());
        Machine::simulated(&machine, self.seed).run(|| {
            let drive = Ssd::new(spec, Timing::Virtual, self.seed);
            let drive = drive.map_err(|e| Error::Usage(e.to_string()))?;
            job(&mut Host::new(drive))
        })?
    }
}

/// The writers: each has a part of the drive to itself and writes it from front to back. On a zoned
/// drive that is a zone, and when it is full another.
struct Host {
    drive: Arc<Ssd>,
    writers: Vec<Stretch>,
    block: Block,
}

#[derive(Clone, Copy)]
struct Stretch {
    start: Lba,
    written: u64,
    len: u64,
}

impl Host {
    fn new(drive: Arc<Ssd>) -> Self {
        let identify = drive.identify();
        let (size, len) = match identify.zones {
            Some(zones) => (zones.size, zones.capacity),
            None => (identify.blocks / WRITERS_MAX, identify.blocks / WRITERS_MAX),
        };
        let writers = (0..WRITERS_MAX).map(|n| Stretch { start: n * size, written: 0, len });
        Self { writers: writers.collect(), block: Block::zeroed(), drive }
    }

    /// Starts a write of a writer; returns the time of the start.
    fn submit(&mut self, writer: u64, blocks: u64) -> Nanos {
        let zones = self.drive.identify().zones;
        let stretch = &mut self.writers[writer as usize];
        if stretch.written + blocks > stretch.len {
            stretch.written = 0;
            stretch.start += zones.map_or(0, |zones| WRITERS_MAX * zones.size);
        }
        let lba = stretch.start + stretch.written;
        stretch.written += blocks;
        let data = std::iter::repeat_n(self.block.clone(), blocks as usize).collect();
        self.drive.submit(0, writer as u16, Command::Write { lba, data, fua: false });
        now_ns()
    }

    /// Waits for any write; returns whose it was.
    fn next(&self) -> Result<u64> {
        let done = self.drive.wait(0).ok_or_else(|| Error::Usage("a command got lost".into()))?;
        let done = done.result.map(|_| done.cid.into());
        done.map_err(|status| Error::Usage(format!("the drive answers: {status}")))
    }

    /// Time of one write.
    fn write(&mut self, writer: u64, blocks: u64) -> Result<Nanos> {
        let from = self.submit(writer, blocks);
        self.next()?;
        Ok(now_ns() - from)
    }

    /// Time of one flush.
    fn flush(&self) -> Result<Nanos> {
        let from = now_ns();
        self.drive.submit(0, 0, Command::Flush);
        self.next()?;
        Ok(now_ns() - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_does_what_the_formulas_say() {
        // `ram` has no model: the result would show the cost of the machine's locks.
        let modelled = |name: &&str| *name != "ram";
        for name in Profile::names().into_iter().filter(modelled) {
            for figure in run(name, 1).expect("a built-in profile") {
                assert!(figure.off_percent().abs() <= 5.0, "{name}: {figure:?}");
            }
        }
    }
}
