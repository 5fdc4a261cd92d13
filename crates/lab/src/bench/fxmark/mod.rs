//! FxMark (Min and others, USENIX ATC 2016): nineteen small loads, each run on 1, 2, 4, … cores to
//! see where a file system stops scaling. Each is bounded by operations, in process or through a
//! mount.

mod files;
mod load;
mod output;
mod pairs;
mod run;
#[cfg(test)]
mod scaling;
#[cfg(test)]
mod tests;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use ::drive::Drive;
use cores::{LockUse, Machine, Nanos};
use serde::Serialize;
use vfs::kind::Format;

use super::Fresh;
use crate::paper::sensitivity::Figure;
use crate::{Error, Result, machine_named, profile_named};
use files::{InProcess, Mounted};
pub use load::Load;
pub use pairs::Beside;
use run::{Run, Told, Took};

/// What a load reads or writes at a time.
const BLOCK: u64 = 4096;

/// Files that each core makes in a directory to be read.
const ENTRIES: u64 = 200;

/// What to run on what.
#[derive(Clone)]
pub struct Job {
    /// The load.
    pub load: Load,
    /// Where its files are.
    pub place: Place,
    /// `real` or a machine profile.
    pub machine: String,
    /// How many cores, one point of the curve each.
    pub cores: Vec<u64>,
    /// Operations per core; by default the same for all numbers of cores.
    pub ops: Option<u64>,
    /// Whether files are opened with `O_DIRECT`.
    pub direct: bool,
    /// Seed of contents and choices.
    pub seed: u64,
    /// Whether to count what happens at locks.
    pub profile_locks: bool,
}

/// Where the files are.
#[derive(Clone)]
pub enum Place {
    /// On a fresh volume in this process, for each point.
    Fresh {
        /// The file system.
        format: &'static dyn Format,
        /// The drive's profile.
        drive: String,
        /// As `mount -o` takes them.
        mount_opts: String,
    },
    /// In a directory of its own below this one, through the kernel.
    Mount(PathBuf),
}

impl Curve {
    /// Its points, as figures whose order may rest on estimates.
    pub fn figures(&self) -> Vec<Figure> {
        let figure = |point: &Point| {
            let (what, unit) = (format!("{} on {} cores", self.load, point.cores), "operations/s");
            Figure { what, unit, value: point.works_per_s }
        };
        self.points.iter().map(figure).collect()
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// `fxmark`.
    pub bench: &'static str,
    /// The load, by FxMark's name.
    pub load: &'static str,
    /// The file system, or the directory it is mounted on.
    pub fs: String,
    /// The drive's profile; `-` if the kernel knows.
    pub drive: String,
    /// The machine.
    pub machine: String,
    /// Whether time was the model's.
    pub simulated: bool,
    /// Sockets of the machine; 1 if it is real.
    pub sockets: usize,
    /// Cores of each.
    pub cores_per_socket: usize,
    /// Mount options.
    pub mount_opts: String,
    /// Whether files were opened with `O_DIRECT`; not said if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// The seed.
    pub seed: u64,
    /// Operations per core.
    pub ops: u64,
    /// In the order asked for.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Cores that took part.
    pub cores: u64,
    /// From the first start to the last end.
    pub secs: f64,
    /// Operations of all cores.
    pub works: u64,
    /// Operations per second of all cores.
    pub works_per_s: f64,
    /// The ratios of several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// What happened at locks, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockUse>,
}

impl Job {
    /// The machine, its sockets and the cores of each.
    fn machine(&self) -> Result<(Machine, usize, usize)> {
        let machine = machine_named(&self.machine, self.seed)?;
        let (name, sockets, there) = if !machine.is_simulated() {
            ("this machine", 1, cores::core_count())
        } else if matches!(self.place, Place::Mount(_)) {
            return Err(Error::Usage("a mount is on the real machine".into()));
        } else {
            let profile = profile_named(&self.machine)?;
            (self.machine.as_str(), profile.sockets(), profile.cores())
        };
        if let Some(many) = self.cores.iter().find(|&&cores| cores > there as u64) {
            return Err(Error::Usage(format!("{name} has {there} cores, not {many}")));
        }
        Ok((machine, sockets, there / sockets))
    }

    /// Runs it. Calls `step` after each point.
    pub fn run(&self, step: &mut dyn FnMut()) -> Result<Curve> {
        let (machine, sockets, cores_per_socket) = self.machine()?;
        let simulated = machine.is_simulated();
        let quiet = Told { ready: &|| Ok(()), done: &|| Ok(()) };
        let mut points = Vec::new();
        for &cores in &self.cores {
            let run = self.one(cores, simulated);
            let (took, _) = machine.run(|| self.place.run(run, simulated, &quiet))??;
            points.push(point(run, took.time, took.locks));
            step();
        }
        Ok(self.curve(simulated, (sockets, cores_per_socket), points))
    }

    fn one(&self, cores: u64, simulated: bool) -> Run {
        let mounted = matches!(self.place, Place::Mount(_));
        let ops = self.ops.unwrap_or(self.load.default_ops(simulated, mounted)).max(1);
        let Self { load, direct, seed, profile_locks, .. } = *self;
        Run { load, cores, first_core: 0, ops, direct, seed, profile_locks }
    }

    fn curve(
        &self,
        simulated: bool,
        (sockets, cores_per_socket): (usize, usize),
        points: Vec<Point>,
    ) -> Curve {
        let (fs, drive, mount_opts) = self.place.names();
        Curve {
            bench: "fxmark",
            load: self.load.name(),
            fs,
            drive,
            machine: self.machine.clone(),
            simulated,
            sockets,
            cores_per_socket,
            mount_opts,
            direct: self.direct,
            seed: self.seed,
            ops: self.one(1, simulated).ops,
            points,
        }
    }
}

impl Place {
    /// Runs `run` there, on the current machine. Returns the drive, too, if it is ours.
    fn run(
        &self,
        run: Run,
        simulated: bool,
        told: &Told<'_>,
    ) -> Result<(Took, Option<Arc<dyn Drive>>)> {
        match self {
            Self::Fresh { format, drive, mount_opts } => {
                let footprint = run.load.footprint(run.cores, run.ops);
                let (format, seed) = (*format, run.seed);
                let fresh = Fresh { format, drive, mount_opts, seed, simulated, footprint };
                let made = fresh.volume(|fs, _| {
                    let files = InProcess { volume: Arc::clone(fs), direct: run.direct };
                    run.on(&Arc::new(files), told)
                });
                made.map(|(took, drive)| (took, Some(drive)))
            }
            Self::Mount(dir) => {
                Ok((run.on(&Arc::new(Mounted::below(dir, run.direct)?), told)?, None))
            }
        }
    }

    /// File system, drive and mount options, for reports.
    fn names(&self) -> (String, String, String) {
        match self {
            Self::Fresh { format, drive, mount_opts } => {
                (format.name().to_owned(), drive.clone(), mount_opts.clone())
            }
            Self::Mount(dir) => (dir.display().to_string(), "-".to_owned(), String::new()),
        }
    }
}

fn point(run: Run, took: Nanos, locks: Vec<LockUse>) -> Point {
    let (cores, works, secs) = (run.cores, run.cores * run.ops, took as f64 / 1e9);
    Point { cores, secs, works, works_per_s: works as f64 / secs, beside: None, locks }
}
