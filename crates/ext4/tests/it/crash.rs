//! Power cuts: what an fsync made durable is there after recovery, and the structures agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::ops::fill;
use vfs::{Creator, FileSystem, Ino, RenameFlags, SetAttr};

use crate::small;

const FILES: u64 = 6;
/// Cuts after each operation.
const CUTS: u64 = 2;

/// What a file holds for certain: its name and the fill that it was fsynced with.
type Promised = BTreeMap<String, (u32, usize)>;

struct Run {
    drive: Arc<Ssd>,
    fs: Ext4,
    dir: Ino,
    promised: Promised,
    left: Vec<(DriveState, Promised)>,
}

impl Run {
    fn new(features: &str, options: &str) -> Self {
        let spec = Spec::named("conventional-noplp").unwrap().blocks(16 << 10);
        let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
        let dynamic: Arc<dyn Drive> = drive.clone();
        Format.make_with(&dynamic, features).unwrap();
        let fs = Ext4::mount(dynamic, &options.parse().unwrap()).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        Self { drive, fs, dir, promised: BTreeMap::new(), left: Vec::new() }
    }

    fn step(&mut self, round: u64) {
        let (fs, name) = (&self.fs, format!("file {}", round * 5 % FILES));
        let seed = round as u32 + 1;
        let mut data = vec![0; 1 + (round as usize * 7919) % 30_000];
        fill(seed, 0, &mut data);
        match round % 4 {
            // A new version of the file takes the place of the old one, as editors do it.
            0 | 1 => {
                let new = fs.create(self.dir, b"new", 0o644, Creator::default()).unwrap().ino;
                assert_eq!(fs.write(new, 0, &data).unwrap(), data.len());
                fs.fsync(new, false).unwrap();
                let flags = RenameFlags::empty();
                fs.rename(self.dir, b"new", self.dir, name.as_bytes(), flags).unwrap();
                // Until the directory is durable, either version may be there.
                self.promised.remove(&name);
                fs.fsync(self.dir, false).unwrap();
                self.promised.insert(name, (seed, data.len()));
            }
            2 => {
                if let Ok(old) = fs.lookup(self.dir, name.as_bytes()) {
                    self.promised.remove(&name);
                    let size = Some(old.size / 2);
                    fs.setattr(old.ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
                }
            }
            _ => {
                self.promised.remove(&name);
                let _ = fs.unlink(self.dir, name.as_bytes());
            }
        }
        for cut in 0..CUTS {
            let left = self.drive.survivors(round * CUTS + cut);
            self.left.push((left, self.promised.clone()));
        }
    }
}

fn verify(left: &DriveState, promised: &Promised, when: &str) {
    let drive = Ssd::power_on(left.clone(), Timing::Instant, 1);
    let dynamic: Arc<dyn Drive> = drive;
    let fs = Ext4::mount(dynamic.clone(), &MountOptions::default())
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    let dir = fs.lookup(fs.root(), b"dir").map(|attr| attr.ino);
    for (name, (seed, len)) in promised {
        let dir = dir.as_ref().unwrap_or_else(|error| panic!("{when}: {error}"));
        let attr = fs.lookup(*dir, name.as_bytes());
        let attr = attr.unwrap_or_else(|error| panic!("{when}, {name}: {error}"));
        assert_eq!(attr.size, *len as u64, "{when}, {name}");
        let (mut found, mut right) = (vec![0; *len], vec![0; *len]);
        fs.read(attr.ino, 0, &mut found).unwrap();
        fill(*seed, 0, &mut right);
        assert!(found == right, "{when}, {name}: other contents");
    }
    fs.unmount().unwrap_or_else(|error| panic!("{when}: {error}"));
    drop(fs);
    let checked = Format.check(&dynamic).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(checked.findings.is_empty(), "{when}: {:?}", checked.findings);
}

fn survives(features: &str, options: &str) {
    let mut run = Run::new(features, options);
    (0..60).for_each(|round| run.step(round));
    assert!(run.left.iter().any(|(_, promised)| promised.len() > 2), "too little was promised");
    for (n, (left, promised)) in run.left.iter().enumerate() {
        verify(left, promised, &format!("{options}, cut {n}"));
    }
}

#[test]
fn what_was_fsynced_survives_every_cut() {
    survives("", "journal=jbd2");
}

#[test]
fn what_was_fsynced_to_small_blocks_survives_every_cut() {
    for features in ["fast_commit,block_size=1024", "fast_commit,block_size=2048"] {
        for options in small::MODES.into_iter().filter(|options| *options != "journal=none") {
            survives(features, options);
        }
    }
}

#[test]
fn what_logs_per_core_made_durable_survives_every_cut() {
    survives("", "journal=zjournal");
}

#[test]
fn what_records_made_durable_survives_every_cut() {
    survives("", "journal=ijournal");
    survives("", "journal=grouped");
    survives("", "journal=zgrouped,areas=3");
    survives("", "journal=ijournal,record_csum");
    survives("", "journal=zgrouped,areas=3,record_csum");
}

#[test]
fn what_fast_commits_made_durable_survives_every_cut() {
    survives("fast_commit", "journal=fast");
    survives("fast_commit", "journal=fast,dioread_lock");
}

/// While one thread's fsync writes new blocks of a large file, another one's commits; then the
/// power fails. Returns after how many such cuts the file shows what its blocks held before.
fn stale_files(options: &str) -> usize {
    let options: MountOptions = options.parse().unwrap();
    let profile = Profile::named("xeon-4116").unwrap();
    let left = Machine::simulated(&profile, 1).run(|| commits_of_another(&options)).unwrap();
    let is_stale = |(fill, left): &(u8, DriveState)| {
        let drive: Arc<dyn Drive> = Ssd::power_on(left.clone(), Timing::Instant, 1);
        let fs = Ext4::mount(drive, &MountOptions::default()).unwrap();
        let large = fs.lookup(fs.root(), b"large").unwrap().ino;
        let bytes = vfs::path::read_to_vec(&fs, large).unwrap();
        bytes.iter().any(|byte| byte != fill && *byte != 0)
    };
    left.iter().filter(|left| is_stale(left)).count()
}

/// What cuts leave, and the byte of which the large file then was full. Of the drive's commands
/// some are so late that a flush overtakes them.
fn commits_of_another(options: &MountOptions) -> Vec<(u8, DriveState)> {
    let mut profile = drive::Profile::named("conventional-noplp").unwrap();
    profile.slow_commands_per_1000.value = 200;
    profile.slow_command_ns.value = 20_000_000;
    let spec = Spec::new(profile).blocks(4 << 10).unkind();
    let drive = Ssd::new(spec, Timing::Virtual, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    Format.make(&dynamic).unwrap();
    let fs = Arc::new(Ext4::mount(dynamic, options).unwrap());
    let [large, small] = [b"large", b"small"]
        .map(|name| fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino);
    let cut = |round: u8| {
        let size = Some(0);
        fs.setattr(large, &SetAttr { size, ..SetAttr::default() }).unwrap();
        fs.sync().unwrap();
        fs.write(large, 0, &vec![round; 1 << 20]).unwrap();
        let slow = {
            let fs = fs.clone();
            cores::spawn("large", Some(1), move || fs.fsync(large, false))
        };
        cores::sleep(u64::from(round) * 20_000);
        fs.write(small, u64::from(round), b"x").unwrap();
        fs.fsync(small, false).unwrap();
        let left = drive.survivors(u64::from(round));
        slow.join().unwrap();
        (round, left)
    };
    (1..20).map(cut).collect()
}

/// A commit shows a file's new blocks when these hold its contents, not before (`data=ordered`).
#[test]
fn no_commit_shows_what_blocks_held_before() {
    for options in ["", "dioread_lock", "journal=zjournal", "data=journal"] {
        assert_eq!(stale_files(options), 0, "{options}");
    }
    for options in ["inject=skip-ordered", "data=writeback"] {
        assert!(stale_files(options) > 0, "{options}: nothing stale is seen");
    }
}
