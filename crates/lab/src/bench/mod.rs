//! Benchmarks of one file system on one drive: overwrite + fsync, create, sequential write and
//! read. On the real machine the drive is paced by the clock (the `ram` profile takes no time); on
//! a virtual one everything is simulated, and the result says so.

pub mod advise;
pub mod age;
pub mod calibrate;
pub mod drive;
mod fresh;
pub mod fxmark;
#[cfg(target_os = "linux")]
pub mod io;
pub mod iozone;
pub mod pm;
mod result;
mod spread;
mod start;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ::drive::Stats;
use hdrhistogram::Histogram;
use vfs::{Creator, FileSystem, Ino};

use crate::workload::Rng;
use crate::{Error, Result, machine_named, now_ns};
use fresh::Fresh;
use vfs::kind::{Format, Volume};

pub use result::{BenchResult, Subject};
pub use spread::Spread;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// File that `fsync` overwrites.
const FSYNC_FILE: u64 = 16 * MIB;

/// Room for what its fsyncs write at first; after that the volume reuses the space of outdated
/// blocks.
const FSYNC_LOG: u64 = 128 * MIB;

/// What the sequential benchmarks write or read before they begin again, a file for each thread.
const SEQUENTIAL: u64 = 512 * MIB;

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
            (Self::SeqWrite | Self::SeqRead, _) => 2 * SEQUENTIAL / MIB,
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
    pub format: &'static dyn Format,
    /// The drive's profile.
    pub drive: String,
    /// `real` or a machine profile.
    pub machine: String,
    /// As `mount -o` takes them.
    pub mount_opts: String,
    /// How many operations; by default enough for a second or two.
    pub ops: Option<u64>,
    /// Threads that share the operations, each with files of its own (fio's `numjobs`).
    pub threads: u64,
    /// Whether files are opened with `O_DIRECT`.
    pub direct: bool,
    /// Seed of offsets and contents.
    pub seed: u64,
}

/// Runs one benchmark. The volume is made fresh; making it is not part of the time.
///
/// ```
/// use lab::bench::{Bench, Kind, run};
/// # fn main() -> lab::Result<()> {
/// let bench = Bench {
///     kind: Kind::Create,
///     format: subjects::named("f2fs")?,
///     drive: "zn540".to_owned(),
///     machine: "xeon-4116".to_owned(), // a model, so the figures are simulated
///     mount_opts: "fsync_mode=strict".to_owned(),
///     ops: Some(50),
///     threads: 1,
///     direct: false,
///     seed: 42,
/// };
/// let result = run(&bench)?;
/// assert!(result.subject.simulated);
/// println!("{:.0} fsyncs/s", result.ops_per_s);
/// # Ok(())
/// # }
/// ```
pub fn run(bench: &Bench) -> Result<BenchResult> {
    let machine = machine_named(&bench.machine, bench.seed)?;
    let simulated = machine.is_simulated();
    if bench.direct && bench.kind == Kind::Create {
        return Err(Error::Usage("create writes 1 KiB, and O_DIRECT takes whole blocks".into()));
    }
    let ops = bench.ops.unwrap_or(bench.kind.default_ops(simulated)).max(1);
    let footprint = match bench.kind {
        Kind::Fsync => bench.threads * FSYNC_FILE + (ops * 10 * KIB).min(FSYNC_LOG),
        Kind::Create => ops * 12 * KIB,
        Kind::SeqWrite | Kind::SeqRead => 3 * bench.threads * sequential_file(bench),
    };
    let fresh = Fresh {
        format: bench.format,
        drive: &bench.drive,
        mount_opts: &bench.mount_opts,
        seed: bench.seed,
        simulated,
        footprint,
    };
    let measure = |fs: &Arc<dyn Volume>, stats: &dyn Fn() -> Stats| {
        let mut works = prepare(bench, &**fs, ops)?;
        let flushes = stats().flushes;
        let mut timed = match works.len() {
            1 => works.remove(0).run(&**fs)?,
            _ => all_at_once(fs, works)?,
        };
        timed.flushes = stats().flushes - flushes;
        Ok(timed)
    };
    let (timed, _) = machine.run(|| fresh.volume(measure))??;
    Ok(result(bench, simulated, ops, &timed))
}

struct Timed {
    latency: Histogram<u64>,
    took_ns: u64,
    flushes: u64,
}

/// One thread's share.
struct Work {
    kind: Kind,
    ops: u64,
    rng: Rng,
    /// The file, or for [`Kind::Create`] the directories.
    places: Vec<Ino>,
    /// Size of a file that is written or read from front to back.
    file: u64,
    direct: bool,
}

/// Size of each thread's file in the sequential benchmarks, in whole MiB.
fn sequential_file(bench: &Bench) -> u64 {
    (SEQUENTIAL / bench.threads.max(1) / MIB).max(1) * MIB
}

/// Prepares what `bench` needs before the clock starts, and assigns the threads' work.
fn prepare(bench: &Bench, fs: &dyn FileSystem, ops: u64) -> Result<Vec<Work>> {
    let kind = bench.kind;
    let shares = (0..bench.threads).map(|thread| {
        let mut rng = Rng::new(bench.seed, 5 + thread);
        let ops = ops / bench.threads + u64::from(thread < ops % bench.threads);
        let name = if thread == 0 { String::new() } else { thread.to_string() };
        let places = match kind {
            Kind::Fsync => vec![filled(fs, &name, FSYNC_FILE, &mut rng)?],
            Kind::Create => directories(fs, &name, ops)?,
            Kind::SeqWrite => vec![new_file(fs, format!("sequential{name}").as_bytes())?],
            Kind::SeqRead => vec![filled(fs, &name, sequential_file(bench), &mut rng)?],
        };
        let (file, direct) = (sequential_file(bench), bench.direct);
        Ok(Work { kind, ops, rng, places, file, direct })
    });
    shares.collect()
}

/// Runs each share on its own core; the time is from the first start to the last end.
fn all_at_once(fs: &Arc<dyn Volume>, works: Vec<Work>) -> Result<Timed> {
    let begun = now_ns();
    let threads: Vec<_> = works
        .into_iter()
        .enumerate()
        .map(|(i, work)| {
            let fs = fs.clone();
            cores::spawn("bench", Some(i % cores::core_count()), move || work.run(&*fs))
        })
        .collect();
    let mut all: Option<Timed> = None;
    for thread in threads {
        let part = thread.join()?;
        match &mut all {
            Some(all) => all
                .latency
                .add(&part.latency)
                .map_err(|e| Error::Usage(format!("histogram: {e}")))?,
            None => all = Some(part),
        }
    }
    let all = all.ok_or_else(|| Error::Usage("no threads".into()))?;
    Ok(Timed { took_ns: now_ns() - begun, ..all })
}

fn result(bench: &Bench, simulated: bool, ops: u64, timed: &Timed) -> BenchResult {
    let seconds = timed.took_ns.max(1) as f64 / 1e9;
    let us = |q: f64| timed.latency.value_at_quantile(q) as f64 / 1e3;
    let subject = Subject {
        bench: bench.kind.name(),
        fs: bench.format.name(),
        drive: bench.drive.clone(),
        machine: bench.machine.clone(),
        simulated,
        mount_opts: bench.mount_opts.clone(),
        direct: bench.direct,
        seed: bench.seed,
    };
    BenchResult {
        subject,
        threads: bench.threads,
        ops,
        seconds,
        ops_per_s: ops as f64 / seconds,
        flushes: timed.flushes,
        bytes_per_s: (ops * bench.kind.bytes_per_op()) as f64 / seconds,
        latency_us_p50: us(0.5),
        latency_us_p99: us(0.99),
        latency_us_p999: us(0.999),
        latency_us_max: timed.latency.max() as f64 / 1e3,
    }
}

/// Latencies of up to an hour, in nanoseconds, to three digits.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .map_err(|e| Error::Usage(format!("histogram: {e}")))
}

/// Times `ops` calls of `op` one by one, then `finish`.
fn time(
    ops: u64,
    mut op: impl FnMut(u64) -> vfs::Result<()>,
    finish: impl FnOnce() -> vfs::Result<()>,
) -> Result<Timed> {
    let mut latency = histogram()?;
    let begun = now_ns();
    let mut last = begun;
    for i in 0..ops {
        op(i).map_err(Error::at("operation", b""))?;
        let now = now_ns();
        latency.saturating_record((now - last).max(1));
        last = now;
    }
    finish().map_err(Error::at("fsync", b""))?;
    Ok(Timed { latency, took_ns: now_ns() - begun, flushes: 0 })
}

impl Work {
    fn run(mut self, fs: &dyn FileSystem) -> Result<Timed> {
        let file = self.places.first().copied().unwrap_or_default();
        let mut rng = self.rng.clone();
        let write = |at, data: &[u8]| match self.direct {
            true => fs.write_direct(file, at, data),
            false => fs.write(file, at, data),
        };
        match self.kind {
            Kind::Fsync => {
                let page = rng.bytes(4096);
                time(
                    self.ops,
                    |_| {
                        let at = rng.below(FSYNC_FILE / 4096) * 4096;
                        write(at, &page)?;
                        fs.fsync(file, false)
                    },
                    || Ok(()),
                )
            }
            Kind::Create => self.create(fs),
            Kind::SeqWrite => {
                let chunk = rng.bytes(MIB as usize);
                let place = |i: u64| (i * MIB) % self.file;
                let end = || fs.fsync(file, false);
                time(self.ops, |i| write(place(i), &chunk).map(drop), end)
            }
            Kind::SeqRead => {
                let mut chunk = vec![0; MIB as usize];
                let place = |i: u64| (i * MIB) % self.file;
                let read = |i| match self.direct {
                    true => fs.read_direct(file, place(i), &mut chunk).map(drop),
                    false => fs.read(file, place(i), &mut chunk).map(drop),
                };
                time(self.ops, read, || Ok(()))
            }
        }
    }

    /// Files of 1 KiB, a thousand to a directory.
    fn create(&mut self, fs: &dyn FileSystem) -> Result<Timed> {
        let body = self.rng.bytes(KIB as usize);
        time(
            self.ops,
            |i| {
                let dir = self.places[(i / 1000) as usize];
                let name = format!("f{i}");
                let file = fs.create(dir, name.as_bytes(), 0o644, Creator::default())?;
                fs.write(file.ino, 0, &body)?;
                fs.fsync(file.ino, false)
            },
            || Ok(()),
        )
    }
}

/// Directories of thread `of` for so many files.
fn directories(fs: &dyn FileSystem, of: &str, files: u64) -> Result<Vec<Ino>> {
    let mut dirs = Vec::new();
    for i in 0..files.div_ceil(1000) {
        let name = format!("d{i}{of}").into_bytes();
        let made = fs.mkdir(fs.root(), &name, 0o755, Creator::default());
        dirs.push(made.map_err(Error::at("mkdir", &name))?.ino);
    }
    fs.sync().map_err(Error::at("sync", b""))?;
    Ok(dirs)
}

fn new_file(fs: &dyn FileSystem, name: &[u8]) -> Result<Ino> {
    let attr = fs.create(fs.root(), name, 0o644, Creator::default());
    Ok(attr.map_err(Error::at("create", name))?.ino)
}

fn filled(fs: &dyn FileSystem, of: &str, size: u64, rng: &mut Rng) -> Result<Ino> {
    let file = new_file(fs, format!("file{of}").as_bytes())?;
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

    #[test]
    fn every_kind_measures_what_it_says() {
        for kind in [Kind::Fsync, Kind::Create] {
            for threads in [1, 8] {
                let bench = Bench {
                    kind,
                    format: subjects::named("f2fs").unwrap(),
                    drive: "conventional-noplp".into(),
                    machine: "xeon-4116".into(),
                    mount_opts: String::new(),
                    ops: Some(50),
                    threads,
                    direct: false,
                    seed: 1,
                };
                let direct = Bench { direct: true, ..bench.clone() };
                assert_eq!(run(&direct).is_ok(), kind == Kind::Fsync);
                let result = run(&bench).unwrap();
                assert!(result.seconds > 0.0 && result.latency_us_max > 0.0);
                // Threads share a flush where they can.
                assert_eq!(threads == 1, result.flushes >= 50, "{} flushes", result.flushes);
            }
        }
    }

    #[test]
    fn sequential_loads_are_shared_too_and_have_room_on_zones() {
        for kind in [Kind::SeqWrite, Kind::SeqRead] {
            let bench = Bench {
                kind,
                format: subjects::named("f2fs").unwrap(),
                drive: "zn540".into(),
                machine: "xeon-4116".into(),
                mount_opts: String::new(),
                ops: Some(9),
                threads: 4,
                direct: false,
                seed: 1,
            };
            let result = run(&bench).unwrap();
            assert_eq!((result.ops, result.threads), (9, 4));
            let moved = result.bytes_per_s * result.seconds;
            assert!((moved - 9.0 * MIB as f64).abs() < 1.0, "{moved} bytes");
        }
    }
}
