//! Figures 2a and 2b: FxMark's DWOL and DWOM.

use drive::BLOCK_SIZE;
use vfs::kind::Volume;
use vfs::{Creator, Ino};

use super::window::{Op, measure};
use super::{JBD2, NONE, OFTEN, RARELY, V4_14, Z};
use crate::bench::Spread;
use crate::paper::{Kind, Row};
use crate::{Error, Result};

/// Points of the curves.
const CORES: [usize; 5] = [1, 10, 20, 40, 80];
/// A core's part of the shared file, as in FxMark.
const REGION: u64 = 8 << 20;
/// Runs of which the middle one counts where all cores wait for one lock: much depends on the order
/// in which they come to it.
const RUNS: u64 = 5;

pub(super) fn own_files(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, [none, jbd2, z]) = curves(seed, OFTEN, own_file)?;
    let outcome = |what: &str, paper: &str, ours| Row::new(Kind::Outcome, what, paper, ours, "x");
    rows.push(outcome("80 cores, Z-Journal / JBD2", "41", z / jbd2).within(20.0, 82.0));
    let share = outcome("80 cores, Z-Journal / none", "near 1", z / none);
    rows.push(share.within(0.8, 1.05));
    Ok(rows)
}

pub(super) fn one_file(seed: u64) -> Result<Vec<Row>> {
    let (mut rows, [_, jbd2, z]) = curves(seed, RARELY, shared_file)?;
    let more = (1..RUNS).map(|n| lead(RARELY, seed.wrapping_add(n)));
    let leads = std::iter::once(Ok(z / jbd2)).chain(more).collect::<Result<Vec<_>>>()?;
    let Spread { median, least, most } = Spread::of(leads);
    let row = Row::new(Kind::Outcome, "80 cores, Z-Journal / JBD2", "1.3", median, "x");
    rows.push(Row { range: Some((least, most)), ..row.within(1.1, 1.6) });
    Ok(rows)
}

/// Why Z-Journal is ahead where all cores wait for one file's lock: by how often there is a commit.
pub(super) fn one_file_why(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for ms in [5, 10, 40] {
        let commit = format!(",commit={}", f64::from(ms) / 1e3);
        let what = format!("80 cores, a commit every {ms} ms: Z-Journal / JBD2");
        rows.push(Row::new(Kind::Outcome, what, "", lead(&commit, seed)?, "x"));
    }
    Ok(rows)
}

/// Z-Journal's lead where 80 cores overwrite one file.
fn lead(commit: &str, seed: u64) -> Result<f64> {
    let at = |journal: &str| -> Result<f64> {
        let options = format!("{journal}{V4_14}{commit}");
        Ok(measure(&options, CORES[CORES.len() - 1], seed, true, shared_file)?.per_s)
    };
    Ok(at(Z)? / at(JBD2)?)
}

/// Makes what a core needs, and its operation.
pub(super) type Prepare = fn(&dyn Volume, usize) -> Result<Op>;

/// The curves, and their values at most cores.
fn curves(seed: u64, commit: &str, prepare: Prepare) -> Result<(Vec<Row>, [f64; 3])> {
    let mut rows = Vec::new();
    let mut last = [0.0; 3];
    let journals = [("none", NONE, ""), ("JBD2", JBD2, commit), ("Z-Journal", Z, commit)];
    for cores in CORES {
        for ((name, journal, commit), last) in journals.into_iter().zip(&mut last) {
            let of = measure(
                &format!("{journal}{V4_14}{commit}"),
                cores,
                seed,
                journal != NONE,
                prepare,
            )?;
            let what = format!("{cores} cores, {name}");
            rows.push(Row::new(Kind::Outcome, what, "", of.per_s / 1e6, "M/s"));
            *last = of.per_s;
        }
    }
    let today = measure(&format!("{JBD2}{commit}"), CORES[CORES.len() - 1], seed, false, prepare)?;
    let what = "80 cores, JBD2, an overwrite begins no transaction (5.15 on)";
    rows.push(Row::new(Kind::Outcome, what, "", today.per_s / 1e6, "M/s"));
    Ok((rows, last))
}

/// `DWOL.c`: the block of a file in a directory of its own.
pub(super) fn own_file(fs: &dyn Volume, core: usize) -> Result<Op> {
    let name = core.to_string().into_bytes();
    let dir = fs.mkdir(fs.root(), &name, 0o755, Creator::default());
    let dir = dir.map_err(Error::at("mkdir", &name))?.ino;
    let file = fs.create(dir, b"private.dat", 0o644, Creator::default());
    let file = file.map_err(Error::at("create", b"private.dat"))?.ino;
    overwrite(fs, file, 0, core)
}

/// `DWOM.c`: the first block of a region of one file.
pub(super) fn shared_file(fs: &dyn Volume, core: usize) -> Result<Op> {
    let found = fs.lookup(fs.root(), b"shared.dat").map(|attr| attr.ino);
    let create = |_| fs.create(fs.root(), b"shared.dat", 0o644, Creator::default());
    let file = found.or_else(|errno| create(errno).map(|attr| attr.ino));
    let file = file.map_err(Error::at("create", b"shared.dat"))?;
    overwrite(fs, file, core as u64 * REGION, core)
}

fn overwrite(fs: &dyn Volume, file: Ino, at: u64, core: usize) -> Result<Op> {
    let block = [core as u8; BLOCK_SIZE];
    let write = move |fs: &dyn Volume| {
        fs.write(file, at, &block).map_err(Error::at("write", b""))?;
        Ok(1)
    };
    write(fs)?;
    Ok(Box::new(write))
}
