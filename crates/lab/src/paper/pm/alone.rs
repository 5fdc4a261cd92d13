//! What each option takes away by itself, on all cores: throughput, which lock the cores wait for,
//! and how many of the bytes go to another node.

use super::load::{Load, measure};
use super::{CORES, NOVA, PNOVA, Setting};
use crate::Result;
use crate::paper::{Kind, Row};

const ALL: [Setting; 6] = [
    NOVA,
    Setting {
        name: "range_lock=segment alone",
        options: "range_lock=segment,log=inode,place=node0",
    },
    Setting { name: "log=core alone", options: "range_lock=inode,log=core,place=node0" },
    Setting { name: "place=local alone", options: "range_lock=inode,log=inode,place=local" },
    Setting { name: "all but place=local", options: "range_lock=segment,log=core,place=node0" },
    PNOVA,
];

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, load) in [("DWOL", Load::OwnFiles), ("DWOM", Load::OneFile)] {
        for setting in ALL {
            let point = measure(load, setting, CORES, seed)?;
            let mut row = |what: &str, ours, unit| {
                let what = format!("{name}, {}: {what}", setting.name);
                rows.push(Row::new(Kind::Outcome, what, "", ours, unit));
            };
            row("throughput", point.total(), "GB/s");
            row("bytes to another node", 100.0 * point.remote, "%");
            let most = point.locks.iter().max_by_key(|lock| lock.wait);
            if let Some(lock) = most {
                let share = lock.wait as f64 / point.core_time;
                row(&format!("time waiting for '{}'", lock.name), 100.0 * share, "%");
            }
        }
    }
    Ok(rows)
}
