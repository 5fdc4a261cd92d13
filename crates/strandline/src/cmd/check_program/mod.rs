//! `strandline check-program`: does a program survive a power cut? Its own checker answers.

mod checker;
mod child;
mod mounts;
mod run;
mod tell;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use clap::Args;
use lab::program::{Check, Judge, Judgement, Limits, Place, Volume, warnings};
use lab::record::Run;
use lab::rig;
use lab::workload::shell_word;
use regex::Regex;

use super::campaign::at_least_one;
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::interrupt::Interrupt;
use crate::known;
use crate::progress::Progress;

use checker::Checker;
use tell::Told;

/// Find out whether a program survives a power cut, with a checker of your own.
///
/// The program runs once, in an empty directory that records what it does, byte by byte. Then the
/// power is cut at every moment of that run, on each of several file systems, and the checker runs
/// in a copy of what each cut may leave: it exits with 0 if the program could go on from there. The
/// same files are checked once. Without a checker, warnings are all, and how the places differ.
///
/// Exit status 1 if the checker rejects a state, 2 if nothing could be judged, for example because
/// the program failed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline check-program --setup 'echo old >f' \\
      --run 'printf new >f.tmp; mv f.tmp f' --check 'grep -qx -e old -e new f'
  strandline check-program --run 'bank --transfers 20' --acknowledged 'committed (\\d+)' \\
      --check 'bank --verify --at-least \"${STRANDLINE_ACKNOWLEDGED:-0}\"'
  strandline check-program --run \"$PWD/save\" --check \"$PWD/verify\" --on f2fs,ext4:ordered --json
  strandline check-program --run save --check verify --on least --only 3.1 --keep state
  strandline check-program --run save

Commands run as `sh -c COMMAND` elsewhere: --setup and --run in an empty directory, --check in one
that holds what the cut left, which it may change. So programs are found on the PATH, or named by
their full paths. The checker gets
  STRANDLINE_DIR            that directory
  STRANDLINE_STATE          the state's name, for --only
  STRANDLINE_ACKNOWLEDGED   what --acknowledged matched last before the cut: its first group, or all
                            of the match; not set before the first match
  STRANDLINE_EXITED         1 if the program had exited, else 0. What it does not flush before it
                            exits was not durable: a program that promises so is checked for it

`least` is no file system, but the least that POSIX promises: an fsync makes durable what was done
to its file, or the names in its directory, and nothing else orders anything. What survives there
survives on every file system; what does not may still be saved by the one you use. For
`fsync-fails` the program runs once more and each fsync returns EIO: what it then promises is
checked as on `least`.")]
pub(crate) struct CheckProgram {
    /// Shell command to run first: what it does is durable before the power may fail
    #[arg(long, value_name = "COMMAND")]
    setup: Option<String>,
    /// Shell command that runs the program
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// Shell command that judges what a cut left; 0 if it is well
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,
    /// Let the checker work on a mount of each state, with its file system, not on a copy of the
    /// files
    #[arg(long, requires = "check")]
    mounted: bool,
    /// What the program prints, on a line of its standard output, when something is durable; a
    /// regular expression
    #[arg(long, value_name = "REGEX")]
    acknowledged: Option<Regex>,
    /// Where: `least`, FS:MODE, a file system's name for all its modes, or `fsync-fails`
    #[arg(long, value_delimiter = ',', value_name = "PLACE")]
    #[arg(default_values_t = USUAL.map(str::to_owned))]
    on: Vec<String>,
    #[arg(long, help = format!(
        "Drive profile: {}, as for crash [default: {DRIVE}, or pm for pmfs]", known::drives()
    ))]
    drive: Option<String>,
    /// Mount options besides those of the modes, as for mount -o
    #[arg(long, short = 'o', default_value = "", hide_default_value = true)]
    #[arg(value_name = "OPTIONS")]
    mount_options: String,
    /// States to look at in each place; if there are more, some are drawn
    #[arg(long, default_value_t = 4000, value_parser = at_least_one)]
    max_states: usize,
    /// Look at every state, if an instant has at most 4,096; minutes or hours
    #[arg(long, conflicts_with = "max_states")]
    every_state: bool,
    /// Seconds after which no more states are looked at
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<u64>,
    /// Seconds after which a checker that has not ended rejects
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    check_timeout: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Real threads, and so checkers at a time; the result does not depend on it
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    threads: usize,
    /// Judge only the state of this name
    #[arg(long, value_name = "STATE")]
    only: Option<String>,
    /// Leave the first state that is rejected in this new directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What was found as JSON: an object per place
    #[arg(long)]
    json: bool,
}

/// Where a run that names no place is judged.
const USUAL: [&str; 5] = ["least", "f2fs:posix", "f2fs:strict", "ext4:ordered", FAILING];

/// The place where the program runs again, and each of its fsyncs fails.
const FAILING: &str = "fsync-fails";

/// Exit status when nothing was judged: [`PROBLEM`] says that the program loses data.
const UNJUDGED: u8 = 2;

/// What helps a user whose command the shell has not found.
fn hint(status: ExitStatus) -> &'static str {
    match status.code() {
        Some(126 | 127) => " (it runs in a directory of its own: name programs by full paths)",
        _ => "",
    }
}

/// The drive of a run that names none, and for what needs memory.
const DRIVE: &str = "conventional-noplp";
const MEMORY: &str = "pm";

impl CheckProgram {
    pub(crate) fn run(self) -> Outcome {
        let unjudged = |failure| match failure {
            Failure::Problem(message) => Failure::Coded { message, code: UNJUDGED },
            failure => failure,
        };
        if let Some(keep) = &self.keep {
            std::fs::create_dir(keep).map_err(Failure::host(keep)).map_err(unjudged)?;
        }
        let outcome = self.judged().map_err(unjudged);
        if let (Some(keep), false) = (&self.keep, matches!(outcome, Ok(PROBLEM))) {
            // If something is in it after all, it stays.
            let _ = std::fs::remove_dir(keep);
        }
        outcome
    }

    fn judged(&self) -> Outcome {
        let places = self.places()?;
        let interrupt = Interrupt::watch()?;
        let recorded = self.record(false, &interrupt)?;
        let progress = Arc::new(Progress::new(self.max_states as u64, "states", self.json));
        let limits = self.limits(&progress, &interrupt);
        let judge = self.judge(&interrupt)?;
        let mut told = Told::new(&recorded.run, self.json, self.check.is_some());
        told.begin(&self.warnings(&recorded.run)?)?;
        let (run, syncs) = (recorded.run, told.syncs());
        let mut check = Check::new(run, recorded.exited, judge.clone(), limits.clone());
        check.sound()?;
        for (place, name) in places.iter().take_while(|_| !interrupt.came()) {
            progress.say(name);
            let outcome = check.on(place, self.only.as_deref())?;
            progress.aside(|| told.place(name, &outcome))?;
        }
        let fails = self.on.iter().any(|word| word == FAILING);
        if places.is_empty() && syncs == 0 {
            return Err(Failure::Problem(format!("{FAILING}: the program calls no fsync")));
        }
        let fails = fails && syncs > 0 && told.is_judged();
        if fails && told.is_broken() {
            told.leave_out(FAILING);
        }
        if fails && !told.is_broken() && !interrupt.came() {
            let again = self.record(true, &interrupt)?;
            told.of_run(&again.run);
            check = Check::new(again.run, again.exited, judge, limits);
            let outcome = check.on(&Place::Least, self.only.as_deref())?;
            progress.aside(|| told.place(FAILING, &outcome))?;
        }
        let wants_why = told.is_broken() && !interrupt.came();
        let why = if wants_why { check.why()? } else { None };
        progress.finish();
        told.end(why.as_ref(), &self.command_line())?;
        if let (Some(keep), Some(rejected)) = (&self.keep, told.first()) {
            rejected.tree.write(keep).map_err(Failure::host(keep))?;
        }
        interrupt.check(|| "not everything was looked at".into())?;
        Ok(if told.is_broken() { PROBLEM } else { 0 })
    }

    fn warnings(&self, run: &Run) -> Outcome<Vec<String>> {
        let mut all = warnings(run)?;
        if let (Some(pattern), true) = (&self.acknowledged, run.markers.is_empty()) {
            all.push(format!(
                "the program printed nothing that --acknowledged '{pattern}' matches"
            ));
        }
        Ok(all)
    }

    fn record(&self, failing: bool, interrupt: &Interrupt) -> Outcome<run::Recorded> {
        let (setup, program) = (self.setup.as_deref(), &*self.run);
        let acknowledged = self.acknowledged.as_ref();
        run::record(&run::Plan { setup, program, acknowledged, interrupt }, failing)
    }

    /// The checker. Without one, every state is accepted.
    fn judge(&self, interrupt: &Interrupt) -> Outcome<Judge> {
        let Some(command) = &self.check else {
            return Ok(Arc::new(|_| Ok(Some(Judgement::accepted()))));
        };
        let checker = Checker::new(command, self.check_timeout, self.mounted, interrupt)?;
        Ok(Arc::new(move |state| checker.judge(state)))
    }

    fn limits(&self, progress: &Arc<Progress>, interrupt: &Interrupt) -> Limits {
        let (begun, time) = (cores::now(), self.max_time);
        let (progress, interrupt) = (progress.clone(), interrupt.clone());
        let go_on = move |looked: usize| {
            progress.reach(looked as u64);
            let late = time.is_some_and(|most| (cores::now() - begun) / 1_000_000_000 >= most);
            !late && !interrupt.came()
        };
        let states = if self.every_state { Limits::EVERY } else { self.max_states };
        let (seed, threads) = (self.seed, self.threads);
        let keeps_trees = self.check.is_none();
        Limits { states, seed, threads, go_on: Arc::new(go_on), keeps_trees }
    }

    /// The places that are named, each once.
    fn places(&self) -> Outcome<Vec<(Place, String)>> {
        let mut places: Vec<(Place, String)> = Vec::new();
        for word in self.on.iter().filter(|word| *word != FAILING) {
            for place in self.named(word)? {
                let name = place.name();
                if !places.iter().any(|(_, other)| *other == name) {
                    places.push((place, name));
                }
            }
        }
        Ok(places)
    }

    fn named(&self, word: &str) -> Outcome<Vec<Place>> {
        if word == "least" {
            return Ok(vec![Place::Least]);
        }
        let (fs, mode) = word.split_once(':').map_or((word, None), |(fs, mode)| (fs, Some(mode)));
        let format = subjects::named(fs)?;
        let modes = match mode {
            Some(mode) => vec![subjects::technique(format, mode)?],
            None => format.techniques().to_vec(),
        };
        let drive = match &self.drive {
            Some(drive) => drive.clone(),
            None => {
                let usual = rig::kit(DRIVE, 0)?.identify()?;
                let fits = format.techniques().iter().any(|way| (way.runs_on)(&usual));
                if fits { DRIVE.into() } else { MEMORY.into() }
            }
        };
        let identify = rig::kit(&drive, 0)?.identify()?;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            modes.into_iter().partition(|way| (way.runs_on)(&identify));
        match (elsewhere.first(), mode) {
            (Some(way), Some(_)) => {
                return Err(Failure::Usage(format!("{fs}:{way} does not run on {drive}")));
            }
            _ if here.is_empty() => {
                return Err(Failure::Usage(format!("no mode of {fs} runs on {drive}")));
            }
            _ => {}
        }
        let options = self.mount_options.clone();
        let volume = |technique| {
            let (drive, options) = (drive.clone(), options.clone());
            Place::Volume(Volume { format, technique, drive, options })
        };
        Ok(here.into_iter().map(volume).collect())
    }

    /// What repeats this run, without the places and the state.
    fn command_line(&self) -> String {
        let mut text = "strandline check-program".to_owned();
        if let Some(setup) = &self.setup {
            text += &format!(" --setup {}", shell_word(setup));
        }
        text += &format!(" --run {}", shell_word(&self.run));
        if let Some(check) = &self.check {
            text += &format!(" --check {}", shell_word(check));
        }
        if self.mounted {
            text += " --mounted";
        }
        if let Some(pattern) = &self.acknowledged {
            text += &format!(" --acknowledged {}", shell_word(pattern.as_str()));
        }
        if let Some(drive) = &self.drive {
            text += &format!(" --drive {drive}");
        }
        if !self.mount_options.is_empty() {
            text += &format!(" -o {}", shell_word(&self.mount_options));
        }
        match self.every_state {
            true => text += " --every-state",
            false => text += &format!(" --max-states {}", self.max_states),
        }
        text += &format!(" --seed {}", self.seed);
        text
    }
}
