//! An fsync keeps its promise whatever other threads do while it waits for the drive. Each test
//! holds one fsync up, lets a second thread act, cuts the power, and looks at what survived. The
//! same run with the injected fault shows that the test can fail.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::DriveState;
use f2fs::F2fs;
use vfs::{Creator, FileSystem, Ino, RenameFlags, SetAttr};

use crate::harness::late::Late;
use crate::harness::{Kind, mount_on, power_on};

const MS: u64 = 1_000_000;
/// How long a held-up write takes.
const HELD: u64 = 10 * MS;
const PAGE: u64 = 4096;
/// Blocks of a file that needs a node beside its inode.
const MANY: u64 = 1100;
/// Pieces of data for more checksums than an inode has room for.
const PLACES: u64 = 25;

/// A volume on a drive that takes its time, and what two threads do there.
struct Scene {
    fs: Arc<F2fs>,
    drive: Arc<Late>,
}

impl Scene {
    fn new(kind: Kind, options: &str) -> Self {
        let drive = Arc::new(Late::new(kind.formatted(1)));
        let fs = Arc::new(mount_on(drive.clone(), options));
        Self { fs, drive }
    }

    fn create(&self, name: &str, fill: u8) -> Ino {
        let who = Creator::default();
        let ino = self.fs.create(self.fs.root(), name.as_bytes(), 0o644, who).unwrap().ino;
        self.fill(ino, 0, fill);
        ino
    }

    fn fill(&self, ino: Ino, page: u64, fill: u8) {
        self.fs.write(ino, page * PAGE, &[fill; PAGE as usize]).unwrap();
    }

    /// Fsyncs `ino` on a core of its own, every write of it held up; `meanwhile` happens after
    /// `delay`, when writes are fast again.
    fn fsync_beside(&self, ino: Ino, delay: u64, meanwhile: impl FnOnce()) {
        self.drive.set_delay(HELD);
        let fs = self.fs.clone();
        let slow = cores::spawn("slow fsync", Some(1), move || fs.fsync(ino, false));
        cores::sleep(delay);
        self.drive.set_delay(0);
        meanwhile();
        slow.join().unwrap();
    }

    /// What a cut leaves now, one of several ways.
    fn cut(&self) -> Vec<DriveState> {
        vec![self.drive.below().survivors(3)]
    }
}

/// Runs `scene` in every mode on both kinds of drives; returns what `judge` says about the
/// survivors.
fn broken(
    fault: &str,
    scene: fn(&Scene) -> Vec<DriveState>,
    judge: fn(&F2fs) -> Option<String>,
) -> Vec<String> {
    let profile = Profile::named("xeon-4116").unwrap();
    let mut broken = Vec::new();
    for kind in Kind::ALL {
        for mode in ["fsync_mode=posix", "fsync_mode=strict", "oprw", "fsync_mode=strict,oprw"] {
            if mode == "oprw" && kind == Kind::Conventional {
                continue; // There are no write pointers to recover by.
            }
            let inject = if fault.is_empty() { String::new() } else { format!(",inject={fault}") };
            // Nothing is written in place: only the chain shows it.
            let options = format!("{mode},mode=lfs,cache=1m{inject}");
            let run = move || scene(&Scene::new(kind, &options));
            let Ok(states) = Machine::simulated(&profile, 1).run(run) else {
                broken.push(format!("{kind:?} {mode}: the run ended in a panic"));
                continue;
            };
            let find = |state| match F2fs::mount(power_on(state), &mode.parse().unwrap()) {
                Ok(fs) => judge(&fs),
                Err(error) => Some(format!("mount: {error}")),
            };
            let found = states.iter().find_map(find);
            broken.extend(found.map(|what| format!("{kind:?} {mode}: {what}")));
        }
    }
    broken
}

fn byte_at(fs: &F2fs, path: &str, page: u64) -> Option<u8> {
    let mut ino = fs.root();
    for name in path.split('/') {
        ino = fs.lookup(ino, name.as_bytes()).ok()?.ino;
    }
    let mut block = [0xff; PAGE as usize];
    let got = fs.read(ino, page * PAGE, &mut block).ok()?;
    (got > 0).then_some(block[0])
}

fn expect(fs: &F2fs, path: &str, page: u64, fill: u8) -> Option<String> {
    let found = byte_at(fs, path, page);
    (found != Some(fill)).then(|| format!("{path} page {page}: {found:?}, not {fill}"))
}

/// Another fsync's node, ahead in the log, is still on its way: recovery would stop there.
#[test]
fn an_fsync_waits_for_the_nodes_ahead_of_its_own() {
    fn scene(on: &Scene) -> Vec<DriveState> {
        let files = ["x", "y", "z"].map(|name| on.create(name, 1));
        on.fs.sync().unwrap();
        files.iter().for_each(|file| on.fill(*file, 0, 2));
        // The nodes are on their way together with the data, or when that has arrived.
        let mut left = None;
        let begun = cores::now();
        on.fsync_beside(files[0], 5 * MS, || {
            on.fs.fsync(files[1], false).unwrap();
            on.drive.set_delay(HELD);
            cores::sleep_until(begun + HELD + 5 * MS);
            on.drive.set_delay(0);
            on.fs.fsync(files[2], false).unwrap();
            left = Some(on.cut());
        });
        left.unwrap()
    }
    fn judge(fs: &F2fs) -> Option<String> {
        expect(fs, "y", 0, 2).or_else(|| expect(fs, "z", 0, 2))
    }
    assert_eq!(broken("", scene, judge), Vec::<String>::new());
    assert!(!broken("no-chain-order", scene, judge).is_empty());
}

/// A new file is fsynced, and gets a name meanwhile in a directory that only a checkpoint will
/// know.
fn named_in_a_new_directory(on: &Scene, name: fn(&F2fs, Ino, Ino)) -> Vec<DriveState> {
    let file = on.create("new", 7);
    on.fsync_beside(file, 5 * MS, || {
        let dir = on.fs.mkdir(on.fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        name(&on.fs, file, dir);
    });
    on.cut()
}

#[test]
fn a_file_that_gets_a_name_during_its_fsync_stays_recoverable() {
    fn moved(on: &Scene) -> Vec<DriveState> {
        named_in_a_new_directory(on, |fs, _, dir| {
            fs.rename(fs.root(), b"new", dir, b"name", RenameFlags::empty()).unwrap();
        })
    }
    fn linked(on: &Scene) -> Vec<DriveState> {
        named_in_a_new_directory(on, |fs, file, dir| {
            fs.link(file, dir, b"name").unwrap();
        })
    }
    fn judge(fs: &F2fs) -> Option<String> {
        expect(fs, "new", 0, 7).and_then(|_| expect(fs, "dir/name", 0, 7))
    }
    for scene in [moved, linked] {
        assert_eq!(broken("", scene, judge), Vec::<String>::new());
        assert!(!broken("decide-once", scene, judge).is_empty());
    }
}

/// A durable block moves while an fsync of its file waits for its data. The nodes that follow point
/// to its new place, where it must be as durable as before.
#[test]
fn what_is_cleaned_during_an_fsync_stays_durable() {
    fn scene(on: &Scene) -> Vec<DriveState> {
        let file = on.create("file", 1);
        (1..MANY).for_each(|page| on.fill(file, page, 1));
        on.fs.sync().unwrap();
        // What is left of it is worth cleaning.
        on.fs.setattr(file, &SetAttr { size: Some(PAGE), ..SetAttr::default() }).unwrap();
        on.fs.sync().unwrap();
        on.fill(file, 1, 2);
        let mut left = Vec::new();
        let mut cleaner = None;
        on.fsync_beside(file, MS, || {
            on.drive.set_delay(HELD);
            let fs = on.fs.clone();
            let clean = move || fs.garbage_collect(false).unwrap();
            cleaner = Some(cores::spawn("cleaner", Some(2), clean));
            for _ in 0..50 {
                cores::sleep(MS);
                left.extend((1..4).map(|seed| on.drive.below().survivors(seed)));
            }
        });
        cleaner.map(cores::JoinHandle::join);
        left
    }
    fn judge(fs: &F2fs) -> Option<String> {
        expect(fs, "file", 0, 1)
    }
    assert_eq!(broken("", scene, judge), Vec::<String>::new());
}

/// The name goes to another file, which is fsynced, while its first owner's fsync is under way.
#[test]
fn a_name_stays_with_the_file_that_was_fsynced_under_it() {
    fn scene(on: &Scene) -> Vec<DriveState> {
        let old = on.create("name", 1);
        on.fs.open(old).unwrap();
        on.fsync_beside(old, 5 * MS, || {
            on.fs.unlink(on.fs.root(), b"name").unwrap();
            let new = on.create("name", 2);
            on.fs.fsync(new, false).unwrap();
        });
        on.cut()
    }
    fn judge(fs: &F2fs) -> Option<String> {
        expect(fs, "name", 0, 2)
    }
    assert_eq!(broken("", scene, judge), Vec::<String>::new());
    assert!(!broken("decide-once", scene, judge).is_empty());
}

/// A node is freed and leaves its place empty, during another fsync of the same file.
#[test]
fn a_truncation_during_an_fsync_is_not_undone() {
    fn scene(on: &Scene) -> Vec<DriveState> {
        let file = on.create("file", 1);
        for page in 0..MANY {
            on.fill(file, page, 1);
        }
        on.fs.sync().unwrap();
        on.fill(file, 0, 2);
        on.fsync_beside(file, 5 * MS, || {
            for size in [0, MANY * PAGE] {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                on.fs.setattr(file, &set).unwrap();
            }
            on.fs.fsync(file, false).unwrap();
        });
        on.cut()
    }
    fn judge(fs: &F2fs) -> Option<String> {
        [0, MANY - 1].into_iter().find_map(|page| expect(fs, "file", page, 0))
    }
    assert_eq!(broken("", scene, judge), Vec::<String>::new());
}

/// Nobody has the file open, and its only name is removed.
#[test]
fn an_fsync_outlives_the_removal_of_its_file() {
    fn scene(on: &Scene) -> Vec<DriveState> {
        let file = on.create("file", 1);
        on.fsync_beside(file, 5 * MS, || on.fs.unlink(on.fs.root(), b"file").unwrap());
        let other = on.create("other", 2);
        on.fs.fsync(other, false).unwrap();
        on.fs.getattr(file).expect_err("it goes with its last user");
        on.cut()
    }
    fn judge(fs: &F2fs) -> Option<String> {
        expect(fs, "other", 0, 2)
    }
    assert_eq!(broken("", scene, judge), Vec::<String>::new());
}

/// In the modes that recover an fsync whole or not at all, what others append meanwhile does not
/// become half of it, not even where there is no room for checksums, so that the data is flushed
/// before the nodes go.
#[test]
fn an_append_during_an_atomic_fsync_is_no_part_of_it() {
    const NAME: &str = match str::from_utf8(&[b'n'; 250]) {
        Ok(name) => name,
        Err(_) => "",
    };
    fn long_name(on: &Scene) -> Vec<DriveState> {
        let file = on.create(NAME, 1);
        on.fs.sync().unwrap();
        on.fill(file, 0, 2);
        on.fsync_beside(file, 5 * MS, || on.fill(file, 1, 9));
        on.cut()
    }
    fn many_places(on: &Scene) -> Vec<DriveState> {
        let file = on.create("scattered", 1);
        let others: Vec<_> = (0..20).map(|n| on.create(&format!("other{n}"), 1)).collect();
        (0..PLACES).for_each(|n| on.fill(file, 2 * n, 1));
        on.fs.sync().unwrap();
        // Blocks are placed when they are written back, which the cache has to be full for. Files
        // with more dirty pages than these have another log.
        for n in 0..PLACES {
            on.fill(file, 2 * n, 2);
            for page in 0..15 {
                others.iter().for_each(|other| on.fill(*other, n * 15 + page, 1));
            }
        }
        on.fill(file, 1, 2);
        on.fsync_beside(file, 5 * MS, || on.fill(file, 2 * PLACES, 9));
        on.cut()
    }
    fn is_half_there(fs: &F2fs, name: &str, appended: u64) -> Option<String> {
        let found = byte_at(fs, name, appended);
        let torn = found.is_some_and(|byte| byte != 9);
        torn.then(|| format!("the append is half there: {found:?}"))
    }
    fn judge_name(fs: &F2fs) -> Option<String> {
        is_half_there(fs, NAME, 1).or_else(|| expect(fs, NAME, 0, 2))
    }
    fn judge_places(fs: &F2fs) -> Option<String> {
        is_half_there(fs, "scattered", 2 * PLACES)
            .or_else(|| (0..PLACES).find_map(|n| expect(fs, "scattered", 2 * n, 2)))
    }
    let mut found = broken("", long_name, judge_name);
    found.extend(broken("", many_places, judge_places));
    found.retain(|what| what.contains("strict"));
    assert_eq!(found, Vec::<String>::new());
}
