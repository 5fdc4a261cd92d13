//! Making a volume.
//!
//! An old superblock is erased first. Then everything is written and flushed, and the new
//! superblock comes last. So if the power fails on the way there is no volume, and never half of
//! one.

mod geometry;
mod image;
mod options;

use std::sync::Arc;

use drive::{Block, Drive, Zone, ZoneKind, ZoneState};
use queue::BlockQueue;
use vfs::Timespec;
use vfs::kind::{self, signature};

pub use geometry::{Formula, Geometry, Request, ZoneShape, layout};
pub use options::{Encoding, MkfsOptions};

use crate::error::{Error, Result};
use crate::ondisk::sit::LogType;
use crate::ondisk::superblock::{COPIES, Features, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::{F2fs, MountOptions};
use image::Image;

/// Blocks of zeroes written at once if a drive cannot discard.
const ZERO_RUN: u64 = 256;

/// What was made.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatReport {
    /// The superblock.
    pub superblock: Superblock,
    /// Where everything is, and how much is kept from users.
    pub geometry: Geometry,
    /// Zones that held data and were reset.
    pub zones_reset: u32,
    /// Whether the whole device was discarded or reset.
    pub trimmed: bool,
}

/// Makes an F2FS volume on `drive`.
pub fn format(drive: &Arc<dyn Drive>, options: &MkfsOptions) -> Result<FormatReport> {
    let queue = BlockQueue::new(Arc::clone(drive));
    if queue.identify().read_only {
        return Err(Error::ReadOnly);
    }
    let options = effective(&queue, options)?;
    options.check()?;
    if options.devices.len() != queue.identify().joined.len() {
        return Err(Error::usage("as many device names as devices joined"));
    }
    if !options.force {
        check_blank(drive)?;
    }
    let block_count = volume_blocks(&queue, &options)?;
    let geometry = layout(&request(&queue, &options, block_count))?;
    check_zones(&queue, &geometry)?;
    let trimmed = options.discard && queue.identify().discard || queue.identify().zones.is_some();
    let image = Image::new(&options, &geometry, block_count, &queue.identify().joined, trimmed)?;
    let used = used_zones(&queue)?;
    // All that can be refused has been; from here on the device changes.
    prepare(&queue, &options, block_count, &used)?;
    let zones_reset = used.len() as u32;
    write(&queue, &image, &options)?;
    Ok(FormatReport { superblock: image.sb, geometry, zones_reset, trimmed })
}

/// Mounts a volume in order to fill it. While it is mounted the clock says `now`, so that images
/// come out the same every time.
pub fn mount_new(drive: Arc<dyn Drive>, now: Timespec) -> kind::Result<Arc<dyn kind::Volume>> {
    let options = MountOptions { frozen_time: Some(now), ..MountOptions::default() };
    Ok(Arc::new(F2fs::mount(drive, &options)?))
}

/// Fails if the drive holds something that is known.
pub(crate) fn check_blank(drive: &Arc<dyn Drive>) -> Result<()> {
    match signature(drive)? {
        Some(name) => Err(Error::usage(format!("the device holds {name}; -f overwrites it"))),
        None => Ok(()),
    }
}

/// The options, with those that the drive's zones dictate.
fn effective(queue: &BlockQueue, options: &MkfsOptions) -> Result<MkfsOptions> {
    let mut options = options.clone();
    if let Some(zones) = &queue.identify().zones {
        let segments = zones.size / u64::from(BLOCKS_PER_SEGMENT);
        if !zones.size.is_power_of_two() || segments == 0 {
            let size = zones.size;
            let allowed = "a power of two of at least 2 MiB";
            return Err(Error::unsupported(format!("zones of {size} blocks; allowed: {allowed}")));
        }
        options.segs_per_sec =
            u32::try_from(segments).map_err(|_| Error::unsupported("zones above 16 TiB"))?;
        options.secs_per_zone = 1;
        options.zoned = true;
    } else if options.zoned {
        return Err(Error::usage(
            "-m: the device has no zones, and Linux would not mount the volume",
        ));
    }
    options.features.set(Features::BLKZONED, options.zoned);
    Ok(options)
}

fn volume_blocks(queue: &BlockQueue, options: &MkfsOptions) -> Result<u64> {
    let device = queue.identify().blocks;
    let Some(sectors) = options.sectors else { return Ok(device) };
    let blocks = sectors.checked_mul(options.sector_size.into()).map(|b| b / BLOCK_SIZE as u64);
    blocks.filter(|&blocks| blocks <= device).ok_or_else(|| {
        Error::usage(format!("{sectors} sectors are more than the device's {device} blocks"))
    })
}

fn request(queue: &BlockQueue, options: &MkfsOptions, block_count: u64) -> Request {
    let zones = queue.identify().zones.as_ref();
    Request {
        bytes: block_count.saturating_mul(BLOCK_SIZE as u64),
        segs_per_sec: options.segs_per_sec,
        secs_per_zone: options.secs_per_zone,
        large_nat_bitmap: options.large_nat_bitmap,
        overprovision: options.overprovision,
        zoned: options.zoned,
        zones: zones.map(|z| ZoneShape { capacity: z.capacity, conventional: z.conventional }),
        formula: options.formula,
        nat_min: 0,
    }
}

/// Fails if metadata, which is overwritten in place, would lie in zones that do not allow that.
fn check_zones(queue: &BlockQueue, geometry: &Geometry) -> Result<()> {
    let Some(zones) = &queue.identify().zones else { return Ok(()) };
    let needed = u64::from(geometry.main_blkaddr).div_ceil(zones.size);
    if u64::from(zones.conventional) < needed {
        let found = zones.conventional;
        let hint = if queue.identify().joined.is_empty() {
            "; a conventional device can hold them, and this one be its second (-c)"
        } else {
            ""
        };
        return Err(Error::usage(format!(
            "metadata needs {needed} conventional zones, the drive has {found}{hint}"
        )));
    }
    Ok(())
}

/// Erases what was there: superblocks first, then the zones that are `used`, or the whole device.
fn prepare(queue: &BlockQueue, options: &MkfsOptions, blocks: u64, used: &[Zone]) -> Result<()> {
    for copy in COPIES {
        queue.write_blocks(copy.into(), vec![Block::zeroed()], false)?;
    }
    // A further device may not look like a volume of its own either.
    let mut start = 0;
    for blocks in &queue.identify().joined {
        if is_random(queue, start) {
            queue.write_blocks(start, vec![Block::zeroed(); COPIES.len()], false)?;
        }
        start += blocks;
    }
    queue.flush()?;
    for zone in used {
        queue.reset_zone(zone.start)?;
    }
    if options.discard && queue.identify().discard {
        let conventional = queue.identify().zones.as_ref();
        let end = conventional.map_or(blocks, |z| blocks.min(u64::from(z.conventional) * z.size));
        queue.discard(0, end)?;
    }
    Ok(())
}

/// The zones that have to be reset.
fn used_zones(queue: &BlockQueue) -> Result<Vec<Zone>> {
    let mut used = Vec::new();
    for zone in queue.report_zones()? {
        if needs_reset(&zone)? {
            used.push(zone);
        }
    }
    Ok(used)
}

fn needs_reset(zone: &Zone) -> Result<bool> {
    if zone.kind == ZoneKind::Conventional {
        return Ok(false);
    }
    match zone.state {
        ZoneState::Offline | ZoneState::ReadOnly => {
            let (start, state) = (zone.start, zone.state);
            Err(Error::unsupported(format!("the zone at block {start:#x} is {state:?}")))
        }
        state => Ok(state != ZoneState::Empty),
    }
}

fn write(queue: &BlockQueue, image: &Image, options: &MkfsOptions) -> Result<()> {
    let sb = &image.sb;
    zero(queue, sb.cp_blkaddr.into(), 2 * u64::from(BLOCKS_PER_SEGMENT))?;
    zero(queue, sb.sit_blkaddr.into(), sb.sit_blocks().into())?;
    // The NAT's copies alternate. Its version bits are all clear, so only the first copies count.
    for half in 0..u64::from(sb.segment_count_nat / 2) {
        let start = u64::from(sb.nat_blkaddr) + half * 2 * u64::from(BLOCKS_PER_SEGMENT);
        zero(queue, start, BLOCKS_PER_SEGMENT.into())?;
    }
    put(queue, sb.nat_blkaddr, image.nat_block())?;
    for (addr, block) in image.initial_blocks(options) {
        put(queue, addr, block)?;
    }
    let chain = image.log_start(LogType::WarmNode);
    if is_random(queue, chain.into()) {
        // An old node here could pass for the start of a roll-forward chain. A zone has been reset.
        put(queue, chain, Block::zeroed())?;
    }
    for (addr, block) in image.checkpoint_blocks() {
        put(queue, addr, block)?;
    }
    queue.flush()?;
    for copy in COPIES {
        queue.write_blocks(copy.into(), vec![image.raw.to_block()], true)?;
    }
    Ok(queue.flush()?)
}

/// Whether `lba` can be written in any order.
fn is_random(queue: &BlockQueue, lba: u64) -> bool {
    queue.identify().zones.is_none_or(|z| lba < u64::from(z.conventional) * z.size)
}

fn put(queue: &BlockQueue, addr: u32, block: Block) -> Result<()> {
    Ok(queue.write_blocks(addr.into(), vec![block], false)?)
}

/// Makes a range read as zeroes, by a discard where that is enough.
fn zero(queue: &BlockQueue, lba: u64, blocks: u64) -> Result<()> {
    if queue.identify().discard && queue.identify().discard_zeroes {
        return Ok(queue.discard(lba, blocks)?);
    }
    let mut at = lba;
    while at < lba + blocks {
        let n = ZERO_RUN.min(lba + blocks - at);
        queue.write_blocks(at, vec![Block::zeroed(); n as usize], false)?;
        at += n;
    }
    Ok(())
}
