//! `strandline lab schedules`: short scenarios of several threads, under many schedules.

use clap::Args;
use lab::Extra;
use lab::explore::schedules::{self, Explored, Structure};
use lab::report::counted;
use vfs::kind::{Format, Technique};

use super::campaign::{ExtraArgs, techniques};
use crate::failure::{Outcome, PROBLEM};
use crate::out;
use crate::progress::Progress;

/// Run a short scenario over each structure under so many schedules, and check what it left.
///
/// Exit status 1 if a check failed.
#[derive(Args)]
#[command(after_help = structures())]
pub(crate) struct Schedules {
    /// Which structures; by default all that are not broken on purpose
    #[arg(value_name = "STRUCTURE")]
    names: Vec<String>,
    /// Schedules of each
    #[arg(long, default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: u64,
    /// The first schedule
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// File system
    #[arg(long, default_value = "f2fs")]
    fs: String,
    /// Volumes of these modes, one after the other [default: one with default options; of a file
    /// system for persistent memory, each]
    #[arg(long, value_delimiter = ',', hide_default_value = true)]
    modes: Vec<String>,
    #[command(flatten)]
    extra: ExtraArgs,
    /// One JSON object per structure
    #[arg(long)]
    json: bool,
}

/// What each structure has to keep, and examples.
fn structures() -> String {
    let about = |structure: &Structure| format!("  {:10} {}\n", structure.name, structure.about);
    format!(
        "Structures, and what must hold:\n{}\n\
         Examples:\n  \
         strandline lab schedules\n  \
         strandline lab schedules fsync checkpoint --count 10000\n  \
         strandline lab schedules ranges -o range_lock=page\n  \
         strandline lab schedules race --count 100\n  \
         strandline lab schedules --fs ext4 --modes zgrouped -o record_csum",
        schedules::ALL.iter().map(about).collect::<String>()
    )
}

impl Schedules {
    pub(crate) fn run(self) -> Outcome {
        let format = subjects::named(&self.fs)?;
        let chosen = match &self.names[..] {
            [] => {
                let mut all = Vec::new();
                for structure in schedules::ALL.iter().filter(|structure| !structure.injected) {
                    if structure.suits(format)? {
                        all.push(structure);
                    }
                }
                all
            }
            names => {
                names.iter().map(|name| schedules::named(name)).collect::<Result<Vec<_>, _>>()?
            }
        };
        let extra: Extra = self.extra.clone().into();
        let mut code = 0;
        for way in self.ways(format)? {
            for &structure in &chosen {
                let progress = Progress::new(self.count, structure.name, self.json);
                let step = &mut || progress.step();
                let on = (format, way);
                let found = schedules::explore(structure, on, &extra, self.seed, self.count, step)?;
                progress.finish();
                match self.json {
                    true => out::json(&found)?,
                    false => tell(&found)?,
                }
                if !found.failed.is_empty() {
                    code = PROBLEM;
                }
            }
        }
        Ok(code)
    }

    /// The techniques that were asked for, or those that have a kind of volume of their own, and
    /// what a mount does without a word.
    fn ways(&self, format: &dyn Format) -> Outcome<Vec<Option<&'static Technique>>> {
        let makes = |way: &&&Technique| !way.make.is_empty();
        let all = format.techniques();
        let ways = match &self.modes[..] {
            [] if all.iter().all(|way| makes(&way)) => all.iter().copied().map(Some).collect(),
            [] => [None].into_iter().chain(all.iter().filter(makes).copied().map(Some)).collect(),
            names => techniques(format, names)?.into_iter().map(Some).collect(),
        };
        Ok(ways)
    }
}

fn tell(found: &Explored) -> Outcome<()> {
    let Explored { structure, mode, schedules, switches, failed } = found;
    let mode = mode.map_or_else(String::new, |mode| format!(" of {mode}"));
    let (schedules, switches) = (*schedules as usize, *switches as usize);
    out::line(format!(
        "{structure:10}{mode} {}, {}, {} failed",
        counted(schedules, "schedule"),
        counted(switches, "switch"),
        failed.len()
    ))?;
    for failed in failed.iter().take(3) {
        out::line(format!("  {}\n  again: {}", failed.what, failed.replay))?;
    }
    Ok(())
}
