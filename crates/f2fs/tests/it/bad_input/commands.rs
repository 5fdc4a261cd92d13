//! Drives that fail a command, and drives that take no writes.

use std::sync::Arc;

use drive::{DriveState, Fault, FaultOn, ReadOnly, Ssd, Status, Timing};
use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem};

use super::promises::{Promises, workload};
use super::{refusal, small_drive, try_mount};
use crate::harness::Kind;

fn assert_refuses_changes(fs: &F2fs, when: &str) {
    let (root, nobody) = (fs.root(), Creator::default());
    let refused = [
        fs.create(root, b"refused", 0o644, nobody).map(drop),
        fs.mkdir(root, b"refused", 0o755, nobody).map(drop),
        fs.unlink(root, b"first"),
        fs.sync(),
        fs.unmount(),
    ];
    for (i, result) in refused.into_iter().enumerate() {
        let errno = result.map_err(|error| error.errno());
        assert_eq!(errno, Err(Errno::IO), "{when}: change {i} after a failed write");
    }
}

/// The `n`-th command of kind `on` fails. False if the workload never got that far.
fn fail_one(state: &DriveState, on: FaultOn, n: u64, text: &str) -> bool {
    let status = if on == FaultOn::Read { Status::UnrecoveredRead } else { Status::WriteFault };
    let when = format!("{text} {on:?} {n}");
    let ssd = Ssd::power_on(state.clone(), Timing::Instant, n);
    let fault = Arc::new(Fault::new(ssd.clone()));
    let mut promises = Promises::default();
    let fs = try_mount(fault.clone(), text).unwrap();
    fault.fail_nth(on, n, status);
    let result = workload(&fs, &mut promises);
    let Err(error) = result else {
        promises.assert_kept(&fs, &when);
        return false;
    };
    assert_eq!(error.errno(), Errno::IO, "{when}: {error}");
    assert!(!error.to_string().contains('\n'), "{when}: {error}");
    if on != FaultOn::Read {
        assert_refuses_changes(&fs, &when);
    }
    drop(fs);
    // The drive is whole again: once as it is, once after its power failed.
    let lost_power = Ssd::power_on(ssd.survivors(n), Timing::Instant, n);
    for (drive, how) in [(lost_power, "power lost"), (ssd, "remounted")] {
        let fs = try_mount(drive, text).unwrap_or_else(|e| panic!("{when}, {how}: {e}"));
        promises.assert_kept(&fs, &format!("{when}, {how}"));
        if let Err(error) = workload(&fs, &mut Promises::default()) {
            // What the first run left may be in the way; nothing else may.
            assert_eq!(error.errno(), Errno::EXIST, "{when}, {how}: {error}");
        }
        fs.unmount().unwrap_or_else(|e| panic!("{when}, {how}: {e}"));
    }
    true
}

#[test]
fn any_command_may_fail() {
    for (kind, text) in [
        (Kind::Conventional, ""),
        (Kind::Conventional, "fsync_mode=strict"),
        (Kind::Zoned, ""),
        (Kind::Zoned, "oprw"),
    ] {
        let state = small_drive(kind).power_off();
        for on in [FaultOn::Write, FaultOn::Flush, FaultOn::Read] {
            let struck = (0..).take_while(|n| fail_one(&state, on, *n, text)).count();
            let least = if on == FaultOn::Write { 10 } else { 1 };
            assert!(struck >= least, "{kind:?} -o {text}: only {struck} {on:?} commands failed");
        }
    }
}

/// A volume that lost its power when the workload had ended, and what must be on it.
fn cut_workload(kind: Kind, seed: u64) -> (DriveState, Promises) {
    let ssd = small_drive(kind);
    let fs = try_mount(ssd.clone(), "").unwrap();
    let mut promises = Promises::default();
    workload(&fs, &mut promises).unwrap();
    drop(fs);
    (ssd.cut(seed), promises)
}

/// Each command of a mount with work for recovery fails: the next mount does that work.
#[test]
fn any_command_of_a_recovery_may_fail() {
    for kind in Kind::ALL {
        let (state, promises) = cut_workload(kind, 3);
        for on in [FaultOn::Read, FaultOn::Write, FaultOn::Flush] {
            for n in 0.. {
                let ssd = Ssd::power_on(state.clone(), Timing::Instant, n);
                let fault = Fault::new(ssd.clone());
                fault.fail_nth(on, n, Status::UnrecoveredRead);
                let Err(error) = try_mount(fault, "") else { break };
                assert_eq!(error.errno(), Errno::IO, "{kind:?} {on:?} {n}: {error}");
                let fs = try_mount(ssd, "").unwrap();
                promises.assert_kept(&fs, &format!("{kind:?}: mount after {on:?} {n} failed"));
            }
        }
    }
}

#[test]
fn a_read_only_drive() {
    for kind in Kind::ALL {
        let (state, promises) = cut_workload(kind, 5);
        let ssd = Ssd::power_on(state, Timing::Instant, 5);
        let (errno, line) = refusal(ReadOnly::new(ssd.clone()), "");
        assert_eq!(errno, Errno::ROFS, "{line}");
        let writes = ssd.stats().writes;
        let fs = try_mount(ReadOnly::new(ssd.clone()), "ro").unwrap();
        promises.assert_kept(&fs, "read only");
        let change = fs.create(fs.root(), b"refused", 0o644, Creator::default());
        assert_eq!(change.unwrap_err().errno(), Errno::ROFS);
        let first = fs.lookup(fs.root(), b"first").unwrap().ino;
        assert_eq!(fs.write(first, 0, b"x").unwrap_err().errno(), Errno::ROFS);
        assert!(fs.sync().is_ok() && fs.unmount().is_ok());
        assert_eq!(ssd.stats().writes, writes, "a read-only mount wrote");
    }
}
