//! Experiments by name: campaigns put together to answer one question of the papers.

use std::path::PathBuf;
use std::sync::Arc;

use super::SENSITIVITY;
use crate::campaign::{self, CutPoints, Job, ModeResult, Progress};
use crate::paper;
use crate::report::{Report, Timeline, record_timeline};
use crate::workload::{self, Tree, TreeSource, Workload, tree_arguments};
use crate::{Error, Result};
use f2fs::technique;
use vfs::kind::Technique;
use vfs::words::counted;

/// Modes of Table 6.2.
pub(crate) const MODES: &[&Technique] = &[technique::POSIX, technique::STRICT, technique::OPRW];

/// The drive of the campaigns.
pub(crate) const DRIVE: &str = "zn540-noplp";

/// The options of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything random.
    pub seed: u64,
    /// Cuts per mode and workload.
    pub cuts: usize,
    /// Directory tree to copy.
    pub tree: PathBuf,
    /// At most so much of it, in bytes.
    pub max_bytes: u64,
    /// Real threads to judge on.
    pub threads: usize,
}

/// One experiment.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    with_tree: bool,
    /// The workload that is always there.
    workload: &'static str,
    modes: &'static [&'static Technique],
}

/// All of them.
pub const ALL: [Experiment; 3] = [
    Experiment {
        name: "demo",
        about: "the pattern test and a real directory tree, 1,000 cuts per fsync mode",
        with_tree: true,
        workload: "pattern",
        modes: MODES,
    },
    Experiment {
        name: "table-6.2",
        about: "OPRW thesis, Table 6.2: the pattern test, 1,000 cuts each for posix, strict, oprw",
        with_tree: false,
        workload: "pattern",
        modes: MODES,
    },
    Experiment {
        name: "atomic",
        about: "version consistency: fsyncs of 61 nodes, torn or whole, and what each mode costs",
        with_tree: false,
        workload: "versions",
        modes: &[technique::POSIX, technique::STRICT, technique::OPRW, technique::OPRW_STRICT],
    },
];

/// The experiment called `name`.
pub fn named(name: &str) -> Result<&'static Experiment> {
    ALL.iter().find(|e| e.name == name).ok_or_else(|| {
        let figures = paper::all().map(|figure| figure.name);
        let known = ALL.iter().map(|e| e.name).chain(figures).chain([SENSITIVITY.name]);
        let known: Vec<_> = known.collect();
        Error::Usage(format!("unknown experiment '{name}'; known: {}", known.join(", ")))
    })
}

impl Experiment {
    /// Campaigns it runs, for progress bars.
    pub fn campaigns(&self) -> usize {
        self.modes.len() * (1 + usize::from(self.with_tree))
    }

    /// Runs it. Calls `progress` after each cut and `done` after each campaign.
    pub fn run(
        &self,
        options: &Options,
        progress: &Progress,
        done: &mut dyn FnMut(&ModeResult),
    ) -> Result<Report> {
        let mut workloads: Vec<(Arc<dyn Workload>, String)> = vec![(
            workload::named(self.workload, options.cuts)?.into(),
            format!("--workload {}", self.workload),
        )];
        let mut about = String::from(
            "F2FS on an emulated ZNS drive without power-loss protection. The power is cut at \
             seeded random moments; every cut is recovered and every byte compared.",
        );
        if self.with_tree {
            let source = TreeSource::load(&options.tree, options.max_bytes)?;
            about += &tree_text(options, &source);
            let arguments = tree_arguments(&options.tree, options.max_bytes);
            let tree = Arc::new(Tree::new(Arc::new(source)));
            workloads.push((tree, format!("--workload tree{arguments}")));
        }
        let mut campaigns = Vec::new();
        let mut zone_map = None;
        for (workload, arguments) in &workloads {
            for &mode in self.modes {
                let job =
                    Arc::new(job(options, DRIVE.to_owned(), workload.clone(), arguments, mode)?);
                let (result, map) = campaign::run_at(&job, CutPoints::Random(job.cuts), progress)?;
                done(&result);
                zone_map = zone_map.or(map);
                campaigns.push(result);
            }
        }
        let command = self.command(options);
        let title = "The power goes. What did fsync keep?".into();
        let timelines = self.timelines(options.seed)?;
        Ok(Report { title, about, command, campaigns, timelines, zone_map })
    }

    /// One fsync of each mode on the campaigns' drive and, with and without OPRW, on one with
    /// power-loss protection, where no mode needs a flush.
    fn timelines(&self, seed: u64) -> Result<Vec<Timeline>> {
        let volatile = self.modes.iter().map(|mode| (DRIVE, *mode));
        let protected = [("zn540", technique::NOBARRIER), ("zn540", technique::OPRW_NOBARRIER)];
        volatile.chain(protected).map(|(drive, mode)| record_timeline(drive, mode, seed)).collect()
    }

    /// The command line that repeats the run.
    fn command(&self, options: &Options) -> String {
        let Options { seed, cuts, tree, max_bytes, .. } = options;
        let tree = if self.with_tree { tree_arguments(tree, *max_bytes) } else { String::new() };
        format!("strandline lab run {} --seed {seed} --cuts {cuts}{tree}", self.name)
    }
}

/// One campaign of an experiment.
pub(crate) fn job(
    options: &Options,
    drive: String,
    workload: Arc<dyn Workload>,
    arguments: &str,
    mode: &'static Technique,
) -> Result<Job> {
    let (cuts, seed) = (options.cuts, options.seed);
    let command = format!(
        "strandline crash --fs f2fs --drive {drive} {arguments} --cuts {cuts} --seed {seed}"
    );
    let job = Job::new(subjects::named("f2fs")?, drive, workload, mode, seed);
    Ok(Job { cuts, threads: options.threads, command, ..job })
}

fn tree_text(options: &Options, source: &TreeSource) -> String {
    let mut text = format!(
        " The tree is {}: {}, {:.1} MiB.",
        options.tree.display(),
        counted(source.files, "file"),
        source.bytes as f64 / f64::from(1 << 20)
    );
    if source.left_out > 0 {
        text += &format!(
            " Left out to stay within {} MiB: {}.",
            options.max_bytes >> 20,
            counted(source.left_out, "file")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_repeats_the_run() {
        let tree = PathBuf::from("/a tree");
        let options = Options { seed: 3, cuts: 9, tree, max_bytes: 4096, threads: 1 };
        let command = |name| named(name).expect("it is known").command(&options);
        assert_eq!(command("table-6.2"), "strandline lab run table-6.2 --seed 3 --cuts 9");
        assert_eq!(
            command("demo"),
            "strandline lab run demo --seed 3 --cuts 9 --tree '/a tree' --max-bytes 4096"
        );
    }
}
