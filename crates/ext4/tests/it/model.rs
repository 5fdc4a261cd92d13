//! Random operations with remounts against the reference file system; e2fsck looks at the image
//! after each unmount.

use vfs::FileSystem;
use vfs::ops::Generator;

use crate::harness::{Image, apply, compare, model};

/// Operations of one mount.
const STRETCH: usize = 250;

fn agrees(seed: u64, count: usize) {
    let image = Image::new(64);
    let model = model();
    let ops = Generator::new(seed).take_ops(count);
    for (round, chunk) in ops.chunks(STRETCH).enumerate() {
        let when = format!("seed {seed}, round {round}");
        let fs = image.mount();
        compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, mounted: {e}"));
        apply(&fs, &model, chunk).unwrap_or_else(|e| panic!("{when}: {e}"));
        compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, at the end: {e}"));
        fs.unmount().unwrap_or_else(|e| panic!("{when}: {e}"));
        drop(fs);
        image.assert_clean(&when);
    }
}

#[test]
fn operations_agree_with_the_model() {
    agrees(1, 1_000);
}

#[test]
#[ignore = "takes half a minute"]
fn ten_thousand_operations_agree_with_the_model() {
    for seed in 0..4 {
        agrees(seed, 10_000);
    }
}
