//! Workloads: deterministic functions of a seed over a [`Recorder`].
//!
//! A workload first prepares (what it does there is durable before a cut can happen), then calls
//! `started`, and from then on the power may fail at any instant.

mod content;
mod database;
mod pattern;
mod random_overwrite;
pub mod recorder;
pub mod script;
pub mod small;
mod threads;
mod tree;
mod varmail;
mod versions;

use vfs::FileSystem;

use crate::explore::ace::Sequence;
use crate::oracle::{Transactions, Verdict};
use crate::{Error, Result};

use recorder::Recorder;

pub use content::Rng;
pub use database::{Database, Kind};
pub use pattern::Pattern;
pub use random_overwrite::RandomOverwrite;
pub use script::Script;
pub use threads::Threads;
pub use tree::{Tree, TreeSource, shell_word, tree_arguments};
pub use varmail::Varmail;
pub use versions::Versions;

/// Something that uses a file system.
///
/// ```
/// use lab::workload::Workload;
/// use lab::workload::recorder::Recorder;
///
/// /// A log to which lines are appended.
/// struct Log;
///
/// impl Workload for Log {
///     fn name(&self) -> &str {
///         "log"
///     }
///
///     fn run(&self, fs: &Recorder, _seed: u64, started: &mut dyn FnMut()) -> lab::Result<()> {
///         let log = fs.create(fs.root(), b"log", 0o644)?;
///         fs.sync()?;
///         started(); // from now on the power may fail
///         for line in 0..10 {
///             fs.write(log, line * 100, &[b'.'; 100])?;
///             fs.fsync(log)?;
///         }
///         Ok(())
///     }
///
///     fn footprint(&self) -> u64 {
///         1 << 20
///     }
/// }
/// ```
pub trait Workload: Send + Sync {
    /// Name on the command line and in reports.
    fn name(&self) -> &str;

    /// Runs to the end. The same seed gives the same calls.
    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()>;

    /// Bytes for which the drive should have room; 0 for the smallest drive.
    fn footprint(&self) -> u64;

    /// Mount options it needs besides the mode's; empty or with a comma first. A file system that
    /// has no such option goes without.
    fn mount_options(&self) -> &str {
        ""
    }

    /// What the imitated program finds wrong when it opens its files again, besides the oracle's
    /// findings.
    fn inspect(&self, _fs: &dyn FileSystem, _known: Transactions) -> Vec<Verdict> {
        Vec::new()
    }

    /// Whether the volume may write back without an fsync. Then a checkpoint may include part of an
    /// update, and an fsync can only fall back to that state: it is no longer all or nothing.
    fn evicts(&self) -> bool {
        false
    }
}

/// Names [`named`] knows, besides `tree`, which needs a source.
pub const NAMES: [&str; 7] =
    ["pattern", "random-overwrite", "varmail", "versions", "bbolt", "lmdb", "lmdb-writemap"];

/// A workload by name, sized so that `cuts` cuts fall on different moments. `pattern:sync=N` is the
/// pattern test with a `sync` every N overwrites, 0 for none.
pub fn named(name: &str, cuts: usize) -> Result<Box<dyn Workload>> {
    match name {
        "pattern" => Ok(Box::new(Pattern::for_cuts(cuts))),
        "random-overwrite" => Ok(Box::new(RandomOverwrite::for_cuts(cuts))),
        "varmail" => Ok(Box::new(Varmail::for_cuts(cuts))),
        "versions" => Ok(Box::new(Versions::for_cuts(cuts))),
        _ => {
            if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                return Ok(Box::new(Database::for_cuts(kind, cuts)));
            }
            if let Some(every) = name.strip_prefix("pattern:sync=") {
                let sync_every = every
                    .parse()
                    .map_err(|_| Error::Usage(format!("workload '{name}': expected a number")))?;
                return Ok(Box::new(Pattern { sync_every, ..Pattern::for_cuts(cuts) }));
            }
            if name.starts_with("ace:") {
                return Ok(Box::new(name.parse::<Sequence>()?));
            }
            if let Some(threads) = name.strip_prefix("threads:") {
                return Ok(Box::new(threads.parse::<Threads>()?));
            }
            small::named(name).map(|small| Box::new(small) as Box<dyn Workload>).ok_or_else(|| {
                let known: Vec<&str> = NAMES.into_iter().chain(small::names()).collect();
                Error::Usage(format!(
                    "unknown workload '{name}'; expected file:PATH, strace:PATH, tree, \
                     ace:OP+THEN,…, threads:N[:MIX], pattern:sync=N, {}",
                    known.join(", ")
                ))
            })
        }
    }
}
