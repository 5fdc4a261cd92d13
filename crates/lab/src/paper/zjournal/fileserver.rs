//! Figure 2c: Filebench's `fileserver.f`. Each turn creates a file and writes it, appends to one,
//! reads one whole, deletes one and looks at one.
//!
//! The study says neither how many files nor how many directories there are, but that these are
//! few. Here all cores share [`DIRS`] directories, and a core has [`FILES`] files to begin with.

use vfs::kind::Volume;
use vfs::{Creator, Ino};

use super::window::{Op, measure};
use super::{JBD2, V4_14, Z};
use crate::paper::{Kind, Row};
use crate::workload::Rng;
use crate::{Error, Result};

/// Points of the curves.
const CORES: [usize; 5] = [1, 10, 20, 40, 80];
const DIRS: u64 = 20;
const FILES: u64 = 20;
/// Mean sizes in bytes.
const FILE: u64 = 128 << 10;
const APPEND: u64 = 16 << 10;
/// All files fit into the page cache, as they do on the study's machine.
const MEMORY: &str = ",cache=4g";
/// A thousandth of the kernel's interval.
pub(super) const COMMIT: &str = ",commit=0.005";
/// Operations in a turn, as Filebench counts them.
const TURN: u64 = 6;
/// The study's "low sharing".
const APART: &str = ",alloc=percore";

/// Names of the root's directories.
#[derive(Clone, Copy)]
pub(super) enum Dirs {
    /// The same for all cores.
    Common,
    /// Others for each core.
    Own,
}

/// Operations per second with this journal and these mount options.
pub(super) fn rate(options: &str, cores: usize, seed: u64, dirs: Dirs) -> Result<f64> {
    let prepare = move |fs: &dyn Volume, core| Server::prepare(fs, core as u64, seed, dirs);
    Ok(measure(&format!("{options}{MEMORY}"), cores, seed, true, prepare)?.per_s)
}

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut points = Vec::new();
    for cores in CORES {
        let at = |journal: &str, more: &str| {
            rate(&format!("{journal}{V4_14}{COMMIT}{more}"), cores, seed, Dirs::Common)
        };
        let [jbd2, z] = [at(JBD2, "")?, at(Z, "")?];
        let [jbd2_apart, z_apart] = [at(JBD2, APART)?, at(Z, APART)?];
        let names = ["JBD2", "Z-Journal", "JBD2, low sharing", "Z-Journal, low sharing"];
        for (name, ours) in names.into_iter().zip([jbd2, z, jbd2_apart, z_apart]) {
            let what = format!("{cores} cores, {name}");
            rows.push(Row::new(Kind::Outcome, what, "", ours / 1e3, "K/s"));
        }
        points.push(Point { cores, jbd2, z, jbd2_apart, z_apart });
    }
    rows.extend(claims(&points));
    Ok(rows)
}

/// What sharing costs Z-Journal: its lead by how often there is a commit, and where the cores share
/// neither directories nor groups.
pub(super) fn why(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for cores in [10, 80] {
        for ms in [0.5, 2.0, 5.0] {
            for (what, dirs, more) in
                [("", Dirs::Common, ""), (", nothing shared", Dirs::Own, APART)]
            {
                let at = |journal: &str| {
                    let options = format!("{journal}{V4_14},commit={}{more}", ms / 1e3);
                    rate(&options, cores, seed, dirs)
                };
                let lead = at(Z)? / at(JBD2)?;
                let what = format!("{cores} cores, a commit every {ms} ms{what}: Z-Journal / JBD2");
                rows.push(Row::new(Kind::Outcome, what, "", lead, "x"));
            }
        }
    }
    Ok(rows)
}

/// Operations per second with so many cores; `apart` is low sharing.
#[derive(Clone, Copy)]
struct Point {
    cores: usize,
    jbd2: f64,
    z: f64,
    jbd2_apart: f64,
    z_apart: f64,
}

impl Point {
    fn lead(&self) -> f64 {
        self.z / self.jbd2
    }
}

/// What the study says of its curves. With one core there is nobody to share a journal with.
fn claims(points: &[Point]) -> Vec<Row> {
    let row =
        |what: &str, paper: &str, ours, unit| Row::new(Kind::Outcome, what, paper, ours, unit);
    let (Some(one), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let best = points.iter().max_by(|a, b| a.jbd2.total_cmp(&b.jbd2)).unwrap_or(one);
    let least = points.iter().skip(1).map(Point::lead).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(Point::lead).fold(0.0, f64::max);
    let [jbd2_gains, z_gains] = [last.jbd2_apart / last.jbd2, last.z_apart / last.z];
    vec![
        row("JBD2 is best at", "10 cores", best.cores as f64, "cores").within(1.0, 20.0),
        row("lead of Z-Journal with one core", "", one.lead(), "x"),
        row("least lead of Z-Journal with more", "above 1", least, "x").within(1.0, 100.0),
        row("lead at 80 cores / largest lead", "less than 1", last.lead() / most, "x")
            .within(0.0, 0.99),
        row("JBD2 at 80 cores, low sharing / shared", "1", jbd2_gains, "x").near(1.0, 0.1),
        row("Z-Journal at 80 cores, low sharing / shared", "above 1", z_gains, "x")
            .within(1.0, 100.0),
    ]
}

/// One core's part.
struct Server {
    rng: Rng,
    core: u64,
    dirs: Vec<Ino>,
    files: Vec<File>,
    made: u64,
}

#[derive(Clone)]
struct File {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    size: u64,
}

impl Server {
    fn prepare(fs: &dyn Volume, core: u64, seed: u64, dirs: Dirs) -> Result<Op> {
        let dir = |n: u64| {
            let name = match dirs {
                Dirs::Common => format!("dir{n}"),
                Dirs::Own => format!("dir{core}.{n}"),
            };
            let name = name.into_bytes();
            let made = fs.mkdir(fs.root(), &name, 0o755, Creator::default());
            let known = made.or_else(|_| fs.lookup(fs.root(), &name));
            known.map(|attr| attr.ino).map_err(Error::at("mkdir", &name))
        };
        let dirs = (0..DIRS).map(dir).collect::<Result<Vec<_>>>()?;
        let mut server = Self { rng: Rng::new(seed, core), core, dirs, files: Vec::new(), made: 0 };
        (0..FILES).try_for_each(|_| server.create(fs))?;
        Ok(Box::new(move |fs| server.turn(fs).map(|()| TURN)))
    }

    fn turn(&mut self, fs: &dyn Volume) -> Result<()> {
        self.create(fs)?;
        let at = self.pick();
        self.append(fs, at, APPEND)?;
        let at = self.pick();
        let read = &self.files[at];
        let mut bytes = vec![0; read.size as usize];
        fs.read(read.ino, 0, &mut bytes).map_err(Error::at("read", &read.name))?;
        let at = self.pick();
        let old = self.files.swap_remove(at);
        fs.unlink(old.dir, &old.name).map_err(Error::at("unlink", &old.name))?;
        let at = self.pick();
        let seen = &self.files[at];
        fs.lookup(seen.dir, &seen.name).map_err(Error::at("lookup", &seen.name))?;
        Ok(())
    }

    fn pick(&mut self) -> usize {
        self.rng.below(self.files.len() as u64) as usize
    }

    fn create(&mut self, fs: &dyn Volume) -> Result<()> {
        let dir = self.dirs[self.rng.below(DIRS) as usize];
        let name = format!("file{}.{}", self.core, self.made).into_bytes();
        self.made += 1;
        let ino = fs.create(dir, &name, 0o644, Creator::default());
        let ino = ino.map_err(Error::at("create", &name))?.ino;
        self.files.push(File { dir, name, ino, size: 0 });
        self.append(fs, self.files.len() - 1, FILE)
    }

    /// Appends `mean` bytes, more or less.
    fn append(&mut self, fs: &dyn Volume, at: usize, mean: u64) -> Result<()> {
        let bytes = vec![self.made as u8; self.rng.within(1, 2 * mean - 1) as usize];
        let file = &mut self.files[at];
        fs.write(file.ino, file.size, &bytes).map_err(Error::at("write", &file.name))?;
        file.size += bytes.len() as u64;
        Ok(())
    }
}
