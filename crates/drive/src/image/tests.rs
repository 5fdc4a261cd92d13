//! Images: what is closed, dropped, killed or damaged, and opened again.

use std::fs;

use super::*;
use crate::{AfterCut, Block, Blocks, Command, Drive, Lba, Output, Status, ZoneAction, blkzone};

fn run(drive: &Ssd, command: Command) -> Result<Output, Status> {
    drive.submit(0, 0, command);
    drive.wait(0).expect("completion").result
}

fn write(drive: &Ssd, lba: Lba, n: u8) {
    let data = Blocks::from_iter([Block::from_prefix(&[n])]);
    run(drive, Command::Write { lba, data, fua: false }).expect("write");
}

fn read(drive: &Ssd, lba: Lba) -> u8 {
    match run(drive, Command::Read { lba, blocks: 1 }) {
        Ok(Output::Data(data)) => data[0][0],
        other => panic!("{other:?}"),
    }
}

fn report(drive: &Ssd) -> Vec<Zone> {
    match run(drive, Command::ReportZones { lba: 0, max: 99 }) {
        Ok(Output::Zones(zones)) => zones,
        other => panic!("{other:?}"),
    }
}

/// 8 zones of 64 blocks of which 60 can be written, two conventional.
fn spec(profile: &str) -> Spec {
    Spec::named(profile).expect("profile").zone_size(64, 60).zones(8, 2)
}

fn open_rw(path: &Path) -> Arc<Ssd> {
    open(path, false, Timing::Instant).expect("open")
}

/// Whatever is done to a zone, the file can be opened again.
#[test]
fn zones_that_fail_do_not_take_the_drive_along() {
    let dir = tempfile::tempdir().expect("dir");
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let path = dir.path().join(format!("{state:?}"));
        create(&path, &spec("zn540-noplp")).expect("create");
        let drive = open_rw(&path);
        write(&drive, 128, 1);
        for zone in 0..8 {
            let failed = drive.fail_zone(zone * 64 + 5, state);
            assert_eq!(failed, if zone < 2 { Err(Status::InvalidField) } else { Ok(()) }, "{zone}");
        }
        let states = |drive: &Ssd| report(drive).iter().map(|z| z.state).collect::<Vec<_>>();
        let before = states(&drive);
        drop(drive.power_off());
        drop(drive);
        assert_eq!(states(&open_rw(&path)), before);
    }
}

#[test]
fn what_was_closed_in_order_is_all_there() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    for profile in ["zn540", "zn540-noplp", "ram"] {
        let _ = fs::remove_file(&path);
        create(&path, &spec(profile)).expect("create");
        let drive = open_rw(&path);
        write(&drive, 5, 1);
        (0..3).for_each(|n| write(&drive, 128 + n, 2));
        write(&drive, 192, 3);
        run(&drive, Command::ManageZone { action: ZoneAction::Finish, zone: Some(192) })
            .expect("finish");
        drop(drive);
        let drive = open_rw(&path);
        assert_eq!((read(&drive, 5), read(&drive, 130), read(&drive, 192)), (1, 2, 3));
        let zones = report(&drive);
        assert_eq!((zones[2].wp, zones[2].state), (131, ZoneState::Closed), "{profile}");
        assert_eq!((zones[3].wp, zones[3].state), (256, ZoneState::Full), "{profile}");
        write(&drive, 131, 4);
    }
}

#[test]
fn its_ways_are_remembered() {
    let dir = tempfile::tempdir().expect("dir");
    let of = |spec: &Spec| (spec.is_unkind(), spec.atomic_write());
    for made in [spec("zn540"), spec("zn540").unkind(), spec("zn540").tearing()] {
        let path = dir.path().join("disk");
        create(&path, &made).expect("create");
        // The second time after the zones file was written anew.
        for _ in 0..2 {
            assert_eq!(of(&open_rw(&path).spec()), of(&made));
        }
        fs::remove_file(&path).expect("remove");
        fs::remove_file(zones_path(&path)).expect("remove");
    }
}

/// The drive in `path` as it would be if the process that has it open died now.
fn died(path: &Path) -> Arc<Ssd> {
    let copy = path.with_extension("died");
    fs::copy(path, &copy).expect("copy");
    fs::copy(zones_path(path), zones_path(&copy)).expect("copy");
    open_rw(&copy)
}

/// Flushes some blocks of a new drive and then writes others; returns it as a process that dies at
/// that point leaves it.
fn written_and_died(profile: &str) -> Arc<Ssd> {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec(profile)).expect("create");
    let drive = open_rw(&path);
    (0..4).for_each(|n| write(&drive, 128 + n, 7));
    write(&drive, 1, 7);
    run(&drive, Command::Flush).expect("flush");
    write(&drive, 132, 8);
    write(&drive, 256, 9);
    write(&drive, 1, 10);
    write(&drive, 1, 11);
    let after = died(&path);
    assert_eq!(read(&after, 131), 7);
    after
}

/// A process that dies leaves what a drive leaves without power: what was flushed is there.
#[test]
fn a_process_that_dies_keeps_what_was_flushed() {
    let after = written_and_died("zn540-noplp");
    let zones = report(&after);
    assert_eq!((zones[2].wp, zones[4].state), (132, ZoneState::Empty));
    assert_eq!((read(&after, 1), read(&after, 132), read(&after, 256)), (7, 0, 0));
}

/// With power-loss protection, or without a buffer, everything acknowledged is there.
#[test]
fn a_process_that_dies_keeps_what_no_power_cut_takes() {
    for profile in ["zn540", "ram"] {
        let after = written_and_died(profile);
        let zones = report(&after);
        assert_eq!((zones[2].wp, zones[4].wp), (133, 257), "{profile}");
        assert_eq!((read(&after, 1), read(&after, 132), read(&after, 256)), (11, 8, 9));
    }
}

/// At any moment: full zones, finished and reset ones, and writes of any length.
#[test]
fn a_protected_drive_is_the_same_after_dying() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec("zn540")).expect("create");
    let drive = open_rw(&path);
    for step in 0..40_u64 {
        let (zone, len) = (128 + 64 * (step % 3), 1 + step * 7 % 13);
        let room = 60 - report(&drive)[zone as usize / 64].wp.saturating_sub(zone).min(60);
        let data: Blocks = (0..len.min(room)).map(|_| Block::from_prefix(&[step as u8])).collect();
        let action = if step % 2 == 0 { ZoneAction::Finish } else { ZoneAction::Reset };
        if data.is_empty() || step % 17 == 16 {
            run(&drive, Command::ManageZone { action, zone: Some(zone) }).expect("managed");
        } else {
            run(&drive, Command::Append { zone, data, fua: false }).expect("append");
        }
        let after = died(&path);
        let closed = |zone: &Zone| (zone.wp, zone.state == ZoneState::Full);
        let zones = |drive: &Ssd| report(drive).iter().map(closed).collect::<Vec<_>>();
        assert_eq!(zones(&after), zones(&drive), "step {step}");
        assert!((128..320).all(|lba| read(&after, lba) == read(&drive, lba)), "step {step}");
    }
}

#[test]
fn a_reset_is_not_undone_by_dying() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec("zn540-noplp")).expect("create");
    let drive = open_rw(&path);
    (0..60).for_each(|n| write(&drive, 128 + n, 7));
    run(&drive, Command::Flush).expect("flush");
    run(&drive, Command::ManageZone { action: ZoneAction::Reset, zone: Some(128) }).expect("reset");
    let (_, zones) = zones_file::read(&zones_path(&path)).expect("zones file");
    assert_eq!((zones[2].state, zones[2].wp), (ZoneState::Empty, 0));
}

#[test]
fn a_cut_drive_in_a_file_comes_back_as_the_cut_left_it() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec("zn540-noplp")).expect("create");
    let drive = open_rw(&path);
    drive.after_cut(AfterCut::SayYes);
    (0..3).for_each(|n| write(&drive, 128 + n, 7));
    run(&drive, Command::Flush).expect("flush");
    write(&drive, 131, 8);
    drive.cut(1);
    write(&drive, 132, 9);
    drop(drive);
    let drive = open_rw(&path);
    assert_eq!(report(&drive)[2].wp, 131);
    assert_eq!(read(&drive, 131), 0);
}

#[test]
fn a_plain_file_is_a_plain_drive() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &Spec::named("ram").expect("ram").blocks(10)).expect("create");
    assert!(!zones_path(&path).exists());
    let drive = open_rw(&path);
    assert_eq!((drive.identify().blocks, drive.identify().zones), (10, None));
    write(&drive, 9, 6);
    run(&drive, Command::Flush).expect("flush");
    assert_eq!(fs::read(&path).expect("file")[9 * 4096], 6);
    assert!(matches!(open(&path, false, Timing::Instant), Err(ImageError::Busy(_))));
    drop(drive);
    let drive = open(&path, true, Timing::Instant).expect("read only");
    let _second_reader = open(&path, true, Timing::Instant).expect("read only, twice");
    assert_eq!(read(&drive, 9), 6);
    let data = Blocks::from_iter([Block::zeroed()]);
    let refused = run(&drive, Command::Write { lba: 0, data, fua: false });
    assert_eq!(refused.expect_err("read only"), Status::WriteProtected);
}

#[test]
fn what_is_no_drive_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("dir");
    let odd = dir.path().join("odd");
    fs::write(&odd, [0; 4095]).expect("file");
    let fed = dir.path().join("fed");
    fs::write(&fed, [0; 4096]).expect("file");
    std::os::unix::fs::symlink("/dev/zero", zones_path(&fed)).expect("link");
    let empty = dir.path().join("empty");
    fs::write(&empty, []).expect("file");
    for (path, what) in [
        (dir.path(), "not a regular file"),
        (odd.as_path(), "4096"),
        (empty.as_path(), "4096"),
        (fed.as_path(), "not a regular file"),
        (Path::new("/nonexistent/disk"), "No such file"),
        (Path::new("/dev/null"), "not a regular file"),
    ] {
        let error = open(path, true, Timing::Instant).err().expect(what).to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    }
}

/// A partition of 512-byte sectors need not end with a block of 4096.
#[test]
fn a_rest_behind_the_last_block_is_not_used() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    fs::write(&path, [7; 3 * 4096 + 512]).expect("file");
    let drive = open_rw(&path);
    assert_eq!(drive.identify().blocks, 3);
    write(&drive, 2, 1);
    drop(drive);
    let left = fs::read(&path).expect("file");
    assert_eq!((left.len(), &left[3 * 4096..]), (3 * 4096 + 512, &[7; 512][..]));
}

#[test]
fn a_drive_that_cannot_be_made_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    // Nothing can be renamed over a directory.
    fs::create_dir_all(zones_path(&path).join("full")).expect("dir");
    create(&path, &spec("zn540-noplp")).expect_err("no zones file");
    let left: Vec<_> = fs::read_dir(dir.path()).expect("dir").map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [zones_path(&path)]);
}

/// Every cut of a zones file, and every line of it changed, is refused or harmless; never a panic.
#[test]
fn a_damaged_zones_file_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec("zn540-noplp")).expect("create");
    let drive = open_rw(&path);
    write(&drive, 128, 1);
    drop(drive);
    let beside = zones_path(&path);
    let whole = fs::read_to_string(&beside).expect("zones file");
    let base = whole.find("end\n").expect("end") + 4;
    for length in 0..base {
        fs::write(&beside, &whole[..length]).expect("write");
        let error = open(&path, false, Timing::Instant).err().expect("cut short").to_string();
        assert!(!error.contains('\n'), "{error}");
    }
    // The last, incomplete line never happened.
    fs::write(&beside, &whole[..whole.len() - 1]).expect("write");
    assert_eq!(report(&open_rw(&path))[2].state, ZoneState::Empty);
    for (from, to) in [
        ("zones 1", "zones 2"),
        ("zn540-noplp", "zn54"),
        ("zone 2 cl 1", "zone 8 cl 1"),
        ("zone 2 cl 1", "zone 1 cl 1"),
        ("zone 2 cl 1", "zone 2 cl 61"),
        ("zone 2 cl 1", "zone 2 oi 1"),
        ("zone 2 cl 1", "zone 2 cl -1"),
        ("zone 2 cl 1", "zone 2"),
        ("zone-size 64", "zone-size 128"),
        ("zone-size 64", "zone-size 0"),
        ("zones 8", "zones 99999999999"),
        ("end", "start"),
    ] {
        let damaged = whole.replacen(from, to, 1);
        assert_ne!(damaged, whole, "{from}");
        fs::write(&beside, damaged).expect("write");
        assert!(open(&path, false, Timing::Instant).is_err(), "{to}");
    }
    fs::write(&beside, [0xff; 100]).expect("write");
    assert!(open(&path, false, Timing::Instant).is_err());
}

#[test]
fn a_dump_and_its_report_become_a_drive() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("disk");
    create(&path, &spec("zn540")).expect("create");
    let drive = open_rw(&path);
    write(&drive, 3, 1);
    (0..60).for_each(|n| write(&drive, 128 + n, 2));
    write(&drive, 192, 3);
    let text = blkzone::print(&report(&drive));
    drop(drive);
    let copy = dir.path().join("copy");
    import(&path, &text, &copy).expect("import");
    let drive = open_rw(&copy);
    assert_eq!((read(&drive, 3), read(&drive, 187), read(&drive, 192)), (1, 2, 3));
    let zones = report(&drive);
    assert_eq!(
        (zones[2].state, zones[3].state, zones[3].wp),
        (ZoneState::Full, ZoneState::Closed, 193)
    );
    let short: String = text.lines().take(7).map(|line| format!("{line}\n")).collect();
    let error = import(&path, &short, &dir.path().join("no")).expect_err("size").to_string();
    assert!(error.contains("describes"), "{error}");
    assert!(import(&path, "nonsense", &dir.path().join("no")).is_err());
}

/// A drive whose power comes back in place keeps its file and its zones file up to date.
#[test]
fn power_comes_back_in_a_file() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("disk");
    let spec = Spec::named("zn540-noplp").expect("profile").zone_size(64, 64).zones(6, 2);
    create(&path, &spec).expect("create");
    let drive = open(&path, false, Timing::Instant).expect("open");
    write(&drive, 128, 1);
    write(&drive, 3, 2);
    let held = drive.hold();
    write(&drive, 129, 3);
    write(&drive, 3, 4);
    run(&drive, Command::Flush).expect("flush");
    drive.power_again(Some(held), 1).expect("power");
    assert_eq!((read(&drive, 3), read(&drive, 129)), (2, 0));
    write(&drive, 129, 5);
    drop(drive);
    let drive = open(&path, false, Timing::Instant).expect("open");
    assert_eq!((read(&drive, 3), read(&drive, 128), read(&drive, 129)), (2, 1, 5));
    assert_eq!(report(&drive)[2].wp, 130);
}
