//! The joined drive as one: size, limits and zones.

use std::sync::Arc;

use super::{ConcatError, MAX_MEMBERS, Member};
use crate::{Drive, Identify, ZoneGeometry};

/// What the joined drive says about itself.
pub(super) fn identity(members: &[Member], blocks: u64, zones: Option<ZoneGeometry>) -> Identify {
    let all = || members.iter().map(|member| member.drive.identify());
    let models: Vec<&str> = all().map(|identify| identify.model.as_str()).collect();
    Identify {
        model: models.join(" + "),
        blocks,
        queues: all().map(|identify| identify.queues).min().unwrap_or(1).max(1),
        queue_depth: all().map(|identify| identify.queue_depth).min().unwrap_or(1).max(1),
        max_transfer: all().map(|identify| identify.max_transfer).min().unwrap_or(1).max(1),
        volatile_cache: all().any(|identify| identify.volatile_cache),
        fua: all().all(|identify| identify.fua),
        atomic_write: all().map(|identify| identify.atomic_write).min().unwrap_or(0),
        discard: all().any(|identify| identify.discard),
        discard_zeroes: all().all(|identify| identify.discard && identify.discard_zeroes),
        read_only: all().any(|identify| identify.read_only),
        zones,
        joined: members.iter().map(|member| member.blocks).collect(),
        pm: None,
    }
}

/// The zones of all members together. An error names the member that does not fit.
pub(super) fn geometry(
    members: &[(Arc<dyn Drive>, u64)],
) -> Result<Option<ZoneGeometry>, ConcatError> {
    let refuse = |member: usize, what: &str| Err(ConcatError { member, what: what.into() });
    if members.is_empty() || members.len() > MAX_MEMBERS {
        return refuse(members.len(), "a volume is on 1 to 8 devices");
    }
    let mut whole: Option<ZoneGeometry> = None;
    for (i, (drive, blocks)) in members.iter().enumerate() {
        let Some(zones) = drive.identify().zones else {
            if whole.is_some() {
                return refuse(i, "a device without zones behind a zoned one");
            }
            continue;
        };
        let count = u32::try_from(blocks / zones.size.max(1)).unwrap_or(u32::MAX);
        let Some(first) = &mut whole else {
            whole = Some(ZoneGeometry { count, ..zones });
            continue;
        };
        if (zones.size, zones.capacity) != (first.size, first.capacity) {
            return refuse(i, "zones of another size or capacity than the device before");
        }
        if zones.conventional > 0 && zones.capacity != zones.size {
            return refuse(i, "conventional zones behind sequential ones that hold less");
        }
        let least = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        // The layers above do not know which zone is on which device, so the lowest of all limits
        // holds for all.
        first.max_open = least(first.max_open, zones.max_open);
        first.max_active = least(first.max_active, zones.max_active);
        first.count = first.count.saturating_add(count);
    }
    let Some(whole) = &mut whole else { return Ok(None) };
    for (i, (drive, blocks)) in members.iter().enumerate() {
        if !blocks.is_multiple_of(whole.size) {
            return refuse(i, "not a whole number of zones");
        }
        if drive.identify().zones.is_none() {
            let count = u32::try_from(blocks / whole.size).unwrap_or(u32::MAX);
            whole.count = whole.count.saturating_add(count);
            whole.conventional = whole.conventional.saturating_add(count);
        }
    }
    Ok(Some(*whole))
}
