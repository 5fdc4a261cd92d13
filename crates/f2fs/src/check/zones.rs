//! The drive's zones compared with the volume: write pointers, and segments beyond a zone's
//! capacity.

use drive::{Zone, ZoneKind, ZoneState};

use super::{Checker, Place};
use crate::ondisk::sit::LogType;
use crate::ondisk::{SegNo, bits};

impl Checker {
    /// Whether any block of `segno` can be written.
    pub(super) fn is_usable(&self, segno: SegNo) -> bool {
        let Some(zones) = &self.volume.queue.identify().zones else { return true };
        let start = u64::from(self.volume.sb.seg_start(segno));
        let (Some(zone), Some(offset)) =
            (start.checked_div(zones.size), start.checked_rem(zones.size))
        else {
            return true;
        };
        zone < u64::from(zones.conventional) || offset < zones.capacity
    }

    /// Checks write pointers. After a crash they may be ahead of the checkpoint, which the next
    /// mount sorts out; then only valid data above them is an error.
    pub(super) fn check_zones(&mut self) {
        let zones = self.volume.queue.report_zones().map_err(Into::into);
        for zone in self.keep(|| Place::Zone { start: 0 }, zones).unwrap_or_default() {
            let sequential = zone.kind == ZoneKind::SequentialWriteRequired;
            if sequential && !matches!(zone.state, ZoneState::Offline | ZoneState::ReadOnly) {
                self.check_zone(&zone);
            }
        }
    }

    fn check_zone(&mut self, zone: &Zone) {
        let place = Place::Zone { start: zone.start };
        let (start, end) = (zone.start, zone.start.saturating_add(zone.size));
        let main = u64::from(self.volume.sb.main_blkaddr);
        if start < main || end > u64::from(self.volume.sb.main_end()) {
            if start < main {
                self.find(place, "kind", "sequential", "conventional: it holds metadata");
            }
            return;
        }
        let (from, to) = ((start - main) as usize, (end - main) as usize);
        // Zones are whole segments, and segments whole bytes of the map.
        let map = self.volume.sit_maps.get(from / 8..to / 8).unwrap_or_default();
        let last = bits::msb_last_one(map).map(|n| (from / 8 * 8 + n) as u64 + main);
        if let Some(last) = last.filter(|&last| last >= zone.wp) {
            self.find(
                place,
                "write pointer",
                format!("{:#x}", zone.wp),
                format!("above {last:#x}"),
            );
            return;
        }
        if !self.report.clean_unmount {
            return;
        }
        let head = self.log_head_in(start, end);
        if let Some(head) = head.filter(|&head| head != zone.wp && !is_full_at(zone, head)) {
            let allowed = format!("{head:#x}, where a log goes on");
            self.find(place, "write pointer", format!("{:#x}", zone.wp), allowed);
        } else if head.is_none() && last.is_none() && zone.wp != start {
            let allowed = format!("{start:#x}, for nothing is valid");
            self.find(place, "write pointer", format!("{:#x}", zone.wp), allowed);
        }
    }

    /// Where the log that writes to this zone continues.
    fn log_head_in(&self, start: u64, end: u64) -> Option<u64> {
        LogType::ALL.into_iter().find_map(|log| {
            let curseg = self.volume.cp.curseg(log);
            let first = u64::from(self.volume.sb.seg_start(curseg.segno));
            (start..end).contains(&first).then_some(first + u64::from(curseg.blkoff))
        })
    }
}

/// A full zone reports its end as its write pointer, wherever its capacity ended.
fn is_full_at(zone: &Zone, head: u64) -> bool {
    zone.state == ZoneState::Full && head >= zone.start + zone.capacity
}
