//! Figure 2's loads on 80 cores, by what Z-Journal is compared with: JBD2 as in Linux 4.14, as in
//! Linux 6.1, and our own. With `data=journal` it would be the same: our contents enter the journal
//! when they are written back, which is later than any window.

use super::fileserver::{self, Dirs};
use super::overwrite::{Prepare, own_file, shared_file};
use super::window::measure;
use super::{JBD2, OFTEN, RARELY, V4_14, Z};
use crate::Result;
use crate::paper::{Kind, Row};

const CORES: usize = 80;

/// A load.
struct Load {
    name: &'static str,
    commit: &'static str,
    /// Operations per second with these options and seed.
    rate: fn(&str, u64) -> Result<f64>,
}

const LOADS: [Load; 3] = [
    Load { name: "DWOL", commit: OFTEN, rate: |options, seed| overwrites(options, seed, own_file) },
    Load {
        name: "DWOM",
        commit: RARELY,
        rate: |options, seed| overwrites(options, seed, shared_file),
    },
    Load {
        name: "file server",
        commit: fileserver::COMMIT,
        rate: |options, seed| fileserver::rate(options, CORES, seed, Dirs::Common),
    },
];
const KERNELS: [(&str, &str); 3] =
    [("Linux 4.14", V4_14), ("Linux 6.1", ",linux=6.1"), ("ours", "")];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for load in LOADS {
        for (kernel, linux) in KERNELS {
            let at = |journal| (load.rate)(&format!("{journal}{linux}{}", load.commit), seed);
            let (jbd2, z) = (at(JBD2)?, at(Z)?);
            let row = |of: &str, ours, unit| {
                let what = format!("{}, {kernel}: {of}", load.name);
                Row::new(Kind::Outcome, what, "", ours, unit)
            };
            rows.push(row("JBD2", jbd2 / 1e3, "K/s"));
            rows.push(row("Z-Journal / JBD2", z / jbd2, "x"));
        }
    }
    Ok(rows)
}

/// Since Linux 5.15 an overwrite begins no transaction.
fn overwrites(options: &str, seed: u64, prepare: Prepare) -> Result<f64> {
    let begins = options.contains(V4_14);
    Ok(measure(options, CORES, seed, begins, prepare)?.per_s)
}
