//! SIGKILL, at any time: a process that has a pmfs volume embedded, and one that serves a mount,
//! for each design. Whatever a call has returned for is there afterwards, and nothing is wrong with
//! the structures. Nothing is ever synced.
//!
//! The mounts need root, /dev/fuse and the package fuse3. `PM_KILLS` sets how many kills of each
//! design.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cores::splitmix64;
use drive::Drive;
use drive::pm::{Mapped, PmAccess, PmDrive};
use vfs::kind::Format as _;
use vfs::{Creator, FileSystem, RenameFlags, path};

use crate::mounting::{self, DESIGNS, Disk, Rig, number};

const WRITER: &str = "PM_KILLED_WRITER";
/// Files that are there at a time, and pages of the one that is overwritten.
const FILES: u64 = 8;
const SHARED: &str = "shared";
const PAGE: usize = 4096;

fn name(number: u64) -> String {
    format!("file-{}", number % FILES)
}

/// What file `number` holds: its number, then a pattern of it, over more than a page.
fn contents(number: u64) -> Vec<u8> {
    let words = (0..700 + number % 900).map(|word| splitmix64(number << 20 | word));
    [number].into_iter().chain(words).flat_map(u64::to_le_bytes).collect()
}

/// What step `number` overwrites a page with; zeroes before the first.
fn page(number: u64) -> Vec<u8> {
    let word = |word| if number == 0 { 0 } else { splitmix64(number << 20 | 1 << 19 | word) };
    (0..PAGE as u64 / 8).map(word).flat_map(u64::to_le_bytes).collect()
}

/// Where that is.
fn page_at(number: u64) -> u64 {
    number % FILES * PAGE as u64
}

/// Whether a page is that of step `old` or, if that is under way, of step `next`. What is written
/// in place may be half done: each word is that of one of them.
fn is_page(found: &[u8], old: u64, next: Option<u64>, is_atomic: bool) -> bool {
    let old = page(old);
    let Some(next) = next.map(page) else { return found == old };
    let words = found.chunks(8).zip(old.chunks(8).zip(next.chunks(8)));
    match is_atomic {
        true => found == old || found == next,
        false => words.into_iter().all(|(found, (old, next))| found == old || found == next),
    }
}

/// Fails unless the files are those of the steps up to `done`, or up to the one behind.
fn judge(make: &str, done: u64, read: impl Fn(&str) -> Option<Vec<u8>>) {
    let shared = read(SHARED).expect("nobody removes it");
    for number in done.saturating_sub(FILES - 1)..=done {
        let next = Some(number + FILES).filter(|&next| next == done + 1);
        let found = &shared[page_at(number) as usize..][..PAGE];
        let is_right = is_page(found, number, next, make != "design=inplace");
        assert!(is_right, "{make}: page of step {number} after {done} steps");
    }
    for number in done.saturating_sub(FILES - 1)..=done {
        let (found, file) = (read(&name(number)), name(number));
        let next = number + FILES;
        let is_under_way = next == done + 1;
        let is_right = match &found {
            Some(found) if number > 0 && *found == contents(number) => true,
            Some(found) => is_under_way && *found == contents(next),
            None => number == 0,
        };
        let begins = found.as_ref().map(|found| found[..found.len().min(8)].to_vec());
        assert!(is_right, "{make}: {file} after {done} steps: {begins:?}, not step {number}'s");
    }
}

fn open(image: &Path) -> Arc<dyn Drive> {
    let memory = Mapped::open(&[image], PmAccess::Write).expect("a memory");
    PmDrive::new(Arc::new(memory), PmAccess::Write)
}

fn assert_sound(drive: &Arc<dyn Drive>, after: &str) {
    let checked = pmfs::Format.check(drive).expect("a volume");
    assert!(checked.findings.is_empty(), "{after}: {:?}", checked.findings);
}

/// A step: a page is overwritten, and a new file takes the place of an older one, in one rename.
fn step(fs: &dyn FileSystem, number: u64) -> vfs::Result<()> {
    let root = fs.root();
    let shared = fs.lookup(root, SHARED.as_bytes())?.ino;
    path::write_all(fs, shared, page_at(number), &page(number))?;
    let new = fs.create(root, b"new", 0o644, Creator::default())?.ino;
    path::write_all(fs, new, 0, &contents(number))?;
    fs.rename(root, b"new", root, name(number).as_bytes(), RenameFlags::empty())
}

/// What the other process does: it says the number of each step that has returned.
fn write(image: &Path, options: &str, first: u64) -> ! {
    let fs = pmfs::Format.mount(open(image), options).expect("a volume");
    let mut out = std::io::stdout();
    drop(fs.unlink(fs.root(), b"new"));
    for number in first.. {
        step(&*fs, number).expect("space");
        out.write_all(format!("step {number}\n").as_bytes()).expect("a reader");
    }
    unreachable!("the numbers do not end")
}

/// Starts a writer, kills it when it has done some steps, and returns the last it told of.
fn kill_a_writer(image: &Path, options: &str, done: u64, seed: u64) -> u64 {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", "pm_killed::a_writer_that_is_killed", "--nocapture"]);
    let what = format!("{} {options} {}", done + 1, image.display());
    command.env(WRITER, what).stdout(Stdio::piped());
    let mut writer = command.spawn().expect("a process");
    let steps = 1 + splitmix64(seed) % 40;
    let mut last = done;
    let mut lines = BufReader::new(writer.stdout.take().expect("a pipe")).lines();
    let mut told = |last: &mut u64| {
        let line = lines.next().and_then(Result::ok)?;
        // The harness says things of its own, on the same line.
        if let Some((_, number)) = line.split_once("step ") {
            *last = number.trim().parse().expect("a number");
        }
        Some(())
    };
    while last < done + steps {
        told(&mut last).expect("the writer goes on until it is killed");
    }
    cores::sleep(splitmix64(seed ^ 1) % 300_000);
    writer.kill().expect("it runs");
    writer.wait().expect("it ended");
    while told(&mut last).is_some() {}
    last
}

fn kill_writers(kills: u64, (make, options): (&str, &str)) {
    let _alone = mounting::alone();
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm");
    let image = dir.path().join("image.pm");
    Mapped::create(&image, 16 << 20).expect("memory");
    pmfs::Format.make_with(&open(&image), make).expect("a volume");
    let mount = || pmfs::Format.mount(open(&image), options).expect("it recovers");
    let fs = mount();
    let shared = fs.create(fs.root(), SHARED.as_bytes(), 0o644, Creator::default());
    let shared = shared.expect("space").ino;
    path::write_all(&*fs, shared, 0, &[0; FILES as usize * PAGE]).expect("space");
    fs.unmount().expect("unmounted");
    drop(fs);
    let mut done = 0;
    for kill in 0..kills {
        let last = kill_a_writer(&image, options, done, kill);
        assert_sound(&open(&image), &format!("{make} {options}: kill {kill}"));
        let fs = mount();
        judge(make, last, |file| {
            let ino = fs.lookup(fs.root(), file.as_bytes()).ok()?.ino;
            Some(path::read_to_vec(&*fs, ino).expect("it can be read"))
        });
        // A step that was not told of any more may have been made.
        done = last + 1;
        drop(fs.unlink(fs.root(), b"new"));
        step(&*fs, done).expect("space");
        fs.unmount().expect("unmounted");
    }
}

fn kill_mounts(kills: u64, (make, options): (&'static str, &str)) {
    let args = ["-o", options];
    let rig = Rig::of("pmfs", Disk::Memory(make, 16), &args);
    let point: PathBuf = rig.point();
    std::fs::write(point.join(SHARED), [0; FILES as usize * PAGE]).expect("space");
    let mut done = 0;
    for kill in 0..kills {
        let has_stepped = Arc::new(AtomicBool::new(false));
        let writer = {
            let (point, has_stepped) = (point.clone(), has_stepped.clone());
            cores::spawn("writer", None, move || {
                let new = point.join("new");
                drop(std::fs::remove_file(&new));
                let mut last = done;
                while overwrite(&point, last + 1).is_ok()
                    && std::fs::write(&new, contents(last + 1)).is_ok()
                    && std::fs::rename(&new, point.join(name(last + 1))).is_ok()
                {
                    last += 1;
                    has_stepped.store(true, Ordering::Relaxed);
                }
                last
            })
        };
        // However slow the machine, some steps are there to be lost.
        for _ in 0..10_000 {
            if has_stepped.load(Ordering::Relaxed) {
                break;
            }
            cores::sleep(1_000_000);
        }
        cores::sleep(splitmix64(kill) % 20_000_000);
        rig.die();
        let last = writer.join();
        rig.clear();
        rig.mount(&args);
        judge(make, last, |file| std::fs::read(point.join(file)).ok());
        done = last + 1;
        let new = point.join("new");
        drop(std::fs::remove_file(&new));
        overwrite(&point, done).expect("space");
        std::fs::write(&new, contents(done)).expect("space");
        std::fs::rename(&new, point.join(name(done))).expect("space");
    }
    assert!(done > kills, "the writers made {done} steps");
    rig.unmount();
    assert_sound(&open(&rig.image()), "the last kill");
}

/// A step's page, through the mount.
fn overwrite(point: &Path, number: u64) -> std::io::Result<()> {
    let file = std::fs::File::options().write(true).open(point.join(SHARED))?;
    file.write_all_at(&page(number), page_at(number))
}

/// Nothing by itself: the process that the others kill.
#[test]
fn a_writer_that_is_killed() {
    let Ok(what) = std::env::var(WRITER) else { return };
    let [first, options, image] = what.split(' ').collect::<Vec<_>>()[..] else {
        panic!("'{what}' is no number, options and path")
    };
    write(Path::new(image), options, first.parse().expect("a number"));
}

#[test]
fn a_killed_writer_loses_nothing() {
    DESIGNS.into_iter().for_each(|design| kill_writers(4, design));
}

#[test]
fn a_killed_mount_loses_nothing() {
    DESIGNS.into_iter().for_each(|design| kill_mounts(2, design));
}

#[test]
#[ignore = "minutes: 500 kills of a writer, for each design"]
fn five_hundred_killed_writers() {
    DESIGNS.into_iter().for_each(|design| kill_writers(number("PM_KILLS", 500), design));
}

#[test]
#[ignore = "minutes: 500 kills of a mount, for each design"]
fn five_hundred_killed_mounts() {
    DESIGNS.into_iter().for_each(|design| kill_mounts(number("PM_KILLS", 500), design));
}
