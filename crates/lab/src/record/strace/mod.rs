//! The trace of a program, as strace(1) writes it, turned into a script.
//!
//! ```text
//! strace -f -y -o trace.txt -e trace=file,desc,process,sync PROGRAM
//! ```
//!
//! Only what happens below one directory counts. Bytes are made up, since a trace shows few of
//! them; lengths and places are the program's. What is not understood is counted by name and
//! reported: writes through a shared mapping, for example, leave nothing in a trace. A relative
//! path is below the root unless -y or chdir tells otherwise; a process whose beginning the trace
//! does not show shares the descriptors of the first.

mod calls;
mod line;
mod process;

use std::collections::BTreeMap;
use std::path::Path;

use vfs::words::counted;

use super::known::Tree;
use crate::workload::Script;
use crate::workload::script::read_bounded;
use crate::{Error, Result};

use line::{Lines, Said};
use process::Processes;

/// Bytes of a trace that are read at most.
const FILE_MAX: u64 = 256 << 20;

/// A script, and what became of the trace's calls.
pub struct Converted {
    /// The workload.
    pub script: Script,
    /// Calls that became operations, and how many these are.
    pub used: (u64, usize),
    /// Calls that change nothing, or only what the oracle does not compare.
    pub passed: u64,
    /// Calls outside the root.
    pub outside: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that could not be turned into operations, by name, and lines that are none.
    pub left_out: BTreeMap<String, u64>,
}

impl std::fmt::Display for Converted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { used: (calls, operations), passed, outside, failed, left_out, .. } = self;
        write!(
            f,
            "{} became {}; without a change: {passed}, outside the root: {outside}, failed: \
             {failed}",
            counted(*calls, "call"),
            counted(*operations, "operation"),
        )?;
        if left_out.is_empty() {
            return Ok(());
        }
        let total: u64 = left_out.values().sum();
        let told: Vec<String> = left_out.iter().map(|(name, n)| format!("{name} {n}")).collect();
        write!(f, "; NOT UNDERSTOOD AND LEFT OUT: {total} ({})", told.join(", "))
    }
}

/// What became of one call.
enum Became {
    Operations,
    Nothing,
    Outside,
    /// Left out under this name.
    Unknown(&'static str),
}

/// Reads a trace and keeps what it does below `root`, an absolute path.
pub fn load(path: &Path, root: &Path) -> Result<Converted> {
    convert(&read_bounded(path, FILE_MAX)?, &path.display().to_string(), root)
}

fn convert(text: &str, file: &str, root: &Path) -> Result<Converted> {
    let root = root.to_str().filter(|root| root.starts_with('/'));
    let root = root.ok_or_else(|| Error::Usage("--root: expected an absolute path".into()))?;
    let mut world = World {
        tree: Tree::default(),
        processes: Processes::new(&process::normal(root)),
        left_out: BTreeMap::new(),
        counts: [0; 4],
    };
    let mut lines = Lines::default();
    for line in text.lines() {
        match lines.take(line) {
            Said::Call(call) if call.result == -1 => world.counts[FAILED] += 1,
            Said::Call(call) => world.call(&call),
            Said::Exit(pid) => world.processes.exit(pid, &mut world.tree),
            Said::Nothing => {}
            Said::Strange => world.leave_out("(lines that are no call)"),
        }
    }
    let [used, passed, outside, failed] = world.counts;
    let operations = world.tree.operations();
    if operations == 0 {
        return Err(Error::Usage(format!("{file}: nothing in it changes anything below {root}")));
    }
    let script = Script::of_steps(&format!("strace:{file}"), world.tree.into_steps(), None, "")?;
    let left_out = world.left_out;
    Ok(Converted { script, used: (used, operations), passed, outside, failed, left_out })
}

const USED: usize = 0;
const PASSED: usize = 1;
const OUTSIDE: usize = 2;
const FAILED: usize = 3;

/// All that is known while a trace is read.
struct World {
    tree: Tree,
    processes: Processes,
    left_out: BTreeMap<String, u64>,
    counts: [u64; 4],
}

impl World {
    fn leave_out(&mut self, name: &str) {
        *self.left_out.entry(name.to_owned()).or_default() += 1;
    }

    fn call(&mut self, call: &line::Call) {
        match calls::apply(call, &mut self.tree, &mut self.processes) {
            Some(Became::Operations) => self.counts[USED] += 1,
            Some(Became::Nothing) => self.counts[PASSED] += 1,
            Some(Became::Outside) => self.counts[OUTSIDE] += 1,
            Some(Became::Unknown(what)) => self.leave_out(&format!("{} ({what})", call.name)),
            None => self.leave_out(&call.name),
        }
    }
}

#[cfg(test)]
mod tests;
