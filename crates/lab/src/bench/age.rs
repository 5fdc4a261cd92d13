//! A volume that is nearly full and is overwritten again and again: what cleaning costs then.
//!
//! One file takes a share of what users may have. Blocks of it are overwritten, each as likely as
//! any other, until so many times its size has been written. Another core reads blocks of it
//! meanwhile. In the end each block must hold what was written last.
//!
//! How much a log has to write then is known (Menon, VLDB 1995; Desnoyers, SYSTOR 2012). If a share
//! *u* of the space is valid, a segment is still valid to the share *v* when it has become the
//! oldest one and is cleaned, with u = (v − 1) / ln v. For each block that is written, the log
//! writes 1 / (1 − v).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ::drive::{BLOCK_SIZE, Stats};
use hdrhistogram::Histogram;
use serde::Serialize;
use vfs::Ino;
use vfs::kind::{Format, Volume};

use super::{Fresh, MIB, Subject, histogram, new_file};
use crate::workload::Rng;
use crate::{Error, Result, machine_named, now_ns, rig};

const PAGE: u64 = BLOCK_SIZE as u64;
/// Time between two reads: 0.2 ms.
const READ_EVERY_NS: u64 = 200_000;
/// Blocks of a segment of F2FS, in which its reserve is counted.
const SEGMENT: f64 = 512.0;

/// What to run on what.
#[derive(Clone)]
pub struct Age {
    /// The file system.
    pub format: &'static dyn Format,
    /// The drive's profile.
    pub drive: String,
    /// Bytes for which the drive has room.
    pub size: u64,
    /// `real` or a machine profile.
    pub machine: String,
    /// As `mount -o` takes them.
    pub mount_opts: String,
    /// The share of the volume that the file takes, in percent.
    pub fill: u64,
    /// How many times the file's size is written.
    pub overwrite: f64,
    /// Writes between two fsyncs; 0 for none.
    pub fsync: u64,
    /// Seed of places.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aged {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// The share of the volume that the file takes, in percent.
    pub fill: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Blocks overwritten.
    pub writes: u64,
    /// Writes between two fsyncs.
    pub fsync: u64,
    /// Time they took, seconds.
    pub seconds: f64,
    /// Share of the space outside the reserve that is valid.
    pub valid_share: f64,
    /// What a log has to write for each block, by the closed form.
    pub amplification_closed_form: f64,
    /// What it wrote for each block that the cleaner did not move.
    pub amplification: f64,
    /// Blocks the drive was given for each block that was overwritten: nodes and checkpoints too.
    pub drive_blocks_per_write: f64,
    /// Sections cleaned.
    pub cleanings: u64,
    /// Writes and fsyncs, one by one.
    pub write_us: Latency,
    /// Reads.
    pub read_us: Latency,
}

/// How long operations took, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    fn of(times: &Histogram<u64>) -> Self {
        let us = |q| times.value_at_quantile(q) as f64 / 1e3;
        let max = times.max() as f64 / 1e3;
        Self { count: times.len(), p50: us(0.5), p99: us(0.99), p999: us(0.999), max }
    }
}

/// What a log writes for each block if a share `u` of its space is valid: 1 / (1 − v), where
/// u = (v − 1) / ln v.
///
/// ```
/// # use lab::bench::age::closed_form;
/// assert!((closed_form(0.8) - 2.69).abs() < 0.01);
/// assert!((closed_form(0.9) - 5.18).abs() < 0.01);
/// ```
pub fn closed_form(u: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..200 {
        let v: f64 = f64::midpoint(low, high);
        if v > 0.0 && (v - 1.0) / v.ln() > u { high = v } else { low = v }
    }
    1.0 / (1.0 - low)
}

/// Makes a volume, fills it and ages it.
pub fn run(age: &Age) -> Result<Aged> {
    let machine = machine_named(&age.machine, age.seed)?;
    let simulated = machine.is_simulated();
    let fresh = Fresh {
        format: age.format,
        drive: &age.drive,
        mount_opts: &age.mount_opts,
        seed: age.seed,
        simulated,
        footprint: age.size,
    };
    let (aged, _) =
        machine.run(|| fresh.volume(|fs, stats| age.measure(fs, stats, simulated)))??;
    Ok(aged)
}

impl Age {
    fn measure(
        &self,
        fs: &Arc<dyn Volume>,
        stats: &dyn Fn() -> Stats,
        simulated: bool,
    ) -> Result<Aged> {
        let _upkeep = fs.clone().maintain();
        let (file, blocks) = self.fill(&**fs)?;
        let before = Counts::of(&**fs, stats());
        let begun = now_ns();
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let (fs, done, rng) = (fs.clone(), done.clone(), Rng::new(self.seed, 2));
            let core = 1 % cores::core_count();
            cores::spawn("reader", Some(core), move || read(&*fs, file, blocks, rng, &done))
        };
        let written = self.overwrite(&**fs, file, blocks);
        done.store(true, Relaxed);
        let reads = reader.join()?;
        let (writes, versions) = written?;
        let took = now_ns() - begun;
        let made = Counts::of(&**fs, stats()).since(before);
        verify(&**fs, file, &versions)?;

        let u = self.valid_share(&**fs)?;
        let overwritten: u64 = versions.iter().map(|version| u64::from(*version)).sum();
        let subject = Subject {
            bench: "age",
            fs: self.format.name(),
            drive: self.drive.clone(),
            machine: self.machine.clone(),
            simulated,
            mount_opts: self.mount_opts.clone(),
            direct: false,
            seed: self.seed,
        };
        let aged = Aged {
            subject,
            fill: self.fill,
            file_bytes: blocks * PAGE,
            writes: overwritten,
            fsync: self.fsync,
            seconds: took as f64 / 1e9,
            valid_share: u,
            amplification_closed_form: closed_form(u),
            amplification: made.written as f64 / (made.written - made.moved).max(1) as f64,
            drive_blocks_per_write: made.written as f64 / overwritten.max(1) as f64,
            cleanings: made.cleanings,
            write_us: Latency::of(&writes),
            read_us: Latency::of(&reads),
        };
        Ok(aged)
    }

    /// Makes the file. Returns its blocks, too.
    fn fill(&self, fs: &dyn Volume) -> Result<(Ino, u64)> {
        let file = new_file(fs, b"file")?;
        let mut blocks = 0;
        loop {
            let space = fs.statfs().map_err(Error::at("statfs", b""))?;
            let chunk = MIB / PAGE;
            let used = space.blocks - space.blocks_free + chunk;
            if used * 100 > space.blocks * self.fill {
                break;
            }
            let bytes: Vec<u8> = (blocks..blocks + chunk).flat_map(|at| page(at, 0)).collect();
            fs.write(file, blocks * PAGE, &bytes).map_err(Error::at("write", b"file"))?;
            blocks += chunk;
        }
        fs.fsync(file, false).map_err(Error::at("fsync", b"file"))?;
        fs.sync().map_err(Error::at("sync", b""))?;
        match blocks {
            0 => Err(Error::Full),
            blocks => Ok((file, blocks)),
        }
    }

    /// Overwrites blocks. Returns how long each operation took, and how often each block was
    /// written.
    fn overwrite(
        &self,
        fs: &dyn Volume,
        file: Ino,
        blocks: u64,
    ) -> Result<(Histogram<u64>, Vec<u32>)> {
        let mut rng = Rng::new(self.seed, 1);
        let mut versions = vec![0_u32; blocks as usize];
        let mut times = histogram()?;
        let mut last = now_ns();
        let mut note = |times: &mut Histogram<u64>| {
            let now = now_ns();
            times.saturating_record((now - last).max(1));
            last = now;
        };
        for write in 1..=(blocks as f64 * self.overwrite) as u64 {
            let at = rng.below(blocks);
            let version = &mut versions[at as usize];
            *version += 1;
            fs.write(file, at * PAGE, &page(at, *version)).map_err(Error::at("write", b"file"))?;
            note(&mut times);
            if self.fsync > 0 && write % self.fsync == 0 {
                fs.fsync(file, false).map_err(Error::at("fsync", b"file"))?;
                note(&mut times);
            }
        }
        Ok((times, versions))
    }

    /// Valid blocks over those of the main area that are outside the reserve.
    fn valid_share(&self, fs: &dyn Volume) -> Result<f64> {
        let space = fs.statfs().map_err(Error::at("statfs", b""))?;
        let spec = rig::spec(&self.drive, self.size)?;
        let zones = spec.identify().map_err(|e| Error::Usage(e.to_string()))?.zones;
        // A segment beyond its zone's capacity counts as one, but takes no blocks.
        let usable = zones.map_or(1.0, |zones| zones.capacity as f64 / zones.size as f64);
        let status = fs.status();
        let segments = |name| status.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        let over = segments("ovp_segments") - segments("reserved_segments");
        let outside = space.blocks as f64 + over * SEGMENT * usable;
        Ok((space.blocks - space.blocks_free) as f64 / outside)
    }
}

/// The contents of block `at` after it was overwritten `version` times.
fn page(at: u64, version: u32) -> [u8; BLOCK_SIZE] {
    let mut page = [0; BLOCK_SIZE];
    page[..8].copy_from_slice(&at.to_le_bytes());
    page[BLOCK_SIZE - 4..].copy_from_slice(&version.to_le_bytes());
    page
}

/// Reads blocks until the writer is `done`. Returns how long each read took.
fn read(
    fs: &dyn Volume,
    file: Ino,
    blocks: u64,
    mut rng: Rng,
    done: &AtomicBool,
) -> Result<Histogram<u64>> {
    let mut times = histogram()?;
    let mut buf = [0; BLOCK_SIZE];
    while !done.load(Relaxed) {
        cores::sleep(READ_EVERY_NS);
        let at = rng.below(blocks);
        let begun = now_ns();
        fs.read(file, at * PAGE, &mut buf).map_err(Error::at("read", b"file"))?;
        times.saturating_record((now_ns() - begun).max(1));
        check(at, &buf, page(at, 0)[..8] == buf[..8])?;
    }
    Ok(times)
}

fn verify(fs: &dyn Volume, file: Ino, versions: &[u32]) -> Result<()> {
    let mut buf = [0; BLOCK_SIZE];
    for (at, version) in (0..).zip(versions) {
        fs.read(file, at * PAGE, &mut buf).map_err(Error::at("read", b"file"))?;
        check(at, &buf, buf == page(at, *version))?;
    }
    Ok(())
}

fn check(at: u64, buf: &[u8], is_right: bool) -> Result<()> {
    if is_right {
        return Ok(());
    }
    let (head, tail) = (&buf[..8], &buf[buf.len() - 4..]);
    let message = format!("block {at} of the file holds {head:x?} … {tail:x?}");
    Err(Error::Volume { step: "verify", message })
}

/// Counts since the mount.
#[derive(Clone, Copy)]
struct Counts {
    written: u64,
    moved: u64,
    cleanings: u64,
}

impl Counts {
    fn of(fs: &dyn Volume, drive: Stats) -> Self {
        let status = fs.status();
        let count = |name| status.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        Self {
            written: drive.blocks_written,
            moved: count("moved_blocks_foreground") + count("moved_blocks_background"),
            cleanings: fs.cleanings(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            written: self.written - before.written,
            moved: self.moved - before.moved,
            cleanings: self.cleanings - before.cleanings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_ages_the_same_way_every_time() {
        let age = Age {
            format: subjects::named("f2fs").unwrap(),
            drive: "zn540".into(),
            size: 32 * MIB,
            machine: "xeon-4116".into(),
            mount_opts: "cache=4m".into(),
            fill: 90,
            overwrite: 2.0,
            fsync: 500,
            seed: 1,
        };
        let aged = run(&age).unwrap();
        assert!(aged.cleanings > 0 && aged.amplification > 1.0, "{aged:?}");
        assert!(aged.drive_blocks_per_write > 1.0 && aged.read_us.count > 0, "{aged:?}");
        assert_eq!(aged, run(&age).unwrap());
    }
}
