use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use drive::{Spec, Timing};
use vfs::{Creator, FileSystem, SetAttr, path};

use super::*;

/// Counts losses; dies by a panic.
#[derive(Default)]
struct Test {
    lost: AtomicUsize,
}

impl Keeper for Test {
    fn hear(&self, report: Report<'_>) {
        assert!(!matches!(report, Report::Ended(_)), "{report:?}");
        if matches!(report, Report::Lost) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn die(&self) -> ! {
        panic!("killed")
    }
}

const FORMATS: [&str; 2] = ["f2fs", "ext4"];

fn harness(name: &str) -> Arc<Harness> {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(64 << 8);
    let ssd = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let (drive, format): (Arc<dyn Drive>, _) = (ssd.clone(), subjects::named(name).unwrap());
    format.make(&drive).unwrap();
    let volume = format.mount(drive.clone(), "").unwrap();
    let (emulated, gate, options) = (vec![ssd], None, String::new());
    let below = Below { drive, emulated, gate, format, options, maintains: false };
    Harness::new(volume, below, Arc::new(Test::default()), b"/data/")
}

/// The drive keeps what it was sent, and the volume goes on with that.
#[test]
fn a_drive_whose_power_cannot_be_cut_loses_what_it_was_not_sent() {
    for name in FORMATS {
        let gate = Gate::new(drive::ram(64 << 8));
        let (drive, format) = (gate.drive(), subjects::named(name).unwrap());
        format.make(&drive).unwrap();
        let volume = format.mount(drive.clone(), "").unwrap();
        let (emulated, gate, options) = (Vec::new(), Some(gate), String::new());
        let below = Below { drive, emulated, gate, format, options, maintains: false };
        let fs = Harness::new(volume, below, Arc::new(Test::default()), b"/");
        for round in 0..3_u64 {
            let kept = create(&fs, format!("kept{round}").as_bytes(), b"synced");
            fs.fsync(kept, false).unwrap();
            fs.fsync(fs.root(), false).unwrap();
            path::write_all(&*fs, kept, 0, b"secret").unwrap();
            create(&fs, b"lost", b"never synced");
            fs.lose(round).unwrap();
            fs.fsync(fs.root(), false).unwrap_err();
            assert_eq!(content(&fs, b"lost"), None, "{name}");
            for earlier in 0..=round {
                let kept = content(&fs, format!("kept{earlier}").as_bytes());
                assert_eq!(kept.as_deref(), Some(&b"synced"[..]), "{name}, {round}");
            }
        }
        fs.unmount().unwrap();
    }
}

fn create(fs: &Harness, name: &[u8], data: &[u8]) -> Ino {
    let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    // A handle for each file.
    fs.opened(ino, ino, true).unwrap();
    path::write_all(fs, ino, 0, data).unwrap();
    ino
}

fn content(fs: &Harness, name: &[u8]) -> Option<Vec<u8>> {
    let ino = fs.lookup(fs.root(), name).ok()?.ino;
    Some(path::read_to_vec(fs, ino).unwrap())
}

#[test]
fn what_was_fsynced_survives_and_the_rest_does_not() {
    for name in FORMATS {
        let fs = harness(name);
        let kept = create(&fs, b"kept", b"synced");
        fs.fsync(kept, false).unwrap();
        path::write_all(&*fs, kept, 0, b"secret").unwrap();
        let lost = create(&fs, b"lost", b"never synced");
        let (files, names) = fs.unsynced();
        let bytes = |file: &UnsyncedFile| file.ranges.iter().map(|r| (r.start, r.end)).collect();
        let files: Vec<(&[u8], Vec<_>)> =
            files.iter().map(|file| (&file.paths[0][..], bytes(file))).collect();
        let expected: [(&[u8], _); 2] =
            [(b"/data/kept", vec![(0, 6)]), (b"/data/lost", vec![(0, 12)])];
        assert_eq!(files, expected, "{name}");
        let new = NameChange { path: b"/data/lost".to_vec(), added: true };
        assert_eq!(names, [new], "{name}");
        fs.lose(7).unwrap();
        assert_eq!(content(&fs, b"kept").as_deref(), Some(&b"synced"[..]), "{name}");
        assert_eq!(content(&fs, b"lost"), None, "{name}");
        assert_eq!(fs.unsynced(), (vec![], vec![]), "{name}");
        let gone = fs.getattr(lost).unwrap_err();
        assert_eq!(gone.errno(), Errno::STALE, "{name}");
        // Its changes are gone, and so is the name of the other: each is said once.
        for inode in [kept, fs.root()] {
            assert_eq!(fs.fsync(inode, false).unwrap_err().errno(), Errno::IO, "{name}");
            fs.fsync(inode, false).unwrap();
        }
        fs.unmount().unwrap();
    }
}

/// A program that saves by a rename learns from the directory's fsync, after the cut, that the name
/// is lost. With everything closed, a program that starts anew is told nothing.
#[test]
fn a_directory_does_not_confirm_names_that_a_cut_took() {
    for name in FORMATS {
        let fs = harness(name);
        let dir = fs.mkdir(fs.root(), b"d", 0o755, Creator::default()).unwrap().ino;
        let other = create(&fs, b"other", b"x");
        fs.checkpoint().unwrap();
        let lost = |by: &dyn Fn()| {
            by();
            fs.lose(1).unwrap();
            fs.fsync(dir, false).err().map(|error| error.errno())
        };
        let make = |name: &[u8]| {
            fs.create(dir, name, 0o644, Creator::default()).unwrap();
        };
        assert_eq!(lost(&|| make(b"new")), Some(Errno::IO), "{name}");
        assert_eq!(lost(&|| {}), None, "{name}");
        make(b"file");
        fs.checkpoint().unwrap();
        assert_eq!(lost(&|| fs.unlink(dir, b"file").unwrap()), Some(Errno::IO), "{name}");
        let rename = || {
            // As a kernel does.
            fs.lookup(dir, b"file").unwrap();
            fs.rename(dir, b"file", fs.root(), b"moved", vfs::RenameFlags::empty()).unwrap();
        };
        assert_eq!(lost(&rename), Some(Errno::IO), "{name}");
        assert_eq!(fs.fsync(fs.root(), false).unwrap_err().errno(), Errno::IO, "{name}");
        assert_eq!(lost(&|| make(b"synced")), Some(Errno::IO), "{name}");
        make(b"synced");
        fs.fsync(dir, false).unwrap();
        assert_eq!(lost(&|| {}), None, "{name}: the name is durable");
        fs.closed(other, other);
        assert_eq!(lost(&|| make(b"new")), None, "{name}: nobody is there to be told");
        fs.unmount().unwrap();
    }
}

/// What is there after the cut as it was before is not lost, and no fsync fails for it.
#[test]
fn what_is_the_same_after_a_cut_is_not_lost() {
    for name in FORMATS {
        let fs = harness(name);
        let ino = create(&fs, b"f", b"one");
        fs.checkpoint().unwrap();
        path::write_all(&*fs, ino, 0, b"one").unwrap();
        fs.lose(1).unwrap();
        fs.fsync(ino, false).unwrap();
        path::write_all(&*fs, ino, 0, b"two").unwrap();
        fs.lose(2).unwrap();
        assert_eq!(content(&fs, b"f").as_deref(), Some(&b"one"[..]), "{name}");
        assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::IO, "{name}");
    }
}

#[test]
fn a_new_file_of_a_lost_ones_number_is_another() {
    for name in FORMATS {
        let fs = harness(name);
        fs.checkpoint().unwrap();
        let lost = fs.create(fs.root(), b"a", 0o644, Creator::default()).unwrap();
        fs.open(lost.ino).unwrap();
        fs.lose(1).unwrap();
        let new = fs.create(fs.root(), b"b", 0o644, Creator::default()).unwrap();
        assert_eq!(new.ino, lost.ino, "{name}: the test needs a number that is used again");
        assert_ne!(new.generation, lost.generation, "{name}");
        assert_eq!(fs.getattr(new.ino).unwrap().generation, new.generation, "{name}");
        // The release of the lost one does not free the new one, which is open and has no name.
        fs.open(new.ino).unwrap();
        fs.unlink(fs.root(), b"b").unwrap();
        fs.release(lost.ino);
        assert_eq!(fs.getattr(new.ino).unwrap().nlink, 0, "{name}");
        fs.release(new.ino);
        assert!(fs.getattr(new.ino).is_err(), "{name}");
        fs.unmount().unwrap();
    }
}

#[test]
fn an_open_file_without_a_name_stays_if_the_unlink_was_lost_and_goes_if_not() {
    for name in FORMATS {
        let fs = harness(name);
        for (file, synced) in [(&b"a"[..], false), (b"b", true)] {
            let ino = create(&fs, file, b"data");
            fs.checkpoint().unwrap();
            fs.open(ino).unwrap();
            fs.unlink(fs.root(), file).unwrap();
            if synced {
                fs.checkpoint().unwrap();
            }
            fs.lose(3).unwrap();
            assert_eq!(content(&fs, file).is_none(), synced, "{name}");
            assert_eq!(fs.getattr(ino).is_err(), synced, "{name}");
            fs.release(ino);
        }
        fs.unmount().unwrap();
    }
}

#[test]
fn a_choice_survives_by_the_seed() {
    for name in FORMATS {
        let left = |seed| {
            let fs = harness(name);
            let old = create(&fs, b"old", &[1; 16 << 12]);
            fs.checkpoint().unwrap();
            path::write_all(&*fs, old, 0, &[2; 16 << 12]).unwrap();
            for n in 0..8 {
                create(&fs, &[b'a' + n], &[3; 4096]);
            }
            fs.lose_some(seed).unwrap();
            let old = content(&fs, b"old").unwrap();
            let pages = old.chunks(4096).map(|page| {
                assert!(page.iter().all(|byte| *byte == page[0]), "{name}: a page is torn");
                page[0]
            });
            let pages = pages.collect::<Vec<u8>>();
            let files = (0..8_u8).map(|n| content(&fs, &[b'a' + n])).collect::<Vec<_>>();
            fs.unmount().unwrap();
            (pages, files)
        };
        let (pages, files) = left(5);
        assert_eq!((&pages, &files), (&left(5).0, &left(5).1), "{name}");
        assert_ne!(pages, left(6).0, "{name}");
        assert!(pages.contains(&1) && pages.contains(&2), "{name}: {pages:?}");
        let whole = files.iter().flatten().filter(|file| !file.is_empty()).count();
        assert!(files.contains(&None) && whole > 0, "{name}: {files:?}");
    }
}

#[test]
fn a_clear_comes_where_it_was_asked_for() {
    let fs = harness("f2fs");
    let clear = Clear::new((Call::Fsync, When::Before), Some(b"f".to_vec()), None, 2, false);
    fs.add(Fault::Clear(clear.unwrap())).unwrap();
    let ino = create(&fs, b"f", b"one");
    fs.fsync(ino, false).unwrap();
    path::write_all(&*fs, ino, 0, b"two").unwrap();
    assert_eq!(fs.fsync(ino, false).unwrap_err().errno(), Errno::IO);
    assert_eq!(content(&fs, b"f").as_deref(), Some(&b"one"[..]));
    assert_eq!(fs.losses(), 1);
}

#[test]
fn a_crash_comes_at_a_path_that_matches() {
    let fs = harness("f2fs");
    let pattern = regex::bytes::Regex::new("^/data/w[a-z]+$").unwrap();
    let crash = Crash::new(Call::Truncate, When::After, Some(pattern), None).unwrap();
    fs.add(Fault::Crash(crash)).unwrap();
    let (other, ino) = (create(&fs, b"other", b"data"), create(&fs, b"wal", b"data"));
    let shorter = SetAttr { size: Some(1), ..SetAttr::default() };
    fs.setattr(other, &shorter).unwrap();
    let died = catch_unwind(AssertUnwindSafe(|| drop(fs.setattr(ino, &shorter))));
    assert!(died.is_err());
}

/// Each thread confirms only what an fsync confirmed to it; whatever is cut, that is there.
#[test]
fn no_fsync_confirms_what_a_cut_took() {
    for name in FORMATS {
        let fs = harness(name);
        let inos: Vec<Ino> = (0..4).map(|n| create(&fs, &[b'a' + n], b"0")).collect();
        fs.checkpoint().unwrap();
        let workers = inos.iter().map(|&ino| {
            let fs = fs.clone();
            cores::spawn("writer", None, move || {
                let mut confirmed = 0_u32;
                for n in 1..=150_u32 {
                    path::write_all(&*fs, ino, 0, &n.to_le_bytes()).unwrap();
                    match fs.fsync(ino, false) {
                        Ok(()) => confirmed = n,
                        Err(error) => {
                            assert_eq!(error.errno(), Errno::IO);
                            fs.closed(ino, ino);
                            fs.opened(ino, ino, false).unwrap();
                        }
                    }
                }
                confirmed
            })
        });
        let workers: Vec<_> = workers.collect();
        for seed in 0..20 {
            fs.lose(seed).unwrap();
        }
        let confirmed: Vec<u32> = workers.into_iter().map(cores::JoinHandle::join).collect();
        fs.lose(99).unwrap();
        for (ino, confirmed) in inos.into_iter().zip(confirmed) {
            let left = path::read_to_vec(&*fs, ino).unwrap();
            let left = u32::from_le_bytes(left[..].try_into().unwrap());
            assert!(left >= confirmed, "{name}: {left} is left, {confirmed} was confirmed");
        }
        fs.unmount().unwrap();
    }
}
