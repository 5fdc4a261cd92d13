use vfs::FileKind;

use super::*;
use crate::rig;

/// Operations per core.
const OPS: u64 = 20;

fn fresh() -> Place {
    let format = subjects::named("f2fs").expect("it is known");
    Place::Fresh { format, drive: "ram".into(), mount_opts: String::new() }
}

fn job(load: Load, machine: &str, cores: &[u64]) -> Job {
    let (machine, cores) = (machine.to_owned(), cores.to_vec());
    Job {
        load,
        place: fresh(),
        machine,
        cores,
        ops: Some(OPS),
        direct: false,
        seed: 1,
        profile_locks: false,
    }
}

/// What a load leaves: directories, files, and bytes in them.
type Left = (u64, u64, u64);

/// Runs the load, checks the volume and counts what is on it.
fn left_by(load: Load, machine: &str, cores: u64) -> Left {
    let machine = machine_named(machine, 1).expect("it is known");
    let run = job(load, "real", &[cores]).one(cores, false);
    let quiet = Told { ready: &|| Ok(()), done: &|| Ok(()) };
    let format = subjects::named("f2fs").expect("it is known");
    let look = || {
        let (_, drive) = fresh().run(run, machine.is_simulated(), &quiet)?;
        let drive = drive.expect("it is ours");
        assert_eq!(rig::check(format, &drive)?, [], "{load} on {cores} cores");
        let fs = rig::mount(format, drive, "")?;
        let mut left = (0, 0, 0);
        let count = &mut |_: &[u8], attr: &vfs::Attr| {
            match attr.kind {
                FileKind::Directory => left.0 += 1,
                _ => left = (left.0, left.1 + 1, left.2 + attr.size),
            }
            Ok(())
        };
        vfs::path::walk(&*fs, fs.root(), count).map_err(Error::at("walk", b""))?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        Ok::<_, Error>(left)
    };
    machine.run(look).expect("no deadlock").unwrap_or_else(|error| panic!("{load}: {error}"))
}

/// What it should leave, by FxMark's definition of the load.
fn should_leave(load: Load, cores: u64) -> Left {
    let region = 8 << 20;
    match load {
        Load::Dwal => (cores, cores, cores * OPS * BLOCK),
        Load::Dwol | Load::Dwsl | Load::Drbl => (cores, cores, cores * BLOCK),
        Load::Dwom | Load::Drbm => (0, 1, (cores - 1) * region + BLOCK),
        Load::Drbh => (0, 1, BLOCK),
        Load::Dwtl | Load::Mwrl => (cores, cores, 0),
        Load::Mwcl | Load::Mwrm => (cores, cores * OPS, 0),
        Load::Mwcm => (0, cores * OPS, cores * OPS * BLOCK),
        Load::Mwul => (cores, 0, 0),
        Load::Mwum => (0, 0, 0),
        Load::Mrdl => (cores, cores * ENTRIES, 0),
        Load::Mrdm => (0, cores * ENTRIES, 0),
        Load::Mrpl => (4 * cores, cores, 0),
        Load::Mrpm | Load::Mrph => (8 + 64 + 512 + 4_096, 32_768, 0),
    }
}

#[test]
fn every_load_does_its_work_and_leaves_a_sound_volume() {
    for &load in Load::ALL {
        for machine in ["real", "xeon-4116"] {
            for cores in [1, 2] {
                let left = left_by(load, machine, cores);
                assert_eq!(left, should_leave(load, cores), "{load}, {machine}, {cores} cores");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_curve() {
    for load in [Load::Dwsl, Load::Mwcm, Load::Mrdm] {
        let curve = || job(load, "xeon-4116", &[1, 4]).run(&mut || ()).expect("it runs");
        let (one, other) = (curve(), curve());
        assert_eq!(one, other, "{load}");
        assert_eq!(one.points.iter().map(|p| p.works).collect::<Vec<_>>(), [OPS, 4 * OPS]);
        assert!(one.points.iter().all(|p| p.secs > 0.0 && p.works_per_s > 0.0), "{one:?}");
    }
}

#[test]
fn a_directory_is_read_to_its_end_and_again() {
    let job = Job { ops: Some(3 * ENTRIES), ..job(Load::Mrdl, "xeon-4116", &[1]) };
    assert_eq!(job.run(&mut || ()).expect("it runs").points[0].works, 3 * ENTRIES);
}

#[test]
fn every_load_runs_through_the_kernel_and_cleans_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let cores = cores::core_count().min(2) as u64;
    // The tree of the others takes a minute on a slow disk.
    let quick = |load: &&Load| !matches!(load, Load::Mrpm | Load::Mrph);
    for &load in Load::ALL.iter().filter(quick) {
        let place = Place::Mount(dir.path().to_owned());
        let job = Job { place, ..job(load, "real", &[cores]) };
        let curve = job.run(&mut || ()).unwrap_or_else(|error| panic!("{load}: {error}"));
        assert_eq!(curve.points[0].works, cores * OPS, "{load}");
        let left = std::fs::read_dir(dir.path()).expect("it is there").count();
        assert_eq!(left, 0, "{load}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |job: Job| job.run(&mut || ()).expect_err("it must not run").to_string();
    assert_eq!(refused(job(Load::Dwol, "xeon-4116", &[1, 99])), "xeon-4116 has 12 cores, not 99");
    let (there, many) = (cores::core_count(), cores::core_count() as u64 + 1);
    let message = format!("this machine has {there} cores, not {many}");
    assert_eq!(refused(job(Load::Dwol, "real", &[1, many])), message);
    let place = Place::Mount("/".into());
    let mounted = Job { place, ..job(Load::Dwol, "xeon-4116", &[1]) };
    assert_eq!(refused(mounted), "a mount is on the real machine");
    assert!("DWXX".parse::<Load>().is_err_and(|error| error.to_string().contains("DWAL, DWOL")));
}

#[test]
fn the_log_is_fxmarks() {
    let curve = job(Load::Dwol, "xeon-4116", &[1, 2]).run(&mut || ()).expect("it runs");
    let log = curve.log();
    // As its parser takes a line apart: by its first word.
    let of = |first: &str| {
        let lines = log.lines().filter(|line| line.split(' ').next() == Some(first));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(of("###").iter().all(|line| line.contains(" = ")), "{log}");
    assert_eq!(of("##"), ["## mem:f2fs:DWOL:1:bufferedio", "## mem:f2fs:DWOL:2:bufferedio"]);
    assert_eq!(of("#"), ["# ncpu secs works works/sec"; 2]);
    for point in &curve.points {
        let line = of(&point.cores.to_string()).concat();
        let row: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(row.len(), 4, "{line}");
        assert_eq!(row[2], point.works as f64);
        assert!((row[3] / point.works_per_s - 1.0).abs() < 1e-6, "{line}");
    }
    let odd = Curve { fs: "/mnt/a:b c".into(), drive: "zn540:2".into(), ..curve.clone() };
    assert!(odd.log().contains("\n## zn540_2:/mnt/a_b_c:DWOL:2:bufferedio\n"), "{}", odd.log());
    assert!(curve.svg().contains("cores (DWOL, f2fs on ram, xeon-4116 machine, simulated)"));
}

#[test]
fn the_lock_profile_names_the_engines_lock_and_costs_no_time() {
    // Truncation locks the volume exclusively.
    let job = job(Load::Dwtl, "xeon-4116", &[1, 4]);
    let plain = job.run(&mut || ()).expect("it runs");
    let profiled = Job { profile_locks: true, ..job }.run(&mut || ()).expect("it runs");
    for (point, plain) in profiled.points.iter().zip(&plain.points) {
        assert_eq!((point.secs, plain.locks.len()), (plain.secs, 0));
        let alone = ("f2fs volume", "rwlock (to write)");
        let volume = point.locks.iter().find(|lock| (lock.name, lock.kind) == alone);
        let volume = volume.unwrap_or_else(|| panic!("no lock of the volume: {:?}", point.locks));
        assert!(volume.taken >= point.works && volume.hold > 0, "{volume:?}");
        assert_eq!(volume.contended > 0, point.cores > 1, "{volume:?}");
    }
    let log = profiled.log();
    assert!(log.lines().any(|line| line.starts_with("f2fs volume, rwlock (to write) ")), "{log}");
}

/// A create locks its directory and the new file, once each. Cores that make files in one group
/// took each other's numbers while they had these locked, and waited.
#[test]
fn cores_that_create_files_take_no_number_twice() {
    let format = subjects::named("ext4").expect("it is known");
    let place = Place::Fresh { format, drive: "ram".into(), mount_opts: String::new() };
    let job = Job { place, profile_locks: true, ..job(Load::Mwcl, "xeon-4116", &[4]) };
    let curve = job.run(&mut || ()).expect("it runs");
    let (point, wanted) = (&curve.points[0], ("ext4 inodes", "rwlock (to write)"));
    let inodes = point.locks.iter().find(|lock| (lock.name, lock.kind) == wanted);
    let inodes = inodes.unwrap_or_else(|| panic!("no lock of inodes: {:?}", point.locks));
    assert!(inodes.taken <= 2 * point.works + point.works / 10, "{inodes:?}");
}
