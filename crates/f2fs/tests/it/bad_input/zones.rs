//! Zones that become read only or go offline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cores::Mutex;
use drive::{Command, Drive, EventKind, Ssd, Timing, ZoneState};
use vfs::{Errno, FileSystem};

use super::promises::{Promises, workload};
use super::{read_all, small_drive, try_mount};
use crate::harness::Kind;

/// A zoned volume with durable files, and the zones that hold something.
fn zoned_volume() -> (Arc<Ssd>, Promises, Vec<u64>) {
    let ssd = small_drive(Kind::Zoned);
    let fs = try_mount(ssd.clone(), "").unwrap();
    let mut promises = Promises::default();
    workload(&fs, &mut promises).unwrap();
    fs.unmount().unwrap();
    let state = ssd.power_off();
    let size = state.identify().zones.unwrap().size;
    let used = (0..).zip(state.write_pointers()).skip(5).filter(|(_, wp)| *wp > 0);
    let used = used.map(|(zone, _)| zone * size).collect();
    (Ssd::power_on(state, Timing::Instant, 1), promises, used)
}

#[test]
fn a_read_only_zone_before_the_mount() {
    let (_, _, used) = zoned_volume();
    for zone in used {
        let (ssd, promises, _) = zoned_volume();
        ssd.fail_zone(zone, ZoneState::ReadOnly).unwrap();
        let fs = try_mount(ssd, "").unwrap_or_else(|e| panic!("zone {zone:#x}: {e}"));
        promises.assert_kept(&fs, "zone read only");
        let mut more = Promises::default();
        more.write(&fs, "more", 9, 50_000).unwrap_or_else(|e| panic!("zone {zone:#x}: {e}"));
        fs.unmount().unwrap_or_else(|e| panic!("zone {zone:#x}: {e}"));
    }
}

/// Starts of the zones that are read for the contents of `name`, the volume being sound.
fn zones_behind(ssd: &Arc<Ssd>, name: &str) -> BTreeSet<u64> {
    let size = ssd.identify().zones.unwrap().size;
    let fs = try_mount(ssd.clone(), "ro").unwrap();
    let read = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = read.clone();
    ssd.observe(Box::new(move |event, _| {
        if let EventKind::Command { command: Command::Read { lba, blocks }, .. } = event.kind {
            let zones = lba / size..(lba + u64::from(*blocks)).div_ceil(size);
            noted.lock().extend(zones.map(|zone| zone * size));
        }
    }));
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    read_all(&fs, ino).unwrap();
    ssd.unobserve();
    read.lock().clone()
}

/// Data in an offline zone is lost, which is reported in one line and as `EIO`; everything else is
/// served.
#[test]
fn an_offline_zone_before_the_mount() {
    let (sound, promises, used) = zoned_volume();
    let behind = |name| zones_behind(&sound, name);
    let behind: BTreeMap<_, _> =
        promises.durable.keys().map(|name| (*name, behind(name))).collect();
    let (mut readable, mut lost) = (0, 0);
    for zone in used {
        let (ssd, promises, _) = zoned_volume();
        ssd.fail_zone(zone, ZoneState::Offline).unwrap();
        let fs = match try_mount(ssd, "ro") {
            Ok(fs) => fs,
            Err(error) => panic!("zone {zone:#x}: {error}"),
        };
        for (name, contents) in &promises.durable {
            let found = fs.lookup(fs.root(), name.as_bytes()).and_then(|a| read_all(&fs, a.ino));
            match found {
                Ok(found) => {
                    assert!(found == *contents, "{name} is something else");
                    readable += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno(), Errno::IO, "{name}: {error}");
                    let line = error.to_string();
                    assert!(line.contains("zone is offline") && !line.contains('\n'), "{line}");
                    assert!(behind[name].contains(&zone), "{name} is not in {zone:#x}: {line}");
                    lost += 1;
                }
            }
        }
    }
    assert!(readable > 0, "one zone does not take everything with it");
    assert!(lost > 0, "no zone that was taken away held anything");
}

#[test]
fn an_empty_zone_that_is_gone_is_not_used() {
    let (ssd, promises, used) = zoned_volume();
    let zones = ssd.identify().zones.unwrap();
    let all = (u64::from(zones.conventional)..u64::from(zones.count)).map(|zone| zone * zones.size);
    for zone in all.filter(|zone| !used.contains(zone)).take(6) {
        ssd.fail_zone(zone, ZoneState::Offline).unwrap();
    }
    let fs = try_mount(ssd, "").unwrap();
    promises.assert_kept(&fs, "empty zones offline");
    let mut more = Promises::default();
    more.write(&fs, "more", 9, 8 << 20).unwrap();
    fs.unmount().unwrap();
}

#[test]
fn a_zone_fails_while_mounted() {
    let (_, _, used) = zoned_volume();
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for &zone in &used {
            let (ssd, mut promises, _) = zoned_volume();
            let when = format!("zone {zone:#x} {state:?}");
            let fs = try_mount(ssd.clone(), "").unwrap();
            promises.write(&fs, "before", 8, 5000).unwrap();
            ssd.fail_zone(zone, state).unwrap();
            let result = promises.write(&fs, "more", 9, 50_000);
            if let Err(error) = result {
                assert_eq!(error.errno(), Errno::IO, "{when}: {error}");
            }
            drop(fs);
            if state == ZoneState::ReadOnly {
                let fs = try_mount(ssd, "").unwrap_or_else(|e| panic!("{when}: {e}"));
                promises.assert_kept(&fs, &when);
            }
        }
    }
}
