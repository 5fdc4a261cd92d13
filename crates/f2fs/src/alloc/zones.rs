//! What the volume has to know about its drive's zones: kinds, capacities and write pointers.

use drive::{Zone, ZoneKind, ZoneState};
use queue::BlockQueue;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::mount::io::Io;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, is_data_addr};

/// A zone report, taken once (thesis §5.1: one zone management command, then only memory reads).
pub(crate) struct WritePointers {
    zone_blocks: u64,
    zones: Vec<Zone>,
}

impl WritePointers {
    /// Asks the drive; `None` if it has no zones.
    pub(crate) fn load(io: &Io) -> Result<Option<Self>> {
        Self::of(io.queue())
    }

    /// As [`WritePointers::load`].
    pub(crate) fn of(queue: &BlockQueue) -> Result<Option<Self>> {
        let Some(geometry) = queue.identify().zones else { return Ok(None) };
        let zones = queue.report_zones()?;
        Ok(Some(Self { zone_blocks: geometry.size, zones }))
    }

    /// The zone that has `addr`.
    pub(crate) fn zone_of(&self, addr: BlockAddr) -> Option<&Zone> {
        self.zones.get((u64::from(addr) / self.zone_blocks) as usize)
    }

    /// Whether the zone's write pointer alone tells if a block is on NAND.
    pub(crate) fn is_sequential(&self, addr: BlockAddr) -> bool {
        self.zone_of(addr).is_some_and(|z| z.kind == ZoneKind::SequentialWriteRequired)
    }

    /// Whether the block is on NAND: it is below the write pointer of its zone. A conventional zone
    /// cannot tell, and the answer is then yes.
    pub(crate) fn is_written(&self, addr: BlockAddr) -> bool {
        self.zone_of(addr)
            .is_some_and(|zone| (zone.start..end_of_nand(zone)).contains(&addr.into()))
    }

    /// How far a chain reaches in each zone, before any pointer has been added.
    pub(crate) fn reach(&self) -> Reach {
        let shift = self.zone_blocks.trailing_zeros();
        let per_zone = (self.zone_blocks >> shift) as usize;
        Reach { shift, per_zone, ends: vec![0; per_zone * self.zones.len()] }
    }

    /// The same for many blocks. But in an offline zone all blocks count as written: they are gone,
    /// which says nothing about what was fsynced with them or later.
    pub(crate) fn nand_ends(&self) -> NandEnds {
        let shift = self.zone_blocks.trailing_zeros();
        let per_zone = (self.zone_blocks >> shift) as usize;
        let ends = self.zones.iter().map(|zone| match zone.state {
            ZoneState::Offline => zone.start + zone.size,
            _ => end_of_nand(zone),
        });
        let ends = ends.map(|end| end.try_into().unwrap_or(BlockAddr::MAX));
        NandEnds { shift, ends: ends.flat_map(|end| std::iter::repeat_n(end, per_zone)).collect() }
    }
}

/// The end of a zone's blocks that are on NAND, as far as the zone can tell.
fn end_of_nand(zone: &Zone) -> u64 {
    match zone.kind {
        ZoneKind::Conventional => zone.start + zone.size,
        ZoneKind::SequentialWriteRequired => zone.wp,
    }
}

/// How much of each zone is on NAND, in a form that is fast to check for every pointer of every
/// node in a chain.
pub(crate) struct NandEnds {
    /// There is one end for each piece of this power of two, the largest that divides all zones;
    /// usually a zone is one piece.
    shift: u32,
    ends: Vec<BlockAddr>,
}

impl NandEnds {
    /// Whether all these blocks are on NAND. Pointers that name no block do not count. A node's
    /// pointers lie in few zones but in any order, so nothing here branches, and nothing is
    /// mispredicted.
    pub(crate) fn hold(&self, addrs: &[U32]) -> bool {
        addrs.iter().map(|addr| addr.get()).fold(true, |all, addr| {
            let end = self.ends.get((addr >> self.shift) as usize).copied().unwrap_or(0);
            all & ((addr < end) | !is_data_addr(addr))
        })
    }
}

/// How far pointers reach in each zone.
pub(crate) struct Reach {
    /// As in [`NandEnds`].
    shift: u32,
    per_zone: usize,
    /// The address after the last block pointed to; 0 if there is none.
    ends: Vec<BlockAddr>,
}

impl Reach {
    /// Adds pointers to these blocks.
    pub(crate) fn extend(&mut self, addrs: &[U32]) {
        for addr in addrs.iter().map(|addr| addr.get()) {
            if let Some(end) = self.ends.get_mut((addr >> self.shift) as usize) {
                *end = (*end).max(addr + 1);
            }
        }
    }

    /// The address after the last block pointed to in the zone of `addr`; 0 if there is none.
    pub(crate) fn end_in_zone_of(&self, addr: BlockAddr) -> BlockAddr {
        let first = (addr >> self.shift) as usize / self.per_zone * self.per_zone;
        let ends = self.ends.iter().skip(first).take(self.per_zone);
        ends.copied().max().unwrap_or(0)
    }
}

/// Checks that the drive's zones are those for which the volume was made. Returns how many blocks
/// of each segment can be written: all of them, unless the zone's capacity ends before
/// (`f2fs_usable_blks_in_seg`).
pub(crate) fn usable_blocks(sb: &Superblock, zones: Option<&WritePointers>) -> Result<Vec<u16>> {
    let segments = 0..sb.segment_count_main;
    let Some(zones) = zones else {
        return Ok(segments.map(|_| BLOCKS_PER_SEGMENT as u16).collect());
    };
    if !sb.features.contains(Features::BLKZONED) {
        let zoned = zones.zones.iter().any(|z| z.kind == ZoneKind::SequentialWriteRequired);
        if zoned {
            return Err(Error::unsupported("a volume without feature blkzoned on a zoned drive"));
        }
    } else if u64::from(sb.blocks_per_section()) != zones.zone_blocks {
        let found = sb.blocks_per_section();
        return Err(Error::corrupt("superblock.segs_per_sec", 0_u32, found, zones.zone_blocks));
    }
    let metadata = zones.zones.iter().take_while(|z| z.start < u64::from(sb.main_blkaddr));
    for zone in metadata {
        if zone.kind != ZoneKind::Conventional {
            let found = format!("metadata in the sequential zone at {:#x}", zone.start);
            return Err(Error::corrupt("superblock.main_blkaddr", 0_u32, found, "outside zones"));
        }
    }
    Ok(segments.map(|segno| usable_in(zones, sb.seg_start(segno))).collect())
}

fn usable_in(zones: &WritePointers, start: BlockAddr) -> u16 {
    let Some(zone) = zones.zone_of(start) else { return 0 };
    if matches!(zone.state, ZoneState::Offline | ZoneState::ReadOnly) {
        return 0;
    }
    let left = (zone.start + zone.capacity).saturating_sub(u64::from(start));
    left.min(u64::from(BLOCKS_PER_SEGMENT)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_offline_zone_held_is_not_missed() {
        let zone = |start, state| Zone {
            start,
            size: 8,
            capacity: 8,
            wp: start,
            kind: ZoneKind::SequentialWriteRequired,
            state,
        };
        let zones = vec![zone(0, ZoneState::Offline), zone(8, ZoneState::Empty)];
        let ends = WritePointers { zone_blocks: 8, zones }.nand_ends();
        assert!(ends.hold(&[U32::new(7)]) && !ends.hold(&[U32::new(8)]));
    }
}
