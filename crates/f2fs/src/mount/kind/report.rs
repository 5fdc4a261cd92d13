//! What check and repair say, in the words of `fsck.f2fs`.

use vfs::kind::{Checked, Recovery, Repaired, Row};
use vfs::words::counted;

use crate::check::{CheckReport, Finding, Place};
use crate::recover::RecoveryReport;
use crate::repair::RepairReport;

impl From<&RecoveryReport> for Recovery {
    fn from(report: &RecoveryReport) -> Self {
        Self {
            clean: report.clean,
            scanned: report.scanned_nodes,
            replayed: report.replayed_nodes,
            skipped: report.skipped_inodes,
            orphans: report.orphans,
        }
    }
}

impl From<CheckReport> for Checked {
    fn from(report: CheckReport) -> Self {
        let rows = rows(&report);
        let CheckReport { dirs, files, inodes, nodes, blocks, checkpoint_version, .. } = report;
        Self {
            clean_unmount: report.clean_unmount,
            summary: format!(
                "{}, {}, {}, {}, {}; checkpoint version {checkpoint_version:#x}",
                counted(dirs, "directory"),
                counted(files, "file"),
                counted(inodes, "inode"),
                counted(nodes, "node"),
                counted(blocks, "block"),
            ),
            rows,
            findings: report.findings.into_iter().map(Finding::in_words).collect(),
        }
    }
}

impl From<RepairReport> for Repaired {
    fn from(report: RepairReport) -> Self {
        let changes = report.changes;
        let mut notes = Vec::new();
        if changes.copied_blocks > 0 {
            let blocks = counted(changes.copied_blocks, "block");
            notes.push(format!("copied, because two files claimed them: {blocks}"));
        }
        if changes.dropped_chain {
            notes.push("what was fsynced since the checkpoint could not be replayed".into());
        }
        let reconnected = changes.reconnected.into_iter().map(|(ino, name)| (ino.into(), name));
        Self {
            findings: report.findings.into_iter().map(Finding::in_words).collect(),
            omitted: report.omitted,
            changed: report.passes > 0,
            reconnected: reconnected.collect(),
            notes,
            rescued: changes.rescued,
            recovery: (&report.recovery).into(),
        }
    }
}

/// The table of `fsck.f2fs`.
fn rows(report: &CheckReport) -> Vec<Row> {
    let of = |what: &str| report.findings.iter().filter(|f| f.what == what).count();
    let nat = |f: &&Finding| matches!(f.place, Place::Nat { .. }) && f.what == "use";
    let unreachable = report.findings.iter().filter(nat).count();
    let sit = of("SIT map") + of("SIT bit") + of("SIT type") + of("sit_entry.vblocks");
    let row = |name, failed, value| Row { name, failed, value };
    let counted = |name, what, value| row(name, of(what) > 0, Some(value));
    vec![
        row("Unreachable nat entries", unreachable > 0, Some(unreachable as u64)),
        row("SIT valid block bitmap checking", sit > 0, None),
        counted("Hard link checking for regular file", "i_links", report.linked_files),
        counted("valid_block_count matching with CP", "valid_block_count", report.blocks),
        counted("valid_node_count matching with CP (nat lookup)", "valid_node_count", report.nodes),
        counted("valid_inode_count matched with CP", "valid_inode_count", report.inodes),
        counted(
            "free segment_count matched with CP",
            "free_segment_count",
            report.free_segments.into(),
        ),
        row("next block offset is free", of("valid block ahead of the log") > 0, None),
        row("other corrupted bugs", !report.is_clean(), None),
    ]
}
