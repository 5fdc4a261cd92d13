//! `data=journal`, `data=writeback`, and files with the flag `j`: contents, sizes and cuts, and
//! what e2fsck and debugfs say of them.

use std::sync::Arc;

use crate::harness::{Image, debugfs, tool};
use drive::{Drive, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::{Format as _, Volume as _};
use vfs::ops::{Generator, fill};
use vfs::{Creator, FallocateMode, FileSystem, Ino, RenameFlags, SetAttr, path};

const PAGE: usize = 4096;
/// `FS_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

fn data(seed: u32, pages: usize) -> Vec<u8> {
    let mut data = vec![0; pages * PAGE];
    fill(seed, 0, &mut data);
    data
}

fn agrees_with_the_model(options: &str, seed: u64, ops: usize, per_round: usize) {
    let ops = Generator::new(seed).take_ops(ops);
    Image::new(64).assert_agrees(options, &ops, per_round, options);
}

#[test]
fn operations_agree_with_the_model_in_each_mode() {
    for options in ["data=journal", "data=writeback", "data=journal,journal=zjournal"] {
        agrees_with_the_model(options, 7, 1_000, 250);
    }
}

#[test]
#[ignore = "takes half a minute"]
fn ten_thousand_operations_agree_with_the_model_in_each_mode() {
    for options in ["data=journal", "data=writeback"] {
        agrees_with_the_model(options, 11, 10_000, 500);
    }
}

/// The superblock's default counts where no option is given, and the option where one is.
#[test]
fn the_superblock_says_which_mode_is_the_default() {
    let image = Image::new(16);
    let shown = |options: &str| {
        let fs = image.mount_with(options);
        let shown = fs.options();
        fs.unmount().unwrap();
        shown
    };
    assert_eq!(shown(""), "rw,data=ordered,journal=jbd2");
    for mode in ["journal_data", "journal_data_writeback", "journal_data_ordered"] {
        assert!(tool("tune2fs", &["-o", mode, image.name()]).status.success());
        let name = mode.trim_start_matches("journal_data_").replace("journal_data", "journal");
        assert_eq!(shown(""), format!("rw,data={name},journal=jbd2"));
    }
    assert_eq!(shown("data=journal"), "rw,data=journal,journal=jbd2");
}

/// Blocks of files that begin like blocks of the log, and pages that are read again before they are
/// home, through a cache that is too small for them.
#[test]
fn contents_in_the_journal_are_what_was_written() {
    let image = Image::new(64);
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1];
    let right = |n: u32| {
        let mut all = data(n, 512);
        all.chunks_mut(PAGE).step_by(3).for_each(|page| page[..8].copy_from_slice(&magic));
        all
    };
    {
        let fs = image.mount_with("data=journal,cache=1m");
        let files: Vec<_> = (0..3).map(|n| create(&fs, &[b'a' + n])).collect();
        for round in 0..2 {
            for (n, ino) in files.iter().enumerate() {
                fs.write(*ino, 0, &right(n as u32 + 10 * round)).unwrap();
                fs.fsync(*ino, true).unwrap();
            }
        }
        for (n, ino) in files.iter().enumerate() {
            assert!(path::read_to_vec(&fs, *ino).unwrap() == right(n as u32 + 10), "{n}");
            let mut direct = vec![0; 512 * PAGE];
            assert_eq!(fs.read_direct(*ino, 0, &mut direct).unwrap(), direct.len());
            assert!(direct == right(n as u32 + 10), "{n}, past the cache");
        }
        // The power fails: e2fsck replays what we logged.
    }
    let replayed = tool("e2fsck", &["-fy", image.name()]);
    assert!(replayed.status.code() <= Some(1), "{replayed:?}");
    let fs = image.mount();
    for n in 0..3_u8 {
        let ino = fs.lookup(fs.root(), &[b'a' + n]).unwrap().ino;
        assert!(path::read_to_vec(&fs, ino).unwrap() == right(u32::from(n) + 10), "{n}");
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("replayed");
}

/// Blocks that were in the journal become blocks of files that are not: what the log has of them
/// must not come back.
fn reused(options: &str) -> bool {
    let image = Image::new(32);
    {
        let fs = image.mount_with(&format!("commit=1000{options}"));
        let logged = create(&fs, b"logged");
        fs.set_flags(logged, fs.flags(logged).unwrap() | JOURNAL_DATA).unwrap();
        fs.write(logged, 0, &data(1, 200)).unwrap();
        fs.fsync(logged, false).unwrap();
        fs.unlink(fs.root(), b"logged").unwrap();
        fs.sync().unwrap();
        let plain = create(&fs, b"plain");
        fs.write(plain, 0, &data(2, 6_000)).unwrap();
        fs.fsync(plain, false).unwrap();
        // The power fails.
    }
    let fs = image.mount();
    let ino = fs.lookup(fs.root(), b"plain").unwrap().ino;
    let is_right = path::read_to_vec(&fs, ino).unwrap() == data(2, 6_000);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("reused");
    is_right
}

#[test]
fn freed_blocks_are_revoked() {
    assert!(reused(""));
    assert!(!reused(",inject=skip-revoke"), "this test would notice");
}

/// More of a file is in the journal than one transaction can revoke.
#[test]
fn a_large_file_in_the_journal_is_cut_and_freed() {
    let image = Image::new(64);
    let fs = image.mount_with("data=journal");
    let (whole, cut) = (create(&fs, b"whole"), create(&fs, b"cut"));
    for ino in [whole, cut] {
        fs.write(ino, 0, &data(3, 2_000)).unwrap();
        fs.fsync(ino, false).unwrap();
    }
    let size = Some(PAGE as u64 + 5);
    fs.setattr(cut, &SetAttr { size, ..SetAttr::default() }).unwrap();
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    fs.fallocate(whole, punch, 10 * PAGE as u64, 1_900 * PAGE as u64).unwrap();
    fs.fallocate(whole, FallocateMode::COLLAPSE_RANGE, 0, PAGE as u64).unwrap();
    let mut right = data(3, 2_000);
    right[10 * PAGE..1_910 * PAGE].fill(0);
    assert!(path::read_to_vec(&fs, whole).unwrap() == right[PAGE..]);
    assert!(path::read_to_vec(&fs, cut).unwrap() == data(3, 2)[..PAGE + 5]);
    fs.unlink(fs.root(), b"cut").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("cut");
}

/// As `chattr +j` and `-j`: from then on contents are logged, or written in place for good.
#[test]
fn a_file_has_the_flag_and_loses_it() {
    let image = Image::new(32);
    {
        let fs = image.mount();
        let ino = create(&fs, b"file");
        let flags = fs.flags(ino).unwrap();
        fs.write(ino, 0, &data(1, 16)).unwrap();
        fs.set_flags(ino, flags | JOURNAL_DATA).unwrap();
        assert_eq!(fs.flags(ino).unwrap() & JOURNAL_DATA, JOURNAL_DATA);
        fs.write(ino, 0, &data(2, 16)).unwrap();
        fs.fsync(ino, false).unwrap();
        fs.set_flags(ino, flags).unwrap();
        fs.write(ino, 0, &data(3, 16)).unwrap();
        fs.fsync(ino, false).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        fs.set_flags(dir, fs.flags(dir).unwrap() | JOURNAL_DATA).unwrap();
        let below = fs.create(dir, b"below", 0o644, Creator::default()).unwrap().ino;
        assert_eq!(fs.flags(below).unwrap() & JOURNAL_DATA, JOURNAL_DATA, "it is inherited");
        fs.sync().unwrap();
        // The power fails.
    }
    let fs = image.mount();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    assert!(path::read_to_vec(&fs, ino).unwrap() == data(3, 16), "an old image came back");
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("flags");
    let shown = debugfs(&image, &["stat dir/below"]);
    assert!(shown.contains("Flags: 0x84000"), "{shown}");
}

/// A block that is overwritten is old or new, even where the drive tears it.
#[test]
fn no_cut_tears_a_block_of_a_file_in_the_journal() {
    let mut torn = [0; 2];
    for (torn, options) in torn.iter_mut().zip(["data=journal", "data=ordered"]) {
        let spec = Spec::named("conventional-noplp").unwrap().tearing().blocks(8 << 10);
        let ssd = Ssd::new(spec, Timing::Instant, 1).unwrap();
        let dynamic: Arc<dyn Drive> = ssd.clone();
        Format.make(&dynamic).unwrap();
        let fs = Ext4::mount(dynamic, &options.parse().unwrap()).unwrap();
        let ino = create(&fs, b"file");
        for round in 0..40_u8 {
            create(&fs, b"other");
            fs.write(ino, 0, &[round; 8 * PAGE]).unwrap();
            fs.sync().unwrap();
            fs.write(ino, 0, &[round + 1; 8 * PAGE]).unwrap();
            // Before it replaces another file it is written back, and not flushed.
            fs.rename(fs.root(), b"file", fs.root(), b"other", RenameFlags::empty()).unwrap();
            for cut in 0..3 {
                let left = ssd.survivors(u64::from(round) * 3 + cut);
                let left = Ssd::power_on(left, Timing::Instant, 1);
                let after = Ext4::mount(left, &MountOptions::default()).unwrap();
                let ino = after.lookup(after.root(), b"file").unwrap().ino;
                let all = path::read_to_vec(&after, ino).unwrap();
                assert_eq!(all.len(), 8 * PAGE);
                *torn += all
                    .chunks(PAGE)
                    .filter(|page| page.iter().any(|byte| *byte != page[0]))
                    .count();
            }
            fs.rename(fs.root(), b"other", fs.root(), b"file", RenameFlags::empty()).unwrap();
        }
    }
    assert!(torn[0] == 0 && torn[1] > 0, "blocks torn in the journal and outside: {torn:?}");
}
