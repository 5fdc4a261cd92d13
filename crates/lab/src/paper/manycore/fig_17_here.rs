//! Figure 17's interfaces, measured: on a new file in the directory for temporary files, one job
//! and two.

use drive::linux::interface::{Kind as Interface, Way};

use super::{Kind, Row};
use crate::bench::Spread;
use crate::bench::io::{Job, On, Pattern, lay_out};
use crate::{Error, Result};

/// Size of the file.
const BYTES: u64 = 64 << 20;
/// Nanoseconds of a run.
const RUNTIME: u64 = 300_000_000;
const ROUNDS: u64 = 5;
const DEPTH: u16 = 128;
const JOBS: [u16; 2] = [1, 2];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let name = format!("strandline-fig-17-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    lay_out(&path, BYTES, seed)?;
    let rows = JOBS.into_iter().map(|jobs| {
        let job = Job {
            on: On::Path(path.clone()),
            kinds: Interface::ALL.to_vec(),
            pattern: Pattern { way: Way::Read, random: true },
            block: 4096,
            depth: DEPTH,
            jobs,
            direct: true,
            size: None,
            ios: None,
            runtime_ns: RUNTIME,
            rounds: ROUNDS,
            seed,
        };
        measured(&job)
    });
    let rows: Result<Vec<Vec<Row>>> = rows.collect();
    std::fs::remove_file(&path).map_err(Error::host(&path))?;
    Ok(rows?.concat())
}

fn measured(job: &Job) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let spread = |what: String, Spread { median, least, most }: Spread, unit, by: f64| {
        let row = Row::new(Kind::Outcome, what, "", median / by, unit);
        Row { range: Some((least / by, most / by)), ..row }
    };
    for interface in job.run(&mut || ())?.interfaces {
        let what = format!("{}, jobs: {}", interface.ioengine, job.jobs);
        match (interface.measured, interface.refused) {
            (Some(measured), _) => {
                rows.push(spread(what.clone(), measured.iops, "KIOPS", 1e3));
                let cpu = format!("{what}, CPU in the kernel per read");
                rows.push(spread(cpu, measured.system_us_per_io, "us", 1.0));
            }
            (None, why) => {
                let what = format!("{what}: {}", why.unwrap_or_default());
                rows.push(Row::new(Kind::Outcome, what, "", 0.0, "(refused)"));
            }
        }
    }
    Ok(rows)
}
