//! Fast commits: those that count are handed to the file system once the log's transactions are
//! home (`fc_do_one_pass`).
//!
//! They say what changed on top of the last transaction, so they count if, and only if, recovery
//! finds the next one missing. The log stays open until the file system has committed that one,
//! with all that they say in it: in the same instant they do not count any more. A cut before
//! finds them again.

use super::scan::Scanned;
use crate::error::Result;
use crate::ondisk::fast::{Change, Scan, Tag};
use crate::ondisk::superblock::Incompat;
use crate::volume::Log;

impl Log<'_> {
    /// Whether recovery of the journal alone would lose something: records, or fast commits.
    pub fn needs_file_system(&mut self) -> Result<bool> {
        if self.superblock().records().is_some() {
            return Ok(true);
        }
        let scanned = self.scan()?;
        let first = scanned.first().cloned().unwrap_or_default();
        Ok(!self.fast_commits(&first)?.is_empty())
    }

    /// The tags in the area for fast commits, whether they count or not: block of the log, byte of
    /// the block, tag. Ends at the first block that has none, or when `see` says false.
    pub fn fast_tags(&mut self, mut see: impl FnMut(u32, usize, Tag) -> bool) -> Result<()> {
        for at in self.superblock().fast_commit_area() {
            let (block, range) = self.read(at)?;
            let (mut has_any, mut goes_on) = (false, true);
            for (range, tag) in Tag::all(&block[range]) {
                has_any = true;
                goes_on = goes_on && see(at, range.start, tag);
            }
            if !has_any || !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// What fast commits say on top of the transactions that were found.
    pub fn fast_commits(&mut self, scanned: &Scanned) -> Result<Vec<Change>> {
        let has_areas = self.superblock().incompat().contains(Incompat::AREAS);
        if !scanned.was_open || scanned.damage.is_some() || has_areas {
            return Ok(Vec::new());
        }
        let mut scan = Scan::new(scanned.end);
        for at in self.superblock().fast_commit_area() {
            let (block, range) = self.read(at)?;
            if !scan.block(&block[range])? {
                break;
            }
        }
        Ok(scan.end())
    }
}
