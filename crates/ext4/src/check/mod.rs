//! The check: everything that an unmounted volume says about itself, compared with itself.
//!
//! As e2fsck does it: descriptors, then inodes and the blocks that they claim, then directories and
//! what they reach, then link counts, bitmaps and totals. If the journal needs recovery, what is
//! checked is the volume as recovery would leave it; the drive stays as it is. Each block with
//! metadata is followed once, so the time is bounded by the size of the volume, whatever it says.

mod claims;
mod dirs;
mod groups;
mod inodes;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;
use rustc_hash::FxHashMap;
use vfs::kind::{Checked, Finding};
use vfs::{Corrupt, FileKind};

use crate::error::{Error, Result};
use crate::ondisk::features::RoCompat;
use crate::ondisk::{FsBlock, Ino};
use crate::reader::{self, Reader};
use crate::recover::recovered;
use claims::Claims;

/// The most findings that are kept.
const FINDINGS_MAX: usize = 1000;

/// An inode in use, as the check knows it.
struct Seen {
    kind: FileKind,
    /// `i_links_count`.
    links: u32,
    /// Records that name it, `.` and `..` included.
    named: u32,
    /// A directory that the root leads to.
    reached: bool,
}

/// What was counted.
#[derive(Default)]
struct Counts {
    files: u64,
    dirs: u64,
    free_clusters: u64,
    free_inodes: u64,
}

/// What was found.
#[derive(Default)]
struct Notes {
    kept: Vec<Finding>,
    omitted: u64,
}

/// A check under way.
struct Checker {
    reader: Reader,
    notes: Notes,
    claims: Claims,
    inodes: FxHashMap<Ino, Seen>,
    /// Inodes that are freed or truncated at the next mount.
    orphans: BTreeSet<Ino>,
    /// Blocks with attributes: how many inodes they say have them, and how many do.
    shared: FxHashMap<FsBlock, (u32, u32)>,
    counts: Counts,
}

/// Checks the volume on `drive`. An error means that there is none that could be checked.
pub(crate) fn check(drive: &Arc<dyn Drive>) -> Result<Checked> {
    let (reader, recovery) = recovered(drive)?;
    let clean_unmount = reader.sb.is_clean() && recovery.clean;
    let claims = Claims::new(&reader.sb);
    let mut checker = Checker {
        reader: reader.lenient(),
        notes: Notes::default(),
        claims,
        inodes: FxHashMap::default(),
        orphans: BTreeSet::new(),
        shared: FxHashMap::default(),
        counts: Counts::default(),
    };
    // One that a cut has torn is taken, and said.
    let raw = reader::superblock(&BlockQueue::new(drive.clone()))?;
    if raw.ro_compat().contains(RoCompat::METADATA_CSUM) {
        let (found, right) = (raw.checksum.get(), raw.right_checksum());
        checker.notes.compare("superblock", "s_checksum", found, right);
    }
    checker.run()?;
    Ok(checker.report(clean_unmount))
}

impl Checker {
    fn run(&mut self) -> Result<()> {
        self.find_orphans()?;
        let groups = self.groups()?;
        self.inodes(&groups)?;
        self.shares();
        self.dirs()?;
        self.links();
        self.bitmaps(&groups)?;
        self.totals();
        Ok(())
    }

    fn report(self, clean_unmount: bool) -> Checked {
        let Counts { files, dirs, free_clusters, free_inodes } = self.counts;
        let sb = &self.reader.sb;
        let clusters = sb.blocks.div_ceil(sb.cluster_ratio.into());
        Checked {
            findings: self.notes.findings(),
            clean_unmount,
            summary: format!(
                "{dirs} directories, {files} other inodes, {free_inodes} inodes free, {} of \
                 {clusters} clusters in use",
                clusters.saturating_sub(free_clusters)
            ),
            rows: Vec::new(),
        }
    }
}

impl Notes {
    fn findings(mut self) -> Vec<Finding> {
        if self.omitted > 0 {
            let found = format!("{} more", self.omitted);
            self.kept.push(Finding::new("volume".into(), "findings", found, "none"));
        }
        self.kept
    }

    /// Notes a finding.
    fn add(
        &mut self,
        place: impl Into<String>,
        what: &'static str,
        found: impl ToString,
        allowed: impl ToString,
    ) {
        if self.kept.len() < FINDINGS_MAX {
            self.kept.push(Finding::new(place.into(), what, found, allowed));
        } else {
            self.omitted += 1;
        }
    }

    /// Notes a finding unless what was found is right.
    fn compare<T: PartialEq + ToString>(
        &mut self,
        place: impl Into<String>,
        what: &'static str,
        found: T,
        right: T,
    ) {
        if found != right {
            self.add(place, what, found, right);
        }
    }

    /// Notes what is corrupt. Fails if the drive does, or if the volume needs what is not built.
    fn error(&mut self, place: impl Into<String>, error: Error) -> Result<()> {
        match error {
            Error::Corrupt(Corrupt { structure, found, allowed, .. }) => {
                self.add(place, structure, found, allowed);
                Ok(())
            }
            Error::Unsupported { .. } => Ok(()),
            other => Err(other),
        }
    }

    /// What `result` has, if it is sound; otherwise notes why not.
    fn sound<T>(&mut self, place: impl Into<String>, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.error(place, error).map(|()| None),
        }
    }
}
