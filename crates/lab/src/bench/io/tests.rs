//! Every interface runs, or says why not; what it says adds up.

use std::fs;

use super::*;

const MIB: u64 = 1 << 20;

fn job(on: On) -> Job {
    let (_, pattern) = Pattern::ALL[0];
    Job {
        on,
        kinds: Kind::ALL.to_vec(),
        pattern,
        block: 4096,
        depth: 8,
        jobs: 2,
        direct: true,
        size: None,
        ios: Some(50),
        runtime_ns: u64::MAX,
        rounds: 3,
        seed: 5,
    }
}

fn file() -> (tempfile::TempDir, PathBuf) {
    // Not in memory: there some kernels have no direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let path = dir.path().join("file");
    lay_out(&path, MIB, 1).expect("a new file");
    (dir, path)
}

#[test]
fn all_run_or_say_why_not() {
    let (_dir, path) = file();
    let mut steps = 0;
    let all = job(On::Path(path)).run(&mut || steps += 1).expect("it runs");
    assert_eq!((steps, all.interfaces.len(), all.bytes), (30, 10, MIB));
    let text = all.text();
    for row in &all.interfaces {
        assert_eq!(row.measured.is_some(), row.refused.is_none(), "{row:?}");
        assert!(text.contains(row.ioengine), "{text}");
        let Some(measured) = &row.measured else { continue };
        let Spread { median, least, most } = measured.iops;
        assert!(0.0 < least && least <= median && median <= most, "{row:?}");
        assert!(measured.latency_us_p50 <= measured.latency_us_max, "{row:?}");
        // One call begins and ends a transfer of these; two rings share a call among many.
        let calls = measured.calls_per_io.map(|calls| calls.median);
        match row.ioengine {
            "psync" | "pvsync2" => assert_eq!(calls, Some(1.0), "{row:?}"),
            "drive" => assert_eq!(calls, None, "{row:?}"),
            _ => assert!(calls.is_some_and(|calls| calls <= 2.0), "{row:?}"),
        }
    }
    let first = all.interfaces[0].measured.as_ref().expect("psync works everywhere");
    assert_eq!(first.over_first, Spread { median: 1.0, least: 1.0, most: 1.0 });
}

#[test]
fn reads_change_nothing_and_writes_change_all_that_is_used() {
    let (_dir, path) = file();
    let before = fs::read(&path).expect("readable");
    let reads = Job { jobs: 1, ios: Some(400), ..job(On::Path(path.clone())) };
    reads.run(&mut || ()).expect("it runs");
    assert!(fs::read(&path).expect("readable") == before);
    let (_, pattern) = Pattern::ALL[3];
    let half = Some(MIB / 2);
    let writes = Job { pattern, kinds: vec![Kind::IoUring], size: half, jobs: 1, ..reads };
    writes.run(&mut || ()).expect("it runs");
    let after = fs::read(&path).expect("readable");
    for (at, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        assert_eq!(old == new, at as u64 >= MIB / 2 / 4096, "block {at}");
    }
}

#[test]
fn an_emulated_drive_takes_no_kernel() {
    for drive in ["ram", "null", "ramdisk-mq", "983-zet"] {
        let all = job(On::Emulated(drive.into())).run(&mut || ()).expect("it runs");
        for row in &all.interfaces {
            assert_eq!(row.measured.is_some(), row.ioengine == "drive", "{row:?}");
        }
    }
    assert!(job(On::Emulated("floppy".into())).run(&mut || ()).is_err());
}

#[test]
fn time_ends_a_run_and_what_does_not_fit_is_refused() {
    let (_dir, path) = file();
    let on = On::Path(path.clone());
    let short = Job { ios: None, runtime_ns: 1, rounds: 1, ..job(on.clone()) };
    assert!(short.run(&mut || ()).is_ok());
    let wrong = [
        Job { size: Some(2 * MIB), ..job(on.clone()) },
        Job { block: 2 * MIB, ..job(on.clone()) },
        Job { block: MIB, jobs: 2, ..job(on) },
    ];
    for job in wrong {
        assert!(matches!(job.run(&mut || ()), Err(Error::Usage(_))), "{job:?}");
    }
    assert!(job(On::Path("/nowhere/at/all".into())).run(&mut || ()).is_err());
    assert!(lay_out(&path, 1, 1).is_err(), "the file is there");
    assert!("randread".parse::<Pattern>().is_ok() && "randrw".parse::<Pattern>().is_err());
}
