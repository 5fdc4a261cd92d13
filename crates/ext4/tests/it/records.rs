//! A volume whose journal has records: nobody else takes it, and afterwards it is plain ext4.

use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::{Format as _, Volume as _};
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{Image, tool};

/// A record may say of an inode far behind those that the volume has, in its table.
#[test]
fn a_record_of_an_inode_far_into_the_table() {
    let image = Image::new(64);
    let fs = image.mount_with("journal=ijournal,commit=300");
    let commits = fs.status()["journal/commits"].clone();
    let names = (0..2_800).map(|n| format!("file {n}"));
    let made = names
        .map(|name| fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino);
    let last = made.reduce(|_, last| last).unwrap();
    fs.fsync(last, false).unwrap();
    assert_eq!(fs.status()["journal/commits"], commits, "by a record");
    drop(fs);
    let fs = image.mount();
    assert_eq!(fs.lookup(fs.root(), b"file 2799").unwrap().ino, last);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("recovered");
}

#[test]
fn e2fsck_refuses_a_volume_in_use_and_takes_it_afterwards() {
    for (size, policy) in [
        (4096, "journal=ijournal"),
        (4096, "journal=grouped"),
        (4096, "journal=zgrouped,areas=2"),
        (1024, "journal=ijournal"),
        (2048, "journal=zgrouped,areas=2"),
    ] {
        let image = Image::with_blocks(64, size, "");
        let options: MountOptions = policy.parse().unwrap();
        let fs = Ext4::mount(image.drive(), &options).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        let file = fs.create(dir, b"file", 0o644, Creator::default()).unwrap().ino;
        assert_eq!(fs.write(file, 0, &[7; 5000]).unwrap(), 5000);
        fs.fsync(file, false).unwrap();
        // A crash: nothing was committed, so the file is in a record only.
        drop(fs);
        let out = tool("e2fsck", &["-fy", image.name()]);
        let said = format!(
            "{:?} {:?}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(out.status.code().is_some_and(|code| code & 8 != 0), "{policy}: {said}");
        assert!(said.contains("unknown incompatible feature"), "{policy}: {said}");

        let read = Format.mount(image.drive(), "ro").unwrap();
        let dir = read.lookup(read.root(), b"dir").unwrap().ino;
        assert_eq!(read.lookup(dir, b"file").unwrap().size, 5000, "{size}, {policy}");
        drop(read);
        let fs = image.mount();
        assert_eq!(fs.replay().records, 2, "the directory and the file");
        let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
        let file = fs.lookup(dir, b"file").unwrap().ino;
        let mut found = [0; 6000];
        assert_eq!(fs.read(file, 0, &mut found).unwrap(), 5000);
        assert!(found[..5000].iter().all(|byte| *byte == 7));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(policy);

        // So is it after a clean unmount.
        let fs = Ext4::mount(image.drive(), &options).unwrap();
        fs.unlink(fs.lookup(fs.root(), b"dir").unwrap().ino, b"file").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(policy);
    }
}

/// Flushes and commits of a file's fsyncs.
struct Counted {
    drive: Arc<Ssd>,
    fs: Ext4,
    file: Ino,
}

impl Counted {
    fn new(options: &str) -> Self {
        let spec = Spec::named("sata-nofua").unwrap().blocks(16 << 10);
        let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
        let dynamic: Arc<dyn Drive> = drive.clone();
        Format.make(&dynamic).unwrap();
        let fs = Ext4::mount(dynamic, &options.parse().unwrap()).unwrap();
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        Self { drive, fs, file }
    }

    fn now(&self) -> (u64, u64) {
        let commits = self.fs.status()["journal/commits"].as_u64().unwrap();
        (self.drive.stats().flushes, commits)
    }

    /// How many of both it takes to write this and make it durable.
    fn fsync(&self, at: u64, text: &[u8]) -> (u64, u64) {
        let before = self.now();
        assert_eq!(self.fs.write(self.file, at, text).unwrap(), text.len());
        self.fs.fsync(self.file, false).unwrap();
        let after = self.now();
        (after.0 - before.0, after.1 - before.1)
    }
}

#[test]
fn an_fsync_whose_record_has_checksums_needs_one_flush() {
    let plain = Counted::new("journal=ijournal");
    assert_eq!(plain.fsync(0, b"one"), (2, 0));
    let summed = Counted::new("journal=ijournal,record_csum");
    assert_eq!(summed.fsync(0, b"one"), (1, 0));
    assert_eq!(summed.fsync(3, b", two"), (1, 0), "an append spoils nothing");
    let (_, commits) = summed.fsync(0, b"ONE");
    assert_eq!(commits, 1, "what the record has summed must be found as long as it counts");
    assert_eq!(summed.fsync(0, b"one"), (1, 0), "nothing is summed any more");
    // More than a record sums.
    assert_eq!(summed.fsync(4096, &vec![7; 300 * 4096]), (2, 0));
}

/// What a cut amid an fsync leaves where free blocks have old contents: in how many of the states
/// the file is there, and in how many it shows what was in its blocks before.
fn amid_an_fsync(faults: &str) -> (usize, usize) {
    const OLD: u8 = 0xee;
    let spec = Spec::named("conventional-noplp").unwrap().blocks(16 << 10);
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    Format.make(&dynamic).unwrap();
    let fs = Ext4::mount(dynamic.clone(), &MountOptions::default()).unwrap();
    let old = fs.create(fs.root(), b"old", 0o644, Creator::default()).unwrap().ino;
    for at in 0..32 {
        fs.write(old, at << 20, &vec![OLD; 1 << 20]).unwrap();
    }
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"old").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    // Without its last flush, an fsync has written all and made nothing durable.
    let options = format!("journal=ijournal,record_csum,inject=drop-flush{faults}");
    let fs = Ext4::mount(dynamic, &options.parse().unwrap()).unwrap();
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    fs.write(file, 0, &[7; 3 * 4096]).unwrap();
    fs.fsync(file, false).unwrap();
    let (mut there, mut shown) = (0, 0);
    for cut in 0..300 {
        let left = Ssd::power_on(drive.survivors(cut), Timing::Instant, 1);
        let fs = Ext4::mount(left, &MountOptions::default()).unwrap();
        let Ok(file) = fs.lookup(fs.root(), b"file") else { continue };
        let mut found = vec![0; file.size as usize];
        fs.read(file.ino, 0, &mut found).unwrap();
        there += 1;
        shown += usize::from(found.contains(&OLD));
    }
    (there, shown)
}

#[test]
fn data_that_is_not_there_is_found_by_its_checksum() {
    let (there, shown) = amid_an_fsync("");
    assert!(there > 0 && shown == 0, "{shown} of {there}");
    let (there, shown) = amid_an_fsync("+skip-sums");
    assert!(shown > 0, "none of {there}");
}

#[test]
fn checksums_are_for_records() {
    for options in ["record_csum", "journal=zjournal,record_csum"] {
        let image = Image::new(16);
        let error = Ext4::mount(image.drive(), &options.parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains("only with journal=ijournal"), "{options}: {error}");
    }
}
