//! Zones after a cut: logs whose write pointer is elsewhere, and zones written since the
//! checkpoint in which nothing counts (`f2fs_check_and_fix_write_pointer`).
//!
//! **Held.** Until recovery's own checkpoint is durable a second cut lets the next recovery begin
//! again with the same chain, and it must come to the same end. It looks at the zones the chain
//! lies in and those that any node of it points to, also one that was discarded or superseded. If
//! a node points to a block above the write pointer, the zone must not grow: OPRW would then
//! believe the pointer. So free sections that the chain reaches are neither reset nor written
//! before; nor is the block behind the chain's end, or a node there would lengthen it. A log that
//! would go on where the chain reaches leaves.
//!
//! **Reset at once.** In a free section that is not empty and that the chain does not reach nothing
//! counts now, nor for the next recovery, which finds the same chain: its nodes, its end and all
//! they point to are as they were. Such are what an interrupted recovery wrote, whose nodes come
//! behind no node of the chain, and nodes that lost those before them. They are reset before
//! anything is allocated, so that the tenth interrupted recovery finds as much room as the first.
//! The flush makes it last: a cut may undo a reset, and old contents would be below a write pointer
//! again where new nodes point to.
//!
//! **Finished.** A drive has few resources for active zones, and each cut leaves some taken. A zone
//! no log will go on in is finished, before recovery opens others; one to which the chain points
//! above its write pointer only after the checkpoint, for finishing moves that.
//!
//! Further rules, each the lesson of a kernel fix: a zone is reset only if it holds no valid block
//! and no log; after an unclean unmount write pointers are never assumed, always looked at.

use drive::{ZoneKind, ZoneState};

use crate::alloc::zones::{Reach, WritePointers};
use crate::error::Result;
use crate::mount::volume::Volume;
use crate::ondisk::sit::LogType;

impl Volume {
    /// Keeps free sections whose zone is not empty from being used, and returns them.
    pub(super) fn hold_unclean_sections(&mut self) -> Vec<u32> {
        let Some(zones) = &self.zones else { return Vec::new() };
        let mut held = Vec::new();
        for section in 0..self.sb.main_sections() {
            let first = self.sb.section_start(section);
            let start = self.sb.seg_start(first);
            let Some(zone) = zones.zone_of(start) else { continue };
            let written = zone.kind == ZoneKind::SequentialWriteRequired && zone.wp != zone.start;
            if written && self.segments.is_section_free(section) {
                held.push(section);
                self.segments.hold(section);
            }
        }
        held
    }

    /// Gives back the held sections that the chain does not reach, their zones empty. Returns how
    /// many.
    pub(super) fn reset_unreached(&mut self, held: &mut Vec<u32>, reach: &Reach) -> Result<u64> {
        let start = |section| self.sb.seg_start(self.sb.section_start(section));
        let (reached, unreached) =
            held.iter().partition(|section| reach.end_in_zone_of(start(**section)) > 0);
        *held = reached;
        self.release_sections(&unreached)
    }

    /// Gives logs a fresh section where the zone's write pointer is not where the log is, or nodes
    /// of the chain point to what the log would write. Returns how many moved.
    pub(super) fn fix_log_positions(&mut self, reach: Option<&Reach>) -> Result<u64> {
        let mut moved = 0;
        for log in LogType::ALL {
            let next = self.logs.next_addr(&self.sb, log);
            let Some(zone) = self.zones.as_ref().and_then(|z| z.zone_of(next)) else { continue };
            let usable =
                !matches!(zone.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
            let reached = reach.is_some_and(|reach| reach.end_in_zone_of(next) > next);
            let in_place = usable && zone.wp == u64::from(next) && !reached;
            if zone.kind == ZoneKind::SequentialWriteRequired && !in_place {
                self.logs.start_afresh(&mut self.segments, &mut self.io, log)?;
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// Gives back held sections, and resets the zones of those in which nothing turned out to
    /// count. Returns how many.
    pub(super) fn release_sections(&mut self, held: &[u32]) -> Result<u64> {
        let mut reset = 0;
        for &section in held {
            let start = self.sb.seg_start(self.sb.section_start(section));
            let unused = self.segments.section_valid(section) == 0;
            self.segments.release(section, |segno| self.logs.is_current(segno));
            if unused && self.segments.is_section_free(section) {
                if self.reset_zone(start) {
                    reset += 1;
                } else {
                    self.segments.retire(section);
                }
            }
        }
        if reset > 0 {
            self.flush()?;
        }
        Ok(reset)
    }

    /// Finishes zones that still are active though no log will go on in them; of those that the
    /// chain reaches only as far as their write pointer.
    pub(super) fn finish_abandoned_zones(&mut self, reach: Option<&Reach>) -> Result<()> {
        let Some(zones) = WritePointers::load(&self.io)? else { return Ok(()) };
        for section in 0..self.sb.main_sections() {
            let first = self.sb.section_start(section);
            let start = self.sb.seg_start(first);
            let Some(zone) = zones.zone_of(start) else { continue };
            let active = matches!(
                zone.state,
                ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed
            );
            let grows = reach.is_some_and(|r| u64::from(r.end_in_zone_of(start)) > zone.wp);
            let mut segments = first..first + self.sb.segs_per_sec;
            if active && !grows && !segments.any(|segno| self.logs.is_current(segno)) {
                self.io.queue().finish_zone(start.into())?;
            }
        }
        self.zones = Some(zones);
        Ok(())
    }
}
