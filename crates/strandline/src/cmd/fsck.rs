//! `strandline fsck`: recover, then check. Exit codes as in fsck(8).

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use drive::{Drive, Ssd, Timing};
use lab::subject::{self, Recovery};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::open_drive;

/// fsck(8): errors corrected.
const CORRECTED: u8 = 1;
/// fsck(8): errors left uncorrected.
const UNCORRECTED: u8 = 4;
/// fsck(8): operational error.
const OPERATIONAL: u8 = 8;

/// Recover a volume after a crash and check all of its structures.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline fsck disk.img
  strandline fsck --dry-run --json disk.img

Exit status, as in fsck(8): 0 no errors, 1 recovered, 4 errors left, 8 the image cannot be used.")]
pub(crate) struct Fsck {
    /// Image of a drive, or any file with a volume in it
    image: PathBuf,
    /// Change nothing: recover and check a copy in memory
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Check even if the volume says it is clean, which is always done here
    #[arg(short = 'f')]
    force: bool,
    /// Repair without asking; recovery never asks
    #[arg(short = 'a', visible_short_aliases = ['y', 'p'])]
    auto: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked {
    image: String,
    clean: bool,
    recovered_nodes: u64,
    skipped_inodes: u64,
    orphans: u64,
    faults: Vec<String>,
}

impl Fsck {
    pub(crate) fn run(self) -> Outcome {
        let operational =
            |failure: Failure| Failure::Coded { message: failure.to_string(), code: OPERATIONAL };
        let opened = open_drive(&self.image, self.dry_run).map_err(operational)?;
        let ssd = if self.dry_run {
            Ssd::power_on(opened.survivors(0).writable(), Timing::Instant, 0)
        } else {
            opened
        };
        let drive: Arc<dyn Drive> = ssd.clone();
        let f2fs = subject::named("f2fs")?;
        let (recovery, mut faults) = recover(f2fs, &drive);
        if faults.is_empty() {
            match f2fs.check(&drive) {
                Ok(found) => faults = found.into_iter().map(|fault| fault.text).collect(),
                Err(error) => faults.push(error.to_string()),
            }
        }
        ssd.power_off();
        let checked = Checked {
            image: self.image.display().to_string(),
            clean: recovery.clean && faults.is_empty(),
            recovered_nodes: recovery.replayed,
            skipped_inodes: recovery.skipped,
            orphans: recovery.orphans,
            faults,
        };
        if self.json {
            out::json(&checked)?;
        } else {
            tell(&checked)?;
        }
        Ok(match (checked.faults.is_empty(), recovery.clean) {
            (false, _) => UNCORRECTED,
            (true, false) => CORRECTED,
            (true, true) => 0,
        })
    }
}

/// Mounts and unmounts; a volume that does neither is at fault.
fn recover(f2fs: &dyn subject::Subject, drive: &Arc<dyn Drive>) -> (Recovery, Vec<String>) {
    match f2fs.mount(drive.clone(), "") {
        Err(error) => (Recovery::default(), vec![error.to_string()]),
        Ok(mounted) => {
            let unmounted = mounted.fs.unmount().map_err(|e| format!("unmount: {e}"));
            (mounted.recovery, unmounted.err().into_iter().collect())
        }
    }
}

fn tell(checked: &Checked) -> Outcome<()> {
    if !checked.clean && checked.faults.is_empty() {
        out::line(format!(
            "[FSCK] recovered: {} nodes replayed, {} inodes kept at an older version, {} orphans",
            checked.recovered_nodes, checked.skipped_inodes, checked.orphans
        ))?;
    }
    for fault in &checked.faults {
        out::line(format!("[FSCK] {fault} [Fail]"))?;
    }
    if checked.faults.is_empty() {
        out::line("[FSCK] structures agree [Ok..]")?;
    }
    Ok(())
}
