//! Random operations against the reference file system, on conventional and zoned drives, with
//! remounts in between; `fsck.f2fs` looks at what is left.

mod harness;
mod judge;

use harness::{Kind, Pair, dump};
use judge::{Scratch, assert_fsck_clean};
use vfs::ops::{Generator, Op, print, shrink};

/// Runs one case; a failure is made short and printed as operations that replay it.
fn case(kind: Kind, options: &str, seed: u64, count: usize) -> Pair {
    let ops = Generator::new(seed).take_ops(count);
    let attempt = |ops: &[Op]| {
        let pair = Pair::new(kind, options, seed);
        pair.run(ops, 60).map(|()| pair)
    };
    match attempt(&ops) {
        Ok(pair) => pair,
        Err(_) => {
            let short = shrink(&ops, |ops| attempt(ops).is_err());
            let why = attempt(&short).err();
            panic!("{kind:?} -o {options} seed {seed}: {why:?}\n{}", print(&short));
        }
    }
}

#[test]
fn agrees_with_the_model() {
    let scratch = Scratch::new();
    for seed in 0..100 {
        for kind in Kind::ALL {
            let options =
                ["", "noinline_data,noinline_dentry", "fsync_mode=strict"][seed as usize % 3];
            let pair = case(kind, options, seed, 180);
            if seed % 10 == 0 {
                let image = scratch.dir().join("image");
                dump(&pair.drive.power_off(), &image);
                assert_fsck_clean(&image);
            }
        }
    }
}
