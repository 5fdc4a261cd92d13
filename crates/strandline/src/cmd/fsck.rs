//! `strandline fsck`: check, recover, say what was done. Options are those of `fsck.f2fs`, exit
//! codes those of fsck(8).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use drive::linux::Access;
use drive::{Drive, Timing};
use f2fs::check::{CheckOptions, CheckReport, Finding, Place, VolumeState, check, state};
use f2fs::{F2fs, MountOptions, RecoveryReport};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::{Devices, Inside, Opened, open_volume};

/// fsck(8): errors corrected.
const CORRECTED: u8 = 1;
/// fsck(8): errors left uncorrected.
const UNCORRECTED: u8 = 4;
/// fsck(8): operational error.
const OPERATIONAL: u8 = 8;
/// fsck(8): usage or syntax error.
pub(crate) const USAGE: u8 = 16;

/// Check a volume, recover it after a crash, repair it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline fsck disk.img
  strandline fsck -n --json disk.img

Exit status, as in fsck(8): 0 no errors, 1 errors corrected, 4 errors left, 8 operational error,
16 usage.")]
pub(crate) struct Fsck {
    /// Image of a drive, any file with a volume in it, or a block device
    image: Option<PathBuf>,
    #[command(flatten)]
    devices: Devices,
    /// Check and repair only if the volume was not unmounted cleanly or says it has errors
    #[arg(short = 'a', conflicts_with = "no")]
    auto: bool,
    /// Check everything and repair without asking
    #[arg(short = 'f', visible_short_alias = 'y', long = "force", conflicts_with = "no")]
    yes: bool,
    /// Change nothing: recover and check a copy in memory
    #[arg(short = 'n', conflicts_with = "preen")]
    no: bool,
    /// As -n, but may stand beside the options that repair
    #[arg(long)]
    dry_run: bool,
    /// As -a; with 1, check everything. Never asks
    #[arg(short = 'p', num_args = 0..=1, value_name = "0|1|2")]
    preen: Option<Option<String>>,
    /// Say more: 1 names the parts of the check, 2 the checkpoint
    #[arg(short = 'd', value_name = "LEVEL", default_value_t = 0)]
    debug: u8,
    /// Show the directory tree
    #[arg(short = 't')]
    tree: bool,
    /// Print the version and exit
    #[arg(short = 'V')]
    version: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Accepted for scripts: quota limits are never changed here
    #[arg(short = 'q', hide = true)]
    preserve_limits: bool,
    /// Accepted for scripts: no kernel version is looked at here
    #[arg(long = "no-kernel-check", visible_alias = "kernel-check", hide = true)]
    kernel_check: bool,
}

/// What to do about errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repair {
    Yes,
    No,
}

#[derive(Serialize)]
struct Told<'a> {
    place: String,
    what: &'a str,
    found: &'a str,
    allowed: &'a str,
}

#[derive(Serialize)]
struct Checked<'a> {
    image: String,
    clean: bool,
    exit_code: u8,
    recovered_nodes: u64,
    skipped_inodes: u64,
    orphans: u64,
    faults: Vec<String>,
    findings: Vec<Told<'a>>,
}

/// What came of a run.
#[derive(Default)]
struct Outcomes {
    report: Option<CheckReport>,
    recovery: RecoveryReport,
    /// What could not even be checked or recovered.
    stopped: Vec<String>,
    skipped: bool,
}

impl Fsck {
    pub(crate) fn run(self) -> Outcome {
        if self.version {
            out::line(concat!("fsck.strandline ", env!("CARGO_PKG_VERSION")))?;
            return Ok(0);
        }
        let (image, level) = self.image_and_level()?;
        let answer = if self.no || self.dry_run { Repair::No } else { Repair::Yes };
        let operational =
            |failure: Failure| Failure::Coded { message: failure.to_string(), code: OPERATIONAL };
        let access = if answer == Repair::No { Access::Read } else { Access::Write };
        let opened =
            open_volume(&image, &self.devices, access, Timing::Instant).map_err(operational)?;
        let drive = opened.drive.clone();
        let mut done = Outcomes::default();
        let lazy = (self.auto || level.is_some_and(|level| level != 1)) && !self.yes;
        if lazy && state(&drive).is_ok_and(VolumeState::needs_no_check) {
            done.skipped = true;
        } else {
            self.check(&opened, answer, &mut done)?;
        }
        opened.close();
        let code = done.code();
        self.tell(&image, code, &done)?;
        if self.tree && code != UNCORRECTED {
            drop((drive, opened));
            let root = Inside { image, path: b"/".to_vec() };
            super::tree::show(&root, &self.devices, false)?;
        }
        Ok(code)
    }

    /// `-p IMAGE` means `-p` and IMAGE, as in fsck.f2fs.
    fn image_and_level(&self) -> Outcome<(PathBuf, Option<u8>)> {
        let usage = |message: String| Failure::Coded { message, code: USAGE };
        let (image, level) = match (&self.image, &self.preen) {
            (image, None) => (image.clone(), None),
            (image, Some(None)) => (image.clone(), Some(0)),
            (image, Some(Some(text))) => match (text.parse::<u8>(), image) {
                (Ok(level @ 0..=2), image) => (image.clone(), Some(level)),
                (_, None) => (Some(PathBuf::from(text)), Some(0)),
                _ => return Err(usage(format!("-p {text}: the levels are 0, 1 and 2"))),
            },
        };
        let image = image.ok_or_else(|| usage("no image named; see fsck --help".into()))?;
        Ok((image, level))
    }

    fn check(&self, opened: &Opened, answer: Repair, done: &mut Outcomes) -> Outcome<()> {
        let drive = opened.drive.clone();
        let first = match check(&drive, &CheckOptions::default()) {
            Ok(report) => report,
            Err(error @ f2fs::Error::Corrupt { .. }) => {
                done.stopped.push(error.to_string());
                return Ok(());
            }
            Err(error) => {
                return Err(Failure::Coded { message: error.to_string(), code: OPERATIONAL });
            }
        };
        done.recovery.clean = first.clean_unmount;
        if first.clean_unmount || !first.is_clean() {
            done.report = Some(first);
            return Ok(());
        }
        let drive = if answer == Repair::No { opened.scratch()? } else { drive };
        match recover(&drive) {
            Ok(recovery) => done.recovery = recovery,
            Err(error) => done.stopped.push(error),
        }
        match check(&drive, &CheckOptions::default()) {
            Ok(report) => done.report = Some(report),
            Err(error) => done.stopped.push(error.to_string()),
        }
        Ok(())
    }

    fn tell(&self, image: &Path, code: u8, done: &Outcomes) -> Outcome<()> {
        let findings = done.report.iter().flat_map(|report| &report.findings);
        let faults: Vec<String> =
            done.stopped.iter().cloned().chain(findings.clone().map(Finding::to_string)).collect();
        if self.json {
            return out::json(&Checked {
                image: image.display().to_string(),
                clean: code == 0,
                exit_code: code,
                recovered_nodes: done.recovery.replayed_nodes,
                skipped_inodes: done.recovery.skipped_inodes,
                orphans: done.recovery.orphans,
                faults,
                findings: findings.map(Told::from).collect(),
            });
        }
        if done.skipped {
            return out::line("Info: No error was reported");
        }
        for fault in &faults {
            out::line(format!("[FSCK] {fault} [Fail]"))?;
        }
        if code == CORRECTED {
            let RecoveryReport { replayed_nodes, skipped_inodes, orphans, .. } = done.recovery;
            out::line(format!(
                "[FSCK] recovered: {replayed_nodes} nodes replayed, {skipped_inodes} inodes kept \
                 at an older version, {orphans} orphans"
            ))?;
        }
        if let Some(report) = &done.report {
            rows(report)?;
        }
        Ok(())
    }
}

impl Outcomes {
    fn code(&self) -> u8 {
        match &self.report {
            _ if self.skipped => 0,
            Some(report) if self.stopped.is_empty() && report.is_clean() => {
                if self.recovery.clean {
                    0
                } else {
                    CORRECTED
                }
            }
            _ => UNCORRECTED,
        }
    }
}

impl<'a> From<&'a Finding> for Told<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            place: finding.place.to_string(),
            what: finding.what,
            found: &finding.found,
            allowed: &finding.allowed,
        }
    }
}

/// Mounts and unmounts: that replays what fsyncs made durable.
fn recover(drive: &Arc<dyn Drive>) -> Result<RecoveryReport, String> {
    use vfs::FileSystem;
    let fs = F2fs::mount(drive.clone(), &MountOptions::default()).map_err(|e| e.to_string())?;
    let report = fs.recovery().clone();
    fs.unmount().map_err(|e| format!("unmount: {e}"))?;
    Ok(report)
}

/// The rows of `fsck.f2fs`.
fn rows(report: &CheckReport) -> Outcome<()> {
    let of = |what: &str| report.findings.iter().filter(|f| f.what == what).count();
    let nat = |f: &&Finding| matches!(f.place, Place::Nat { .. }) && f.what == "use";
    let unreachable = report.findings.iter().filter(nat).count();
    let row = |name: &str, bad: bool, value: Option<u64>| {
        let mark = if bad { "[Fail]" } else { "[Ok..]" };
        let value = value.map_or_else(String::new, |value| format!(" [{value:#x}]"));
        out::line(format!("[FSCK] {name:<54}{mark}{value}"))
    };
    row("Unreachable nat entries", unreachable > 0, Some(unreachable as u64))?;
    let sit = of("SIT map") + of("SIT bit") + of("SIT type") + of("sit_entry.vblocks");
    row("SIT valid block bitmap checking", sit > 0, None)?;
    row("Hard link checking for regular file", of("i_links") > 0, Some(report.linked_files))?;
    for (name, what, value) in [
        ("valid_block_count matching with CP", "valid_block_count", report.blocks),
        ("valid_node_count matching with CP (nat lookup)", "valid_node_count", report.nodes),
        ("valid_inode_count matched with CP", "valid_inode_count", report.inodes),
        ("free segment_count matched with CP", "free_segment_count", report.free_segments.into()),
    ] {
        row(name, of(what) > 0, Some(value))?;
    }
    row("next block offset is free", of("valid block ahead of the log") > 0, None)?;
    row("other corrupted bugs", !report.is_clean(), None)
}
