//! Runs made by hand, and checkers that are functions.

use vfs::{Creator, FileSystem, RenameFlags};

use super::*;
use crate::record::Watched;

fn limits() -> Limits {
    Limits { states: 400, seed: 1, threads: 2, go_on: Arc::new(|_| true), keeps_trees: false }
}

/// What `f` holds, if it is there.
fn contents(tree: &Tree, name: &[u8]) -> Option<Vec<u8>> {
    match tree.0.get(name)? {
        tree::Entry::File { size, pages, .. } => {
            let mut bytes = Vec::new();
            for (page, held) in pages {
                bytes.resize((page * tree::PAGE) as usize, 0);
                bytes.extend_from_slice(held);
            }
            bytes.resize(*size as usize, 0);
            Some(bytes)
        }
        _ => None,
    }
}

fn judge(accepts: impl Fn(&Tree, &Promised) -> bool + Send + Sync + 'static) -> Judge {
    Arc::new(move |state| {
        let accepted = accepts(state.tree, state.promised);
        Ok(Some(Judgement { accepted, said: String::new() }))
    })
}

/// `f` is replaced by a file of `len` bytes, with fsyncs of the file before and of the directory
/// after, or without.
fn save(len: usize, fsyncs: (bool, bool)) -> Run {
    let fs = Watched::new().keeping(Box::new(Vec::new));
    let (root, who) = (fs.root(), Creator::default());
    let old = fs.create(root, b"f", 0o644, who).unwrap().ino;
    fs.write(old, 0, b"old").unwrap();
    fs.begin();
    let new = fs.create(root, b"f.tmp", 0o644, who).unwrap().ino;
    fs.write(new, 0, &vec![b'n'; len]).unwrap();
    if fsyncs.0 {
        fs.fsync(new, false).unwrap();
    }
    fs.rename(root, b"f.tmp", root, b"f", RenameFlags::empty()).unwrap();
    if fsyncs.1 {
        fs.fsync(root, false).unwrap();
    }
    fs.end()
}

fn old_or_new(len: usize) -> Judge {
    judge(move |tree, promised| {
        let held = contents(tree, b"f");
        let is_new = held.as_ref().is_some_and(|held| *held == vec![b'n'; len]);
        is_new || (held.as_deref() == Some(b"old") && !promised.exited)
    })
}

fn place(name: &str) -> Place {
    let Some((fs, mode)) = name.split_once(':') else { return Place::Least };
    let format = subjects::named(fs).unwrap();
    let technique = subjects::technique(format, mode).unwrap();
    let (drive, options) = ("conventional-noplp".to_owned(), String::new());
    Place::Volume(Volume { format, technique, drive, options })
}

fn check(run: Run, judge: Judge) -> Check {
    let check = Check::new(run, true, judge, limits());
    check.sound().unwrap();
    check
}

#[test]
fn a_rename_over_a_file_needs_two_fsyncs() {
    let len = 9000;
    for name in ["least", "f2fs:posix"] {
        let mut sound = check(save(len, (true, true)), old_or_new(len));
        let found = sound.on(&place(name), None).unwrap();
        assert!(found.states > 20 && found.rejected == 0, "{name}: {found:?}");
        assert!(found.unreadable.is_none(), "{name}: {found:?}");
        assert!(sound.why().unwrap().is_none());
        for (fsyncs, pattern) in [
            ((false, true), Pattern::NoFsyncBeforeRename),
            ((true, false), Pattern::DirectoryNotFsynced),
        ] {
            let mut broken = check(save(len, fsyncs), old_or_new(len));
            let found = broken.on(&place(name), None).unwrap();
            assert!(found.rejected > 0, "{name} {fsyncs:?}: {found:?}");
            assert_eq!(broken.why().unwrap().unwrap().pattern, pattern, "{name}");
            let first = found.first.unwrap();
            let again = broken.on(&place(name), Some(&first.state)).unwrap();
            assert_eq!((again.states, again.rejected > 0), (1, true), "{name} {}", first.state);
        }
    }
}

#[test]
fn a_checker_that_rejects_everything_is_refused() {
    let check = Check::new(save(1, (true, true)), true, judge(|_, _| false), limits());
    assert!(check.sound().is_err_and(|error| error.to_string().contains("without any")));
}

/// The same run and seed give the same result, on any number of threads.
#[test]
fn a_result_repeats() {
    let of = |threads| {
        let limits = Limits { threads, states: 60, ..limits() };
        let mut check = Check::new(save(9000, (false, false)), true, old_or_new(9000), limits);
        let found = check.on(&place("ext4:ordered"), None).unwrap();
        let first = found.first.unwrap();
        (found.states, found.judged, found.rejected, found.left_out, first.state, first.tree)
    };
    assert_eq!(of(1), of(3));
}

/// States of a volume and of none, mounted as they were left.
#[test]
fn a_judge_may_mount_a_state() {
    for name in ["least", "f2fs:posix", "ext4:ordered"] {
        let mounted: Judge = Arc::new(|state| {
            let (volume, home) = state.mount(7, 8)?;
            let dir = vfs::path::resolve(&*volume, format!("/{home}").as_bytes(), true);
            let attr = dir.unwrap();
            let left = Tree::read(&*volume, attr.ino).unwrap();
            let accepted = (attr.uid, attr.gid) == (7, 8) && left == *state.tree;
            volume.unmount().unwrap();
            Ok(Some(Judgement { accepted, said: String::new() }))
        });
        let mut check = Check::new(save(9000, (true, false)), true, mounted, limits());
        let found = check.on(&place(name), None).unwrap();
        assert!(found.judged > 4 && found.rejected == 0, "{name}: {found:?}");
    }
}

/// A run with more instants than states are wanted keeps to the limit, and looks at the end.
#[test]
fn a_long_run_keeps_to_the_limit() {
    let fs = Watched::new().keeping(Box::new(Vec::new));
    fs.begin();
    for n in 0..300_u32 {
        fs.create(fs.root(), n.to_string().as_bytes(), 0o644, Creator::default()).unwrap();
    }
    let limits = Limits { states: 100, ..limits() };
    let last = judge(|tree, _| tree.0.len() < 290);
    let mut check = Check::new(fs.end(), true, last, limits);
    let found = check.on(&Place::Least, None).unwrap();
    assert!(found.states <= 150 && found.sampled > 200, "{} states", found.states);
    let first = found.first.unwrap();
    assert!(check.on(&Place::Least, Some(&first.state)).unwrap().rejected == 1);
}

/// A judge that is told to stop ends the search; what it has judged by then counts.
#[test]
fn a_search_stops_at_once() {
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(5));
    let few: Judge = Arc::new(move |_| {
        use std::sync::atomic::Ordering::Relaxed;
        let goes_on = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        Ok(goes_on.then(Judgement::accepted))
    });
    let mut check = Check::new(save(9000, (false, false)), true, few, limits());
    let found = check.on(&place("f2fs:posix"), None).unwrap();
    assert!(found.stopped && found.judged == 5 && found.left_out > 0, "{found:?}");
}

/// The step that is missing is drawn as missing, and the one that overtook it is not.
#[test]
fn a_picture_shows_what_overtook_what() {
    let mut broken = check(save(5, (false, true)), old_or_new(5));
    assert!(broken.on(&Place::Least, None).unwrap().rejected > 0);
    let picture = broken.why().unwrap().unwrap().picture;
    let of = |step: &str| picture.iter().find(|line| line.contains(step)).unwrap().clone();
    assert!(of("write f.tmp").contains("missing"), "{picture:?}");
    assert!(of("rename f.tmp f").ends_with("|-------->|"), "{picture:?}");
    assert!(picture.last().unwrap().contains("the power fails"), "{picture:?}");
}

/// A hole of a terabyte costs what is in the file.
#[test]
fn a_hole_is_as_large_as_it_likes() {
    let fs = Watched::new().keeping(Box::new(Vec::new));
    let (root, size) = (fs.root(), 1 << 40);
    let file = fs.create(root, b"f", 0o644, Creator::default()).unwrap().ino;
    fs.setattr(file, &vfs::SetAttr { size: Some(size), ..vfs::SetAttr::default() }).unwrap();
    for at in [5000, size / 2] {
        fs.write(file, at, b"data").unwrap();
    }
    fs.begin();
    let mode = vfs::FallocateMode::PUNCH_HOLE | vfs::FallocateMode::KEEP_SIZE;
    fs.fallocate(file, mode, 0, size).unwrap();
    let pages = judge(|tree, promised| match tree.0.get(&b"f"[..]) {
        Some(tree::Entry::File { pages, .. }) => pages.is_empty() || !promised.exited,
        _ => false,
    });
    let mut check = check(fs.end(), pages);
    let found = check.on(&Place::Least, None).unwrap();
    // Before and after, and with either of the two pages missing.
    assert!(found.judged >= 5 && found.rejected > 0, "{found:?}");
}

/// Names that scripts use for other things, and what shells take apart.
#[test]
fn any_name_is_a_name() {
    let names = [&b"#auto#"[..], b"two words", b"new\nline", b"-rf", b"*", b"\\"];
    for name in ["least", "ext4:ordered"] {
        let fs = Watched::new().keeping(Box::new(Vec::new));
        let who = Creator::default();
        fs.begin();
        for name in names {
            let ino = fs.create(fs.root(), name, 0o644, who).unwrap().ino;
            fs.write(ino, 0, name).unwrap();
            fs.fsync(ino, false).unwrap();
            let moved = [name, b"2"].concat();
            fs.rename(fs.root(), name, fs.root(), &moved, RenameFlags::empty()).unwrap();
        }
        fs.fsync(fs.root(), false).unwrap();
        let held = judge(move |tree, promised| {
            let has =
                |name: &&[u8]| contents(tree, &[name, &b"2"[..]].concat()) == Some(name.to_vec());
            !promised.exited || names.iter().all(has)
        });
        let mut all = check(fs.end(), held);
        let found = all.on(&place(name), None).unwrap();
        assert!(found.judged > 4 && found.rejected == 0, "{name}: {found:?}");
    }
}

/// Three writes leave seven changes open: the name, and the size and the bytes of each.
#[test]
fn every_state_is_looked_at_if_that_is_wanted() {
    let run = || {
        let fs = Watched::new().keeping(Box::new(Vec::new));
        fs.begin();
        let file = fs.create(fs.root(), b"f", 0o644, Creator::default()).unwrap().ino;
        (0..3).for_each(|n| assert_eq!(fs.write(file, n * 4096, &[b'n'; 4096]).unwrap(), 4096));
        fs.end()
    };
    let found = |states: usize, name: &str| {
        let limits = Limits { states, ..limits() };
        let judge = judge(|_, _| true);
        Check::new(run(), true, judge, limits).on(&place(name), None).unwrap()
    };
    let (some, all) = (found(400, "least"), found(Limits::EVERY, "least"));
    assert!(some.sampled > 0 && all.sampled == 0, "{some:?} {all:?}");
    assert_eq!(all.states, 1 + 2 + 8 + 32 + 128);
    assert!(all.judged > some.judged && all.left_out == 0, "{some:?} {all:?}");
    let (some, all) = (found(400, "f2fs:posix"), found(Limits::EVERY, "f2fs:posix"));
    assert!(all.states > some.states && all.left_out == 0, "{some:?} {all:?}");
}

#[test]
fn warnings_say_what_no_fsync_covers() {
    let said = |fsyncs| warnings(&save(10, fsyncs)).unwrap();
    assert_eq!(said((true, true)), [""; 0]);
    let [rename, file, directory] = &said((false, false))[..] else { panic!("three warnings") };
    assert!(rename.starts_with("step 3 renames f.tmp to f, which step 2 wrote"), "{rename}");
    assert!(file.starts_with("f is written by step 2"), "{file}");
    assert!(directory.starts_with("directory /: step 1 and 1 more"), "{directory}");
    assert_eq!(said((true, false)).len(), 1);
}

/// What was printed counts from its place among the steps on.
#[test]
fn markers_are_promises() {
    let said = Arc::new(cores::Mutex::new(Vec::new()));
    let pipe = said.clone();
    let fs = Watched::new().keeping(Box::new(move || std::mem::take(&mut *pipe.lock())));
    fs.begin();
    let log = fs.create(fs.root(), b"log", 0o644, Creator::default()).unwrap().ino;
    fs.fsync(fs.root(), false).unwrap();
    for (n, byte) in [(1, b'a'), (2, b'b')] {
        fs.write(log, n - 1, &[byte]).unwrap();
        if n == 1 {
            fs.fsync(log, false).unwrap();
        }
        said.lock().push(n.to_string());
    }
    fs.hear();
    let run = fs.end();
    let after: Vec<usize> = run.markers.iter().map(|marker| marker.after).collect();
    assert_eq!((after, run.steps_after_begin()), (vec![4, 5], 5));
    let enough = judge(|tree, promised| {
        let promised = promised.acknowledged.as_deref().unwrap_or("0");
        let held = contents(tree, b"log").unwrap_or_default();
        held.iter().filter(|&&byte| byte != 0).count() >= promised.parse().unwrap()
    });
    let mut check = check(run, enough);
    let found = check.on(&Place::Least, None).unwrap();
    let first = found.first.unwrap();
    assert_eq!((first.steps, first.promised.acknowledged.as_deref()), (5, Some("2")));
    assert_eq!(check.why().unwrap().unwrap().pattern, Pattern::NoFsync);
}

#[test]
fn a_failed_fsync_makes_nothing_durable() {
    let fs = Watched::new().keeping(Box::new(Vec::new)).failing_syncs();
    fs.begin();
    let file = fs.create(fs.root(), b"f", 0o644, Creator::default()).unwrap().ino;
    fs.write(file, 0, b"n").unwrap();
    assert_eq!(fs.fsync(file, false).unwrap_err().errno(), vfs::Errno::IO);
    let run = fs.end();
    assert_eq!((run.steps_after_begin(), &run.failed_syncs[..]), (2, &[(2, "f".to_owned())][..]));
    let mut check = check(run, old_or_new(1));
    assert!(check.on(&Place::Least, None).unwrap().rejected > 0);
    assert_eq!(check.why().unwrap().unwrap().pattern, Pattern::FsyncErrorIgnored);
}

/// A script without `set -e`, whose last fsync fails as well, so that it ends with an error.
#[test]
fn going_on_after_a_failed_fsync_is_ignoring_it() {
    let fs = Watched::new().keeping(Box::new(Vec::new));
    let (root, who) = (fs.root(), Creator::default());
    let old = fs.create(root, b"f", 0o644, who).unwrap().ino;
    fs.write(old, 0, b"old").unwrap();
    let fs = fs.failing_syncs();
    fs.begin();
    let new = fs.create(root, b"f.tmp", 0o644, who).unwrap().ino;
    fs.write(new, 0, b"n").unwrap();
    fs.fsync(new, false).unwrap_err();
    fs.rename(root, b"f.tmp", root, b"f", RenameFlags::empty()).unwrap();
    fs.fsync(root, false).unwrap_err();
    let mut check = Check::new(fs.end(), false, old_or_new(1), limits());
    assert!(check.on(&Place::Least, None).unwrap().rejected > 0);
    let why = check.why().unwrap().unwrap();
    assert_eq!(why.pattern, Pattern::FsyncErrorIgnored);
    assert!(why.words[0].contains("fsync of f.tmp after step 2 failed"), "{:?}", why.words);
    assert!(why.words[1].ends_with("with step 3 (rename f.tmp f)"), "{:?}", why.words);
}
