//! Damaged volumes, mounted read-only with little memory: random bytes and chosen fields are wrong,
//! most with checksums made right again, and everything that can be read is read. The server
//! neither panics nor hangs nor grows; what it refuses, it refuses with mount(8)'s exit status.
//!
//! `FUZZ_CASES` is how many, `FUZZ_SEED` the first: a case is its seed. The damage is that of the
//! engine's own fuzzing; here the kernel and a process's limits are part of it.

#[path = "../../../f2fs/tests/it/fuzz_body/mod.rs"]
mod fuzz_body;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use drive::BLOCK_SIZE;
use fuzz_body::Snapshot;
use rand::RngCore;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::mounting::{Rig, number, require};

/// Address space a server may have, threads' stacks and all.
const SPACE_KIB: u64 = 2 << 20;
/// Memory it may use.
const MEMORY_KIB: u64 = 256 << 10;
/// As fuzz_body/mod.rs counts them: the zoned volume needs more than a plain file.
const ZONED: usize = 3;

/// Everything a reader can ask for; a file's first and last bytes, for a size may be wrong.
const READ_ALL: &str = "
cd \"$0\" || exit
find . -exec stat {} + >/dev/null
find . -type f -exec head -qc 200000 {} + >/dev/null
find . -type f -exec tail -qc 5000 {} + >/dev/null
find . -type l -exec readlink {} + >/dev/null
getfattr -Rhd -m - . >/dev/null
stat -f . >/dev/null";

#[test]
fn twenty_damaged_volumes() {
    cases(20);
}

#[test]
#[ignore = "long: 1,000 mounts of damaged volumes"]
fn a_thousand_damaged_volumes() {
    cases(1000);
}

fn cases(default: u64) {
    require("getfattr", "attr");
    let (count, first) = (number("FUZZ_CASES", default), number("FUZZ_SEED", 1));
    let rig = Rig::empty();
    let (mut mounted, mut noticed, mut most) = (0, 0, 0);
    for seed in first..first + count {
        write(&damaged(seed), &rig);
        if let Some((errors, memory)) = survive(&rig, seed) {
            mounted += 1;
            noticed += u64::from(errors);
            most = most.max(memory);
        }
    }
    println!("{count} damaged volumes: {mounted} mounted, {noticed} of them not readable as a");
    println!("whole; the server had at most {most} KiB");
    assert!(mounted * 4 > count && noticed > 0, "the damage is not where it should be");
}

/// The volume of a seed.
fn damaged(seed: u64) -> Snapshot {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    loop {
        let mut tape = [0; 96];
        random.fill_bytes(&mut tape);
        let (base, snapshot) = fuzz_body::damaged(&tape);
        if base != ZONED {
            return snapshot;
        }
    }
}

fn write(snapshot: &Snapshot, rig: &Rig) {
    let image = File::create(rig.image()).unwrap();
    image.set_len(snapshot.blocks * BLOCK_SIZE as u64).unwrap();
    for lba in 0..snapshot.blocks {
        let block = snapshot.media.read(lba);
        if block.iter().any(|&byte| byte != 0) {
            image.write_all_at(&block[..], lba * BLOCK_SIZE as u64).unwrap();
        }
    }
}

/// Mounts, reads and unmounts. If it could be mounted: whether anything could not be read, and how
/// much memory that took.
fn survive(rig: &Rig, seed: u64) -> Option<(bool, u64)> {
    let replay = format!("FUZZ_SEED={seed} FUZZ_CASES=1");
    let log = rig.image().with_extension("log");
    let options = ["-r", "-o", "cache=32m"];
    let outcome =
        match rig.attempt(&format!("-v {SPACE_KIB}"), &options, File::create(&log).unwrap()) {
            Err(status) => {
                assert_eq!(status.code(), Some(32), "{replay}: {status}: {}", said(&log));
                None
            }
            Ok(()) => {
                // It may fail, and often does. It must not take for ever.
                let mut read = Command::new("timeout");
                read.args(["-s", "KILL", "300", "sh", "-c", READ_ALL]).arg(rig.point());
                let read = read.output().expect("timeout runs");
                assert!(read.status.code().is_some_and(|code| code < 124), "{replay}: {read:?}");
                let memory = rig.memory();
                assert!(memory < MEMORY_KIB, "{replay}: {memory} KiB");
                rig.unmount();
                Some((!read.stderr.is_empty(), memory))
            }
        };
    let said = said(&log);
    assert!(!said.contains("panicked"), "{replay}: {said}");
    outcome
}

fn said(log: &std::path::Path) -> String {
    fs::read_to_string(log).unwrap()
}
