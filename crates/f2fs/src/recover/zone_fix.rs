//! Zones after a cut: logs whose write pointer is elsewhere, and zones written since the
//! checkpoint in which nothing counts (`f2fs_check_and_fix_write_pointer`).
//!
//! Rules, each the lesson of a kernel fix:
//! - a zone that was written since the checkpoint is neither reset nor written before recovery's
//!   own checkpoint is durable; else a second cut would let the old chain point to new contents
//!   below the write pointer, and OPRW would believe it;
//! - a zone is reset only if it holds no valid block and no log;
//! - a zone no log will go on in is finished, or active zones would run out after a few cuts;
//! - after an unclean unmount write pointers are never assumed, always looked at.

use drive::{ZoneKind, ZoneState};

use crate::error::Result;
use crate::ondisk::sit::LogType;
use crate::volume::Volume;
use crate::zones::WritePointers;

impl Volume {
    /// Keeps free sections whose zone is not empty from being used, and returns them.
    pub(super) fn hold_unclean_sections(&mut self) -> Result<Vec<u32>> {
        let Some(zones) = &self.zones else { return Ok(Vec::new()) };
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
        Ok(held)
    }

    /// Gives logs a fresh section where the zone's write pointer is not where the log is. Returns
    /// how many moved.
    pub(super) fn fix_log_positions(&mut self) -> Result<u64> {
        let mut moved = 0;
        for log in LogType::ALL {
            let next = self.logs.next_addr(&self.sb, log);
            let Some(zone) = self.zones.as_ref().and_then(|z| z.zone_of(next)) else { continue };
            let usable =
                !matches!(zone.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
            let in_place = usable && zone.wp == u64::from(next);
            if zone.kind == ZoneKind::SequentialWriteRequired && !in_place {
                self.logs.start_afresh(&mut self.segments, &mut self.io, log)?;
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// Resets the held zones in which nothing turned out to count, and gives all of them back.
    pub(super) fn release_sections(&mut self, held: &[u32]) -> u64 {
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
        reset
    }

    /// Finishes zones that still are active though no log will go on in them: a drive has few
    /// resources for active zones, and every cut would leave some taken.
    pub(super) fn finish_abandoned_zones(&mut self) -> Result<()> {
        let Some(zones) = WritePointers::load(&self.io)? else { return Ok(()) };
        for section in 0..self.sb.main_sections() {
            let first = self.sb.section_start(section);
            let start = self.sb.seg_start(first);
            let active = zones.zone_of(start).is_some_and(|zone| {
                matches!(
                    zone.state,
                    ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed
                )
            });
            let mut segments = first..first + self.sb.segs_per_sec;
            if active && !segments.any(|segno| self.logs.is_current(segno)) {
                self.io.queue().finish_zone(start.into())?;
            }
        }
        self.zones = Some(zones);
        Ok(())
    }
}
