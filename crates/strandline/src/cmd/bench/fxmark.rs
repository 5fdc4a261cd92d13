//! `strandline bench fxmark`: a load on more and more cores.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use lab::bench::fxmark::{Job, Load, Place};
use lab::paper::sensitivity::sensitivity;

use super::Common;
use crate::failure::{Failure, Outcome};
use crate::known;
use crate::out;
use crate::progress::Progress;

/// Run one of FxMark's loads on 1, 2, 4, … cores, and print FxMark's log.
#[derive(Args)]
#[command(after_help = loads())]
pub(crate) struct Fxmark {
    /// One of the loads below
    #[arg(value_name = "LOAD")]
    load: Load,
    /// `real`, or a machine profile to simulate
    #[arg(long, default_value = "real")]
    machine: String,
    /// How many cores, one run for each number
    #[arg(long, default_value = "1,2", value_delimiter = ',', value_name = "CORES")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    cores: Vec<u64>,
    /// Operations per core; by default on `ram` a second or so of them, a thousand or more if
    /// simulated
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    ops: Option<u64>,
    #[arg(long, default_value = "ram", help = format!("Drive profile: {}", known::drives()))]
    drive: String,
    /// Not in process: through the kernel, in a new directory below this one
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["fs", "drive", "mount_opts", "BlockLayer"])]
    mount: Option<PathBuf>,
    /// Open files with O_DIRECT, past the page cache
    #[arg(long)]
    direct: bool,
    /// Also run as many single-threaded processes, TURNS times
    #[arg(long, value_name = "TURNS", conflicts_with_all = ["mount", "profile_locks"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    pairs: Option<u64>,
    /// Also print how often each lock was taken, and time waited, spun and held, by its name
    #[arg(long)]
    profile_locks: bool,
    /// Run it again with each estimated cost of the machine halved and half as much again, and
    /// say which orderings of its points survive
    #[arg(long, conflicts_with_all = ["mount", "pairs", "profile_locks"])]
    sensitivity: bool,
    /// Draw the curve as an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    /// One of the processes of --pairs: its first core. It starts when told to.
    #[arg(long, hide = true)]
    follow: Option<u64>,
}

/// What each load does, and examples.
fn loads() -> String {
    let loads = Load::ALL.iter().map(|load| format!("  {load}  {}\n", load.about()));
    format!(
        "Loads, what each core does:\n{}\n\
         Examples:\n  \
         strandline bench fxmark DWOL --machine e7-8870v2-120 --cores 1,4,16,60,120\n  \
         strandline bench fxmark DWSL --cores 1,2 --pairs 5 --svg dwsl.svg\n  \
         strandline bench fxmark MWCL --mount /mnt/strandline --json",
        loads.collect::<String>()
    )
}

impl Fxmark {
    pub(super) fn run(self) -> Outcome {
        let place = match &self.mount {
            Some(dir) => Place::Mount(dir.clone()),
            None => Place::Fresh {
                format: subjects::named(&self.common.fs)?,
                drive: self.drive.clone(),
                mount_opts: self.common.mount_opts(),
            },
        };
        let job = Job {
            load: self.load,
            place,
            machine: self.machine.clone(),
            cores: self.cores.clone(),
            ops: self.ops,
            direct: self.direct,
            seed: self.common.seed,
            profile_locks: self.profile_locks,
        };
        if let Some(first_core) = self.follow {
            job.follow(first_core, &say, &hear)?;
            return Ok(0);
        }
        if self.sensitivity {
            return self.sensitive(&job);
        }
        let runs = self.cores.len() as u64 * self.pairs.unwrap_or(1);
        let progress = Progress::new(runs, self.load.name(), self.common.json);
        let step = &mut || progress.step();
        let curve = match self.pairs {
            Some(turns) => {
                let program = std::env::current_exe().map_err(Failure::on("this program"))?;
                job.pairs(turns, &|threads, core| self.follower(&program, threads, core), step)?
            }
            None => job.run(step)?,
        };
        progress.finish();
        if let Some(path) = &self.svg {
            std::fs::write(path, curve.svg()).map_err(Failure::host(path))?;
        }
        match self.common.json {
            true => out::json(&curve)?,
            false => out::text(&curve.log())?,
        }
        Ok(0)
    }

    fn sensitive(&self, job: &Job) -> Outcome {
        let run = &mut || job.run(&mut || ()).map(|curve| curve.figures());
        let found = sensitivity(run)?;
        match self.common.json {
            true => out::json(&found)?,
            false => out::text(&found.text())?,
        }
        Ok(0)
    }

    /// One of the processes of `--pairs`.
    fn follower(&self, program: &Path, threads: u64, first_core: u64) -> Command {
        let mut command = Command::new(program);
        command.args(["bench", "fxmark", self.load.name(), "--machine", &self.machine]);
        command.args(["--fs", &self.common.fs, "--drive", &self.drive]);
        command.arg(format!("--mount-options={}", self.common.mount_opts()));
        command.args(self.direct.then_some("--direct"));
        command.args(self.ops.map(|ops| format!("--ops={ops}")));
        let numbers = [("cores", threads), ("follow", first_core), ("seed", self.common.seed)];
        command.args(numbers.map(|(name, value)| format!("--{name}={value}")));
        command
    }
}

/// Says a line to the process that started this one.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

/// Hears a line from it.
fn hear() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map(|_| line)
}
