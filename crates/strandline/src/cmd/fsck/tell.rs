//! What `strandline fsck` prints: one line for each finding, or one JSON object.

use std::path::Path;

use serde::Serialize;
use vfs::kind::{Checked, Finding, Recovery, Repaired, Row};
use vfs::words::counted;

use super::{CORRECTED, Fsck, Outcomes};
use crate::failure::Outcome;
use crate::out;

#[derive(Serialize)]
struct Told<'a> {
    place: String,
    what: &'a str,
    found: &'a str,
    allowed: &'a str,
    remedy: String,
}

#[derive(Serialize)]
struct Report<'a> {
    image: String,
    clean: bool,
    exit_code: u8,
    recovered_nodes: u64,
    skipped_inodes: u64,
    orphans: u64,
    faults: Vec<String>,
    findings: Vec<Told<'a>>,
    repaired: Vec<Told<'a>>,
    reconnected: Vec<String>,
    rescued: bool,
}

impl Fsck {
    /// Says what was done. `entry` is the file system's word for what recovery replays.
    pub(super) fn tell(&self, image: &Path, entry: &str, code: u8, done: &Outcomes) -> Outcome<()> {
        let findings = done.report.iter().flat_map(|report| &report.findings);
        let repaired = done.repair.iter().flat_map(|report| &report.findings);
        let faults: Vec<String> =
            done.stopped.iter().cloned().chain(findings.clone().map(Finding::to_string)).collect();
        if self.json {
            return out::json(&Report {
                image: image.display().to_string(),
                clean: code == 0 && (done.skipped || done.recovery.clean),
                exit_code: code,
                recovered_nodes: done.recovery.replayed,
                skipped_inodes: done.recovery.skipped,
                orphans: done.recovery.orphans,
                faults,
                findings: findings.map(Told::from).collect(),
                repaired: repaired.map(Told::from).collect(),
                reconnected: done
                    .repair
                    .iter()
                    .flat_map(|repair| &repair.reconnected)
                    .map(|(_, name)| format!("lost+found/{name}"))
                    .collect(),
                rescued: done.repair.as_ref().is_some_and(|repair| repair.rescued),
            });
        }
        if done.skipped {
            return out::line("Info: No error was reported");
        }
        for finding in repaired {
            out::line(format!("[FSCK] {finding} [Fixed: {}]", finding.remedy))?;
        }
        for fault in &faults {
            out::line(format!("[FSCK] {fault} [Fail]"))?;
        }
        if let Some(repair) = &done.repair {
            self.tell_changes(image, repair)?;
        } else if done.declined {
            out::line("Info: not repaired; -y repairs, and -z FILE with it can be taken back")?;
        }
        let done_or_due = match code {
            0 if done.in_copy && !done.recovery.clean => {
                Some(("recovery is due", "to replay", "to keep"))
            }
            CORRECTED => Some(("recovered", "replayed", "kept")),
            _ => None,
        };
        if let Some((title, replay, keep)) = done_or_due {
            let Recovery { replayed, skipped, orphans, .. } = done.recovery;
            out::line(format!(
                "[FSCK] {title}: {} {replay}, {} {keep} at an older version, {}",
                counted(replayed, entry),
                counted(skipped, "inode"),
                counted(orphans, "orphan"),
            ))?;
        }
        if let Some(report) = &done.report {
            if self.debug > 0 {
                out::line(format!("Info: {}", report.summary))?;
            }
            rows(report)?;
        }
        Ok(())
    }

    fn tell_changes(&self, image: &Path, repair: &Repaired) -> Outcome<()> {
        if repair.omitted > 0 {
            out::line(format!("Info: {} more findings of the same kind", repair.omitted))?;
        }
        for (ino, name) in &repair.reconnected {
            out::line(format!("[FSCK] inode {ino} is now lost+found/{name}"))?;
        }
        for note in &repair.notes {
            out::line(format!("[FSCK] {note}"))?;
        }
        match &self.undo_file {
            Some(log) if !self.no && !self.dry_run => out::line(format!(
                "Info: to take it back: strandline fsck --undo {} {}",
                log.display(),
                image.display()
            )),
            _ => out::line("Info: what was there before is not kept; -z FILE keeps it"),
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
            remedy: finding.remedy.to_string(),
        }
    }
}

/// The checker's table.
fn rows(report: &Checked) -> Outcome<()> {
    for Row { name, failed, value } in &report.rows {
        let mark = if *failed { "[Fail]" } else { "[Ok..]" };
        let value = value.map_or_else(String::new, |value| format!(" [{value:#x}]"));
        out::line(format!("[FSCK] {name:<54}{mark}{value}"))?;
    }
    Ok(())
}
