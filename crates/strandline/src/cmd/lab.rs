//! `strandline lab`: experiments by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use drive::Timing;
use drive::linux::Access;
use lab::campaign;
use lab::paper::experiment::{self, Experiment, Options};
use lab::paper::sensitivity::sensitivity;
use lab::paper::{self, Comparison, Figure, Sweep};
use lab::report::{self, Report, counted};
use lab::workload::shell_word;
use serde::Serialize;

use super::campaign::CampaignArgs;
use super::explore::Explore;
use super::schedules::Schedules;
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::known;
use crate::out;
use crate::progress::Progress;
use crate::target::{Devices, open_to_serve};

/// The papers' experiments, ours beside theirs.
#[derive(Subcommand)]
#[command(
    after_help = "Example:\n  strandline lab list && strandline lab run table-6.2 --cuts 100"
)]
pub(crate) enum Lab {
    /// Name them
    List(List),
    /// Run one, or all
    Run(Run),
    /// Every power cut of all short sequences of operations
    Explore(Explore),
    /// Short scenarios of several threads, under many schedules
    Schedules(Schedules),
}

/// Name the experiments.
#[derive(Args)]
#[command(after_help = "Example:\n  strandline lab list --json")]
pub(crate) struct List {
    /// One JSON object per experiment
    #[arg(long)]
    json: bool,
}

/// Run an experiment and write report.html and report.json.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline lab run demo --tree /usr/share/doc --out target/demo
  strandline lab run table-6.2 --cuts 1000 --seed 1
  strandline lab run table-6.2 --seeds 20
  strandline lab run ipu-policy --device /dev/sdb1
  strandline lab run --paper oprw --json")]
pub(crate) struct Run {
    /// Which; see `strandline lab list`
    #[arg(required_unless_present_any = ["all", "paper"])]
    name: Option<String>,
    #[arg(long, conflicts_with_all = ["name", "all"], help = format!(
        "Every table and figure of a paper, ours beside theirs: {}", known::papers()
    ))]
    paper: Option<String>,
    /// All of them, each into its own directory below --out
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    campaign: CampaignArgs,
    /// table-6.2, sensitivity: over this many seeds, from --seed on, ours beside the thesis's
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: Option<u64>,
    /// A simulated table or figure: again with each estimated cost of the machine halved and half
    /// as much again, and which orderings survive
    #[arg(long, requires = "name", conflicts_with = "seeds")]
    sensitivity: bool,
    /// A figure of f2fs-versions, measured: on this machine and this file or device, all of whose
    /// contents are lost
    #[arg(long, value_name = "PATH", requires = "name", conflicts_with = "sensitivity")]
    device: Option<PathBuf>,
    /// With --device: even if it holds something
    #[arg(short, long, requires = "device")]
    force: bool,
    /// At most this many bytes of the tree, with k, m or g
    #[arg(long, default_value = "64m", value_parser = crate::target::parse_size)]
    max_bytes: u64,
    /// Where the report goes
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
}

impl Lab {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::List(list) => {
                let campaigns = experiment::ALL.iter().map(|e| (e.name, e.about));
                let figures = paper::all().map(|figure| (figure.name, figure.about));
                let sweep = (paper::SENSITIVITY.name, paper::SENSITIVITY.about);
                for (name, about) in campaigns.chain(figures).chain([sweep]) {
                    if list.json {
                        out::json(&Listed { name, about })?;
                    } else {
                        out::line(format!("{name:13} {about}"))?;
                    }
                }
                Ok(0)
            }
            Self::Run(run) => run.run(),
            Self::Explore(explore) => explore.run(),
            Self::Schedules(schedules) => schedules.run(),
        }
    }
}

impl Run {
    fn run(self) -> Outcome {
        let mut code = 0;
        if let Some(sweep) = self.sweep()? {
            return self.sweep_over(sweep, self.seeds.unwrap_or(1));
        }
        if let Some(paper) = &self.paper {
            for figure in paper::of(paper)? {
                self.figure(figure)?;
            }
            return match paper.as_str() {
                // Its campaign.
                "oprw" => self.one(experiment::named("table-6.2")?, self.out.clone()),
                _ => Ok(0),
            };
        }
        match &self.name {
            Some(name) => match paper::named(name) {
                Some(figure) => return self.figure(figure),
                None => code = self.one(experiment::named(name)?, self.out.clone())?,
            },
            None => {
                for e in &experiment::ALL {
                    let out = self.out.as_ref().map(|dir| dir.join(e.name));
                    code = code.max(self.one(e, out)?);
                }
            }
        }
        Ok(code)
    }

    /// The experiments that run over seeds.
    fn sweep(&self) -> Outcome<Option<&'static Sweep>> {
        match (self.name.as_deref(), self.seeds) {
            (Some("sensitivity"), _) => Ok(Some(&paper::SENSITIVITY)),
            (Some("table-6.2"), Some(_)) => Ok(Some(&paper::TABLE_6_2)),
            (_, Some(_)) => Err(Failure::Usage("--seeds is for table-6.2 and sensitivity".into())),
            _ => Ok(None),
        }
    }

    fn sweep_over(&self, sweep: &Sweep, seeds: u64) -> Outcome {
        let options = self.options();
        let total = sweep.campaigns(seeds) * u64::from(self.campaign.cuts);
        let progress = Arc::new(Progress::new(total, sweep.name, self.campaign.json));
        let told = progress.clone();
        let step: campaign::Progress = Arc::new(move |_| {
            told.step();
            true
        });
        let found = sweep.run(&options, seeds, &step)?;
        progress.finish();
        self.tell_comparison(&found)
    }

    /// A table or figure that is not a campaign. A difference from the paper is a result, not a
    /// failure.
    fn figure(&self, figure: &Figure) -> Outcome {
        if self.sensitivity {
            return self.sensitive(figure);
        }
        if let Some(device) = &self.device {
            let (none, seed) = (Devices::default(), self.campaign.seed);
            let opened = open_to_serve(device, &none, Access::Write, Timing::Instant)?;
            let name = shell_word(&device.to_string_lossy());
            return self.tell_comparison(&figure.run_on(opened.drive, &name, self.force, seed)?);
        }
        self.tell_comparison(&figure.run(self.campaign.seed)?)
    }

    fn sensitive(&self, figure: &Figure) -> Outcome {
        let run = &mut || figure.run(self.campaign.seed).map(|found| found.figures());
        let found = sensitivity(run)?;
        match self.campaign.json {
            true => out::json(&found)?,
            false => out::text(&found.text())?,
        }
        Ok(0)
    }

    fn tell_comparison(&self, comparison: &Comparison) -> Outcome {
        match self.campaign.json {
            true => out::json(comparison)?,
            false => out::line(comparison.text())?,
        }
        Ok(0)
    }

    fn options(&self) -> Options {
        Options {
            seed: self.campaign.seed,
            cuts: self.campaign.cuts as usize,
            tree: self.campaign.tree.clone(),
            max_bytes: self.max_bytes,
            threads: self.campaign.threads,
        }
    }

    fn one(&self, experiment: &Experiment, dir: Option<PathBuf>) -> Outcome {
        if let Some(dir) = &dir {
            // Not after minutes of work.
            std::fs::create_dir_all(dir).map_err(Failure::host(dir))?;
        }
        let options = self.options();
        let total = experiment.campaigns() as u64 * u64::from(self.campaign.cuts);
        let progress = Arc::new(Progress::new(total, experiment.name, self.campaign.json));
        let told = progress.clone();
        let step: campaign::Progress = Arc::new(move |_| {
            told.step();
            true
        });
        let mut said = Ok(());
        let report = experiment.run(&options, &step, &mut |result| {
            progress.say(&format!("{} {}", result.workload, result.mode));
            if !self.campaign.json && said.is_ok() {
                let text = format!(
                    "{:14} {:9} {}, {} failed",
                    result.mode,
                    result.workload,
                    counted(result.cuts, "cut"),
                    result.failed
                );
                said = progress.aside(|| out::line(text));
            }
        })?;
        progress.finish();
        let written = dir.as_ref().map_or(Ok(()), |dir| report.write(dir));
        let dir = dir.as_deref().filter(|_| written.is_ok());
        out::heard(said.and_then(|()| self.tell(&report, dir)))?;
        written?;
        Ok(if report.is_broken() { PROBLEM } else { 0 })
    }

    fn tell(&self, report: &Report, dir: Option<&Path>) -> Outcome<()> {
        if self.campaign.json {
            return out::json(report);
        }
        out::line(format!("\n{}\n", report.about))?;
        out::text(&report::campaign_table(&report.campaigns, out::width()))?;
        let paper = report::paper_table(&report.campaigns);
        if !paper.is_empty() {
            out::text(&format!("\n{paper}"))?;
        }
        out::line(format!("\nrepeat: {}", report.command))?;
        match dir {
            Some(dir) => out::line(format!("\nreport: {}", dir.join("report.html").display())),
            None => Ok(()),
        }
    }
}
