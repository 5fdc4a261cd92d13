//! The study's load: a thread on each core appends 4 KiB to a file of its own and calls fsync,
//! 1,000 times.

use std::sync::Arc;

use cores::trace::Trace;
use cores::{JoinHandle, Nanos};
use drive::{BLOCK_SIZE, Drive, Spec, Timing};
use vfs::kind::Volume;
use vfs::{Creator, Ino};

use crate::{Error, Result, machine_named, now_ns, rig};

/// On which machine and drive, and by how many threads that each call fsync how often.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) machine: &'static str,
    pub(super) drive: &'static str,
    pub(super) threads: usize,
    pub(super) fsyncs: u64,
    /// Each fsync is carried out by a thread that the caller starts and waits for, as the kernel's
    /// commits are by `kjournald2`.
    pub(super) hands_over: bool,
}

/// The study's.
pub(super) const STUDY: Place =
    Place { machine: "i5-6500", drive: super::DRIVE, threads: 4, fsyncs: 1000, hands_over: false };
/// The study's partition.
const BLOCKS: u64 = 85_000_000_000 / BLOCK_SIZE as u64;

/// What one run cost.
pub(super) struct Measured {
    /// How long each fsync took, from the least to the most.
    pub(super) latencies: Vec<Nanos>,
    /// From the first fsync to the last.
    pub(super) took: Nanos,
    /// Flush commands that the drive got meanwhile.
    pub(super) flushes: u64,
    /// Time by stage.
    pub(super) trace: Trace,
}

impl Measured {
    /// The mean latency, in microseconds.
    pub(super) fn mean_us(&self) -> f64 {
        self.latencies.iter().sum::<Nanos>() as f64 / self.latencies.len().max(1) as f64 / 1e3
    }

    /// The latency below which so many of a hundred are.
    pub(super) fn percentile_us(&self, percent: usize) -> f64 {
        let at = self.latencies.len() * percent / 100;
        self.latencies.get(at).copied().unwrap_or(0) as f64 / 1e3
    }
}

/// Runs the study's load, with `drive` for its drive. Each thread also creates `others` files
/// between two fsyncs, which are not fsynced.
pub(super) fn measure(
    options: &str,
    drive: &'static str,
    others: u64,
    seed: u64,
) -> Result<Measured> {
    Place { drive, ..STUDY }.measure(options, others, seed)
}

impl Place {
    /// Runs the load there on a fresh volume.
    pub(super) fn measure(self, options: &str, others: u64, seed: u64) -> Result<Measured> {
        let spec = rig::spec(self.drive, 0)?.blocks(BLOCKS);
        machine_named(self.machine, seed)?.run(|| self.measured(&spec, options, others, seed))?
    }

    fn measured(self, spec: &Spec, options: &str, others: u64, seed: u64) -> Result<Measured> {
        let ssd = rig::new_drive(spec, Timing::Virtual, seed)?;
        let below: Arc<dyn Drive> = ssd.clone();
        let format = subjects::named("ext4").map_err(Error::of("ext4"))?;
        rig::make(format, &below)?;
        let fs = rig::mount(format, below, options)?;
        let files = (0..self.threads).map(|n| prepare(&fs, n)).collect::<Result<Vec<_>>>()?;
        fs.sync().map_err(Error::at("sync", b""))?;
        let before = ssd.stats().flushes;
        cores::trace::start();
        let from = now_ns();
        let spawn = |(core, (dir, file))| -> JoinHandle<Result<Vec<Nanos>>> {
            let fs = fs.clone();
            cores::spawn("fsyncs", Some(core), move || self.work(&fs, dir, file, others))
        };
        let threads: Vec<_> = files.into_iter().enumerate().map(spawn).collect();
        let mut latencies = Vec::new();
        for thread in threads {
            latencies.extend(thread.join()?);
        }
        let took = now_ns() - from;
        let trace = cores::trace::finish();
        let flushes = ssd.stats().flushes - before;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        latencies.sort_unstable();
        Ok(Measured { latencies, took, flushes, trace })
    }

    fn work(self, fs: &Arc<dyn Volume>, dir: Ino, file: Ino, others: u64) -> Result<Vec<Nanos>> {
        let mut latencies = Vec::new();
        for round in 0..self.fsyncs {
            for other in 0..others {
                let name = format!("other{round}.{other}").into_bytes();
                let made = fs.create(dir, &name, 0o644, Creator::default());
                made.map_err(Error::at("create", &name))?;
            }
            let data = [round as u8; BLOCK_SIZE];
            fs.write(file, round * BLOCK_SIZE as u64, &data)
                .map_err(Error::at("write", b"file"))?;
            let from = now_ns();
            let done = match self.hands_over {
                true => {
                    let fs = fs.clone();
                    cores::spawn("commits", None, move || fs.fsync(file, false)).join()
                }
                false => fs.fsync(file, false),
            };
            done.map_err(Error::at("fsync", b"file"))?;
            latencies.push(now_ns() - from);
        }
        Ok(latencies)
    }
}

fn prepare(fs: &Arc<dyn Volume>, n: usize) -> Result<(Ino, Ino)> {
    let name = format!("thread{n}").into_bytes();
    let dir = fs.mkdir(fs.root(), &name, 0o755, Creator::default());
    let dir = dir.map_err(Error::at("mkdir", &name))?.ino;
    let file = fs.create(dir, b"file", 0o644, Creator::default());
    Ok((dir, file.map_err(Error::at("create", b"file"))?.ino))
}
