//! `strandline advise`: which settings pay for a load.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lab::bench::advise::{Advice, Goal, Question, advise};

use super::campaign::{LoadArgs, at_least_one};
use crate::failure::Outcome;
use crate::known;
use crate::out;

/// Say which mount options pay for a load, and by how much.
///
/// The load runs on a virtual machine and an emulated drive, once with each option that promises no
/// less than now, then with those together that paid. All times are simulated. An option pays if
/// what is to be less is at least 3% less with three seeds.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline advise varmail
  strandline advise /usr/share/doc --fs ext4 --goal written
  strandline advise random-overwrite --drive conventional-noplp --full 60
  strandline advise strace:trace.txt --root /tmp/db -o noinline_data")]
pub(crate) struct Advise {
    #[arg(help = format!("A directory, which is copied; or {}", known::loads()))]
    load: String,
    /// File system
    #[arg(long, default_value = "f2fs")]
    fs: String,
    #[arg(long, default_value = "conventional-noplp", help = format!(
        "Drive profile: {}; :NAME=VALUE behind it replaces one of its values", known::drives()
    ))]
    drive: String,
    /// Profile of the virtual machine: a built-in one or a file that ends in .toml
    #[arg(long, default_value = lab::CAMPAIGN_MACHINE)]
    machine: String,
    /// Mount options as they are now
    #[arg(short = 'o', long = "mount-options", value_name = "OPTIONS", default_value = "")]
    #[arg(hide_default_value = true)]
    mount_opts: String,
    /// What is to be less
    #[arg(long, value_enum, default_value = "time")]
    goal: Wanted,
    /// Percent of the volume that other files take
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=90))]
    full: u64,
    #[command(flatten)]
    source: LoadArgs,
    /// Size of the named loads, as for `crash --cuts`
    #[arg(long, default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Real threads; the result does not depend on it
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    threads: usize,
    /// Show what does not pay as well
    #[arg(long)]
    all: bool,
    /// What was found as JSON
    #[arg(long)]
    json: bool,
}

/// What is to be less.
#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    /// The time of the load, with a sync at its end
    Time,
    /// What the drive is given to write
    Written,
    /// The 99th percentile of the fsyncs
    Fsync,
}

impl Advise {
    pub(crate) fn run(self) -> Outcome {
        let is_dir = PathBuf::from(&self.load).is_dir();
        let (name, tree) = match is_dir {
            true => ("tree", PathBuf::from(&self.load)),
            false => (&*self.load, PathBuf::new()),
        };
        let question = Question {
            format: subjects::named(&self.fs)?,
            drive: self.drive.clone(),
            machine: self.machine.clone(),
            workload: self.source.workload(name, &tree, self.size as usize, self.json)?,
            mount_opts: self.mount_opts.clone(),
            goal: match self.goal {
                Wanted::Time => Goal::Time,
                Wanted::Written => Goal::Written,
                Wanted::Fsync => Goal::Fsync,
            },
            full: self.full,
            seed: self.seed,
            threads: self.threads,
        };
        let advice = advise(&question)?;
        if self.json {
            out::json(&advice)?;
        } else {
            self.tell(&advice)?;
        }
        Ok(0)
    }

    fn tell(&self, advice: &Advice) -> Outcome<()> {
        out::text(&advice.text(self.all))?;
        let (tried, refused) = (advice.alone.len(), advice.refused.len());
        let pay = advice.alone.iter().filter(|trial| trial.pays()).count();
        out::line(format!("\n{tried} settings ran, {pay} pay, {refused} refused; * simulated"))?;
        for (setting, why) in advice.refused.iter().filter(|_| self.all) {
            out::line(format!("{setting}: {why}"))?;
        }
        let Some(best) = &advice.best else { return Ok(()) };
        if !best.make.is_empty() {
            out::line(format!("strandline mkfs --fs {} -O {} IMAGE", self.fs, best.make))?;
        }
        out::line(format!("strandline mount -o {} IMAGE DIR", best.mount))
    }
}
