//! Figure 2's loads on 80 cores, by what Z-Journal is compared with: JBD2 as in Linux 4.14, as in
//! Linux 6.1, and our own. With `data=journal` it would be the same: our contents enter the journal
//! when they are written back, which is later than any window.

use super::fileserver::{self, Dirs};
use super::window::measure;
use super::{JBD2, OFTEN, RARELY, V4_14, Z, overwrite};
use crate::Result;
use crate::paper::{Kind, Row};

const CORES: usize = 80;

/// A load.
struct Load {
    name: &'static str,
    commit: &'static str,
    /// Whether operations begin transactions in every kernel. Since Linux 5.15 an overwrite begins
    /// none.
    always_begins: bool,
    /// Operations per second with these options and seed, if operations do or do not begin
    /// transactions.
    rate: fn(&str, u64, bool) -> Result<f64>,
}

const LOADS: [Load; 3] = [
    Load {
        name: "DWOL",
        commit: OFTEN,
        always_begins: false,
        rate: |options, seed, begins| {
            Ok(measure(options, CORES, seed, begins, overwrite::own_file)?.per_s)
        },
    },
    Load {
        name: "DWOM",
        commit: RARELY,
        always_begins: false,
        rate: |options, seed, begins| {
            Ok(measure(options, CORES, seed, begins, overwrite::shared_file)?.per_s)
        },
    },
    Load {
        name: "file server",
        commit: fileserver::COMMIT,
        always_begins: true,
        rate: |options, seed, _| fileserver::rate(options, CORES, seed, Dirs::Common),
    },
];
const KERNELS: [(&str, &str); 3] =
    [("Linux 4.14", V4_14), ("Linux 6.1", ",linux=6.1"), ("ours", "")];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for load in LOADS {
        for (kernel, linux) in KERNELS {
            let begins = load.always_begins || linux == V4_14;
            let at =
                |journal| (load.rate)(&format!("{journal}{linux}{}", load.commit), seed, begins);
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
