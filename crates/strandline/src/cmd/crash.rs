//! `strandline crash`: a crash campaign per fsync mode.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use lab::Extra;
use lab::campaign::minimise::{self, Cuts, Minimal};
use lab::campaign::shard::{Part, Pick, Shard, Share};
use lab::campaign::{self, CutPoints, Job, ModeResult};
use lab::explore;
use lab::report::counted;
use lab::workload::{self, Script, Workload, shell_word};
use serde::Serialize;
use vfs::kind::{Format, Technique};

use super::campaign::{CampaignArgs, ExtraArgs, LoadArgs, techniques};
use super::kernel_crash::{self, Agent, KernelArgs, Task};
use super::merge::Merge;
use super::record::Record;
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::interrupt::Interrupt;
use crate::known;
use crate::out;
use crate::progress::Progress;

/// Cut the power of an emulated drive at many moments of one run and judge every byte.
///
/// Exit status 1 if a mode broke one of its promises.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  strandline crash --drive zn540-noplp --modes posix,strict,oprw --cuts 1000 --seed 1
  strandline crash --workload tree --tree /usr/share/doc --modes oprw --json
  strandline crash --workload random-overwrite --modes posix --inject drop-flush
  strandline crash --workload rename-fsync-dir --every-cut
  strandline crash --workload threads:8:names --modes posix,strict,oprw --every-cut
  strandline crash --workload varmail --modes posix --minimise hole.workload
  strandline crash --workload ace:append+nothing,rename+fsync --modes oprw-strict --every-state
  strandline crash --kernel --modes posix,strict
  strandline crash --kernel --fs ext4 --drive conventional-noplp --workload varmail --cuts 200
  strandline crash --kernel --machine 192.168.7.1:4419    # see crash agent --help

A workload of your own is a text, one operation a line; what stands above `begin` is durable before
a cut can happen:
  create config                    write config 0+3000
  begin
  create config.new                write config.new 0+3000
  fsync config.new                 rename config.new config
  fsync /
Operations (a path is below the volume's root; what is in brackets can be left out):
  create PATH [MODE]         mkdir PATH [MODE]        symlink TARGET PATH    link PATH NEW
  rename PATH NEW            unlink PATH              rmdir PATH             mknod PATH fifo MODE 0
  write PATH AT+LEN [seed=N] append PATH LEN [seed=N] truncate PATH SIZE     copy PATH AT+LEN TO AT
  fallocate PATH none|keep_size|punch_hole|zero_range AT+LEN                 read PATH AT+LEN
  chmod PATH MODE            chown PATH UID GID       setxattr PATH NAME LEN removexattr PATH NAME
  fsync PATH                 fdatasync PATH           sync                   clean
  open PATH NAME, then #NAME for the file whatever becomes of its path, close NAME
  footprint BYTES (room on the drive), mount OPTIONS (besides the mode's)
  strandline crash --workload file:docs/save.workload --modes posix,oprw --every-cut

So is what a program does on a mount, or did as strace saw it:
  strandline crash record db.workload -- sqlite3 main 'create table t(x)'
  strace -f -y -o trace.txt -e trace=file,desc,process,sync sqlite3 /tmp/db/main 'insert …'
  strandline crash --workload strace:trace.txt --root /tmp/db --every-state
  strandline crash --workload strace:trace.txt --root /tmp/db --print-workload")]
pub(crate) struct Crash {
    #[command(subcommand)]
    command: Option<Command>,
    /// File system
    #[arg(long, default_value = "f2fs")]
    fs: String,
    #[arg(long, help = format!(
        "Drive profile: {}. The drive completes commands out of order, and a cut may undo discards \
         and zone resets; not so with `:orderly` behind the profile's name. With `:512` a cut may \
         also tear blocks, at 512 bytes. `:NAME=VALUE`, right behind the profile's name, replaces \
         one of its values. With `:fail=N` the Nth write or flush of the workload, from 0, fails. \
         Or persistent memory: `pm`, or `pm:DOMAIN` with how far a store must get to survive: \
         memory, caches or process [default: zn540-noplp, or conventional-noplp for a file system \
         that does not run on zones, or pm for one that needs it]",
        known::drives()
    ))]
    drive: Option<String>,
    #[arg(long, value_delimiter = ',', help = format!(
        "fsync modes, of f2fs: {} [default: those of {} that run on the drive]",
        known::modes(),
        USUAL.join(", ")
    ))]
    modes: Vec<String>,
    #[arg(long, default_value = "pattern", help = known::workloads())]
    workload: String,
    #[command(flatten)]
    source: LoadArgs,
    /// Print the workload as text for file:PATH, and exit
    #[arg(long)]
    print_workload: bool,
    #[command(flatten)]
    campaign: CampaignArgs,
    #[command(flatten)]
    extra: ExtraArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    #[arg(long, help = format!(
        "Deliberate fault, {}. Those that begin with recover- cost time only",
        known::faults()
    ))]
    inject: Option<String>,
    /// Judge this cut only
    #[arg(long)]
    only: Option<usize>,
    /// Judge the i-th of n shares, i/n from 1; the output is JSON lines for `crash merge`
    #[arg(long, conflicts_with = "only")]
    shard: Option<Shard>,
    /// Cut before every command and after every NAND program, several times where chance decides
    /// what survives, instead of at random moments
    #[arg(long)]
    every_cut: bool,
    /// Shorten a failure: cut at every point (with --every-state, in every state), write the fewest
    /// operations that still fail, in the first mode that fails, to this file, and say what is on
    /// the drive at the earliest cut that fails
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "shard", "json"])]
    minimise: Option<PathBuf>,
    /// Every state the drive may show after a cut, whatever its timing; --only picks one of them
    #[arg(long, conflicts_with = "every_cut")]
    every_state: bool,
}

/// Other things to do with campaigns.
#[derive(Subcommand)]
enum Command {
    Merge(Merge),
    Record(Record),
    Agent(Agent),
}

/// A mode's result, for machines.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    result: &'a ModeResult,
    /// False if it was interrupted before all cuts were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

/// The drive of a run that names none: the first on which the file system runs.
const DRIVES: [&str; 3] = ["zn540-noplp", "conventional-noplp", "pm"];
/// The modes of a run that names none; those of Table 6.2 of the OPRW thesis.
const USUAL: [&str; 3] = ["posix", "strict", "oprw"];

/// The techniques of `format` that run on the drive of this name.
fn on_drive(format: &dyn Format, drive: &str) -> Outcome<Vec<&'static Technique>> {
    let (drive, _) = lab::rig::failing(drive)?;
    let drive = lab::rig::kit(&drive, 0)?.identify()?;
    Ok(format.techniques().iter().copied().filter(|way| (way.runs_on)(&drive)).collect())
}

impl Crash {
    pub(crate) fn run(mut self) -> Outcome {
        match self.command.take() {
            Some(Command::Merge(merge)) => return merge.run(),
            Some(Command::Record(record)) => return record.run(),
            Some(Command::Agent(agent)) => return agent.run(),
            None => {}
        }
        self.choose_drive()?;
        let modes = self.techniques()?;
        let workload = self.workload()?;
        if self.kernel.kernel {
            return self.kernel(modes, workload);
        }
        if self.print_workload {
            let mode = *modes.first().ok_or_else(|| Failure::Usage("no mode".into()))?;
            let script = Script::record(&self.job(workload, mode)?)?;
            return out::text(&script.text()).map(|()| 0);
        }
        if let Some(out) = &self.minimise {
            return self.minimise(&modes, &workload, out);
        }
        if self.every_state {
            return self.explore(&modes, &workload);
        }
        let interrupt = Interrupt::watch()?;
        let (mut results, mut judged, all) = (Vec::new(), (0, 0), modes.len());
        for mode in modes {
            let job = Arc::new(self.job(workload.clone(), mode)?);
            // The first call says how many cuts there are.
            let quiet = self.campaign.json || self.shard.is_some();
            let progress = Arc::new(Progress::new(0, mode.name, quiet));
            let told = progress.clone();
            let noted = interrupt.clone();
            let step: campaign::Progress = Arc::new(move |cuts| {
                told.step_of(cuts as u64);
                !noted.came()
            });
            let tally = campaign::run_share(&job, self.points(), &step)?;
            progress.finish();
            judged = (tally.cuts, tally.run.cuts);
            let result = tally.result();
            if interrupt.came() && self.shard.is_some() {
                // It could not be told from a whole one.
                results.push(result);
                break;
            }
            if let Some(shard) = self.shard {
                out::heard(out::json(&Share { shard, part: Part::Cuts(tally) }))?;
            } else if self.campaign.json {
                let unfinished = interrupt.came() && judged.0 < judged.1;
                let complete = unfinished.then_some(false);
                out::heard(out::json(&Told { result: &result, complete }))?;
            }
            results.push(result);
            if interrupt.came() {
                break;
            }
        }
        if !self.campaign.json && self.shard.is_none() {
            let modes: Vec<_> = results.iter().map(|result| result.mode.as_str()).collect();
            let (command, modes) = (self.command_line(), modes.join(","));
            let repeat = || out::line(format!("\nrepeat: {command} --modes {modes}"));
            out::heard(tell(&results).and_then(|()| repeat()))?;
        }
        interrupt.check(|| begun(results.len(), all, judged))?;
        Ok(if results.iter().any(|r| r.broken > 0) { PROBLEM } else { 0 })
    }

    fn points(&self) -> CutPoints {
        match self.every_cut {
            true => CutPoints::Every,
            false => CutPoints::Random(self.campaign.cuts as usize),
        }
    }

    /// The same campaign against the kernel.
    fn kernel(&self, modes: Vec<&'static Technique>, workload: Arc<dyn Workload>) -> Outcome {
        self.kernel.run(&Task {
            fs: &self.fs,
            drive: self.drive(),
            modes,
            workload,
            points: self.points(),
            seed: self.campaign.seed,
            inject: self.inject.as_deref(),
            options: &self.extra.mount_opts,
            json: self.campaign.json,
            command: self.command_line(),
        })
    }

    /// All states of one run in each mode.
    fn explore(&self, modes: &[&'static Technique], workload: &Arc<dyn Workload>) -> Outcome {
        let mut broken = false;
        for &mode in modes {
            let job = self.job(workload.clone(), mode)?;
            let found = explore::explore(&job, explore::Bound::default(), false)?;
            broken |= found.counts.broken > 0;
            out::heard(if let Some(shard) = self.shard {
                out::json(&Share { shard, part: Part::States(found) })
            } else if self.campaign.json {
                out::json(&found)
            } else {
                tell_states(&found)
            })?;
        }
        Ok(if broken { PROBLEM } else { 0 })
    }

    /// The first mode that fails, in as few operations as possible.
    fn minimise(
        &self,
        modes: &[&'static Technique],
        workload: &Arc<dyn Workload>,
        file: &Path,
    ) -> Outcome {
        let cuts = if self.every_state { Cuts::States } else { Cuts::Every };
        for &mode in modes {
            let job = self.job(workload.clone(), mode)?;
            let progress = Arc::new(Progress::new(0, mode.name, false));
            let told = progress.clone();
            let step: campaign::Progress = Arc::new(move |_| {
                told.step();
                true
            });
            let minimal = minimise::minimise(&job, cuts, &step)?;
            progress.finish();
            let Some(minimal) = minimal else {
                out::line(format!("{mode}: nothing fails"))?;
                continue;
            };
            out::heard(self.tell_minimal(&job, &minimal, file))?;
            return Ok(if minimal.failure.broken { PROBLEM } else { 0 });
        }
        Ok(0)
    }

    fn tell_minimal(&self, job: &Job, minimal: &Minimal, file: &Path) -> Outcome<()> {
        let Minimal { operations, failure, script, recording, .. } = minimal;
        let (before, runs) = (counted(minimal.before, "operation"), counted(minimal.runs, "run"));
        let fault = self.inject.as_ref().map_or_else(String::new, |f| format!(" --inject {f}"));
        let every = if minimal.cuts == Cuts::States { "--every-state" } else { "--every-cut" };
        let again = format!(
            "{} --seed {}{fault} {every} --modes {} --only {}",
            self.command_for(&format!("file:{}", file.display())),
            job.seed,
            job.technique,
            failure.cut
        );
        let text = script.text();
        let header = format!(
            "# {}: {before} made {operations} in {runs}. Again:\n# {again}\n",
            job.workload.name()
        );
        // A result that took so long is printed even if it cannot be saved.
        let written = std::fs::write(file, format!("{header}{text}")).map_err(Failure::host(file));
        let kind = if failure.broken { "broke its promise" } else { "no promise broken" };
        out::line(format!("{}: {before} made {operations} in {runs} ({kind}):\n", job.technique))?;
        text.lines().try_for_each(|line| out::line(format!("  {line}")))?;
        out::line("")?;
        let short = Job { workload: Arc::new(script.clone()), ..job.clone() };
        for said in minimise::words(&short, recording, &failure.verdicts)? {
            out::line(said)?;
        }
        out::line(format!("\nagain: {again}")).and(written)
    }

    fn workload(&self) -> Outcome<Arc<dyn Workload>> {
        let Self { source, campaign, workload, .. } = self;
        source.workload(workload, &campaign.tree, campaign.cuts as usize, campaign.json)
    }

    fn drive(&self) -> &str {
        self.drive.as_deref().unwrap_or(DRIVES[0])
    }

    /// The first of the usual drives on which the file system runs, if none is named.
    fn choose_drive(&mut self) -> Outcome<()> {
        if self.drive.is_none() && !self.kernel.kernel {
            let format = kernel_crash::ours(&self.fs)?;
            for drive in DRIVES {
                if !on_drive(format, drive)?.is_empty() {
                    self.drive = Some(drive.into());
                    break;
                }
            }
        }
        Ok(())
    }

    fn techniques(&self) -> Outcome<Vec<&'static Technique>> {
        // The kernel's F2FS has some of our modes; its other file systems have none.
        let fs = if self.kernel.kernel { "f2fs" } else { &self.fs };
        let format = kernel_crash::ours(fs)?;
        if !self.modes.is_empty() {
            return techniques(format, &self.modes);
        }
        let here = on_drive(format, self.drive())?.into_iter();
        let (usual, others): (Vec<_>, Vec<_>) = here.partition(|way| USUAL.contains(&way.name));
        let usual = usual.into_iter().filter(|way| !self.kernel.kernel || way.name != "oprw");
        let usual: Vec<_> = usual.collect();
        for name in USUAL.iter().filter(|_| !self.kernel.kernel && !usual.is_empty()) {
            if !usual.iter().any(|way| way.name == *name) {
                let drive = self.drive();
                out::complain(&format!("{name} does not run on {drive}; see --modes for others"));
            }
        }
        Ok(if usual.is_empty() { others } else { usual })
    }

    fn job(&self, workload: Arc<dyn Workload>, mode: &'static Technique) -> Outcome<Job> {
        Ok(Job {
            format: kernel_crash::ours(&self.fs)?,
            drive: self.drive().into(),
            workload,
            technique: mode,
            mount_opts: self.extra.mount_opts.clone(),
            features: self.extra.features.clone(),
            inject: self.inject.clone(),
            cuts: self.campaign.cuts as usize,
            seed: self.campaign.seed,
            pick: match (self.only, self.shard) {
                (Some(only), _) => Pick::One(only),
                (_, Some(shard)) => Pick::Shard(shard),
                _ => Pick::All,
            },
            check_every: if self.every_cut { 1 } else { campaign::CHECK_EVERY },
            threads: self.campaign.threads,
            command: self.command_line(),
        })
    }

    fn command_for(&self, workload: &str) -> String {
        let (fs, drive, workload) = (&self.fs, self.drive(), shell_word(workload));
        let extra = Extra::from(self.extra.clone()).arguments();
        format!("strandline crash --fs {fs} --drive {drive} --workload {workload}{extra}")
    }

    /// This command line without the modes.
    fn command_line(&self) -> String {
        let mut text = self.command_for(&self.workload);
        if let Some(root) = &self.source.root {
            text += &format!(" --root {}", shell_word(&root.to_string_lossy()));
        }
        if self.workload == "tree" {
            text += &workload::tree_arguments(&self.campaign.tree, self.source.max_bytes);
        }
        text += &format!(" --cuts {} --seed {}", self.campaign.cuts, self.campaign.seed);
        if let Some(fault) = &self.inject {
            text += &format!(" --inject {fault}");
        }
        match (self.every_cut, self.every_state) {
            (true, _) => text + " --every-cut",
            (_, true) => text + " --every-state",
            _ => text,
        }
    }
}

/// How far an interrupted run got.
fn begun(modes: usize, all: usize, (done, cuts): (usize, usize)) -> String {
    let (all, cuts) = (counted(all, "mode"), counted(cuts, "cut"));
    format!("{modes} of {all} begun, the last one judged at {done} of {cuts}")
}

/// All states of one run in one line, then the first failure.
pub(super) fn tell_states(found: &explore::Explored) -> Outcome<()> {
    let explore::Explored { mode, workload, counts, .. } = found;
    let explore::Counts { states, judged, sampled, broken, torn } = *counts;
    let (states, sampled) = (counted(states, "state"), counted(sampled, "instant"));
    out::line(format!(
        "{mode:14} {workload}: {states}, {judged} judged, {broken} broke a promise, {torn} torn; \
         {sampled} sampled"
    ))?;
    if let Some(failure) = found.failures.first() {
        for verdict in &failure.verdicts {
            out::line(format!("  {verdict}"))?;
        }
        out::line(format!("  again: {}", failure.replay))?;
    }
    Ok(())
}

/// The table, then the first failure of each mode and how to repeat it.
pub(super) fn tell(results: &[ModeResult]) -> Outcome<()> {
    out::text(&lab::report::campaign_table(results, out::width()))?;
    for result in results {
        let Some(failure) = result.failures.first() else { continue };
        let kind = if failure.broken { "broke its promise" } else { "no promise broken" };
        out::line(format!("\n{} cut {} ({kind}):", result.mode, failure.cut))?;
        for verdict in &failure.verdicts {
            out::line(format!("  {verdict}"))?;
        }
        out::line(match &*failure.replay {
            // The kernel's run differs each time.
            "" => "  not kept; another run is another: --keep DIR keeps drives".to_owned(),
            replay => format!("  again: {replay}"),
        })?;
    }
    Ok(())
}
