//! Fast commits: what they say, when a commit is needed, and what recovery makes of them.

use std::sync::Arc;

use ext4::{Ext4, Format, MountOptions};
use journal::ondisk::fast::Tag;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::kind::{Format as _, Volume};
use vfs::record::Record;
use vfs::{Creator, FallocateMode, FileSystem, Ino, RenameFlags, SetAttr};

use crate::harness::Image;

const PAGE: usize = 4096;

fn create(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

fn status(fs: &Ext4, name: &str) -> u64 {
    Volume::status(fs)[name].as_u64().unwrap()
}

/// A volume whose log is open: before, every fsync is a commit.
fn begun(image: &Image, options: &str) -> Ext4 {
    let fs = Ext4::mount(image.drive(), &options.parse().unwrap()).unwrap();
    fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap();
    fs.sync().unwrap();
    fs
}

fn write(fs: &Ext4, ino: Ino, at: usize, fill: u8, len: usize) {
    assert_eq!(fs.write(ino, at as u64, &vec![fill; len]).unwrap(), len);
}

fn tags(image: &Image) -> Vec<String> {
    let mut tags = Vec::new();
    let mut see = |record: Record| {
        tags.extend(record.get("fc_tag").map(ToString::to_string));
        true
    };
    Format.dump(&image.drive(), Some("journal"), None, &mut see).unwrap();
    tags
}

#[test]
fn an_fsync_is_one_block_and_its_data() {
    let ram = drive::ram(16 << 10);
    let dynamic: Arc<dyn drive::Drive> = ram.clone();
    Format.make_with(&dynamic, "fast_commit").unwrap();
    let fs = Ext4::mount(dynamic, &MountOptions::default()).unwrap();
    assert!(Volume::options(&fs).contains("journal=fast"), "as the kernel mounts such a volume");
    let ino = create(&fs, b"file");
    fs.fsync(ino, false).unwrap();
    for n in 0..5 {
        write(&fs, ino, n * PAGE, 1, PAGE);
        let before = ram.stats().blocks_written;
        fs.fsync(ino, false).unwrap();
        assert_eq!(ram.stats().blocks_written - before, 2);
    }
    assert_eq!(status(&fs, "journal/records"), 5);
}

/// Fast commits may have all of the largest transaction, and are brought in with one.
#[test]
fn a_full_transaction_is_brought_in() {
    const BESIDE: usize = 16;
    let made = Image::with_features(64, "fast_commit");
    let fs = made.mount();
    let files: Vec<Ino> = (0..6_000).map(|n| create(&fs, format!("file {n}").as_bytes())).collect();
    fs.unmount().unwrap();
    drop(fs);
    let perm = |perm| SetAttr { perm: Some(perm), ..SetAttr::default() };
    // Each of the changes in a block of its own; how many there were before a commit.
    let change = |count: usize| {
        let image = made.copy();
        let fs = begun(&image, "");
        let commits = status(&fs, "journal/commits");
        let mut changed = Vec::new();
        for file in files.iter().step_by(BESIDE).take(count) {
            fs.setattr(*file, &perm(0o604)).unwrap();
            if status(&fs, "journal/commits") > commits {
                return (image, changed.len());
            }
            // The first fast commit has one block.
            if changed.is_empty() {
                fs.fsync(*file, false).unwrap();
            }
            changed.push(*file);
        }
        fs.fsync(changed[count - 1], false).unwrap();
        assert_eq!(status(&fs, "journal/commits"), commits, "{count} changes in fast commits");
        (image, count)
    };
    let (_, most) = change(files.len() / BESIDE);
    assert!(most > 100 && most < files.len() / BESIDE, "{most} changes fit a transaction");
    for count in [most - 20, most - 1, most] {
        let (image, _) = change(count);
        let fs = image.mount();
        let last = files[(count - 1) * BESIDE];
        assert_eq!(fs.getattr(last).unwrap().perm, 0o604, "{count} changes");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean("brought in");
    }
}

#[test]
fn all_kinds_of_changes_survive_a_crash() {
    let image = Image::with_features(64, "fast_commit");
    let fs = begun(&image, "");
    let commits = status(&fs, "journal/commits");
    let (old, gone) = (create(&fs, b"old"), create(&fs, b"gone"));
    write(&fs, old, 0, 1, 9 * PAGE + 17);
    write(&fs, gone, 0, 2, 3 * PAGE);
    fs.fsync(old, false).unwrap();
    let new = create(&fs, b"new");
    write(&fs, new, 5 * PAGE, 3, 2 * PAGE);
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.link(new, fs.root(), b"second").unwrap();
    fs.fsync(new, false).unwrap();
    let size = Some(4 * PAGE as u64 + 5);
    fs.setattr(old, &SetAttr { size, ..SetAttr::default() }).unwrap();
    fs.rename(fs.root(), b"old", fs.root(), b"renamed", RenameFlags::empty()).unwrap();
    fs.fallocate(new, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 5 * PAGE as u64, 100)
        .unwrap();
    fs.fsync(new, false).unwrap();
    assert_eq!(status(&fs, "journal/commits"), commits, "fast commits only");
    let right = vfs::ops::snapshot(&fs).unwrap();
    drop(fs);
    let tags = tags(&image);
    for tag in ["HEAD", "ADD_RANGE", "DEL_RANGE", "CREAT", "LINK", "UNLINK", "INODE", "TAIL"] {
        assert!(tags.iter().any(|found| found.contains(tag)), "{tag} in {tags:?}");
    }

    let read = Format.mount(image.drive(), "ro").unwrap();
    let differences = right.diff(&vfs::ops::snapshot(&*read).unwrap());
    assert!(differences.is_empty(), "read-only: {differences:?}");
    drop(read);
    let fs = image.mount();
    let differences = right.diff(&vfs::ops::snapshot(&fs).unwrap());
    assert!(differences.is_empty(), "{differences:?}");
    assert_eq!(fs.replay().fast, 18);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("recovered");
    let fs = image.mount();
    assert_eq!(fs.replay(), ext4::Replay::default());
}

/// The kernel's replay knows nothing of these, or does them wrong.
#[test]
fn what_cannot_be_said_is_committed() {
    let image = Image::with_features(64, "fast_commit");
    let fs = begun(&image, "journal=fast");
    let file = create(&fs, b"file");
    write(&fs, file, 0, 1, 8 * PAGE);
    fs.fsync(file, false).unwrap();
    let root = fs.root();
    let changes: [(&str, &dyn Fn()); 7] = [
        ("a directory", &|| assert!(fs.mkdir(root, b"sub", 0o755, Creator::default()).is_ok())),
        ("a symlink", &|| assert!(fs.symlink(root, b"link", b"x", Creator::default()).is_ok())),
        ("an attribute", &|| {
            fs.setxattr(file, b"user.a", b"b", vfs::XattrMode::Set).unwrap();
        }),
        ("a moved directory", &|| {
            fs.rename(root, b"sub", root, b"sub2", RenameFlags::empty()).unwrap();
        }),
        ("exchanged names", &|| {
            fs.rename(root, b"sub2", root, b"file", RenameFlags::EXCHANGE).unwrap();
        }),
        ("a directory less", &|| fs.rmdir(root, b"file").unwrap()),
        ("a moved range", &|| {
            fs.fallocate(file, FallocateMode::COLLAPSE_RANGE, 0, PAGE as u64).unwrap();
        }),
    ];
    for (what, change) in changes {
        let commits = status(&fs, "journal/commits");
        change();
        write(&fs, file, 3 * PAGE, 2, 1);
        fs.fsync(file, false).unwrap();
        assert_eq!(status(&fs, "journal/commits"), commits + 1, "{what}");
        write(&fs, file, 3 * PAGE, 2, 1);
        fs.fsync(file, false).unwrap();
        assert_eq!(status(&fs, "journal/commits"), commits + 1, "behind {what}");
    }
    // A block of attributes stays what it is, but the kernel's replay does not count it.
    fs.setxattr(file, b"user.big", &[7; 600], vfs::XattrMode::Set).unwrap();
    for round in 0..3 {
        let commits = status(&fs, "journal/commits");
        write(&fs, file, 3 * PAGE, round, 1);
        fs.fsync(file, false).unwrap();
        assert_eq!(status(&fs, "journal/commits"), commits + 1, "a block of attributes");
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("unmounted");
}

/// The kernel's replay would add the block, and not count it in the directory.
#[test]
fn a_directory_that_grows_is_committed() {
    let image = Image::with_features(64, "fast_commit");
    let fs = begun(&image, "journal=fast");
    let state = || (fs.getattr(fs.root()).unwrap().size, status(&fs, "journal/commits"));
    let (mut grown, mut others) = (0, 0);
    for n in 0..60 {
        let (size, commits) = state();
        let file = create(&fs, format!("{n:0>255}").as_bytes());
        fs.fsync(file, false).unwrap();
        let (size_now, commits_now) = state();
        match size_now > size {
            true => {
                assert_eq!(commits_now, commits + 1, "{n}: {size_now} bytes");
                grown += 1;
            }
            false => others += commits_now - commits,
        }
    }
    assert!(grown > 2 && others < 10, "it grew {grown} times, with {others} other commits");
}

/// The kernel's replay would give the new file the attributes of the old one.
#[test]
fn a_file_in_the_place_of_one_with_attributes_is_committed() {
    let image = Image::with_features(64, "fast_commit");
    let fs = begun(&image, "journal=fast");
    let old = create(&fs, b"old");
    fs.setxattr(old, b"user.a", b"b", vfs::XattrMode::Set).unwrap();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"old").unwrap();
    fs.sync().unwrap();
    let mut commits = status(&fs, "journal/commits");
    for name in [b"new", b"two"] {
        let ino = create(&fs, name);
        assert_eq!(ino == old, name == b"new", "its number is used again");
        fs.fsync(ino, false).unwrap();
        commits += u64::from(ino == old);
        assert_eq!(status(&fs, "journal/commits"), commits);
    }
}

/// The log never wraps around its end, where e2fsck reads on into the area for fast commits.
#[test]
fn a_log_that_is_full_begins_anew() {
    let image = Image::with_features(64, "fast_commit");
    let fs = begun(&image, "journal=fast");
    let file = create(&fs, b"file");
    for round in 0..400_u32 {
        let name = format!("dir {round}");
        fs.mkdir(fs.root(), name.as_bytes(), 0o755, Creator::default()).unwrap();
        write(&fs, file, 0, round as u8, PAGE);
        fs.fsync(file, false).unwrap();
        if round % 40 == 39 {
            write(&fs, file, PAGE, round as u8, 2 * PAGE);
            fs.fsync(file, false).unwrap();
            let crashed = image.copy();
            let after = crashed.mount();
            let differences =
                vfs::ops::snapshot(&fs).unwrap().diff(&vfs::ops::snapshot(&after).unwrap());
            assert!(differences.is_empty(), "{round}: {differences:?}");
            after.unmount().unwrap();
            drop(after);
            crashed.assert_clean("recovered");
        }
    }
}

#[test]
fn a_volume_made_without_room_for_fast_commits_has_none() {
    let image = Image::new(64);
    let fs = image.mount();
    assert!(Volume::options(&fs).contains("journal=jbd2"));
    fs.unmount().unwrap();
    drop(fs);
    let error = Ext4::mount(image.drive(), &"journal=fast".parse().unwrap()).err().unwrap();
    assert!(error.to_string().contains("fast_commit"), "{error}");
}

/// Bytes of tags changed, and the checksum made to fit: what no drive does, but an image may have.
#[test]
fn damage_with_a_right_checksum_neither_panics_nor_hangs() {
    let ram = drive::ram(8 << 10);
    let dynamic: Arc<dyn drive::Drive> = ram.clone();
    Format.make_with(&dynamic, "fast_commit").unwrap();
    let fs = Ext4::mount(dynamic, &MountOptions::default()).unwrap();
    let file = create(&fs, b"file");
    write(&fs, file, 0, 1, 6 * PAGE);
    create(&fs, b"gone");
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    let new = create(&fs, b"new");
    write(&fs, new, 0, 2, 2 * PAGE);
    fs.link(new, fs.root(), b"second").unwrap();
    let size = Some(PAGE as u64);
    fs.setattr(file, &SetAttr { size, ..SetAttr::default() }).unwrap();
    fs.fsync(new, false).unwrap();
    let state = ram.survivors(0);
    drop(fs);
    let is_head = |lba: &u64| state.media().read(*lba).unwrap()[..4] == [9, 0, 8, 0];
    let at = (0..8 << 10).find(is_head).expect("a fast commit");
    let whole = state.media().read(at).unwrap();
    let (tail, _) = Tag::all(&whole[..]).last().unwrap();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut failed, mut passed) = (0, 0);
    for _ in 0..400 {
        let mut block = whole.clone();
        let bytes = block.make_mut();
        for _ in 0..chance.random_range(1..4) {
            // The head stays: without, there is no fast commit.
            let byte = chance.random_range(12..tail.start);
            bytes[byte] = [0, 1, 0xff, bytes[byte] ^ 1, chance.random()][chance.random_range(0..5)];
        }
        let sum = journal::ondisk::crc32c(0, &bytes[..tail.start + 8]);
        bytes[tail.start + 8..tail.start + 12].copy_from_slice(&sum.to_le_bytes());
        let drive = drive::Ssd::power_on(state.clone(), drive::Timing::Instant, 1);
        let queue = queue::BlockQueue::new(drive.clone());
        queue.write_blocks(at, [block].as_slice(), false).unwrap();
        match Ext4::mount(drive, &MountOptions::default()) {
            Ok(fs) => {
                passed += 1;
                let _what_there_is = vfs::ops::snapshot(&fs);
                let _may_fail = fs.unmount();
            }
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 40 && passed > 40, "{failed} failed, {passed} passed");
}
