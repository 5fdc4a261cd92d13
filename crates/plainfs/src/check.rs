//! Compares what the tables say with one another.

use std::collections::BTreeSet;

use vfs::kind::{Checked, Finding};

use crate::disk::Disk;
use crate::ondisk::wrong;
use crate::survey::Survey;

/// Findings that are told; more of them help nobody.
const FINDINGS_MAX: usize = 64;

/// Checks an unmounted volume.
pub(crate) fn check(disk: &mut Disk) -> Checked {
    let mut survey = Survey::new(disk);
    let mut findings = std::mem::take(&mut survey.findings);
    for number in &disk.taken {
        let (found, links) = (disk.table[*number as usize].nlink.get(), survey.links.get(number));
        match links {
            None => findings.push(wrong(*number, "names", "none", "at least one")),
            Some(links) if *links == found => {}
            Some(links) => findings.push(wrong(*number, "link count", found, links)),
        }
    }
    let mut owned: BTreeSet<u64> = (0..disk.geometry.data).collect();
    for (number, node) in &survey.nodes {
        for lba in node.pages.values().filter(|lba| !owned.insert(**lba)) {
            findings.push(wrong(*number, "pointer", format!("{lba:#x}"), "a block of its own"));
        }
    }
    for lba in 0..disk.geometry.blocks {
        let words = |used| if used { "in use" } else { "free" };
        let (marked, used) = (disk.is_used(lba), owned.contains(&lba));
        if marked != used {
            let place = format!("block {lba:#x}");
            findings.push(Finding::new(place, "bitmap", words(marked), words(used)));
        }
    }
    findings.truncate(FINDINGS_MAX);
    let (inodes, directories) = (survey.nodes.len(), survey.directories.len());
    Checked {
        findings,
        clean_unmount: disk.superblock.clean == 1,
        summary: format!("{inodes} inodes, {directories} of them directories"),
        rows: Vec::new(),
    }
}
