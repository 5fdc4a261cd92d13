//! Volumes that are nearly full, and full.

use vfs::ops::Generator;
use vfs::{Creator, Errno, FileSystem};

use crate::harness::{Image, apply, compare, model};

const MIB: u64 = 1 << 20;

/// Writes a file until there is no more room, or `most` bytes.
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

#[test]
fn operations_agree_with_the_model_at_90_percent() {
    let image = Image::new(64);
    let model = model();
    let fs = image.mount();
    let free = fs.statfs().unwrap().blocks_free * 4096;
    for fs in [&fs as &dyn FileSystem, &model] {
        assert_eq!(fill(fs, b"ballast", free / 10 * 9), free / 10 * 9);
    }
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("filled");
    let ops = Generator::new(90).take_ops(600);
    for (round, chunk) in ops.chunks(200).enumerate() {
        let fs = image.mount();
        apply(&fs, &model, chunk).unwrap();
        compare(&fs, &model).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(&format!("round {round}"));
    }
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
