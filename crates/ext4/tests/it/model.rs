//! Random operations with remounts against the reference file system; e2fsck looks at the image
//! after each unmount.

use vfs::ops::Generator;

use crate::harness::Image;

/// Operations of one mount.
const STRETCH: usize = 250;

fn agrees(seed: u64, count: usize, options: &str) {
    let ops = Generator::new(seed).take_ops(count);
    Image::new(64).assert_agrees(options, &ops, STRETCH, &format!("seed {seed}"));
}

#[test]
fn operations_agree_with_the_model() {
    agrees(1, 1_000, "");
    agrees(2, 1_000, "inject=weed");
}

#[test]
#[ignore = "takes half a minute"]
fn ten_thousand_operations_agree_with_the_model() {
    for seed in 0..4 {
        agrees(seed, 10_000, "");
    }
}
