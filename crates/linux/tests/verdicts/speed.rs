//! Write and fsync on a zoned device, our engine against the kernel's F2FS.

use std::path::Path;

use crate::AGENT;
use linux::Guest;

const PAIRS: usize = 3;
const OPS: u32 = 1000;
/// How fast ours must be, of the kernel's rate. Checks of arithmetic and assertions, of which the
/// kernel and what users run have none, may cost 15 %.
const LEAST: f64 = if cfg!(debug_assertions) { 0.85 } else { 1.0 };

/// One after the other in one guest, each on a fresh volume. The guest's clock counts instructions:
/// a busy host changes nothing.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn write_and_fsync_is_at_least_as_fast_as_the_kernels() {
    let pair = format!(
        "null_blk 0 512 4 8 && mkfs.f2fs -q -m /dev/nullb0
        mount -t f2fs -o noatime /dev/nullb0 /mnt
        strandline-agent speed-of-theirs /mnt/file {OPS}
        umount /mnt && null_blk_remove 0
        null_blk 0 512 4 8 && mkfs.f2fs -q -m /dev/nullb0
        strandline-agent speed-of-ours /dev/nullb0 fsync_mode=posix {OPS}
        null_blk_remove 0\n"
    );
    let script = format!("set -e\n{}", pair.repeat(PAIRS));
    let agent = Path::new(AGENT);
    let out =
        Guest::new().memory(1536).timeout(600).clock_of_instructions().program(agent).run(&script);
    let rates: Vec<f64> = out.success().lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(rates.len(), 2 * PAIRS, "{}", out.text);
    let mut ratios: Vec<f64> = rates.chunks(2).map(|pair| pair[1] / pair[0]).collect();
    for (pair, ratio) in rates.chunks(2).zip(&ratios) {
        println!("kernel {:.0}/s, ours {:.0}/s: {ratio:.2}×", pair[0], pair[1]);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[PAIRS / 2];
    println!(
        "4 KiB write + fsync on zoned null_blk, by instructions executed: {median:.2}× the kernel's"
    );
    assert!(median >= LEAST, "{median:.3}× of the kernel's rate, expected {LEAST}");
}
