//! Clears while programs go on: with files open, mapped, and being written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use super::{Lazy, synced};
use crate::mount_cached::Mapped;
use crate::mounting::Disk;

#[test]
fn what_a_mapping_has_changed_is_lost_too() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    let path = lazy.path("file");
    drop(synced(&path, &[1; 4096]));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mapped = Mapped::change(&file, 0, 2);
    assert_eq!(mapped.first(), 2);
    lazy.clear();
    assert_eq!(mapped.first(), 1);
    assert_eq!(fs::read(&path).unwrap(), [1; 4096]);
}

/// Each of four threads writes a number to its file and fsyncs it, again and again, while what is
/// not durable is lost under them; what an fsync has confirmed is there at the end. The clears go
/// on until every thread has had fsyncs confirmed between them, however slow the machine.
#[test]
fn no_fsync_confirms_what_a_clear_took_from_it() {
    for fs in ["f2fs", "ext4"] {
        let lazy = Lazy::new(fs, Disk::Plain(128), "");
        let ends = Arc::new(AtomicBool::new(false));
        let succeeded: [Arc<AtomicU64>; 4] = Default::default();
        let writers: Vec<_> = succeeded
            .iter()
            .enumerate()
            .map(|(n, succeeded)| {
                let path = lazy.path(&format!("file{n}"));
                let file = synced(&path, &0_u64.to_le_bytes());
                let (ends, succeeded) = (ends.clone(), succeeded.clone());
                cores::spawn("writer", None, move || {
                    let confirmed = count(&path, file, &ends, &succeeded);
                    (path, confirmed)
                })
            })
            .collect();
        let few = || succeeded.iter().any(|fsyncs| fsyncs.load(Ordering::Relaxed) < 20);
        let mut clears = 0;
        while clears < 20 || few() {
            assert!(clears < 10_000, "{fs}: {succeeded:?} fsyncs succeeded");
            lazy.clear();
            clears += 1;
        }
        ends.store(true, Ordering::Relaxed);
        let confirmed: Vec<_> = writers.into_iter().map(cores::JoinHandle::join).collect();
        lazy.clear();
        for (path, confirmed) in confirmed {
            let left = u64::from_le_bytes(fs::read(&path).unwrap()[..].try_into().unwrap());
            assert!(left >= confirmed, "{fs}: {left} of {confirmed}");
        }
        lazy.rig.unmount();
        lazy.rig.check();
    }
}

/// Writes growing numbers to `file`, each with an fsync, until `ends`. Returns the last one that
/// an fsync confirmed.
fn count(path: &Path, mut file: File, ends: &AtomicBool, succeeded: &AtomicU64) -> u64 {
    let (mut number, mut confirmed) = (0_u64, 0);
    while !ends.load(Ordering::Relaxed) {
        number += 1;
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        match file.sync_all() {
            Ok(()) => {
                confirmed = number;
                succeeded.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
                drop(file);
                file = File::options().write(true).open(path).unwrap();
            }
        }
    }
    confirmed
}

/// Files are made, renamed and removed meanwhile: a clear leaves some of it, and never a wrong
/// answer for a name.
#[test]
fn names_are_those_of_what_is_left() {
    let lazy = Lazy::new("f2fs", Disk::Plain(128), "");
    let point = lazy.rig.point();
    let ends = Arc::new(AtomicBool::new(false));
    let makers: Vec<_> = (0..4)
        .map(|n| {
            let (point, ends) = (point.clone(), ends.clone());
            cores::spawn("maker", None, move || {
                let mut number = 0_u32;
                while !ends.load(Ordering::Relaxed) {
                    number += 1;
                    let at = |what: &str| point.join(format!("{what}{n}-{}", number % 8));
                    // Any of these may meet what a clear has just taken.
                    let text = format!("{n} {number}");
                    drop(fs::write(at("new"), &text));
                    drop(fs::rename(at("new"), at("old")));
                    if let Ok(left) = fs::read_to_string(at("old")) {
                        let is_ours = left.is_empty() || left.starts_with(&format!("{n} "));
                        assert!(is_ours, "{text}: {left}");
                    }
                    drop(fs::remove_file(at("old")));
                }
            })
        })
        .collect();
    for _ in 0..20 {
        lazy.clear();
    }
    ends.store(true, Ordering::Relaxed);
    makers.into_iter().for_each(cores::JoinHandle::join);
    lazy.clear();
    for entry in fs::read_dir(&point).unwrap() {
        fs::read(entry.unwrap().path()).unwrap();
    }
    lazy.rig.unmount();
    lazy.rig.check();
}
