//! Fsyncs of several threads by records, in schedules by seed: what had returned when the power
//! failed is there, and the volume is sound.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::{Creator, FileSystem, Ino};

const THREADS: usize = 4;
const ROUNDS: u8 = 3;
const PAGE: usize = drive::BLOCK_SIZE;

fn empty() -> DriveState {
    let spec = Spec::named("conventional-noplp").unwrap().blocks(16 << 10);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    Format.make(&(drive.clone() as Arc<dyn Drive>)).unwrap();
    drive.power_off()
}

fn write(fs: &Ext4, ino: Ino, round: u8) {
    let at = usize::from(round) * PAGE;
    assert_eq!(fs.write(ino, at as u64, &[round + 1; PAGE]).unwrap(), PAGE);
    fs.fsync(ino, false).unwrap();
}

/// Each thread appends to its file and fsyncs, in a directory that only the first one made durable;
/// now and then one commits everything, renames its file, or makes a new one of the same name.
fn work(fs: &Ext4, dir: Ino, me: usize, seed: u64) {
    let (name, other) = (format!("file {me}"), format!("other {me}"));
    let mut ino = fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
    for round in 0..ROUNDS {
        match (seed + me as u64 * 5 + u64::from(round)) % 11 {
            0 => fs.sync().unwrap(),
            1 => {
                fs.unlink(dir, name.as_bytes()).unwrap();
                ino = fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
                (0..round).for_each(|round| write(fs, ino, round));
            }
            2 => {
                let flags = vfs::RenameFlags::empty();
                fs.rename(dir, name.as_bytes(), dir, other.as_bytes(), flags).unwrap();
                fs.rename(dir, other.as_bytes(), dir, name.as_bytes(), flags).unwrap();
            }
            _ => {}
        }
        write(fs, ino, round);
    }
}

fn run(empty: &DriveState, options: &str, seed: u64) {
    let profile = Profile::named("xeon-4116").unwrap();
    let left = Machine::simulated(&profile, seed).run(|| {
        let drive = Ssd::power_on(empty.clone(), Timing::Virtual, seed);
        let fs = Ext4::mount(drive.clone(), &options.parse().unwrap()).unwrap();
        let fs = Arc::new(fs);
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                let fs = fs.clone();
                cores::spawn("worker", Some(me), move || work(&fs, dir, me, seed))
            })
            .collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        drive.survivors(seed)
    });
    let left = left.unwrap_or_else(|error| panic!("{options}, seed {seed}: {error}"));
    let drive: Arc<dyn Drive> = Ssd::power_on(left, Timing::Instant, 1);
    let fs = Ext4::mount(drive.clone(), &MountOptions::default())
        .unwrap_or_else(|error| panic!("{options}, seed {seed}: {error}"));
    let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
    for me in 0..THREADS {
        let file = fs.lookup(dir, format!("file {me}").as_bytes());
        let file = file.unwrap_or_else(|error| panic!("{options}, seed {seed}, {me}: {error}"));
        let mut found = vec![0; usize::from(ROUNDS) * PAGE];
        assert_eq!(fs.read(file.ino, 0, &mut found).unwrap(), found.len(), "seed {seed}, {me}");
        let is_right = |(round, page): (usize, &[u8])| page.iter().all(|b| *b == round as u8 + 1);
        assert!(found.chunks(PAGE).enumerate().all(is_right), "{options}, seed {seed}, {me}");
    }
    fs.unmount().unwrap();
    drop(fs);
    let checked = Format.check(&drive).unwrap();
    assert!(checked.findings.is_empty(), "{options}, seed {seed}: {:?}", checked.findings);
}

fn schedules(seeds: std::ops::Range<u64>) {
    let empty = empty();
    for seed in seeds {
        run(&empty, "journal=ijournal", seed);
        run(&empty, "journal=grouped", seed);
    }
}

#[test]
fn what_was_fsynced_is_there_in_any_schedule() {
    schedules(0..20);
}

/// Threads that are the first to need a group's bitmaps: one of them changes bitmaps and checksums
/// while another compares what it has read.
#[test]
fn bitmaps_are_read_while_others_change_them() {
    let (profile, empty) = (Profile::named("xeon-4116").unwrap(), empty());
    for seed in 0..20 {
        let ran = Machine::simulated(&profile, seed).preempted().run(|| {
            let drive = Ssd::power_on(empty.clone(), Timing::Virtual, seed);
            let fs = Arc::new(Ext4::mount(drive, &MountOptions::default()).unwrap());
            let threads: Vec<_> = (0..THREADS)
                .map(|me| {
                    let fs = fs.clone();
                    cores::spawn("maker", Some(me), move || {
                        let name = [b'0' + me as u8];
                        fs.mkdir(fs.root(), &name, 0o755, Creator::default()).map(drop)
                    })
                })
                .collect();
            threads.into_iter().map(cores::JoinHandle::join).collect::<Vec<_>>()
        });
        let made = ran.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(made.iter().all(Result::is_ok), "seed {seed}: {made:?}");
    }
}

#[test]
#[ignore = "long: make test-all"]
fn what_was_fsynced_is_there_in_many_schedules() {
    schedules(0..10_000);
}
