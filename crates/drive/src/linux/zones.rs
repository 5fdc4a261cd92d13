//! Zones as the kernel reports them, after checks and in 4 KiB blocks.

use super::ioctl::BlkZone;
use crate::blkzone::state_of_code;
use crate::{Zone, ZoneGeometry, ZoneKind, ZoneState};

/// 512-byte sectors in a block.
pub(super) const SECTORS_PER_BLOCK: u64 = 8;

/// `enum blk_zone_type`.
const CONVENTIONAL: u8 = 1;
const SEQUENTIAL_REQUIRED: u8 = 2;

/// One zone. It is an error if it makes no sense or cannot be expressed in 4 KiB blocks.
pub(super) fn zone(raw: &BlkZone) -> Result<Zone, &'static str> {
    let blocks = |sectors: u64| {
        let whole = sectors.is_multiple_of(SECTORS_PER_BLOCK);
        whole.then_some(sectors / SECTORS_PER_BLOCK).ok_or("zones that do not hold whole 4 KiB")
    };
    let (start, size, capacity) = (blocks(raw.start)?, blocks(raw.len)?, blocks(raw.capacity)?);
    if size == 0 || capacity == 0 || capacity > size {
        return Err("a zone whose length and capacity do not fit each other");
    }
    raw.start.checked_add(raw.len).ok_or("a zone beyond all addresses")?;
    let end = start + size;
    let state = state_of_code(raw.cond).ok_or("a zone in an unknown condition")?;
    let kind = match raw.kind {
        CONVENTIONAL => ZoneKind::Conventional,
        SEQUENTIAL_REQUIRED => ZoneKind::SequentialWriteRequired,
        _ => return Err("zones that are neither conventional nor sequential write required"),
    };
    let wp = match state {
        // The kernel leaves their pointers undefined. A read-only zone can be read up to its end.
        ZoneState::NotWritePointer | ZoneState::Full | ZoneState::ReadOnly => end,
        ZoneState::Offline => start,
        // Another program may have written 512 bytes at a time. A block that is half written
        // counts, so that nothing is ever written over it.
        _ => raw.wp.div_ceil(SECTORS_PER_BLOCK),
    };
    if !(start..=end).contains(&wp) {
        return Err("a zone whose write pointer lies outside of it");
    }
    Ok(Zone { start, size, capacity, wp, kind, state })
}

/// The common shape of all zones: one size, except for a shorter last zone, and one capacity for
/// the sequential ones.
pub(super) fn geometry(
    zones: &[Zone],
    max_open: Option<u32>,
    max_active: Option<u32>,
) -> Result<ZoneGeometry, &'static str> {
    let first = zones.first().ok_or("no zones")?;
    let mut expected = 0;
    for (i, zone) in zones.iter().enumerate() {
        if zone.start != expected {
            return Err("zones that do not follow one another");
        }
        expected = zone.start + zone.size;
        let last = i + 1 == zones.len();
        if zone.size != first.size && !(last && zone.size < first.size) {
            return Err("zones of different sizes");
        }
    }
    let is_sequential = |zone: &&Zone| zone.kind == ZoneKind::SequentialWriteRequired;
    let conventional = zones.iter().take_while(|zone| !is_sequential(zone)).count();
    let mut whole = zones.iter().filter(is_sequential).filter(|zone| zone.size == first.size);
    let capacity = whole.next().map_or(first.size, |zone| zone.capacity);
    if whole.any(|zone| zone.capacity != capacity) {
        return Err("zones of different capacities");
    }
    let number = |n: usize| u32::try_from(n).map_err(|_| "more zones than can be counted");
    Ok(ZoneGeometry {
        size: first.size,
        capacity,
        count: number(zones.len())?,
        conventional: number(conventional)?,
        max_open,
        max_active,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(start: u64, len: u64, kind: u8, cond: u8, wp: u64) -> BlkZone {
        BlkZone { start, len, wp, kind, cond, capacity: len, ..BlkZone::default() }
    }

    #[test]
    fn zones_are_counted_in_blocks() {
        let zone = zone(&raw(0x8000, 0x8000, 2, 4, 0x8009)).expect("a closed zone");
        assert_eq!((zone.start, zone.size, zone.wp), (0x1000, 0x1000, 0x1002));
        assert_eq!(zone.state, ZoneState::Closed);
        assert_eq!(super::zone(&raw(0, 64, 2, 0xe, 0)).expect("full").wp, 8);
        assert_eq!(super::zone(&raw(0, 64, 1, 0, u64::MAX)).expect("conventional").wp, 8);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            raw(0, 0, 2, 1, 0),
            raw(4, 64, 2, 1, 4),
            raw(0, 64, 3, 1, 0),
            raw(0, 64, 2, 7, 0),
            raw(64, 64, 2, 2, 0),
            raw(u64::MAX - 7, 64, 2, 1, u64::MAX - 7),
            BlkZone { capacity: 128, ..raw(0, 64, 2, 1, 0) },
        ] {
            assert!(zone(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_zone_may_be_shorter() {
        let zones = |list: &[BlkZone]| -> Vec<Zone> {
            list.iter().map(|raw| zone(raw).expect("sound")).collect()
        };
        let good = zones(&[raw(0, 64, 1, 0, 0), raw(64, 64, 2, 1, 64), raw(128, 8, 2, 1, 128)]);
        let found = geometry(&good, None, Some(14)).expect("a runt is no harm");
        assert_eq!((found.size, found.capacity, found.count, found.conventional), (8, 8, 3, 1));
        let gap = zones(&[raw(0, 64, 2, 1, 0), raw(128, 64, 2, 1, 128)]);
        assert!(geometry(&gap, None, None).is_err());
        let longer = zones(&[raw(0, 64, 2, 1, 0), raw(64, 128, 2, 1, 64)]);
        assert!(geometry(&longer, None, None).is_err());
        let mut uneven = zones(&[raw(0, 64, 2, 1, 0), raw(64, 64, 2, 1, 64)]);
        uneven[1].capacity = 4;
        assert!(geometry(&uneven, None, None).is_err());
        assert!(geometry(&[], None, None).is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(start: u64, len: u64, wp: u64, kind: u8, cond: u8, capacity: u64) {
            let raw = BlkZone { capacity, ..raw(start, len, kind, cond, wp) };
            if let Ok(zone) = zone(&raw) {
                prop_assert!(zone.wp >= zone.start && zone.wp <= zone.start + zone.size);
                let _ = geometry(&[zone], None, None);
            }
        }
    }
}
