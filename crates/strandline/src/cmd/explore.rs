//! `strandline lab explore`: all short sequences of operations, every state a cut may leave.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lab::campaign;
use lab::campaign::shard::{Part, Shard, Share};
use lab::explore::Counts;
use lab::explore::batch::{self, Batch, BatchResult, Explorations};
use lab::explore::table::{Row, markdown};
use lab::report::counted;
use serde::Serialize;
use vfs::kind::Format;

use super::campaign::{ExtraArgs, at_least_one, techniques};
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::interrupt::Interrupt;
use crate::known;
use crate::out;
use crate::progress::Progress;

/// Run all sequences of a number of operations over a few files, with fsync, fdatasync, fsync of
/// the directory, sync or nothing after each, and judge every state a power cut may leave.
///
/// Exit status 1 if a mode broke one of its promises.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline lab explore --length 1 --table outcomes.md
  strandline lab explore --length 2 --modes oprw-strict --drives zn540-noplp
  strandline lab explore --length 3 --states 100000 --json
  strandline lab explore --fs ext4 --modes zgrouped -o record_csum --features block_size=1024
  strandline lab explore --length 2 --shard 1/4 > 1.jsonl      and so on, then
  strandline crash merge 1.jsonl 2.jsonl 3.jsonl 4.jsonl")]
pub(crate) struct Explore {
    /// Operations in a sequence
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3))]
    length: u32,
    /// Random sequences until there are this many states per mode and drive, instead of all
    #[arg(long)]
    #[arg(value_parser = at_least_one)]
    states: Option<usize>,
    /// File system
    #[arg(long, default_value = "f2fs")]
    fs: String,
    #[arg(long, value_delimiter = ',', hide_default_value = true, help = format!(
        "fsync modes, each on the drives that it runs on; those of f2fs: {} [default: all]",
        known::modes()
    ))]
    modes: Vec<String>,
    /// Drive profiles, or persistent memory, `pm[:DOMAIN]` [default: zn540-noplp and
    /// conventional-noplp, or pm for a file system that runs on neither]
    #[arg(long, value_delimiter = ',', hide_default_value = true)]
    drives: Vec<String>,
    #[command(flatten)]
    extra: ExtraArgs,
    /// Deliberate fault; see `strandline crash --help`
    #[arg(long)]
    inject: Option<String>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Real threads; the result does not depend on it
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    threads: usize,
    /// Only the i-th of n shares of the sequences, i/n from 1; the output is for `crash merge`
    #[arg(long, conflicts_with = "table")]
    shard: Option<Shard>,
    /// Where the crash-outcome table goes, as Markdown; its rows are those of --length 1
    #[arg(long)]
    table: Option<PathBuf>,
    /// What was found as JSON
    #[arg(long)]
    json: bool,
}

/// All batches of a run, for machines.
#[derive(Serialize)]
pub(super) struct Found<'a> {
    pub(super) batches: &'a [BatchResult],
    pub(super) outcomes: &'a [Row],
}

impl Explore {
    pub(crate) fn run(self) -> Outcome {
        let format = subjects::named(&self.fs)?;
        let modes = match &self.modes[..] {
            [] => format.techniques().to_vec(),
            names => techniques(format, names)?,
        };
        // Made at once: hours of work must not end with a directory that does not exist.
        let create = |path: &PathBuf| File::create(path).map_err(Failure::host(path));
        let table = self.table.as_ref().map(create).transpose()?;
        let (mut batches, mut rows) = (Vec::new(), Vec::new());
        let drives = self.drives_for(format)?;
        let interrupt = Interrupt::watch()?;
        for drive in &drives {
            for &mode in modes.iter().take_while(|_| !interrupt.came()) {
                let batch = Batch {
                    format,
                    drive: drive.clone(),
                    technique: mode,
                    length: self.length,
                    sample: self.states,
                    extra: self.extra.clone().into(),
                    inject: self.inject.clone(),
                    seed: self.seed,
                    threads: self.threads,
                };
                if !batch.applies()? {
                    continue;
                }
                let quiet = self.json || self.shard.is_some();
                let progress = Arc::new(Progress::new(0, mode.name, quiet));
                let told = progress.clone();
                let noted = interrupt.clone();
                let step: campaign::Progress = Arc::new(move |all| {
                    told.step_of(all as u64);
                    !noted.came()
                });
                let found = batch::run(&batch, self.shard, &step)?;
                progress.finish();
                if let (Some(shard), false) = (self.shard, interrupt.came()) {
                    let part = Part::Sequences(found.clone());
                    out::heard(out::json(&Share { shard, part }))?;
                } else if !self.json && self.shard.is_none() {
                    out::heard(tell(&found.result))?;
                }
                let Explorations { result, outcomes } = found;
                batches.push(result);
                rows.extend(outcomes);
            }
        }
        if batches.is_empty() && !interrupt.came() {
            let text = "none of these modes runs on any of these drives: nothing to explore";
            return Err(Failure::Usage(text.into()));
        }
        if self.json && self.shard.is_none() {
            out::heard(out::json(&Found { batches: &batches, outcomes: &rows }))?;
        }
        if let (Some(mut file), Some(path)) = (table, &self.table) {
            file.write_all(markdown(&rows).as_bytes()).map_err(Failure::host(path))?;
        }
        interrupt.check(|| {
            let (batches, sequences) = (counted(batches.len(), "mode"), batches.last());
            let sequences = sequences.map_or(0, |batch| batch.sequences);
            format!("{batches} begun, the last one over {}", counted(sequences, "sequence"))
        })?;
        Ok(if batches.iter().any(|batch| batch.counts.broken > 0) { PROBLEM } else { 0 })
    }
}

/// The drives of a run that names none; persistent memory if the file system runs on no other.
const DRIVES: [&str; 2] = ["zn540-noplp", "conventional-noplp"];
const MEMORY: &str = "pm";

impl Explore {
    fn drives_for(&self, format: &dyn Format) -> Outcome<Vec<String>> {
        if !self.drives.is_empty() {
            return Ok(self.drives.clone());
        }
        for drive in DRIVES {
            let drive = lab::rig::kit(drive, 0)?.identify()?;
            if format.techniques().iter().any(|way| (way.runs_on)(&drive)) {
                return Ok(DRIVES.map(str::to_owned).to_vec());
            }
        }
        Ok(vec![MEMORY.to_owned()])
    }
}

/// One line, and the first failure.
pub(super) fn tell(result: &BatchResult) -> Outcome<()> {
    let BatchResult { mode, drive, length, sequences, counts, .. } = result;
    let Counts { states, judged, sampled, broken, torn } = *counts;
    let (length, sequences) =
        (counted(*length as usize, "operation"), counted(*sequences, "sequence"));
    let (states, sampled) = (counted(states, "state"), counted(sampled, "instant"));
    out::line(format!(
        "{mode:14} {drive:18} {length}: {sequences}, {states}, {judged} judged, {broken} broke a \
         promise, {torn} torn; {sampled} sampled"
    ))?;
    if let Some(failure) = result.failures.first() {
        for verdict in &failure.verdicts {
            out::line(format!("  {verdict}"))?;
        }
        out::line(format!("  again: {}", failure.replay))?;
    }
    Ok(())
}
