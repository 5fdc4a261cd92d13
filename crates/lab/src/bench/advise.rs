//! Which mount options pay for a load, and by how much: the load runs on the virtual machine and an
//! emulated drive with each of them, and then with those together that paid alone.
//!
//! An option that changes what an fsync promises is never advised ([`Format::advisable`]); of the
//! techniques, only those are tried that promise at least as much as the one that is compared with.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive, Identify, Stats, Timing};
use serde::Serialize;
use vfs::Creator;
use vfs::kind::{Format, Promise, Technique, Volume};

use crate::campaign::Job;
use crate::oracle::Oracle;
use crate::report::columns;
use crate::workload::recorder::Recorder;
use crate::workload::{Rng, Workload};
use crate::{Error, Result, machine_named, now_ns, rig};

/// A gain below this is none: other seeds move the time of a load as much.
const LEAST_GAIN: f64 = 0.03;
/// Seeds of the drive and the load on which an option must pay.
const SEEDS: u64 = 3;
/// Bytes of the files that fill a volume.
const FILLER: usize = 64 << 10;

/// What is asked.
///
/// ```
/// # use std::sync::Arc;
/// use lab::bench::advise::{Goal, Question, advise};
///
/// let question = Question {
///     format: subjects::named("f2fs")?,
///     drive: "conventional-noplp".into(),
///     machine: lab::CAMPAIGN_MACHINE.into(),
///     workload: Arc::from(lab::workload::named("pattern", 10)?),
///     mount_opts: String::new(),
///     goal: Goal::Time,
///     full: 0,
///     seed: 1,
///     threads: 2,
/// };
/// println!("{}", advise(&question)?.text(false));
/// # Ok::<(), lab::Error>(())
/// ```
#[derive(Clone)]
pub struct Question {
    /// The file system.
    pub format: &'static dyn Format,
    /// Name of the drive's profile.
    pub drive: String,
    /// Name of the virtual machine's profile.
    pub machine: String,
    /// The load.
    pub workload: Arc<dyn Workload>,
    /// Mount options as they are now.
    pub mount_opts: String,
    /// What is to be less.
    pub goal: Goal,
    /// Percent of the volume that other files take.
    pub full: u64,
    /// The first seed.
    pub seed: u64,
    /// Real threads; the result does not depend on it.
    pub threads: usize,
}

/// What is to be less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The time of the load with a sync at its end.
    Time,
    /// What the drive is given to write.
    Written,
    /// How long the slowest of a hundred fsyncs takes.
    Fsync,
}

/// What a load took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Simulated seconds, with a sync at the end.
    pub seconds: f64,
    /// Megabytes that the drive was given.
    pub mb_written: f64,
    /// The 99th percentile of the fsyncs, in microseconds; 0 if there were none.
    pub fsync_p99_us: f64,
}

impl Cost {
    fn of(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Time => self.seconds,
            Goal::Written => self.mb_written,
            Goal::Fsync => self.fsync_p99_us,
        }
    }
}

/// Settings, and what the load took with them.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What is added to the options of now.
    pub options: String,
    /// All options, for `mount -o`.
    pub mount: String,
    /// What mkfs must be asked for with `-O`, if anything.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub make: &'static str,
    /// With the first seed.
    pub cost: Cost,
    /// The share saved with the first seed or, if that pays, the least with any seed.
    pub gain: f64,
}

impl Trial {
    /// Whether it is worth having.
    pub fn pays(&self) -> bool {
        self.gain >= LEAST_GAIN
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The load.
    pub load: String,
    /// What is to be less.
    pub goal: Goal,
    /// As things are now.
    pub now: Cost,
    /// Each setting alone, those that save most first.
    pub alone: Vec<Trial>,
    /// The best together; none if nothing pays.
    pub best: Option<Trial>,
    /// Those that the volume or the drive refused, and why.
    pub refused: Vec<(String, String)>,
}

/// A technique, and an option besides.
#[derive(Clone, Copy)]
struct Setting {
    way: &'static Technique,
    option: &'static str,
}

/// Mount options as a technique and the rest.
struct Now {
    way: &'static Technique,
    rest: String,
    costs: Vec<Cost>,
}

/// Runs the load with every setting.
pub fn advise(question: &Question) -> Result<Advice> {
    let drive = rig::spec(&question.drive, 0)?.identify();
    let drive = drive.map_err(|error| Error::Usage(error.to_string()))?;
    if !machine_named(&question.machine, question.seed)?.is_simulated() {
        return Err(Error::Usage("advice needs a simulated machine, and a profile of it".into()));
    }
    let now = Arc::new(question.now(&drive)?);
    let settings = question.settings(now.way, &drive);
    let (mut alone, mut refused) = (Vec::new(), Vec::new());
    for (setting, trial) in question.in_parallel(&settings, &now) {
        match trial {
            Ok(trial) => alone.push((setting, trial)),
            Err(error) => refused.push((now.added(setting.way, setting.option), error.to_string())),
        }
    }
    alone.sort_by(|(_, a), (_, b)| b.gain.total_cmp(&a.gain));
    let best = question.together(&alone, &now);
    let alone = alone.into_iter().map(|(_, trial)| trial).collect();
    let load = question.workload.name().to_owned();
    let now = *now.costs.first().ok_or_else(|| Error::Usage("no seed".into()))?;
    Ok(Advice { load, goal: question.goal, now, alone, best, refused })
}

impl Now {
    /// What a setting adds.
    fn added(&self, way: &'static Technique, options: &str) -> String {
        joined([if way == self.way { "" } else { way.options }, options])
    }
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
}

/// Whether one promises at least what the other does.
fn keeps(promise: Promise, wanted: Promise) -> bool {
    let flags = |p: Promise| [p.durable, p.intact, p.atomic, p.whole, p.at_return];
    flags(promise).into_iter().zip(flags(wanted)).all(|(has, wants)| has >= wants)
}

impl Question {
    /// The technique in force, which is the one that changes the options of now least, and what the
    /// load takes with it.
    fn now(&self, drive: &Identify) -> Result<Now> {
        let as_given = self.format.check_options(&self.mount_opts)?;
        let changes = |way: &&Technique| {
            let with = self.format.check_options(&joined([&*self.mount_opts, way.options]));
            let with = with.unwrap_or_default();
            with.split(',').filter(|word| !as_given.split(',').any(|had| had == *word)).count()
        };
        let ways = self.format.techniques().iter().copied();
        let way = ways.filter(|way| (way.runs_on)(drive)).min_by_key(changes).ok_or_else(|| {
            Error::Usage(format!("{} does not run on {}", self.format.name(), self.drive))
        })?;
        let name = |option: &str| option.split('=').next().unwrap_or(option).to_owned();
        let own: Vec<String> = way.options.split(',').map(name).collect();
        let others = self.mount_opts.split(',').filter(|option| !own.contains(&name(option)));
        let rest = joined(others);
        let costs = self.costs(way, &rest, SEEDS)?;
        Ok(Now { way, rest, costs })
    }

    fn settings(&self, usual: &'static Technique, drive: &Identify) -> Vec<Setting> {
        let wanted = (usual.promise)(drive);
        let ways = self.format.techniques().iter().copied();
        let ways = ways.filter(|way| *way != usual && (way.runs_on)(drive));
        let ways = ways.filter(|way| keeps((way.promise)(drive), wanted));
        let options = self.format.advisable().iter();
        let options = options.map(|option| Setting { way: usual, option });
        ways.map(|way| Setting { way, option: "" }).chain(options).collect()
    }

    /// Tries settings on real threads, each of which takes every nth.
    fn in_parallel(&self, all: &[Setting], now: &Arc<Now>) -> Vec<(Setting, Result<Trial>)> {
        let threads = self.threads.clamp(1, all.len().max(1));
        let shares = (0..threads).map(|share| {
            let (question, now) = (self.clone(), now.clone());
            let mine: Vec<Setting> = all.iter().copied().skip(share).step_by(threads).collect();
            cores::spawn("advise", None, move || {
                let tried = mine.into_iter().map(|s| (s, question.trial(s.way, s.option, &now)));
                tried.collect::<Vec<_>>()
            })
        });
        let shares: Vec<_> = shares.collect();
        shares.into_iter().flat_map(cores::JoinHandle::join).collect()
    }

    /// What the load takes with a setting.
    fn trial(&self, way: &'static Technique, options: &str, now: &Now) -> Result<Trial> {
        let all = joined([&*now.rest, options]);
        let mount = match way == now.way {
            true => joined([&*self.mount_opts, options]),
            false => joined([way.options, &all]),
        };
        let of = |cost: &Cost| cost.of(self.goal).max(f64::MIN_POSITIVE);
        let gain = |costs: &[Cost]| {
            let saved = costs.iter().zip(&now.costs).map(|(cost, now)| 1.0 - of(cost) / of(now));
            saved.fold(1.0, f64::min)
        };
        let mut costs = self.costs(way, &all, 1)?;
        if gain(&costs) >= LEAST_GAIN {
            costs = self.costs(way, &all, SEEDS)?;
        }
        let cost = *costs.first().ok_or_else(|| Error::Usage("no seed".into()))?;
        let (options, make, gain) = (now.added(way, options), way.make, gain(&costs));
        Ok(Trial { options, mount, make, cost, gain })
    }

    /// Adds to the best setting, one after the other, what makes it better still.
    fn together(&self, alone: &[(Setting, Trial)], now: &Now) -> Option<Trial> {
        let paid = alone.iter().filter(|(_, trial)| trial.pays()).map(|(setting, _)| *setting);
        let mut best = alone.first().filter(|(_, trial)| trial.pays())?.1.clone();
        let mut ways = paid.clone().map(|setting| setting.way);
        let way = ways.find(|way| *way != now.way).unwrap_or(now.way);
        let name = |option: &str| option.split('=').next().unwrap_or(option).to_owned();
        let mut options = String::new();
        for setting in paid.filter(|setting| !setting.option.is_empty()) {
            // Of two values of one option the better one was tried first.
            if options.split(',').any(|had| name(had) == name(setting.option)) {
                continue;
            }
            let more = joined([&*options, setting.option]);
            // What cannot be combined is left out.
            if let Ok(trial) = self.trial(way, &more, now)
                && trial.gain >= best.gain
            {
                (best, options) = (trial, more);
            }
        }
        Some(best)
    }

    /// What the load takes with each of so many seeds.
    fn costs(&self, way: &'static Technique, options: &str, seeds: u64) -> Result<Vec<Cost>> {
        (self.seed..self.seed + seeds).map(|seed| self.cost(way, options, seed)).collect()
    }

    fn cost(&self, way: &'static Technique, options: &str, seed: u64) -> Result<Cost> {
        let mut job = Job::new(self.format, &*self.drive, self.workload.clone(), way, seed);
        job.mount_opts = options.to_owned();
        machine_named(&self.machine, seed)?.run(|| {
            let spec = rig::spec(&self.drive, self.workload.footprint())?;
            let ssd = rig::new_drive(&spec, Timing::Virtual, seed)?;
            let drive: Arc<dyn Drive> = ssd.clone();
            job.make(&drive)?;
            let fs = rig::mount(self.format, drive, &job.mount_options())?;
            fill(&fs, self.full, seed)?;
            let upkeep = fs.clone().maintain();
            let recorder = Recorder::new(fs.clone(), Arc::new(Oracle::new())).without_times();
            let (mut begun, mut before) = (0, Stats::default());
            self.workload.run(&recorder, seed, &mut || {
                recorder.restart();
                (begun, before) = (now_ns(), ssd.stats());
            })?;
            fs.sync().map_err(Error::at("sync", b""))?;
            let seconds = (now_ns() - begun) as f64 / 1e9;
            let blocks = ssd.stats().blocks_written - before.blocks_written;
            let mb_written = (blocks * BLOCK_SIZE as u64) as f64 / 1e6;
            let mut fsyncs: Vec<u64> = recorder.fsyncs().iter().map(|one| one.took_ns).collect();
            fsyncs.sort_unstable();
            let p99 = fsyncs.get((fsyncs.len() * 99).div_ceil(100).saturating_sub(1));
            drop((recorder, upkeep));
            fs.unmount().map_err(Error::at("unmount", b""))?;
            let fsync_p99_us = p99.map_or(0.0, |ns| *ns as f64 / 1e3);
            Ok(Cost { seconds, mb_written, fsync_p99_us })
        })?
    }
}

/// Fills `percent` of a volume with files, with gaps among them from others that were removed.
fn fill(fs: &Arc<dyn Volume>, percent: u64, seed: u64) -> Result<()> {
    let space = fs.statfs().map_err(Error::at("statfs", b""))?;
    let bytes = Rng::new(seed, 14).bytes(FILLER);
    let files = space.blocks * BLOCK_SIZE as u64 * percent / 100 / FILLER as u64;
    let dir = match files {
        0 => return Ok(()),
        _ => fs.mkdir(fs.root(), b"filler", 0o755, Creator::default()),
    };
    let dir = dir.map_err(Error::at("mkdir", b"filler"))?.ino;
    let name = |number: u64| format!("{number}").into_bytes();
    let make = |number| {
        let made = fs.create(dir, &name(number), 0o644, Creator::default());
        let ino = made.map_err(Error::at("create", &name(number)))?.ino;
        fs.write(ino, 0, &bytes).map(drop).map_err(Error::at("write", &name(number)))
    };
    (0..files).try_for_each(make)?;
    for number in (0..files).step_by(8) {
        fs.unlink(dir, &name(number)).map_err(Error::at("unlink", &name(number)))?;
    }
    (0..files).step_by(8).try_for_each(make)?;
    fs.sync().map_err(Error::at("sync", b""))
}

impl Advice {
    /// A table for the terminal, of what pays or of `all`.
    pub fn text(&self, all: bool) -> String {
        let cells = |cost: &Cost| {
            let Cost { seconds, mb_written, fsync_p99_us } = cost;
            [
                format!("{seconds:.3} s"),
                format!("{mb_written:.1} MB"),
                format!("{fsync_p99_us:.0} µs"),
            ]
        };
        let row = |name: &str, gain: String, cost: &Cost| {
            let start = [name.to_owned(), gain];
            start.into_iter().chain(cells(cost)).collect::<Vec<_>>()
        };
        // Adding zero makes a negative zero positive.
        let less = |gain: f64| format!("{:+.0}%", (-gain * 100.0).round() + 0.0);
        let mut rows = vec![row("as it is", String::new(), &self.now)];
        let shown = self.alone.iter().filter(|trial| all || trial.pays());
        let is_shown = |best: &&Trial| !self.alone.iter().any(|one| one.options == best.options);
        let shown = shown.chain(self.best.iter().filter(is_shown));
        rows.extend(shown.map(|trial| row(&trial.options, less(trial.gain), &trial.cost)));
        let goal = match self.goal {
            Goal::Time => "time",
            Goal::Written => "written",
            Goal::Fsync => "fsync",
        };
        let head = [&*self.load, goal, "time*", "written*", "fsync p99*"];
        columns(&head, rows, 1)
    }
}
