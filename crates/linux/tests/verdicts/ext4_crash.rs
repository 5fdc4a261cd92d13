//! ext4 after a loss of power, in each data mode: what the kernel wrote, and what we wrote,
//! recovered by both. `e2fsck` finds nothing wrong with either.

use std::path::Path;
use std::process::Command;

use ::ext4::Format;
use drive::Spec;
use vfs::kind::Format as _;
use vfs::{Creator, SetAttr, Timespec};

use crate::kernel_crash::operations;
use crate::our_crash;
use crate::recorded::{Run, record, shares};
use crate::verdict::Batch;
use crate::volumes::{Kind, open};

const SIZE_MIB: u64 = 64;
/// Of each mode, unless `STRANDLINE_RUNS` says otherwise; so many are judged at once.
const RUNS: u64 = 4;
const CUTS: u64 = 10;
const MODES: [&str; 3] = ["data=ordered", "data=writeback", "data=journal"];
/// What the volumes have, one after the other.
const FEATURES: [&str; 4] =
    ["", "^metadata_csum,^64bit", "block_size=1024", "block_size=2048,^metadata_csum"];

/// Batches of as many runs as are judged at once.
fn batches(name: &str, mut add: impl FnMut(&mut Batch, &str, std::ops::Range<u64>)) {
    for mode in MODES {
        for seeds in shares(RUNS) {
            let mut batch =
                Batch::of(&Format, &format!("{name}-{mode}"), Kind::Conventional, SIZE_MIB);
            add(&mut batch, mode, seeds);
            batch.judge();
        }
    }
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn the_kernels_crashes_are_recovered_alike() {
    batches("kernels", |batch, mode, seeds| {
        let run = |seed: u64| {
            let base = batch.dir().join(format!("base-{seed}"));
            drive::image::create(&base, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive");
            let features = FEATURES[seed as usize % FEATURES.len()];
            Format.make_with(&open(&base), features).expect("a volume");
            Run { base, options: mode.to_owned(), ops: operations(seed, 800) }
        };
        let runs: Vec<Run> = seeds.map(run).collect();
        record(batch, &runs, CUTS, "true");
    });
}

#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn our_crashes_are_recovered_alike() {
    batches("ours", |batch, mode, seeds| {
        for seed in seeds {
            let spec = Spec::named("conventional-noplp").unwrap().blocks(SIZE_MIB * 256);
            let features = FEATURES[seed as usize % FEATURES.len()];
            our_crash::run(batch, spec, (features, mode), seed);
        }
    });
}

/// A truncation that a cut interrupted, which recovery ends at the time of the recovery, as
/// `ext4_truncate` does: to nothing, and to the middle of a block. debugfs interrupts it, and puts
/// a transaction into the log, so that there is something to recover; a third file stays as it was.
#[test]
#[ignore = "long: boots a kernel in QEMU"]
fn truncations_are_ended_alike() {
    let mut batch = Batch::of(&Format, "truncations", Kind::Conventional, SIZE_MIB);
    for features in FEATURES {
        let path = batch.add(format!("truncations, {features}"));
        drive::image::create(&path, &Kind::Conventional.spec(SIZE_MIB)).expect("a drive");
        let drive = open(&path);
        Format.make_with(&drive, features).expect("a volume");
        let fs = Format.mount(drive, "").expect("a mount");
        let old = Timespec { secs: 1_600_000_000, nanos: 5 };
        let times = SetAttr { mtime: Some(old), ctime: Some(old), ..SetAttr::default() };
        let inos = [b"cut ", b"some", b"kept"].map(|name| {
            let ino = fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino;
            fs.write(ino, 0, &[7; 40_960]).unwrap();
            fs.setattr(ino, &times).unwrap();
            ino
        });
        fs.unmount().expect("an unmount");
        drop(fs);
        let [cut, some, kept] = inos;
        let block = debugfs(&path, &format!("bmap <{kept}> 0"));
        let block = block.trim();
        let same = batch.dir().join("same");
        std::fs::write(&same, [7; 4096]).unwrap();
        let script = format!(
            "sif <{cut}> size 0\nsif <{some}> size 5000\n\
             sif <{cut}> dtime @{some}\nssv last_orphan {cut}\n\
             jo\njw -b {block} {}\njc\n",
            same.display()
        );
        debugfs(&path, &script);
    }
    batch.judge();
}

/// What debugfs says to these commands.
fn debugfs(image: &Path, commands: &str) -> String {
    let script = image.with_extension("commands");
    std::fs::write(&script, commands).unwrap();
    let out = Command::new("/usr/sbin/debugfs").arg("-wf").arg(&script).arg(image).output();
    let out = out.expect("debugfs: apt-get install e2fsprogs");
    let said = String::from_utf8(out.stdout).unwrap();
    let answers = said.lines().filter(|line| !line.starts_with("debugfs:"));
    answers.map(|line| format!("{line}\n")).collect()
}
