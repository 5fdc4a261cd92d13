//! Zones after a cut: logs that are not at their zone's write pointer, and zones written since the
//! checkpoint in which nothing counts (`f2fs_check_and_fix_write_pointer`).
//!
//! **Held.** After a second cut before recovery's own checkpoint is durable, the next recovery
//! begins with the same chain and must come to the same end. It looks at the zones in which the
//! chain lies, and at those to which any of its nodes points, including discarded and superseded
//! ones. If a node points to a block above the write pointer, the zone must not grow, because OPRW
//! would then believe the pointer. So free sections that the chain reaches are neither reset nor
//! written before that checkpoint. Nor is the block after the chain's end, where a node would
//! lengthen the chain. A log that would continue where the chain reaches is moved away. Elsewhere
//! a log goes on at its zone's write pointer, behind what was written since the checkpoint: nodes
//! of a checkpoint that did not end, moved blocks that nothing needs. The zone grows, but what the
//! chain points to lies below the old write pointer, and so below the new one. The logs of warm and
//! cold data go on there in any case, because recovery writes only nodes and directories.
//!
//! **Reset at once.** In a free, non-empty section that the chain does not reach, nothing counts,
//! now or in the next recovery, which finds the same chain: its nodes, its end and everything to
//! which they point are unchanged. Such sections hold what an interrupted recovery wrote, whose
//! nodes follow no node of the chain, and nodes that lost their predecessors. They are reset before
//! anything is allocated, so that the tenth interrupted recovery finds as much room as the first.
//! The flush makes the resets durable: if a cut undid one, old contents would again lie below a
//! write pointer, where new nodes point.
//!
//! **Finished.** A drive has few resources for active zones, and each cut leaves some in use. A
//! zone in which no log will continue is finished before recovery opens others. If the chain points
//! above its write pointer, that waits for the checkpoint, because finishing moves the pointer.
//!
//! Two further rules, each the lesson of a kernel fix: a zone is reset only if it holds no valid
//! block and no log; and after an unclean unmount write pointers are never assumed, but always
//! read.

use drive::{ZoneKind, ZoneState};

use crate::alloc::zones::{Reach, WritePointers};
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::BlockAddr;
use crate::ondisk::sit::LogType;

impl Engine {
    /// Keeps free sections from being used if their zone is not empty, and returns them.
    pub(super) fn hold_unclean_sections(&mut self) -> Vec<u32> {
        let Some(zones) = &self.zones else { return Vec::new() };
        let mut held = Vec::new();
        for section in 0..self.sb.main_sections() {
            let first = self.sb.section_start(section);
            let start = self.sb.seg_start(first);
            let Some(zone) = zones.zone_of(start) else { continue };
            let written = zone.kind == ZoneKind::SequentialWriteRequired && zone.wp != zone.start;
            if written && self.segments.get_mut().is_section_free(section) {
                held.push(section);
                self.segments.get_mut().hold(section);
            }
        }
        held
    }

    /// Gives back the held sections that the chain does not reach, with their zones reset. Returns
    /// how many.
    pub(super) fn reset_unreached(&mut self, held: &mut Vec<u32>, reach: &Reach) -> Result<u64> {
        let start = |section| self.sb.seg_start(self.sb.section_start(section));
        let (reached, unreached) =
            held.iter().partition(|section| reach.end_in_zone_of(start(**section)) > 0);
        *held = reached;
        self.release_sections(&unreached)
    }

    /// Moves a log whose zone's write pointer is elsewhere, or if nodes of the chain point to what
    /// the log would write: on to the write pointer if the zone may grow, or else to a fresh
    /// section. Returns how many it moved.
    pub(super) fn fix_log_positions(&mut self, reach: Option<&Reach>) -> Result<u64> {
        let mut moved = 0;
        for log in LogType::ALL {
            let next = self.logs.get_mut().next_addr(&self.sb, log);
            let Some(zone) = self.zones.as_ref().and_then(|z| z.zone_of(next)) else { continue };
            if zone.kind != ZoneKind::SequentialWriteRequired {
                continue;
            }
            let usable =
                !matches!(zone.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
            let wp = BlockAddr::try_from(zone.wp).ok().filter(|wp| usable && *wp >= next);
            let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
            // Nothing is written to these two before recovery's checkpoint.
            let rests = matches!(log, LogType::WarmData | LogType::ColdData);
            let grows = |wp: &BlockAddr| {
                let reached = reach.is_some_and(|reach| reach.end_in_zone_of(next) > *wp);
                (rests || !reached) && !segments.has_spent_from(*wp)
            };
            match wp.filter(grows) {
                Some(wp) if wp == next => continue,
                Some(wp) => logs.skip_to(segments, &self.io, log, wp)?,
                None => logs.start_afresh(segments, &self.io, log)?,
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// Gives back held sections, and resets the zones of those in which nothing counts. Returns how
    /// many.
    pub(super) fn release_sections(&mut self, held: &[u32]) -> Result<u64> {
        let mut reset = 0;
        for &section in held {
            let start = self.sb.seg_start(self.sb.section_start(section));
            let unused = self.segments.get_mut().section_valid(section) == 0;
            let logs = self.logs.get_mut();
            self.segments.get_mut().release(section, |segno| logs.is_current(segno));
            if unused && self.segments.get_mut().is_section_free(section) {
                if self.reset_zone(start) {
                    reset += 1;
                } else {
                    self.segments.get_mut().retire(section);
                }
            }
        }
        if reset > 0 {
            self.flush()?;
            // A log that moves there goes on at the pointer.
            self.zones = WritePointers::load(&self.io)?;
        }
        Ok(reset)
    }

    /// Finishes zones that are still active although no log will continue in them. If the chain
    /// reaches a zone, only if it does not point above the write pointer.
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
            if active && !grows && !segments.any(|segno| self.logs.get_mut().is_current(segno)) {
                self.io.queue().finish_zone(start.into())?;
            }
        }
        self.zones = Some(zones);
        Ok(())
    }
}
