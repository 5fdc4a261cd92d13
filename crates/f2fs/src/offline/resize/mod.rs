//! Growing and shrinking a volume that is not mounted (`resize.f2fs`).
//!
//! What can tear: nothing on which a mount relies. The new tables never lie where the old ones do.
//! First the blocks that the volume gives up are emptied (`evacuate`). Then all tables are written
//! behind both the old ones and their final place, and the superblock points there. Then they are
//! written to their final place, and the superblock points to that (`relocate`). What orders it:
//! each superblock is written when everything to which it points is stable. Who repairs: nobody has
//! to, because at every moment the superblock in use describes a complete volume.

mod evacuate;
mod relocate;

use std::ops::Range;
use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;
use vfs::FileSystem;

use crate::check::view::View;
use crate::error::{Error, Result};
use crate::offline::mkfs::{Formula, Request, layout};
use crate::offline::super_write;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::feature;
use crate::ondisk::nat;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, SEGMENT_SIZE};
use crate::{F2fs, MountOptions};
use relocate::Shape;

/// How to resize.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResizeOptions {
    /// `-t`: how many blocks the volume will have; `None` takes the device.
    pub blocks: Option<u64>,
    /// `-i`: a NAT bitmap that can grow.
    pub large_nat_bitmap: bool,
    /// `-o`: percentage kept from users; `None` picks the one that leaves the most space.
    pub overprovision: Option<f64>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeReport {
    /// As it was.
    pub before: Superblock,
    /// As it is.
    pub after: Superblock,
    /// How many segments were emptied to make room.
    pub evacuated: u32,
}

/// Makes the volume on `drive` as large as requested.
pub fn resize(drive: &Arc<dyn Drive>, options: &ResizeOptions) -> Result<ResizeReport> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let (_, before) = super_write::read(&queue)?;
    check_possible(&queue, &before)?;
    // This leaves a clean checkpoint.
    unmount(&F2fs::mount(Arc::clone(drive), &MountOptions::default())?)?;
    let mut view = View::open(BlockQueue::new(Arc::clone(drive)), before.clone())?;
    let nat_blocks = nat_blocks_used(&mut view)?;
    let target = target(&queue, &before, &view.cp, options, nat_blocks)?;
    if target.is_layout_of(&before) && !options.large_nat_bitmap {
        return Ok(ResizeReport { after: before.clone(), before, evacuated: 0 });
    }
    let aside = target.behind(before.main_blkaddr.max(target.main_blkaddr), &before)?;
    let evacuated = evacuate_around(drive, &before, aside.main_blkaddr..aside.end())?;
    relocate::relocate(&queue, &aside)?;
    relocate::relocate(&queue, &target)?;
    let (_, after) = super_write::read(&queue)?;
    Ok(ResizeReport { before, after, evacuated })
}

fn check_possible(queue: &BlockQueue, sb: &Superblock) -> Result<()> {
    if queue.identify().read_only {
        return Err(Error::ReadOnly);
    }
    if queue.identify().zones.is_some() || sb.features.contains(Features::BLKZONED) {
        let why = "resizing a zoned volume: its tables cannot move over sequential zones";
        return Err(Error::unsupported(why));
    }
    if !sb.devices.is_empty() {
        return Err(Error::unsupported("resizing a volume over several devices"));
    }
    let fixed = sb.features & feature::all(|f| f.mount == feature::Mount::ReadOnly);
    if !fixed.is_empty() {
        let names = feature::names(fixed);
        return Err(Error::unsupported(format!("resizing a volume with {names}")));
    }
    Ok(())
}

/// Blocks of the NAT up to the last one that names a node.
fn nat_blocks_used(view: &mut View) -> Result<u32> {
    view.open_summaries = view.read_summaries()?;
    let per_block = nat::ENTRIES_PER_BLOCK as u32;
    for index in (0..view.sb.nat_blocks()).rev() {
        for nid in index * per_block..(index + 1) * per_block {
            if !view.nat(nid)?.is_free() {
                return Ok(index + 1);
            }
        }
    }
    Ok(1)
}

fn unmount(fs: &F2fs) -> Result<()> {
    fs.unmount().map_err(|error| Error::Posix(error.errno()))
}

/// The shape that the volume will have.
fn target(
    queue: &BlockQueue,
    sb: &Superblock,
    cp: &Checkpoint,
    options: &ResizeOptions,
    nat_blocks: u32,
) -> Result<Shape> {
    let device = queue.identify().blocks;
    let blocks = options.blocks.unwrap_or(device);
    if blocks > device {
        return Err(Error::usage(format!("{blocks} blocks are more than the device's {device}")));
    }
    let large = options.large_nat_bitmap || cp.flags.contains(CpFlags::LARGE_NAT_BITMAP);
    let request = Request {
        segs_per_sec: sb.segs_per_sec,
        secs_per_zone: sb.secs_per_zone,
        large_nat_bitmap: large,
        overprovision: options.overprovision,
        formula: Formula::default(),
        nat_min: 2 * nat_blocks.div_ceil(BLOCKS_PER_SEGMENT),
        ..Request::new(blocks.saturating_mul(BLOCK_SIZE as u64))
    };
    let geometry = layout(&request)?;
    if geometry.user_blocks < cp.valid_block_count {
        let (most, used) = (geometry.user_blocks, cp.valid_block_count);
        let text = format!("{used} blocks are in use, and a volume of that size holds {most}");
        return Err(Error::usage(text));
    }
    if geometry.nat / 2 * BLOCKS_PER_SEGMENT < nat_blocks {
        return Err(Error::usage("a volume of that size has no room for the nodes there are"));
    }
    Ok(Shape::new(&geometry, blocks, large))
}

/// Empties every section of the main area that is not wholly within `keep`. Returns how many
/// segments there were.
fn evacuate_around(drive: &Arc<dyn Drive>, sb: &Superblock, keep: Range<BlockAddr>) -> Result<u32> {
    let blocks = sb.blocks_per_section();
    let leaves = |section: &u32| {
        let start = sb.seg_start(sb.section_start(*section));
        start < keep.start || start + blocks > keep.end
    };
    let sections: Vec<u32> = (0..sb.main_sections()).filter(leaves).collect();
    if sections.len() as u32 == sb.main_sections() {
        return Err(Error::usage("nothing of the volume would stay where it is: too small"));
    }
    let fs = F2fs::mount(Arc::clone(drive), &MountOptions::default())?;
    let emptied = fs.settled().evacuate(&sections);
    // Blocks that were moved before the space ran out stay where they are now.
    let unmounted = unmount(&fs);
    emptied.and_then(|emptied| unmounted.map(|()| emptied)).map_err(|error| match error {
        Error::NoSpace => Error::usage(format!(
            "{} MiB have to be emptied, and there is not as much free space",
            (sections.len() as u64 * u64::from(sb.segs_per_sec) * SEGMENT_SIZE) >> 20
        )),
        other => other,
    })
}
