//! Emptying sections, so that they can be given up.

use vfs::words::counted;

use crate::alloc::gc;
use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::mount::engine::{Caller, Engine};
use crate::ondisk::sit::LogType;

/// How many segments are emptied between two checkpoints, which free what was moved before.
const SEGMENTS_PER_CHECKPOINT: usize = 16;

impl Engine {
    /// Moves everything out of `sections`, in which nothing is allocated until the volume is
    /// unmounted. Returns how many segments held something.
    pub(crate) fn evacuate(&mut self, sections: &[u32]) -> Result<u32> {
        self.check_writable()?;
        for &section in sections {
            self.segments.get_mut().bar(section);
        }
        for log in LogType::ALL {
            let section = self.sb.section_of(self.logs.get_mut().get(log).at.segno);
            if sections.contains(&section) {
                self.logs.get_mut().start_afresh(self.segments.get_mut(), &self.io, log)?;
            }
        }
        // A log's summary must be in the summary area before the blocks it describes can move.
        self.write_checkpoint(Reason::Sync)?;
        let per_section = self.sb.segs_per_sec;
        let segments = sections.iter().flat_map(|section| {
            let first = section * per_section;
            first..first + per_section
        });
        let used: Vec<u32> =
            segments.filter(|s| self.segments.get_mut().entry(*s).valid > 0).collect();
        for some in used.chunks(SEGMENTS_PER_CHECKPOINT) {
            gc::balance(self)?;
            for &segno in some {
                gc::clean_segment(self, segno, Caller::Foreground)?;
            }
            self.write_checkpoint(Reason::Sync)?;
        }
        let left =
            used.iter().filter(|segno| self.segments.get_mut().entry(**segno).valid > 0).count();
        if left > 0 {
            // The cleaner leaves them where they are, so they must stay here too.
            let segments = counted(left, "segment");
            let text = format!("pinned files are in {segments} to be emptied; unpin them");
            return Err(Error::usage(text));
        }
        Ok(used.len() as u32)
    }
}
