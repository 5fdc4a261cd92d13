//! In how many steps a volume gets its new size.
//!
//! Each step needs room in the old main area for the new tables twice, where they will be and
//! aside, and beyond that for all that is in use. A volume that grows gets more of it beforehand:
//! its main area is extended over the free blocks behind it, as far as the present tables can
//! describe them. That is one superblock, written over a volume that was cleanly unmounted: with
//! either the volume is complete, and the checkpoint's counts are right for the smaller one and low
//! for the larger. Where that is not enough, the volume first gets a size in between.

use drive::Block;
use queue::BlockQueue;
use zerocopy::IntoBytes;

use super::ResizeOptions;
use super::relocate::Shape;
use crate::check::view::View;
use crate::error::{Error, Result};
use crate::offline::mkfs::{Formula, Request, layout};
use crate::offline::super_write;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::nat;
use crate::ondisk::sit::{self, RawSitBlock};
use crate::ondisk::superblock::{RawSuperblock, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// Segments that emptying others takes: the logs, and two that wait for a checkpoint to free them.
const ROOM_TO_MOVE: u64 = 8;

/// One step.
pub(super) struct Step {
    /// The superblock with a main area in which it can be done, if the present one is too small.
    extension: Option<RawSuperblock>,
    /// Where the tables are in between.
    pub(super) aside: Shape,
    pub(super) target: Shape,
    /// The target is what was asked for.
    pub(super) is_last: bool,
}

/// The next step; `None` if there is nothing to do. Fails if there is none; writes nothing.
pub(super) fn plan(view: &mut View, options: &ResizeOptions) -> Result<Option<Step>> {
    let blocks = wanted_blocks(view, options)?;
    let nat_blocks = nat_blocks_used(view)?;
    let target = shape(view, options, blocks, nat_blocks)?;
    if target.is_layout_of(&view.sb) && !options.large_nat_bitmap {
        return Ok(None);
    }
    let extension = extension(view, blocks)?;
    let sb = match &extension {
        Some(raw) => Superblock::parse(raw.to_block().bytes(), 0)?,
        None => view.sb.clone(),
    };
    let step = |size: u64| -> Result<(Shape, Shape, bool)> {
        let target = shape(view, options, size, nat_blocks)?;
        let aside = target.behind(sb.main_blkaddr.max(target.main_blkaddr), &sb)?;
        check_room(&sb, &view.cp, &aside, target.end() > sb.main_end())?;
        Ok((aside, target, size == blocks))
    };
    let mut found = step(blocks);
    let mut between = blocks / 2;
    while found.is_err() && between > sb.block_count {
        // If there is no way, the size that was asked for says why.
        found = step(between).or(found);
        between /= 2;
    }
    let (aside, target, is_last) = found?;
    Ok(Some(Step { extension, aside, target, is_last }))
}

impl Step {
    /// Extends the main area if the step needs that. Returns the superblock in use.
    pub(super) fn extend(&self, queue: &BlockQueue, view: &View) -> Result<Superblock> {
        let Some(raw) = &self.extension else { return Ok(view.sb.clone()) };
        let new = Superblock::parse(raw.to_block().bytes(), 0)?;
        // Table blocks that described nothing may hold anything.
        let table = |sb: &Superblock| sit::block_index(sb.segment_count_main - 1) + 1;
        for index in table(&view.sb)..table(&new) {
            let at = sit::block_addr(&new, &view.cp.sit_bitmap, index);
            queue.write_blocks(at.into(), vec![Block::zeroed()], false)?;
        }
        queue.flush()?;
        super_write::replace(queue, raw.clone())
    }
}

/// The superblock of a volume of less than `blocks` blocks with the same tables; `None` if they
/// describe no more segments than now. Less, so that if the power fails it still has to grow.
fn extension(view: &View, blocks: u64) -> Result<Option<RawSuperblock>> {
    let sb = &view.sb;
    let per_segment = u64::from(BLOCKS_PER_SEGMENT);
    let room = blocks.saturating_sub(sb.main_blkaddr.into()) / per_segment;
    let described = (u64::from(sb.sit_blocks()) * sit::ENTRIES_PER_BLOCK as u64)
        .min(u64::from(sb.segment_count_ssa) * per_segment);
    let zone = sb.segs_per_sec * sb.secs_per_zone;
    let main = room.saturating_sub(zone.into()).min(described) as u32 / zone * zone;
    if main <= sb.segment_count_main || !is_blank_behind(view)? {
        return Ok(None);
    }
    let (mut raw, _) = super_write::read(&view.queue)?;
    let added = main - sb.segment_count_main;
    raw.segment_count_main.set(main);
    raw.segment_count.set(raw.segment_count.get() + added);
    raw.section_count.set(main / sb.segs_per_sec);
    let end = u64::from(sb.main_blkaddr) + u64::from(main) * per_segment;
    raw.block_count.set(sb.block_count.max(end));
    raw.seal();
    Ok(Some(raw))
}

/// Whether the last block of the SIT says nothing of segments that the volume does not have. A
/// volume that was larger once may have left something there.
fn is_blank_behind(view: &View) -> Result<bool> {
    let end = view.sb.segment_count_main;
    let index = sit::block_index(end - 1);
    let block = view.read(sit::block_addr(&view.sb, &view.cp.sit_bitmap, index))?;
    let table = RawSitBlock::of(&block);
    let behind = end..(index + 1) * sit::ENTRIES_PER_BLOCK as u32;
    let is_zero = |segno: u32| table.entry(segno).as_bytes().iter().all(|&byte| byte == 0);
    Ok(behind.into_iter().all(is_zero))
}

/// Fails if what is in use does not fit into the part of the main area that stays in use while the
/// tables move.
fn check_room(sb: &Superblock, cp: &Checkpoint, aside: &Shape, grows: bool) -> Result<()> {
    let stays = aside.end().min(sb.main_end()).saturating_sub(aside.main_blkaddr);
    let spare = if grows { ROOM_TO_MOVE * u64::from(BLOCKS_PER_SEGMENT) } else { 0 };
    if cp.valid_block_count + spare <= stays.into() {
        return Ok(());
    }
    let used = cp.valid_block_count;
    let text =
        format!("{used} blocks are in use, and {stays} would stay where they are: too small");
    Err(Error::usage(text))
}

fn wanted_blocks(view: &View, options: &ResizeOptions) -> Result<u64> {
    let device = view.queue.identify().blocks;
    let blocks = options.blocks.unwrap_or(device);
    if blocks > device {
        return Err(Error::usage(format!("{blocks} blocks are more than the device's {device}")));
    }
    Ok(blocks)
}

/// The shape of the volume with so many blocks.
fn shape(view: &View, options: &ResizeOptions, blocks: u64, nat_blocks: u32) -> Result<Shape> {
    let View { sb, cp, .. } = view;
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
