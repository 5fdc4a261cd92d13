//! Volumes whose blocks are smaller than pages and than the drive's blocks: 1 and 2 KiB.

use ext4::{Ext4, MountOptions};
use vfs::kind::Volume;
use vfs::ops::{Generator, Op};
use vfs::{Creator, FallocateMode, FileSystem, Ino, SetAttr};

use crate::harness::Image;

pub(crate) const SIZES: [u32; 2] = [1024, 2048];
/// Each mode, and how it is varied. The volumes have room for fast commits.
pub(crate) const MODES: [&str; 10] = [
    "journal=jbd2",
    "data=journal",
    "journal=fast",
    "journal=ijournal",
    "journal=ijournal,record_csum",
    "journal=grouped",
    "journal=zjournal,areas=3",
    "journal=zgrouped,areas=3",
    "journal=zgrouped,areas=3,record_csum",
    "journal=none",
];

/// The model has room for all attributes of an inode; a small block does not.
pub(crate) fn fits_small_blocks(op: &Op) -> bool {
    !matches!(op, Op::SetXattr { len, .. } if *len > 64)
}

fn agrees_with_the_model(size: u32, options: &str, seed: u64, ops: usize) {
    let mut ops = Generator::new(seed).take_ops(ops);
    ops.retain(fits_small_blocks);
    let what = format!("blocks of {size}, {options}, seed {seed}");
    Image::with_blocks(64, size, "fast_commit").assert_agrees(options, &ops, 250, &what);
}

#[test]
fn operations_agree() {
    for size in SIZES {
        for options in MODES {
            agrees_with_the_model(size, options, 7, 1_000);
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_operations_agree() {
    for size in SIZES {
        for (seed, options) in (0..).zip(MODES.into_iter().chain(["data=writeback", "discard"])) {
            agrees_with_the_model(size, options, seed, 10_000);
        }
    }
}

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

fn blocks(fs: &dyn FileSystem, ino: Ino) -> u64 {
    fs.getattr(ino).unwrap().blocks
}

fn set_size(fs: &dyn FileSystem, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// Blocks are allocated up to the end of the file only, freed block by block, and promised while
/// their page is dirty; what `statfs` has free is what the files do not have.
#[test]
fn files_have_the_blocks_that_they_need() {
    for size in SIZES {
        let image = Image::with_blocks(64, size, "");
        let fs = image.mount();
        let (ino, each) = (create(&fs, b"file"), u64::from(size));
        let free = || fs.statfs().unwrap().blocks_free;
        fs.sync().unwrap();
        let before = free();
        fs.write(ino, 0, b"a byte, and some more").unwrap();
        fs.sync().unwrap();
        assert_eq!((blocks(&fs, ino), before - free()), (each / 512, 1), "a block of {size}");
        // The rest of the page comes with what grows into it.
        fs.write(ino, 100, &[7; 4096]).unwrap();
        fs.sync().unwrap();
        let all = 4196_u64.div_ceil(each);
        assert_eq!((blocks(&fs, ino), before - free()), (all * each / 512, all));
        // A dirty page that is cut loses blocks, and gets them back with its contents.
        fs.write(ino, 1, b"dirty").unwrap();
        set_size(&fs, ino, 10);
        fs.write(ino, 2000, b"again").unwrap();
        fs.sync().unwrap();
        let all = 2005_u64.div_ceil(each);
        assert_eq!((blocks(&fs, ino), before - free()), (all * each / 512, all));
        let mut read = [1; 2005];
        fs.read(ino, 0, &mut read).unwrap();
        assert_eq!(
            (&read[..3], &read[10..2000], &read[2000..]),
            (&b"adi"[..], &[0; 1990][..], &b"again"[..])
        );
        // Preallocation is by blocks; what is behind the end of the file stays unwritten.
        fs.fallocate(ino, FallocateMode::KEEP_SIZE, 0, 4 * each).unwrap();
        fs.write(ino, 5, b"x").unwrap();
        fs.sync().unwrap();
        assert_eq!(before - free(), all.max(4));
        set_size(&fs, ino, 0);
        fs.sync().unwrap();
        assert_eq!((blocks(&fs, ino), free()), (0, before));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(&format!("blocks of {size}"));
    }
}

/// A table of areas is one block, and so says how many there are at most.
#[test]
fn more_areas_than_a_block_names_are_refused() {
    let image = Image::with_blocks(640, 1024, "");
    let options: MountOptions = "journal=zjournal,areas=63".parse().unwrap();
    let error = Ext4::mount(image.drive(), &options).err().expect("refused").to_string();
    assert!(error.contains("63 areas") && error.contains("62 fit"), "{error}");
    let fs = image.mount_with("journal=zjournal,areas=62");
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("after a mount with as many as fit");
}

/// Each area has room for an operation; more of them than that are refused.
#[test]
fn areas_that_are_too_small_are_refused() {
    // Records have a part of the journal to themselves.
    for (size, policy, fit) in [
        (1024, "zjournal", 15),
        (1024, "zgrouped", 11),
        (4096, "zjournal", 3),
        (4096, "zgrouped", 3),
    ] {
        let image = Image::with_blocks(64, size, "");
        let of = |areas: u16| format!("journal={policy},areas={areas}");
        let options: MountOptions = of(fit + 1).parse().unwrap();
        let error = Ext4::mount(image.drive(), &options).err().expect("refused").to_string();
        assert!(error.contains(&format!("where {fit} fit")), "{error}");
        let fs = image.mount_with(&of(fit));
        create(&fs, b"name");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(&format!("blocks of {size}, {policy}"));
    }
}

/// A volume made for fast commits has them, as in the kernel.
#[test]
fn a_volume_for_fast_commits_has_them() {
    for size in SIZES {
        let image = Image::with_blocks(64, size, "fast_commit");
        let fs = image.mount();
        assert!(Volume::options(&fs).contains("journal=fast"), "blocks of {size}");
        fs.unmount().unwrap();
    }
}
