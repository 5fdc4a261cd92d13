//! Schedules explored by seed: a short scenario of several threads over one structure, run again
//! and again on a virtual machine that takes their cores away where the seed says, and a check.
//!
//! Even seeds mix threads at random; odd ones preempt a thread one to three times for longer than
//! the others need to finish (PCT, Burckhardt and others, ASPLOS 2010: most races need only few
//! preemptions, in the right places). A seed is a schedule, so it is all that a replay needs.

mod contents;
mod names;
mod primitives;
mod ranges;
mod uncached;
mod volumes;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cores::Machine;
use serde::Serialize;
use vfs::kind::{Format, Technique};

use crate::rig::Left;
use crate::{CAMPAIGN_MACHINE, Error, Extra, Result, profile_named};

/// The most preemptions of an odd seed.
const PREEMPTIONS: u64 = 3;

/// What a scenario runs on and with.
pub struct Stage {
    /// The file system of scenarios over a volume.
    pub format: &'static dyn Format,
    /// Mount options of every volume.
    options: String,
    /// Its empty volume.
    empty: Left,
    /// A nearly full one, on a drive with zones, for structures that need it.
    nearly_full: Option<Left>,
    /// How many bytes of an overwrite under way a cut leaves old or new as a whole.
    unit: usize,
    /// Decides what the scenario's threads do.
    seed: u64,
}

/// Why a schedule failed.
type Check = std::result::Result<(), String>;

/// A structure, and the scenario that tries it.
pub struct Structure {
    /// Name on the command line.
    pub name: &'static str,
    /// What must hold.
    pub about: &'static str,
    /// Whether it is broken on purpose, to see that this is found.
    pub injected: bool,
    /// Whether it needs a drive with zones.
    pub zoned: bool,
    run: fn(&Arc<Stage>) -> Check,
}

/// All of them.
pub static ALL: [Structure; 26] = [
    primitives::PERCORE,
    primitives::GATE,
    primitives::TURNS,
    volumes::INODE,
    ranges::RANGES,
    uncached::UNCACHED,
    names::NODES,
    names::NAMES,
    names::REPLACE,
    volumes::FSYNC,
    volumes::CHECKPOINT,
    volumes::UNMOUNT,
    names::RENAME,
    names::NUMBERS,
    volumes::CLEANER,
    volumes::DISCARDS,
    contents::TRUNCATE,
    contents::ZEROED,
    contents::GROWN,
    contents::SPACE,
    contents::PROMISED,
    contents::ORPHANS,
    contents::REUSE,
    contents::FLUSHER,
    primitives::RACE,
    primitives::INVERTED,
];

/// The structure called `name`.
///
/// # Errors
///
/// There is none.
pub fn named(name: &str) -> Result<&'static Structure> {
    let known = || ALL.iter().map(|structure| structure.name).collect::<Vec<_>>().join(", ");
    let found = ALL.iter().find(|structure| structure.name == name);
    found.ok_or_else(|| Error::Usage(format!("unknown structure '{name}'; known: {}", known())))
}

/// A schedule whose check failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// The schedule.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// The command that runs it again.
    pub replay: String,
}

/// What was explored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explored {
    /// The structure.
    pub structure: &'static str,
    /// The technique, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    /// How many schedules ran.
    pub schedules: u64,
    /// How many times threads were switched in all.
    pub switches: u64,
    /// Those that failed.
    pub failed: Vec<Failed>,
}

impl Structure {
    /// Whether it can be tried on volumes of `format`.
    ///
    /// # Errors
    ///
    /// The drive cannot be made.
    pub fn suits(&self, format: &'static dyn Format) -> Result<bool> {
        Ok(!self.zoned || volumes::takes_zones(format)?)
    }
}

/// Runs `count` schedules of `structure`, from seed `first` on. Calls `step` after each.
///
/// # Errors
///
/// The volume cannot be made, or the structure needs a drive that the file system does not take.
pub fn explore(
    structure: &'static Structure,
    (format, way): (&'static dyn Format, Option<&'static Technique>),
    extra: &Extra,
    first: u64,
    count: u64,
    step: &mut dyn FnMut(),
) -> Result<Explored> {
    if !structure.suits(format)? {
        let (name, format) = (structure.name, format.name());
        return Err(Error::Usage(format!(
            "{name} needs a drive with zones, and {format} takes none"
        )));
    }
    let make = way.or_else(|| format.techniques().first().copied());
    let make = make.ok_or_else(|| Error::Usage("a file system without techniques".into()))?;
    let more = &extra.features;
    let empty = volumes::empty(format, make, more)?;
    let unit = volumes::unit(make, &empty);
    let nearly_full =
        structure.zoned.then(|| volumes::nearly_full(format, make, more)).transpose()?;
    let options = [way.map_or("", |way| way.options), &extra.mount_opts];
    let options = options.map(|words| format!("{words},")).concat();
    let options = options.trim_matches(',');
    let (mut switches, mut failed) = (0, Vec::new());
    for seed in (0..count).map(|n| first.wrapping_add(n)) {
        let (empty, nearly_full) = (empty.clone(), nearly_full.clone());
        let options = options.to_owned();
        let stage = Arc::new(Stage { format, options, empty, nearly_full, unit, seed });
        let (check, switched) = one(structure, &stage)?;
        switches += switched;
        if let Err(what) = check {
            let mode = way.map_or_else(String::new, |way| format!(" --modes {way}"));
            let replay = format!(
                "strandline lab schedules {} --fs {}{mode}{} --seed {seed} --count 1",
                structure.name,
                format.name(),
                extra.arguments()
            );
            failed.push(Failed { seed, what, replay });
        }
        step();
    }
    let (structure, mode) = (structure.name, way.map(|way| way.name));
    Ok(Explored { structure, mode, schedules: count, switches, failed })
}

/// Runs one schedule.
fn one(structure: &Structure, stage: &Arc<Stage>) -> Result<(Check, u64)> {
    let machine = Machine::simulated(&profile_named(CAMPAIGN_MACHINE)?, stage.seed);
    let machine = match stage.seed % 2 {
        0 => machine.preempted(),
        _ => machine.preempted_at_most(1 + (stage.seed / 2 % PREEMPTIONS) as u32),
    };
    let run = || ((structure.run)(stage), cores::switches());
    Ok(match catch_unwind(AssertUnwindSafe(|| machine.run(run))) {
        Ok(Ok(done)) => done,
        Ok(Err(deadlock)) => (Err(deadlock.to_string()), 0),
        Err(panic) => (Err(format!("panic: {}", message(&*panic))), 0),
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Fails with `what` unless `holds`.
fn must(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

/// Runs `threads` on cores of their own until all have ended; the first failure.
fn together(threads: Vec<Box<dyn FnOnce() -> Check + Send>>) -> Check {
    let spawn = |(core, run)| cores::spawn("scenario", Some(core), run);
    let running: Vec<_> = threads.into_iter().enumerate().map(spawn).collect();
    let ended: Vec<Check> = running.into_iter().map(cores::JoinHandle::join).collect();
    ended.into_iter().collect()
}
