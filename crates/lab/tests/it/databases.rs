//! The ways of bbolt and LMDB, cut at every point: opening the file again finds the last
//! transaction that was acknowledged, or a later one, whole.

use std::sync::Arc;

use f2fs::technique;
use lab::campaign::Job;
use lab::workload::{Database, Kind, Workload};
use vfs::kind::Technique;

use crate::harness::{CONVENTIONAL_MODES, broken, every_cut, job};

fn run(kind: Kind, drive: &str, mode: &'static Technique, inject: Option<&str>) -> Job {
    let database: Arc<dyn Workload> = Arc::new(Database { kind, transactions: 10 });
    Job { inject: inject.map(str::to_owned), ..job(database, drive, mode, 1) }
}

fn promises_hold(drive: &str, modes: &[&'static Technique]) {
    for kind in Kind::ALL {
        for &mode in modes {
            let result = every_cut(run(kind, drive, mode, None)).expect("it runs");
            assert!(result.cuts > 20, "{} cuts", result.cuts);
            assert_eq!(broken(&result), None, "{} in {mode} on {drive}", kind.name());
        }
    }
}

#[test]
fn zoned_without_plp() {
    promises_hold("zn540-noplp", &technique::ALL);
}

#[test]
fn zoned_with_plp() {
    promises_hold("zn540", &technique::ALL);
}

#[test]
fn conventional_without_plp() {
    promises_hold("conventional-noplp", &CONVENTIONAL_MODES);
}

/// A flush that is left out loses transactions, and more: meta pages that lead nowhere. Not only
/// the oracle notices.
#[test]
fn a_dropped_flush_is_noticed() {
    for kind in Kind::ALL {
        let job = run(kind, "zn540-noplp", technique::POSIX, Some("drop-flush"));
        let result = every_cut(job).expect("it runs");
        assert!(result.broken > 0, "{}", kind.name());
        let own = format!("({})", kind.name());
        let mut verdicts = result.failures.iter().flat_map(|failure| &failure.verdicts);
        assert!(verdicts.any(|verdict| verdict.path == own), "{}", kind.name());
    }
}
