//! Benchmarks of one file system on one drive: overwrite + fsync, create, sequential write and
//! read. On the real machine the drive is paced by the clock (the `ram` profile takes no time); on
//! a virtual one everything is simulated, and the result says so.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use drive::{Drive, Timing};
use hdrhistogram::Histogram;
use serde::Serialize;
use vfs::{Creator, FileSystem, Ino};

use crate::subject::Subject;
use crate::workload::Rng;
use crate::{Error, Result, machine_named, now_ns, rig};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// File that `fsync` overwrites.
const FSYNC_FILE: u64 = 16 * MIB;

/// Room for what its fsyncs write; from there on the volume lives by freeing what is outdated.
const FSYNC_LOG: u64 = 128 * MIB;

/// File of the sequential benchmarks.
const SEQUENTIAL_FILE: u64 = 512 * MIB;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Random 4 KiB overwrite and fsync.
    Fsync,
    /// Create a file, write 1 KiB, fsync.
    Create,
    /// Write 1 MiB at a time; the final fsync is part of the time.
    SeqWrite,
    /// Read 1 MiB at a time.
    SeqRead,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fsync, Self::Create, Self::SeqWrite, Self::SeqRead];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Create => "create",
            Self::SeqWrite => "seqwrite",
            Self::SeqRead => "seqread",
        }
    }

    const fn bytes_per_op(self) -> u64 {
        match self {
            Self::Fsync => 4 * KIB,
            Self::Create => KIB,
            Self::SeqWrite | Self::SeqRead => MIB,
        }
    }

    /// Enough operations for a second or two on the real machine with a RAM drive.
    const fn default_ops(self, simulated: bool) -> u64 {
        match (self, simulated) {
            (Self::Fsync, false) => 200_000,
            (Self::Create, false) => 50_000,
            (Self::Fsync | Self::Create, true) => 10_000,
            (Self::SeqWrite | Self::SeqRead, _) => 2 * SEQUENTIAL_FILE / MIB,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::Usage(format!("unknown benchmark '{name}'; known: {}", known())))
    }
}

/// What to measure on what.
#[derive(Clone)]
pub struct Bench {
    /// What.
    pub kind: Kind,
    /// The file system.
    pub subject: &'static dyn Subject,
    /// The drive's profile.
    pub drive: String,
    /// `real` or a machine profile.
    pub machine: String,
    /// As `mount -o` takes them.
    pub mount_opts: String,
    /// How many operations; by default a second or two of them.
    pub ops: Option<u64>,
    /// For the places and the bytes.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResult {
    /// The benchmark.
    pub bench: String,
    /// The file system.
    pub fs: String,
    /// The drive's profile.
    pub drive: String,
    /// The machine.
    pub machine: String,
    /// Whether time was the model's.
    pub simulated: bool,
    /// Mount options.
    pub mount_opts: String,
    /// The seed.
    pub seed: u64,
    /// Operations done.
    pub ops: u64,
    /// Time they took, seconds.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Payload bytes per second.
    pub bytes_per_s: f64,
    /// Median latency of an operation, microseconds.
    pub latency_us_p50: f64,
    /// 99th percentile.
    pub latency_us_p99: f64,
    /// 99.9th percentile.
    pub latency_us_p999: f64,
    /// The longest.
    pub latency_us_max: f64,
}

/// Runs one benchmark. The volume is made fresh; making it is not part of the time.
pub fn run(bench: &Bench) -> Result<BenchResult> {
    let machine = machine_named(&bench.machine, bench.seed)?;
    let simulated = machine.is_simulated();
    let ops = bench.ops.unwrap_or(bench.kind.default_ops(simulated)).max(1);
    let timing = match (simulated, bench.drive.as_str()) {
        (true, _) => Timing::Virtual,
        (false, "ram") => Timing::Instant,
        (false, _) => Timing::Paced,
    };
    let footprint = match bench.kind {
        Kind::Fsync => FSYNC_FILE + (ops * 10 * KIB).min(FSYNC_LOG),
        Kind::Create => ops * 12 * KIB,
        Kind::SeqWrite | Kind::SeqRead => 3 * SEQUENTIAL_FILE,
    };
    let spec = rig::spec(&bench.drive, footprint)?;
    let timed = machine.run(|| -> Result<Timed> {
        let drive: Arc<dyn Drive> = rig::new_drive(&spec, timing, bench.seed)?;
        bench.subject.format(&drive)?;
        let mounted = bench.subject.mount(drive, &bench.mount_opts)?;
        let fs = &*mounted.fs;
        let timed = measure(bench.kind, fs, ops, bench.seed)?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        Ok(timed)
    })??;
    Ok(result(bench, simulated, ops, &timed))
}

struct Timed {
    latency: Histogram<u64>,
    took_ns: u64,
}

fn result(bench: &Bench, simulated: bool, ops: u64, timed: &Timed) -> BenchResult {
    let seconds = timed.took_ns.max(1) as f64 / 1e9;
    let us = |q: f64| timed.latency.value_at_quantile(q) as f64 / 1e3;
    BenchResult {
        bench: bench.kind.name().into(),
        fs: bench.subject.name().into(),
        drive: bench.drive.clone(),
        machine: bench.machine.clone(),
        simulated,
        mount_opts: bench.mount_opts.clone(),
        seed: bench.seed,
        ops,
        seconds,
        ops_per_s: ops as f64 / seconds,
        bytes_per_s: (ops * bench.kind.bytes_per_op()) as f64 / seconds,
        latency_us_p50: us(0.5),
        latency_us_p99: us(0.99),
        latency_us_p999: us(0.999),
        latency_us_max: timed.latency.max() as f64 / 1e3,
    }
}

/// Times `ops` calls of `op` one by one, then `finish`.
fn time(
    ops: u64,
    mut op: impl FnMut(u64) -> vfs::Result<()>,
    finish: impl FnOnce() -> vfs::Result<()>,
) -> Result<Timed> {
    let mut latency = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .map_err(|e| Error::Usage(format!("histogram: {e}")))?;
    let begun = now_ns();
    let mut last = begun;
    for i in 0..ops {
        op(i).map_err(Error::at("operation", b""))?;
        let now = now_ns();
        latency.saturating_record((now - last).max(1));
        last = now;
    }
    finish().map_err(Error::at("fsync", b""))?;
    Ok(Timed { latency, took_ns: now_ns() - begun })
}

fn measure(kind: Kind, fs: &dyn FileSystem, ops: u64, seed: u64) -> Result<Timed> {
    let mut rng = Rng::new(seed, 5);
    match kind {
        Kind::Fsync => {
            let file = filled(fs, FSYNC_FILE, &mut rng)?;
            let page = rng.bytes(4096);
            time(
                ops,
                |_| {
                    let at = rng.below(FSYNC_FILE / 4096) * 4096;
                    fs.write(file, at, &page)?;
                    fs.fsync(file, false)
                },
                || Ok(()),
            )
        }
        Kind::Create => create(fs, ops, &mut rng),
        Kind::SeqWrite => {
            let chunk = rng.bytes(MIB as usize);
            let file = new_file(fs, b"sequential")?;
            let place = |i: u64| (i * MIB) % SEQUENTIAL_FILE;
            time(ops, |i| fs.write(file, place(i), &chunk).map(drop), || fs.fsync(file, false))
        }
        Kind::SeqRead => {
            let file = filled(fs, SEQUENTIAL_FILE, &mut rng)?;
            let mut chunk = vec![0; MIB as usize];
            let place = |i: u64| (i * MIB) % SEQUENTIAL_FILE;
            time(ops, |i| fs.read(file, place(i), &mut chunk).map(drop), || Ok(()))
        }
    }
}

/// Files of 1 KiB, a thousand to a directory.
fn create(fs: &dyn FileSystem, ops: u64, rng: &mut Rng) -> Result<Timed> {
    let who = Creator::default();
    let body = rng.bytes(KIB as usize);
    let mut dirs = Vec::new();
    for i in 0..ops.div_ceil(1000) {
        let name = format!("d{i}").into_bytes();
        let dir = fs.mkdir(fs.root(), &name, 0o755, who).map_err(Error::at("mkdir", &name))?;
        dirs.push(dir.ino);
    }
    fs.sync().map_err(Error::at("sync", b""))?;
    time(
        ops,
        |i| {
            let file =
                fs.create(dirs[(i / 1000) as usize], format!("f{i}").as_bytes(), 0o644, who)?;
            fs.write(file.ino, 0, &body)?;
            fs.fsync(file.ino, false)
        },
        || Ok(()),
    )
}

fn new_file(fs: &dyn FileSystem, name: &[u8]) -> Result<Ino> {
    let attr = fs.create(fs.root(), name, 0o644, Creator::default());
    Ok(attr.map_err(Error::at("create", name))?.ino)
}

fn filled(fs: &dyn FileSystem, size: u64, rng: &mut Rng) -> Result<Ino> {
    let file = new_file(fs, b"file")?;
    let chunk = rng.bytes(MIB as usize);
    for at in (0..size).step_by(MIB as usize) {
        fs.write(file, at, &chunk).map_err(Error::at("write", b"file"))?;
    }
    fs.fsync(file, false).map_err(Error::at("fsync", b"file"))?;
    fs.sync().map_err(Error::at("sync", b""))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::MemFs;

    #[test]
    fn every_kind_measures_what_it_says() {
        for kind in [Kind::Fsync, Kind::Create] {
            let timed = measure(kind, &MemFs::new(), 50, 1).expect("memory has room");
            assert_eq!(timed.latency.len(), 50);
            assert!(timed.took_ns > 0);
        }
    }
}
