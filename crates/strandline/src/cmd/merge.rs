//! `strandline crash merge`: combines shares of campaigns.

use std::path::PathBuf;

use clap::Args;
use lab::campaign::shard::{self, Part};
use lab::campaign::{ModeResult, Tally};
use lab::explore::Explored;
use lab::explore::batch::Explorations;

use super::{crash, explore};
use crate::failure::{Outcome, PROBLEM};
use crate::out;

/// Combine the shares of campaigns that `--shard` made.
///
/// The result is what one run without --shard prints, bit for bit. Every share of each campaign
/// must be there once. Exit status 1 if a mode broke one of its promises.
#[derive(Args)]
#[command(after_help = "\
Example:
  for i in 1 2 3; do strandline crash --cuts 9000 --shard $i/3 > $i.jsonl & done; wait
  strandline crash merge 1.jsonl 2.jsonl 3.jsonl")]
pub(crate) struct Merge {
    /// Output of the shards: JSON lines
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What was found as JSON, as the campaign's own --json
    #[arg(long)]
    json: bool,
}

impl Merge {
    pub(crate) fn run(self) -> Outcome {
        let mut shares = Vec::new();
        for file in &self.files {
            shares.extend(shard::load(file)?);
        }
        let parts = shard::merge(shares)?;
        let broken = parts.iter().any(Part::is_broken);
        out::heard(self.tell(parts))?;
        Ok(if broken { PROBLEM } else { 0 })
    }

    fn tell(&self, parts: Vec<Part>) -> Outcome<()> {
        let (mut cuts, mut states, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Cuts(tally) => cuts.push(tally),
                Part::States(explored) => states.push(explored),
                Part::Sequences(explorations) => sequences.push(explorations),
            }
        }
        if !cuts.is_empty() {
            let results: Vec<ModeResult> = cuts.iter().map(Tally::result).collect();
            self.cuts(&results)?;
            // One line for all modes of one campaign.
            for all in cuts.chunk_by(|one, next| one.run.command == next.run.command) {
                if !self.json {
                    let modes: Vec<&str> = all.iter().map(|t| t.run.mode.as_str()).collect();
                    let command = &all[0].run.command;
                    out::line(format!("\nrepeat: {command} --modes {}", modes.join(",")))?;
                }
            }
        }
        states.iter().try_for_each(|explored| self.states(explored))?;
        if sequences.is_empty() { Ok(()) } else { self.sequences(sequences) }
    }

    fn cuts(&self, results: &[ModeResult]) -> Outcome<()> {
        if self.json { results.iter().try_for_each(out::json) } else { crash::tell(results) }
    }

    fn states(&self, explored: &Explored) -> Outcome<()> {
        if self.json { out::json(explored) } else { crash::tell_states(explored) }
    }

    fn sequences(&self, all: Vec<Explorations>) -> Outcome<()> {
        if !self.json {
            return all.iter().try_for_each(|found| explore::tell(&found.result));
        }
        let (batches, outcomes): (Vec<_>, Vec<_>) =
            all.into_iter().map(|found| (found.result, found.outcomes)).unzip();
        out::json(&explore::Found { batches: &batches, outcomes: &outcomes.concat() })
    }
}
