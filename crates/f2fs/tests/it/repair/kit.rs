//! What every test of a repair checks.

#![allow(unreachable_pub, reason = "shared by the files of one test binary")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive};
use f2fs::check::{CheckOptions, Finding, check};
use f2fs::repair::{RepairOptions, RepairReport, repair};
use f2fs::{F2fs, MountOptions};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use vfs::ops::{Tree, snapshot};

use crate::fuzz_body::{MemoryDrive, Snapshot};

/// The bytes that say how a volume is damaged.
pub fn tape(seed: u64) -> [u8; 96] {
    let mut tape = [0; 96];
    SplitMix64::seed_from_u64(seed).fill_bytes(&mut tape);
    tape
}

/// Files as they are on a volume, read without changing it.
pub fn tree_of(held: &Snapshot) -> Result<Tree, String> {
    let drive: Arc<dyn Drive> = MemoryDrive::on(held.clone());
    let options: MountOptions = "ro".parse().expect("options");
    let fs = F2fs::mount(drive, &options).map_err(|e| format!("mount: {e}"))?;
    snapshot(&fs).map_err(|e| format!("walk: {e}"))
}

pub fn lines(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A volume after its repair.
pub struct Repaired {
    pub held: Snapshot,
    pub report: RepairReport,
    pub tree: Tree,
}

/// Repairs, and asserts everything that must hold after any repair.
pub fn repaired(held: Snapshot, options: &RepairOptions) -> Result<Repaired, String> {
    let memory = MemoryDrive::on(held);
    let drive: Arc<dyn Drive> = memory.clone();
    let report = repair(&drive, options).map_err(|e| format!("repair: {e}"))?;
    let what = || lines(&report.findings);
    if !report.left.is_empty() {
        return Err(format!("left:\n{}\nof:\n{}", lines(&report.left), what()));
    }
    let held = memory.snapshot();
    let after = check(&drive, &CheckOptions::default()).map_err(|e| format!("check: {e}"))?;
    assert!(after.is_clean() && after.clean_unmount);
    let again = repair(&drive, &RepairOptions::default()).map_err(|e| format!("again: {e}"))?;
    if again.passes > 0 || !again.findings.is_empty() {
        return Err(format!("again:\n{}\nof:\n{}", lines(&again.findings), what()));
    }
    let tree = tree_of(&held).map_err(|e| format!("{e}\nof:\n{}", what()))?;
    Ok(Repaired { held, report, tree })
}

/// What `fsck.f2fs` finds wrong with a volume of a drive without zones.
pub fn judge(held: &Snapshot, scratch: &Path) -> Result<(), String> {
    let path = scratch.join("judged");
    let file = File::create(&path).expect("a file");
    file.set_len(held.blocks * BLOCK_SIZE as u64).expect("its size");
    let zero = Block::zeroed();
    for lba in 0..held.blocks {
        let block = held.media.read(lba);
        if block != zero {
            file.write_all_at(&block[..], lba * BLOCK_SIZE as u64).expect("a write");
        }
    }
    let tool =
        ["/usr/sbin/fsck.f2fs", "/sbin/fsck.f2fs"].into_iter().find(|p| Path::new(p).exists());
    let tool = tool.expect("fsck.f2fs judges this test: apt-get install f2fs-tools");
    let out = Command::new(tool).arg("--dry-run").arg(&path).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.code() == Some(0) && !said.contains("[Fail]") {
        return Ok(());
    }
    Err(format!("fsck.f2fs: {:?}\n{said}", out.status.code()))
}
