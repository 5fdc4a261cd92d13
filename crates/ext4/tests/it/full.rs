//! Volumes that are nearly full, and full.

use vfs::ops::Generator;
use vfs::{Creator, Errno, FallocateMode, FileSystem};

use crate::harness::{Image, apply, compare, model};
use crate::small::{SIZES, fits_small_blocks};

const MIB: u64 = 1 << 20;

/// Writes a file until the volume is full, or `most` bytes.
fn fill(fs: &dyn FileSystem, name: &[u8], most: u64) -> u64 {
    let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
    let data = vec![0x5a; MIB as usize];
    let mut at = 0;
    while at < most {
        match fs.write(ino, at, &data[..(most - at).min(MIB) as usize]) {
            Ok(0) => panic!("nothing was written, and no error"),
            Ok(len) => at += len as u64,
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                break;
            }
        }
    }
    at
}

/// Operations on a volume that is 90% full, so many to a mount.
fn agrees_at_90_percent(image: &Image, options: &str, count: usize, per_mount: usize) {
    let model = model();
    let fs = image.mount_with(options);
    let statfs = fs.statfs().unwrap();
    let free = statfs.blocks_available * u64::from(statfs.block_size) / MIB * MIB;
    for fs in [&fs as &dyn FileSystem, &model] {
        assert_eq!(fill(fs, b"ballast", free / 10 * 9), free / 10 * 9);
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("filled");
    let mut ops = Generator::new(90).take_ops(count);
    if statfs.block_size < 4096 {
        ops.retain(fits_small_blocks);
    }
    for (round, chunk) in ops.chunks(per_mount).enumerate() {
        let when = format!("{options}, round {round}");
        let fs = image.mount_with(options);
        compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, mounted: {e}"));
        apply(&fs, &model, chunk).unwrap_or_else(|e| panic!("{when}: {e}"));
        compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, at the end: {e}"));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(&when);
    }
}

#[test]
fn operations_agree_with_the_model_at_90_percent() {
    agrees_at_90_percent(&Image::new(64), "", 600, 200);
}

#[test]
fn operations_agree_with_the_model_at_90_percent_of_small_blocks() {
    for size in SIZES {
        for options in ["journal=jbd2", "journal=fast", "journal=zgrouped,areas=2"] {
            let image = Image::with_blocks(64, size, "fast_commit");
            agrees_at_90_percent(&image, options, 450, 75);
        }
    }
}

/// Each page that is written into blocks allocated before is an extent of its own at first.
#[test]
fn what_is_allocated_before_can_be_written() {
    let image = Image::new(64);
    let fs = image.mount();
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
    let (mut size, mut step) = (0, 1 << 20);
    while step >= 4096 {
        match fs.fallocate(file, FallocateMode::empty(), size, step) {
            Ok(()) => size += step,
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                step /= 4;
            }
        }
    }
    assert!(size > 40 << 20, "{size} bytes are allocated");
    for page in (0..size / 4096).step_by(2) {
        fs.write(file, page * 4096, &[1; 4096]).unwrap();
    }
    fs.fsync(file, false).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("written");
}

#[test]
fn a_full_volume_says_so_and_is_empty_again_afterwards() {
    let image = Image::new(32);
    let fs = image.mount();
    let before = fs.statfs().unwrap().blocks_free;
    for round in 0..3 {
        let written = fill(&fs, b"all", u64::MAX >> 1);
        assert!(written / 4096 >= before * 9 / 10, "{written} bytes of {before} blocks");
        fs.sync().unwrap();
        // There is still room for names.
        for n in 0..20 {
            let name = format!("{round}-{n}");
            fs.create(fs.root(), name.as_bytes(), 0o600, Creator::default()).unwrap();
        }
        fs.unlink(fs.root(), b"all").unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, before, "round {round}");
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("emptied");
}
