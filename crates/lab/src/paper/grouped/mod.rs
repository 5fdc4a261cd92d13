//! Grouped fsync: what an fsync on ext4 waits for when all changes are committed, when each file
//! has a record, and when concurrent fsyncs share one.
//!
//! Time is simulated: a SATA SSD without FUA under the real file system on a virtual Core i5-6500,
//! the study's machine, with a partition of the study's size. No thread commits by age meanwhile.

mod cjfs;
mod four_threads;
mod percore;
mod why;

use cores::Stage;

use super::{Figure, Kind, Row};
use crate::Result;

use four_threads::{Measured, measure};

/// The study's drive, as its makers and Linux describe such drives.
const DRIVE: &str = "sata-nofua";

/// Those of the study, in its order, and an experiment about the last one.
pub const GROUPED: &[Figure] = &[
    Figure {
        name: "fig-3",
        about: "where the time of an fsync goes, by iJournaling (figure 3)",
        run: fig_3,
        simulated: true,
    },
    Figure {
        name: "fig-4a",
        about: "flushes of 4 threads x 1,000 x (4 KiB write + fsync) (figure 4a)",
        run: fig_4a,
        simulated: true,
    },
    Figure {
        name: "fig-4b",
        about: "latency of these fsyncs (figure 4b)",
        run: fig_4b,
        simulated: true,
    },
    Figure {
        name: "fig-4b-why",
        about: "figure 4b where flushes overlap, and with other files' changes to commit",
        run: why::run,
        simulated: true,
    },
    Figure {
        name: "zgrouped",
        about: "16 threads x (4 KiB write + fsync): a log per core with groups, and both apart",
        run: percore::run,
        simulated: true,
    },
    Figure {
        name: "cjfs",
        about: "Varmail and OLTP-insert by each journal over JBD2, beside CJFS's gains over ext4",
        run: cjfs::run,
        simulated: true,
    },
];

/// Ways to fsync, as mount options. The study's kernel is 4.7.3.
const ORDERED: &str = "linux=4.14";
const IJOURNAL: &str = "linux=4.14,journal=ijournal";
const GROUP: &str = "linux=4.14,journal=grouped";
/// As kernels from 5.6 on: blocks are mapped once the drive has their contents, so a caller whose
/// data comes late misses the commit that another one begins.
const MAPS_LATE: &str = "linux=4.14,dioread_nolock";

fn fig_3(seed: u64) -> Result<Vec<Row>> {
    let Measured { latencies, trace, .. } = measure(IJOURNAL, DRIVE, 0, seed)?;
    let all = latencies.iter().sum::<u64>() as f64;
    let share = |stage: Stage| 100.0 * trace.total(stage).time as f64 / all;
    let parts = [
        (Stage::WaitData, "wait for data"),
        (Stage::Journal, "make the record"),
        (Stage::WaitNode, "wait for the record's blocks"),
    ];
    let mut rows = Vec::new();
    let mut most: f64 = 0.0;
    for (stage, what) in parts {
        most = most.max(share(stage));
        rows.push(Row::new(Kind::Consequence, what, "", share(stage), "%"));
    }
    let flush = share(Stage::WaitFlush);
    let row = Row::new(Kind::Outcome, "wait for flushes", "the largest share", flush, "%");
    rows.push(row.within(most, 100.0));
    Ok(rows)
}

fn fig_4a(seed: u64) -> Result<Vec<Row>> {
    let per_fsync = |options| -> Result<f64> {
        let it = measure(options, DRIVE, 0, seed)?;
        Ok(it.flushes as f64 / it.latencies.len() as f64)
    };
    let (ext4, one, group) = (per_fsync(ORDERED)?, per_fsync(IJOURNAL)?, per_fsync(GROUP)?);
    let late = per_fsync(MAPS_LATE)?;
    let row = |kind, what, paper, ours| Row::new(kind, what, paper, ours, "");
    Ok(vec![
        row(Kind::Outcome, "flushes per fsync, ext4", "fewest", ext4),
        row(Kind::Consequence, "flushes per fsync, iJournaling", "2", one).within(2.0, 2.0),
        row(Kind::Outcome, "flushes per fsync, Grouped", "", group),
        row(Kind::Outcome, "Grouped / iJournaling", "less than 0.5", group / one).within(0.0, 0.5),
        row(Kind::Outcome, "ext4 / Grouped", "less than 1", ext4 / group).within(0.0, 1.0),
        row(Kind::Outcome, "flushes per fsync, ext4 with dioread_nolock", "", late),
    ])
}

fn fig_4b(seed: u64) -> Result<Vec<Row>> {
    let ordered = measure(ORDERED, DRIVE, 0, seed)?;
    let single = measure(IJOURNAL, DRIVE, 0, seed)?;
    let grouped = measure(GROUP, DRIVE, 0, seed)?;
    let mut rows = Vec::new();
    for (what, it) in [("ext4", &ordered), ("iJournaling", &single), ("Grouped", &grouped)] {
        rows.push(Row::new(Kind::Outcome, format!("mean, {what}"), "", it.mean_us(), "us"));
    }
    let less = |what: String, ours: f64| {
        Row::new(Kind::Outcome, what, "less than 1", ours, "x").within(0.0, 1.0)
    };
    let mean = grouped.mean_us() / single.mean_us();
    rows.push(less("mean, Grouped / iJournaling".into(), mean));
    for percent in [10, 50, 90, 99] {
        let ours = grouped.percentile_us(percent) / single.percentile_us(percent);
        rows.push(less(format!("{percent}th percentile, Grouped / iJournaling"), ours));
    }
    let mean = single.mean_us() / ordered.mean_us();
    rows.push(less("mean, iJournaling / ext4".into(), mean));
    rows.push(less("mean, Grouped / ext4".into(), grouped.mean_us() / ordered.mean_us()));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use crate::paper::named;

    /// docs/results/grouped.md says why these do not.
    const DISAGREE: [(&str, &[&str]); 3] =
        [("fig-3", &[]), ("fig-4a", &[]), ("fig-4b", &["mean, iJournaling / ext4"])];

    #[test]
    fn what_agreed_still_agrees() {
        let disagrees = |name| {
            let comparison = named(name).expect("it is there").run(1).expect("it runs");
            let rows = comparison.rows.into_iter().filter(|row| row.agrees == Some(false));
            rows.map(|row| row.what).collect::<Vec<_>>()
        };
        for (name, expected) in DISAGREE {
            assert_eq!(disagrees(name), expected, "{name}");
        }
    }
}
