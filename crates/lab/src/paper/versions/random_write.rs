//! Figures 2 and 3: fio's random write of 4 KiB to a file that fills most of the volume.

use std::sync::Arc;

use vfs::Creator;
use vfs::kind::Volume;

use super::{Kind, Place, Row, Setup, count, on_volume};
use crate::workload::Rng;
use crate::{Error, Result, now_ns};

const BLOCK: u64 = 4 << 10;
/// Of what users may fill, the file's part in percent.
const FULL: u64 = 90;
/// Random writes, in parts of the file's blocks: so many that every free section has been used.
const PASSES: u64 = 2;
/// Dirty bytes until the writer syncs: fio writes faster than the drive, so a kernel's limit on
/// dirty pages makes it wait (`dirty_ratio`).
const SYNC_EVERY: u64 = 8 << 20;

/// What the writes took.
pub(super) struct Ran {
    pub(super) mb_per_s: f64,
    cleanings: f64,
    lfs_blocks: f64,
    ssr_blocks: f64,
    ipu_blocks: f64,
    node_blocks: f64,
}

/// Figure 2.
pub(super) fn ipu(place: &Place, seed: u64) -> Result<Vec<Row>> {
    // Bit 2 of `ipu_policy`: in place where otherwise SSR would write.
    let with = |settings| random_writes(place, Setup { settings, ..Setup::default() }, seed);
    let (ssr, ipu) = (with(&[("ipu_policy", "0")])?, with(&[("ipu_policy", "2")])?);
    let row =
        |what: &str, paper: &str, ours, unit| Row::new(Kind::Outcome, what, paper, ours, unit);
    let speed = ipu.mb_per_s / ssr.mb_per_s;
    let nodes = ipu.node_blocks / ssr.node_blocks;
    Ok(vec![
        row("throughput, IPU / SSR", "+24%", speed, "x").within(1.16, 1.32),
        row("node blocks written, IPU / SSR", "fewer", nodes, "x").within(0.0, 0.99),
        row("blocks written by SSR, with SSR", "", ssr.ssr_blocks, ""),
        row("blocks written in place, with IPU", "", ipu.ipu_blocks, ""),
    ])
}

/// Figure 3.
pub(super) fn ssr(place: &Place, seed: u64) -> Result<Vec<Row>> {
    let with = |options, settings| random_writes(place, Setup { options, settings }, seed);
    let runs = [
        ("default", with("", &[("ipu_policy", "0")])?),
        ("0", with("", &[("ipu_policy", "0"), ("min_ssr_sections", "0")])?),
        ("lfs", with("mode=lfs", &[])?),
    ];
    let mut rows = Vec::new();
    for (name, ran) in &runs {
        let row = |what: &str, ours, unit| {
            Row::new(Kind::Outcome, format!("{name}: {what}"), "", ours, unit)
        };
        rows.push(row("cleanings", ran.cleanings, ""));
        rows.push(row("blocks written to free segments (LFS)", ran.lfs_blocks, ""));
        rows.push(row("throughput", ran.mb_per_s, "MB/s"));
    }
    for ((less, few), (more, many)) in runs.iter().zip(&runs[1..]) {
        let row = |what: &str, paper: &str, ours| {
            let what = format!("{what}, {more} / {less}");
            Row::new(Kind::Outcome, what, paper, ours, "x")
        };
        let ratio = |of: fn(&Ran) -> f64| of(many) / of(few);
        let more_cleanings =
            Row { unit: "", ..row("cleanings more", "more", many.cleanings - few.cleanings) };
        rows.push(more_cleanings.within(1.0, 1e6));
        rows.push(row("LFS blocks", "more", ratio(|ran| ran.lfs_blocks)).within(1.01, 1e3));
        rows.push(row("throughput", "less", ratio(|ran| ran.mb_per_s)).within(0.0, 0.99));
    }
    Ok(rows)
}

/// Fills the volume, then overwrites blocks at random.
pub(super) fn random_writes(place: &Place, setup: Setup, seed: u64) -> Result<Ran> {
    on_volume(place, setup, seed, |fs| {
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default());
        let file = file.map_err(Error::at("create", b"file"))?.ino;
        let mut rng = Rng::new(seed, 7);
        let blocks = fill(fs, file, &rng.bytes(1 << 20))?;
        let names = ["lfs", "ssr", "ipu", "node"].map(|kind| format!("stat/{kind}_blocks"));
        let counts = || -> Result<Vec<f64>> {
            let cleanings = fs.cleanings() as f64;
            let blocks = names.iter().map(|name| count(fs, name));
            std::iter::once(Ok(cleanings)).chain(blocks).collect()
        };
        let before = counts()?;
        let (from, writes) = (now_ns(), blocks * PASSES);
        let data = rng.bytes(BLOCK as usize);
        for number in 1..=writes {
            let at = rng.below(blocks) * BLOCK;
            fs.write(file, at, &data).map_err(Error::at("write", b"file"))?;
            if (number * BLOCK).is_multiple_of(SYNC_EVERY) {
                fs.fsync(file, false).map_err(Error::at("fsync", b"file"))?;
            }
        }
        let seconds = (now_ns() - from) as f64 / 1e9;
        let done: Vec<f64> = counts()?.iter().zip(&before).map(|(now, then)| now - then).collect();
        let &[cleanings, lfs_blocks, ssr_blocks, ipu_blocks, node_blocks] = &done[..] else {
            return Err(Error::Usage("five counts".into()));
        };
        let mb_per_s = (writes * BLOCK) as f64 / 1e6 / seconds;
        Ok(Ran { mb_per_s, cleanings, lfs_blocks, ssr_blocks, ipu_blocks, node_blocks })
    })
}

/// Writes a file of [`FULL`] percent of the volume. How many blocks it has.
pub(super) fn fill(fs: &Arc<dyn Volume>, file: vfs::Ino, bytes: &[u8]) -> Result<u64> {
    let room = fs.statfs().map_err(Error::at("statfs", b""))?;
    let size = room.blocks * BLOCK * FULL / 100 / bytes.len() as u64 * bytes.len() as u64;
    for at in (0..size).step_by(bytes.len()) {
        fs.write(file, at, bytes).map_err(Error::at("write", b"file"))?;
    }
    fs.sync().map_err(Error::at("sync", b""))?;
    Ok(size / BLOCK)
}
