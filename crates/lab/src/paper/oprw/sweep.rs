//! Table 6.2 as a rate: the pattern test over seeds, and on drives and workloads that differ in one
//! value from the thesis's.

use std::sync::Arc;

use super::experiment::{DRIVE, MODES, Options, job};
use crate::Result;
use crate::campaign::{self, Progress};
use crate::paper::{Comparison, Kind, Row};
use crate::report::TABLE_6_2_FAILED;
use crate::workload;

/// Cuts behind each of the thesis's figures.
const PUBLISHED_CUTS: f64 = 1000.0;
/// Standard deviations that 95% lie within.
const Z: f64 = 1.96;

/// Campaigns that differ in one value each.
pub struct Sweep {
    /// Name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What is different, on the drive and in the workload.
    settings: &'static [(&'static str, &'static str, &'static str)],
}

/// Table 6.2 over seeds.
pub const TABLE_6_2: Sweep = Sweep {
    name: "table-6.2",
    about: "the pattern test over seeds: failed of 1,000 cuts",
    settings: &[("completions out of order", "", "pattern"), ("in order", ":orderly", "pattern")],
};

/// What Table 6.2 depends on.
pub const SENSITIVITY: Sweep = Sweep {
    name: "sensitivity",
    about: "Table 6.2 with other values of what the thesis does not tell: failed of 1,000 cuts",
    settings: &[
        ("as it is", "", "pattern"),
        ("internal flush never, not 50 ms", ":internal_flush_ns=0", "pattern"),
        ("internal flush 25 ms", ":internal_flush_ns=25000000", "pattern"),
        ("internal flush 100 ms", ":internal_flush_ns=100000000", "pattern"),
        ("program jitter 0, not 10%", ":program_jitter_percent=0", "pattern"),
        ("program jitter 5%", ":program_jitter_percent=5", "pattern"),
        ("program jitter 20%", ":program_jitter_percent=20", "pattern"),
        ("sync never, not every 100", "", "pattern:sync=0"),
        ("sync every 50", "", "pattern:sync=50"),
        ("sync every 200", "", "pattern:sync=200"),
    ],
};

impl Sweep {
    /// Campaigns it runs over so many seeds, for progress bars.
    pub fn campaigns(&self, seeds: u64) -> u64 {
        self.settings.len() as u64 * MODES.len() as u64 * seeds
    }

    /// Runs every mode over `seeds` seeds from that of `options` on.
    pub fn run(&self, options: &Options, seeds: u64, progress: &Progress) -> Result<Comparison> {
        let mut rows = Vec::new();
        for (what, drive, workload) in self.settings {
            for (mode, published) in TABLE_6_2_FAILED {
                let failed = (0..seeds).map(|n| {
                    let seed = options.seed.wrapping_add(n);
                    let options = Options { seed, ..options.clone() };
                    let drive = format!("{DRIVE}{drive}");
                    let named = workload::named(workload, options.cuts)?.into();
                    let arguments = format!("--workload {workload}");
                    let job = Arc::new(job(&options, drive, named, &arguments, mode)?);
                    let failed = campaign::run(&job, progress)?.failed;
                    Ok(1000.0 * failed as f64 / options.cuts.max(1) as f64)
                });
                let failed = failed.collect::<Result<Vec<f64>>>()?;
                let what = format!("{what}: {}", mode.title);
                let mean = failed.iter().sum::<f64>() / failed.len().max(1) as f64;
                let (low, high) = interval(published as f64, PUBLISHED_CUTS);
                let row = Row::new(Kind::Outcome, what, published.to_string(), mean, "")
                    .within(1000.0 * low, 1000.0 * high);
                let least = failed.iter().copied().fold(f64::INFINITY, f64::min);
                let most = failed.iter().copied().fold(0.0, f64::max);
                rows.push(Row { range: (seeds > 1).then_some((least, most)), ..row });
            }
        }
        let Options { seed, cuts, .. } = options;
        let Self { name, about, .. } = *self;
        let command =
            format!("strandline lab run {name} --seeds {seeds} --seed {seed} --cuts {cuts}");
        Ok(Comparison { name, about, command, simulated: true, rows })
    }
}

/// Wilson's 95% interval of a rate, of which `count` of `of` were seen.
fn interval(count: f64, of: f64) -> (f64, f64) {
    let rate = count / of;
    let (z2, scale) = (Z * Z / of, 1.0 + Z * Z / of);
    let centre = (rate + z2 / 2.0) / scale;
    let half = Z * (rate * (1.0 - rate) / of + z2 / (4.0 * of)).sqrt() / scale;
    ((centre - half).max(0.0), centre + half)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // Values of the formula's worked examples: 0 of 1,000 and 30 of 1,000.
        let (low, high) = interval(0.0, 1000.0);
        assert!(low < 1e-9 && (high - 0.003_827).abs() < 1e-5, "{low} {high}");
        let (low, high) = interval(30.0, 1000.0);
        assert!((low - 0.021_09).abs() < 1e-4 && (high - 0.042_52).abs() < 1e-4, "{low} {high}");
    }

    #[test]
    fn each_setting_runs_in_each_mode() {
        let tree = PathBuf::new();
        let options = Options { seed: 3, cuts: 25, tree, max_bytes: 0, threads: 1 };
        let quiet: Progress = Arc::new(|_| true);
        let found = SENSITIVITY.run(&options, 2, &quiet).expect("it runs");
        assert_eq!(found.rows.len() as u64 * 2, SENSITIVITY.campaigns(2));
        assert_eq!(found.command, "strandline lab run sensitivity --seeds 2 --seed 3 --cuts 25");
        for row in &found.rows {
            let (least, most) = row.range.expect("two seeds");
            assert!(least <= row.ours && row.ours <= most, "{row:?}");
            assert!(row.what.ends_with("F2FS-posix") || most == 0.0, "{row:?}");
        }
    }
}
