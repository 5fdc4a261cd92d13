//! Threads compared with processes. At best, threads on one volume do as much as that many
//! processes, each with a volume of its own. Both run in turn, several times, in processes that
//! were started for it; the ratios are those of each turn.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cores::Nanos;
use serde::Serialize;

use super::run::Told;
use super::{Curve, Job, Place, Point, point};
use crate::bench::Spread;
use crate::{Error, Result, now_ns};

/// The lines between us and a process that measures: it is ready, it may go, it is done.
const READY: &str = "ready";
const GO: &str = "go";
const DONE: &str = "done";

/// Threads of one process compared with other ways to use as many cores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// Turns.
    pub turns: u64,
    /// Operations per second of as many processes with a volume each.
    pub processes_per_s: Spread,
    /// Threads over processes.
    pub over_processes: Spread,
    /// Threads over one thread, if that was run, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_one: Option<Spread>,
}

impl Beside {
    /// Columns of FxMark's log behind its own, and their values.
    pub(super) fn columns(&self) -> Vec<(String, f64)> {
        let mut columns = vec![("processes/sec".to_owned(), self.processes_per_s.median)];
        let ratios = [("over_processes", Some(self.over_processes)), ("over_one", self.over_one)];
        for (name, spread) in ratios {
            let Some(Spread { median, least, most }) = spread else { continue };
            columns.push((name.to_owned(), median));
            columns.push((format!("{name}_min"), least));
            columns.push((format!("{name}_max"), most));
        }
        columns
    }
}

impl Job {
    /// Runs so many turns of every number of cores: threads, then processes. `command` is this
    /// program's, with so many threads, the first on that core; it calls [`Job::follow`]. Calls
    /// `step` after each run.
    pub fn pairs(
        &self,
        turns: u64,
        command: &dyn Fn(u64, u64) -> Command,
        step: &mut dyn FnMut(),
    ) -> Result<Curve> {
        let (machine, sockets, cores_per_socket) = self.machine()?;
        if machine.is_simulated() || matches!(self.place, Place::Mount(_)) {
            let message = "processes with volumes of their own run on the real machine, unmounted";
            return Err(Error::Usage(message.into()));
        }
        let (mut threads, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            for &cores in &self.cores {
                threads.push(measure(vec![command(cores, 0)])?);
                let alone = (0..cores).map(|core| command(1, core)).collect();
                processes.push(if cores == 1 { None } else { Some(measure(alone)?) });
                step();
            }
        }
        let points = (0..self.cores.len()).map(|i| self.summed_up(i, &threads, &processes));
        Ok(self.curve(false, (sockets, cores_per_socket), points.collect()))
    }

    /// Point `i` of the curve, from the times of all turns in the order in which they ran.
    fn summed_up(&self, i: usize, threads: &[Nanos], processes: &[Option<Nanos>]) -> Point {
        let turns = |i: usize| threads.iter().skip(i).step_by(self.cores.len());
        let run = self.one(self.cores[i], false);
        let works = (run.cores * run.ops) as f64;
        let rate = |time: &Nanos| works * 1e9 / *time as f64;
        let rates = Spread::of(turns(i).map(rate).collect());
        let took = (works * 1e9 / rates.median).round() as Nanos;
        let alone = processes.iter().skip(i).step_by(self.cores.len());
        let pairs: Vec<(Nanos, Nanos)> =
            turns(i).zip(alone).filter_map(|(&one, &other)| Some((one, other?))).collect();
        let one = self.cores.iter().position(|&cores| cores == 1);
        let over_one = |one: usize| {
            let ratio =
                |(one, many): (&Nanos, &Nanos)| run.cores as f64 * *one as f64 / *many as f64;
            Spread::of(turns(one).zip(turns(i)).map(ratio).collect())
        };
        let beside = (!pairs.is_empty()).then(|| Beside {
            turns: pairs.len() as u64,
            processes_per_s: Spread::of(pairs.iter().map(|p| rate(&p.1)).collect()),
            over_processes: Spread::of(pairs.iter().map(|p| p.1 as f64 / p.0 as f64).collect()),
            over_one: one.map(over_one),
        });
        Point { beside, ..point(run, took.max(1), Vec::new()) }
    }

    /// Runs the first number of cores, from core `first_core` on, at the word of the process that
    /// started this one: [`Job::pairs`]. `say` and `hear` are a line to it and one from it.
    pub fn follow(
        &self,
        first_core: u64,
        say: &dyn Fn(&str) -> std::io::Result<()>,
        hear: &dyn Fn() -> std::io::Result<String>,
    ) -> Result<()> {
        let (machine, ..) = self.machine()?;
        let cores = self.cores.first().copied().unwrap_or(1);
        let run = super::Run { first_core, ..self.one(cores, false) };
        let gone = |source| Error::Host { path: "the process that measures".into(), source };
        let ready = || {
            say(READY).map_err(gone)?;
            match hear().map_err(gone)?.trim() {
                GO => Ok(()),
                _ => Err(Error::Usage("the process that measures has gone".into())),
            }
        };
        let told = Told { ready: &ready, done: &|| say(DONE).map_err(gone) };
        machine.run(|| self.place.run(run, false, &told))?.map(drop)
    }
}

/// A process that measures. It is killed if this is dropped before it has ended.
struct Measuring {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Measuring {
    fn start(mut command: Command) -> Result<Self> {
        let name = command.get_program().display().to_string();
        let failed = |source| Error::Host { path: name.clone(), source };
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Self { child, to, from: BufReader::new(from) }),
            _ => Err(Error::Usage(format!("{name}: no pipes"))),
        }
    }

    /// Waits until it says `word`.
    fn hear(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(_) if line.trim() == word => Ok(()),
            // It has said on standard error why.
            _ => Err(Error::Usage("a process that measures has failed".into())),
        }
    }

    fn go(&mut self) -> Result<()> {
        writeln!(self.to, "{GO}").map_err(|source| Error::Host { path: "pipe".into(), source })
    }

    fn end(mut self) -> Result<()> {
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Error::Usage("a process that measures has failed".into())),
        }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // One that has ended on its own is left alone by both.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets processes prepare, run at the same time and end; from the start to the end of the last.
fn measure(commands: Vec<Command>) -> Result<Nanos> {
    let mut all = commands.into_iter().map(Measuring::start).collect::<Result<Vec<_>>>()?;
    all.iter_mut().try_for_each(|process| process.hear(READY))?;
    let began = now_ns();
    all.iter_mut().try_for_each(Measuring::go)?;
    all.iter_mut().try_for_each(|process| process.hear(DONE))?;
    let took = now_ns() - began;
    all.into_iter().try_for_each(Measuring::end)?;
    Ok(took.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::fxmark::Load;

    #[test]
    fn a_measuring_process_ends_with_its_handle() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let measuring = Measuring::start(command).expect("it starts");
        let process = std::path::PathBuf::from(format!("/proc/{}", measuring.child.id()));
        assert!(process.exists());
        drop(measuring);
        assert!(!process.exists());
    }

    #[test]
    fn threads_and_processes_have_the_same_median() {
        let job = Job {
            load: Load::Dwol,
            place: Place::Mount("/".into()),
            machine: "real".into(),
            cores: vec![2],
            ops: Some(1_000),
            direct: false,
            seed: 1,
            profile_locks: false,
        };
        for times in [&[3_000_000][..], &[1_000_000, 4_000_000], &[4_000_000, 9_000_000, 1_000_000]]
        {
            let alone: Vec<_> = times.iter().copied().map(Some).collect();
            let point = job.summed_up(0, times, &alone);
            let processes = point.beside.expect("both ran").processes_per_s;
            assert!((point.works_per_s / processes.median - 1.0).abs() < 1e-6, "{point:?}");
        }
    }
}
