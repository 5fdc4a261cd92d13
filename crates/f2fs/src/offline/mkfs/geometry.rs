//! Where everything goes on a volume: a pure function of its size and options.
//!
//! The rules are `mkfs.f2fs`'s, checked against both versions in use; the tables of vectors are in
//! the tests. There is one difference: usable segments are counted after rounding to zones.
//! `mkfs.f2fs` counts them before, and its own fsck rejects the resulting `free_segment_count`.

use crate::error::{Error, Result};
use crate::ondisk::superblock::MAX_SEGMENTS;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, SEGMENT_SIZE, SegNo};
use crate::ondisk::{checkpoint, nat, sit};

/// Bytes for both superblocks.
const SUPER_BYTES: u64 = 2 * BLOCK_SIZE as u64;
/// Bytes of the checkpoint's header block that are there for version bitmaps.
const BITMAP_BYTES: u64 = (checkpoint::CRC_OFFSET - checkpoint::BITMAP_OFFSET) as u64;
/// How many of them the SIT's bitmap may take before it moves to payload blocks.
const SIT_BITMAP_MAX: u64 = BITMAP_BYTES - 64;
const CKPT_SEGMENTS: u32 = 2;
const LOGS: u32 = 6;

/// Which release's overprovision formula to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formula {
    /// f2fs-tools up to 1.15, which reserves two sections for each victim.
    V1_15,
    /// f2fs-tools from 1.16.
    #[default]
    V1_16,
}

/// The drive's zones, as far as they shape the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneShape {
    /// Blocks that can be written in a sequential zone.
    pub capacity: u64,
    /// Leading zones that take random writes.
    pub conventional: u32,
}

/// Everything on which the geometry depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Bytes of the device.
    pub bytes: u64,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Large NAT bitmap (`-i`).
    pub large_nat_bitmap: bool,
    /// Overprovisioned percentage; `None` picks the one that leaves the most space.
    pub overprovision: Option<f64>,
    /// Puts the logs into the first six zones, as sequential zones require.
    pub zoned: bool,
    /// Zones of the drive. Each becomes a zone of the volume.
    pub zones: Option<ZoneShape>,
    /// Overprovision formula.
    pub formula: Formula,
    /// The least number of segments for the NAT: a volume that shrinks keeps the numbers of its
    /// nodes.
    pub nat_min: u32,
}

impl Request {
    /// A plain volume of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            segs_per_sec: 1,
            secs_per_zone: 1,
            large_nat_bitmap: false,
            overprovision: None,
            zoned: false,
            zones: None,
            formula: Formula::default(),
            nat_min: 0,
        }
    }
}

/// Where everything goes. Counts are in segments, addresses in blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// First block of segment 0, where the checkpoint area begins.
    pub segment0: BlockAddr,
    /// Segments in all.
    pub segments: u32,
    /// Of the SIT, both copies.
    pub sit: u32,
    /// Of the NAT, both copies.
    pub nat: u32,
    /// Of the summary area.
    pub ssa: u32,
    /// Of the main area.
    pub main: u32,
    /// First block of the main area.
    pub main_blkaddr: BlockAddr,
    /// Sections of the main area.
    pub sections: u32,
    /// Bitmap blocks behind the checkpoint header.
    pub cp_payload: u32,
    /// Main-area segments that can be written.
    pub usable: u32,
    /// Percentage kept from users.
    pub overprovision: f64,
    /// Segments kept for the cleaner.
    pub reserved: u32,
    /// Segments kept from users.
    pub overprov: u32,
    /// Blocks users can fill.
    pub user_blocks: u64,
    /// Segments without a log.
    pub free: u32,
    /// Initial segment of each log, in [`sit::LogType`] order.
    pub cursegs: [SegNo; 6],
}

/// Lays out a volume. If it is too small, the error says how large it must be.
pub fn layout(request: &Request) -> Result<Geometry> {
    lay_out(request).map_err(|error| match least_bytes(request) {
        Some(least) if request.bytes < least => {
            Error::usage(format!("{error}; the least is {} MiB", least >> 20))
        }
        _ => error,
    })
}

/// The smallest plain volume with these options, in whole segments; `None` on zones, or if it takes
/// more than 1 GiB.
fn least_bytes(request: &Request) -> Option<u64> {
    let sizes = (1..=512).map(|segments| segments * SEGMENT_SIZE);
    let fits = |bytes: &u64| lay_out(&Request { bytes: *bytes, ..*request }).is_ok();
    if request.zones.is_some() { None } else { sizes.into_iter().find(fits) }
}

fn lay_out(request: &Request) -> Result<Geometry> {
    let per_zone = segments_per_zone(request)?;
    let zone_bytes = u64::from(per_zone) * SEGMENT_SIZE;
    let segment0 = SUPER_BYTES.next_multiple_of(zone_bytes);
    let whole = request.bytes.saturating_sub(segment0) / SEGMENT_SIZE;
    let too_small = || Error::usage(format!("{} bytes are too small for F2FS", request.bytes));
    let segments = u32::try_from(whole).ok().filter(|&n| n <= MAX_SEGMENTS);
    let segments = segments.ok_or_else(|| Error::usage("F2FS volumes have at most 16 TiB"))?
        / per_zone
        * per_zone;
    if segments < 9 {
        return Err(too_small());
    }
    let tables = Tables::of(segments, per_zone, request).ok_or_else(too_small)?;
    let main = segments - tables.sum();
    let zones = main / per_zone;
    if zones <= LOGS {
        return Err(Error::usage(format!("{zones} zones of main area, at least 7 are needed")));
    }
    let sections = zones * request.secs_per_zone;
    let meta_blocks = u64::from(tables.sum()) * u64::from(BLOCKS_PER_SEGMENT);
    let main_blkaddr = segment0 / BLOCK_SIZE as u64 + meta_blocks;
    let main_blkaddr = BlockAddr::try_from(main_blkaddr).map_err(|_| too_small())?;
    let (usable, lost) = usable_segments(request, main, per_zone, main_blkaddr);
    let space = Overprovision::of(request, main, usable, sections)?;
    let user_blocks = u64::from(usable - space.overprov) * u64::from(BLOCKS_PER_SEGMENT);
    let user_blocks = user_blocks.checked_sub(lost).filter(|n| *n > 0).ok_or_else(too_small)?;
    Ok(Geometry {
        segment0: (segment0 / BLOCK_SIZE as u64) as BlockAddr,
        segments,
        sit: tables.sit,
        nat: tables.nat,
        ssa: tables.ssa,
        main,
        main_blkaddr,
        sections,
        cp_payload: tables.cp_payload,
        usable,
        overprovision: space.percent,
        reserved: space.reserved,
        overprov: space.overprov,
        user_blocks,
        free: usable - LOGS,
        cursegs: initial_cursegs(zones, per_zone, request.zoned),
    })
}

fn segments_per_zone(request: &Request) -> Result<u32> {
    let product = request.segs_per_sec.checked_mul(request.secs_per_zone);
    product.filter(|&n| n > 0 && n <= MAX_SEGMENTS).ok_or_else(|| {
        let (s, z) = (request.segs_per_sec, request.secs_per_zone);
        Error::usage(format!("{s} segments a section and {z} sections a zone make no zone"))
    })
}

/// Sizes of the tables, in segments.
struct Tables {
    sit: u32,
    nat: u32,
    ssa: u32,
    cp_payload: u32,
}

impl Tables {
    /// `None` if the tables leave no room.
    fn of(segments: u32, per_zone: u32, request: &Request) -> Option<Self> {
        let per_segment = BLOCKS_PER_SEGMENT;
        let sit = 2 * segments.div_ceil(sit::ENTRIES_PER_BLOCK as u32).div_ceil(per_segment);
        let rest = u64::from(segments.checked_sub(CKPT_SEGMENTS + sit)?);
        let nat_blocks = (rest * u64::from(per_segment)).div_ceil(nat::ENTRIES_PER_BLOCK as u64);
        let wanted = nat_blocks.div_ceil(per_segment.into());
        let least = u64::from(request.nat_min / 2);
        let sit_bitmap = u64::from(sit / 2) * 64;
        let (nat_half, payload_bytes) = if request.large_nat_bitmap {
            let half = (wanted * 20 / 100).max(1).max(least);
            (half, (sit_bitmap + half * 64).saturating_sub(BITMAP_BYTES))
        } else if sit_bitmap > SIT_BITMAP_MAX {
            (wanted.max(least).min(BITMAP_BYTES * 8 / 512), sit_bitmap)
        } else {
            (wanted.max(least).min((BITMAP_BYTES - sit_bitmap) * 8 / 512), 0)
        };
        let nat = 2 * u32::try_from(nat_half).ok()?;
        let ssa = (segments.checked_sub(CKPT_SEGMENTS + sit + nat)? + 1).div_ceil(per_segment);
        // The main area begins with a zone; the summary area takes the rest before it.
        let meta = CKPT_SEGMENTS + sit + nat + ssa;
        let ssa = ssa + meta.next_multiple_of(per_zone) - meta;
        let cp_payload = payload_bytes.div_ceil(BLOCK_SIZE as u64) as u32;
        let tables = Self { sit, nat, ssa, cp_payload };
        (tables.sum() < segments).then_some(tables)
    }

    fn sum(&self) -> u32 {
        CKPT_SEGMENTS + self.sit + self.nat + self.ssa
    }
}

/// Main-area segments with at least one writable block, and how many of their blocks cannot be
/// written: a zone's capacity may end within a segment.
fn usable_segments(request: &Request, main: u32, per_zone: u32, start: BlockAddr) -> (u32, u64) {
    let Some(shape) = request.zones else { return (main, 0) };
    let per_segment = u64::from(BLOCKS_PER_SEGMENT);
    let zone_blocks = u64::from(per_zone) * per_segment;
    let zones = main / per_zone;
    let meta_zones = (u64::from(start) / zone_blocks) as u32;
    let conventional = shape.conventional.saturating_sub(meta_zones).min(zones);
    let sequential = zones - conventional;
    let writable = shape.capacity.div_ceil(per_segment).min(per_zone.into());
    let lost = (writable * per_segment).saturating_sub(shape.capacity);
    (conventional * per_zone + sequential * writable as u32, u64::from(sequential) * lost)
}

/// Space kept from users, so that the cleaner always has somewhere to go.
struct Overprovision {
    percent: f64,
    reserved: u32,
    overprov: u32,
}

impl Overprovision {
    fn of(request: &Request, main: u32, usable: u32, sections: u32) -> Result<Self> {
        let section = f64::from(usable.div_ceil(sections));
        let formula = request.formula;
        let percent = match request.overprovision {
            Some(p) if p > 0.0 && p < 100.0 => p,
            Some(p) => return Err(Error::usage(format!("overprovision of {p} %"))),
            None => best_percent(formula, main, usable, section, request.segs_per_sec),
        };
        let no_room = || Error::usage("too small: the cleaner's reserve takes all segments");
        if percent <= 0.0 {
            return Err(no_room());
        }
        let reserved = reserved_for(formula, percent, section).floor();
        let kept = ((f64::from(usable) - reserved) * percent / 100.0).floor();
        let overprov = match formula {
            Formula::V1_15 => kept + reserved,
            Formula::V1_16 => kept.max(reserved) + f64::from(2 * request.segs_per_sec),
        };
        if f64::from(main - LOGS) < reserved || f64::from(usable) <= overprov || overprov <= 0.0 {
            return Err(no_room());
        }
        Ok(Self { percent, reserved: reserved as u32, overprov: overprov as u32 })
    }
}

/// How many segments the cleaner needs, still as a fraction: victims that are `percent` empty, one
/// section each, until one section is gained, and a section for each log.
fn reserved_for(formula: Formula, percent: f64, section: f64) -> f64 {
    let victims = 100.0 / percent + 1.0;
    match formula {
        Formula::V1_15 => (2.0 * victims + 6.0) * section,
        Formula::V1_16 => (victims + 6.0) * section,
    }
}

/// The percentage that leaves the most for users; 0 if none leaves anything.
fn best_percent(formula: Formula, main: u32, usable: u32, section: f64, per_sec: u32) -> f64 {
    let (mut percent, end, step) = if main < 256 { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let usable = f64::from(usable);
    let (mut best, mut most) = (0.0, 0.0);
    // Adding up the step, rounding errors included, makes the same choice as the tools.
    while percent <= end {
        let reserved = reserved_for(formula, percent, section);
        let kept = (usable - reserved) * percent / 100.0;
        let space = match formula {
            Formula::V1_15 => usable - reserved - kept,
            Formula::V1_16 if kept < 0.0 => 0.0,
            Formula::V1_16 => usable - reserved.max(kept) - f64::from(2 * per_sec),
        };
        if space > most {
            (best, most) = (percent, space);
        }
        percent += step;
    }
    best
}

/// First segment of each log, in zones of `per_zone` segments. There are more than six zones.
fn initial_cursegs(zones: u32, per_zone: u32, zoned: bool) -> [SegNo; 6] {
    let [hot_node, warm_node, cold_node, hot_data] = [0, 1, 2, 3];
    let (warm_data, cold_data) = if zoned {
        (4, 5)
    } else {
        let cold = (zones / 4).saturating_sub(1).max(4);
        ((zones / 2).saturating_sub(1).max(cold + 1), cold)
    };
    [hot_data, warm_data, cold_data, hot_node, warm_node, cold_node].map(|zone| zone * per_zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// size, sections a zone, `-i`, [segments, sit, nat, ssa, main, main_blkaddr, payload],
    /// then reserved, overprov, user blocks of 1.15 and of 1.16.
    type Vector = (u64, u32, bool, [u32; 7], [u64; 3], [u64; 3]);

    const VECTORS: [Vector; 13] = [
        (52 * MIB, 1, false, [25, 2, 2, 1, 18, 4096, 0], [12, 14, 2048], [8, 10, 4096]),
        (64 * MIB, 1, false, [31, 2, 2, 1, 24, 4096, 0], [13, 16, 4096], [8, 10, 7168]),
        (128 * MIB, 1, false, [63, 2, 2, 1, 56, 4096, 0], [18, 25, 15872], [11, 13, 22016]),
        (512 * MIB, 1, false, [255, 2, 2, 1, 248, 4096, 0], [28, 50, 101376], [17, 25, 114176]),
        (GIB, 1, false, [511, 2, 4, 1, 502, 5120, 0], [39, 68, 222208], [25, 27, 243200]),
        (4 * GIB, 1, false, [2047, 2, 10, 4, 2029, 9728, 0], [71, 132, 971264], [48, 50, 1013248]),
        (
            16 * GIB,
            1,
            false,
            [8191, 2, 36, 16, 8135, 29184, 0],
            [135, 260, 4032000],
            [93, 95, 4116480],
        ),
        (
            64 * GIB,
            1,
            false,
            [32767, 4, 116, 64, 32581, 95744, 0],
            [264, 516, 16417280],
            [182, 186, 16586240],
        ),
        (
            1024 * GIB,
            1,
            false,
            [524287, 38, 82, 1024, 523141, 587264, 0],
            [1007, 2051, 266798080],
            [721, 733, 267472896],
        ),
        (GIB, 8, false, [504, 2, 4, 8, 488, 12288, 0], [224, 250, 121856], [136, 152, 172032]),
        (
            32 * GIB,
            128,
            false,
            [16256, 2, 72, 52, 16128, 131072, 0],
            [3584, 4838, 5780480],
            [2176, 2432, 7012352],
        ),
        (4 * GIB, 1, true, [2047, 2, 2, 4, 2037, 5632, 0], [71, 132, 975360], [48, 50, 1017344]),
        (
            1024 * GIB,
            1,
            true,
            [524287, 38, 460, 1024, 522763, 780800, 3],
            [1007, 2050, 266605056],
            [721, 732, 267279872],
        ),
    ];

    #[test]
    fn geometry_is_that_of_both_releases() {
        for (bytes, segs_per_sec, large_nat_bitmap, areas, old, new) in VECTORS {
            for (formula, space) in [(Formula::V1_15, old), (Formula::V1_16, new)] {
                let request =
                    Request { segs_per_sec, large_nat_bitmap, formula, ..Request::new(bytes) };
                let g = layout(&request).unwrap();
                let found = [g.segments, g.sit, g.nat, g.ssa, g.main, g.main_blkaddr, g.cp_payload];
                assert_eq!(found, areas, "{bytes} bytes");
                let found = [g.reserved.into(), g.overprov.into(), g.user_blocks];
                assert_eq!(found, space, "{bytes} bytes, {formula:?}");
                assert_eq!(g.segment0, 512 * segs_per_sec);
            }
        }
    }

    #[test]
    fn the_smallest_volumes_are_those_of_both_releases() {
        let fits = |mib, formula| layout(&Request { formula, ..Request::new(mib * MIB) }).is_ok();
        assert!(fits(52, Formula::V1_15) && !fits(50, Formula::V1_15));
        assert!(fits(44, Formula::V1_16) && !fits(42, Formula::V1_16));
    }

    #[test]
    fn capacity_below_zone_size_is_not_usable() {
        let zones = Some(ZoneShape { capacity: 47 * 256, conventional: 2 });
        let request = Request { segs_per_sec: 32, zoned: true, zones, ..Request::new(4 * GIB) };
        let g = layout(&request).unwrap();
        assert_eq!((g.main, g.main_blkaddr), (2016 - 32, 2 * 32 * 512));
        assert_eq!(g.usable, g.main / 32 * 24);
        assert_eq!(g.cursegs, [3, 4, 5, 0, 1, 2].map(|z| z * 32));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(layout(&Request::new(0)).is_err());
        assert!(layout(&Request::new(u64::MAX)).is_err());
        assert!(layout(&Request { segs_per_sec: 0, ..Request::new(GIB) }).is_err());
        assert!(layout(&Request { segs_per_sec: u32::MAX, ..Request::new(GIB) }).is_err());
        assert!(layout(&Request { overprovision: Some(f64::NAN), ..Request::new(GIB) }).is_err());
    }
}
