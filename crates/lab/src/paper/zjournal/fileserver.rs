//! Figure 2c: Filebench's `fileserver.f`. Each turn creates a file and writes it, appends to one,
//! reads one whole, deletes one and looks at one.
//!
//! The study says neither how many files nor how many directories there are. Here all cores share
//! [`DIRS`] directories, a core has [`FILES`] files to begin with, and files are an eighth of
//! Filebench's, as are appends: what is copied is not what is studied.

use vfs::kind::Volume;
use vfs::{Creator, Ino};

use super::window::{Op, measure};
use super::{JBD2, OFTEN, V4_14, Z};
use crate::paper::{Kind, Row};
use crate::workload::Rng;
use crate::{Error, Result};

/// Points of the curves.
const CORES: [usize; 5] = [1, 10, 20, 40, 80];
const DIRS: u64 = 20;
const FILES: u64 = 20;
/// Mean sizes in bytes.
const FILE: u64 = 16 << 10;
const APPEND: u64 = 2 << 10;
/// Operations in a turn, as Filebench counts them.
const TURN: u64 = 6;
/// The study's "low sharing".
const APART: &str = ",alloc=percore";

/// Names of the root's directories.
#[derive(Clone, Copy)]
enum Dirs {
    /// The same for all cores.
    Common,
    /// Others for each core.
    Own,
}

/// Operations per second with this journal and these mount options.
fn rate(options: &str, cores: usize, seed: u64, dirs: Dirs) -> Result<f64> {
    let prepare = move |fs: &dyn Volume, core| Server::prepare(fs, core as u64, seed, dirs);
    Ok(measure(options, cores, seed, prepare)?.per_s)
}

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut leads = Vec::new();
    for cores in CORES {
        let at = |journal: &str, more: &str| {
            rate(&format!("{journal}{V4_14}{OFTEN}{more}"), cores, seed, Dirs::Common)
        };
        let [jbd2, z] = [at(JBD2, "")?, at(Z, "")?];
        let [jbd2_apart, z_apart] = [at(JBD2, APART)?, at(Z, APART)?];
        let names = ["JBD2", "Z-Journal", "JBD2, low sharing", "Z-Journal, low sharing"];
        for (name, ours) in names.into_iter().zip([jbd2, z, jbd2_apart, z_apart]) {
            let what = format!("{cores} cores, {name}");
            rows.push(Row::new(Kind::Outcome, what, "", ours / 1e3, "K/s"));
        }
        leads.push((cores, jbd2, z / jbd2, z_apart / jbd2_apart));
    }
    rows.extend(claims(&leads));
    Ok(rows)
}

/// Why Z-Journal does not lead with few cores: its lead by how often there is a commit, and where
/// the cores share neither directories nor groups.
pub(super) fn why(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for cores in [10, 80] {
        for ms in [0.5, 2.0, 8.0] {
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

/// What the study says of its curves. `leads` has, for each number of cores, JBD2's throughput and
/// Z-Journal's lead, with blocks shared and apart.
fn claims(leads: &[(usize, f64, f64, f64)]) -> Vec<Row> {
    let row =
        |what: &str, paper: &str, ours, unit| Row::new(Kind::Outcome, what, paper, ours, unit);
    let best = leads.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    let least = leads.iter().map(|lead| lead.2).fold(f64::INFINITY, f64::min);
    let most = leads.iter().map(|lead| lead.2).fold(0.0, f64::max);
    let (_, _, last, last_apart) = leads.last().copied().unwrap_or_default();
    vec![
        row("JBD2 is best at", "10 cores", best.0 as f64, "cores").within(1.0, 20.0),
        row("least lead of Z-Journal", "above 1", least, "x").within(1.0, 100.0),
        row("lead at 80 cores / largest lead", "less than 1", last / most, "x").within(0.0, 0.99),
        row("lead at 80 cores, low sharing / shared", "above 1", last_apart / last, "x")
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
