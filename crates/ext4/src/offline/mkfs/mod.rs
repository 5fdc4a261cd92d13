//! Making a volume.
//!
//! The old superblock is erased first. Then everything is written and flushed, and the new one
//! comes last. So if the power fails on the way there is no volume, and never half of one.

mod geometry;
mod image;
mod options;
mod place;
mod sink;
mod space;
mod tree;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive, Identify};
use queue::BlockQueue;
use vfs::kind::signature;
use zerocopy::IntoBytes;

pub use options::{Features, MkfsOptions, OnError, parse_uuid};

use crate::error::{Error, Result};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, SUPERBLOCK_OFFSET};
use place::Plan;
use sink::Sink;

/// What was made, or would be.
#[derive(Clone)]
pub struct FormatReport {
    /// The superblock.
    pub superblock: Superblock,
    /// Blocks of the journal; 0 without one.
    pub journal_blocks: u64,
    /// Where copies of the superblock are.
    pub backups: Vec<FsBlock>,
    /// Whether the whole device was discarded.
    pub trimmed: bool,
}

/// What [`format`] would make on a drive like this. Nothing is read or written.
pub fn plan(identify: &Identify, options: &MkfsOptions) -> Result<FormatReport> {
    let trimmed = options.discard && identify.discard;
    Ok(describe(&place(identify, options)?, trimmed))
}

/// Makes an ext4 volume on `drive`.
pub fn format(drive: &Arc<dyn Drive>, options: &MkfsOptions) -> Result<FormatReport> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let identify = queue.identify();
    if identify.read_only {
        return Err(Error::ReadOnly);
    }
    let mut plan = place(identify, options)?;
    if !options.force
        && let Some(name) = signature(drive)?
    {
        return Err(Error::usage(format!("the device holds {name}; -F overwrites it")));
    }
    let trimmed = options.discard && identify.discard;
    let report = describe(&plan, trimmed);
    let is_blank = trimmed && identify.discard_zeroes;
    plan.finish(is_blank || !options.lazy_tables);
    let mut sink = Sink::new(&queue, report.superblock.block_size);
    sink.erase(SUPERBLOCK_OFFSET..2 * SUPERBLOCK_OFFSET)?;
    if trimmed {
        let volume = report.superblock.blocks * u64::from(report.superblock.block_size);
        // The last block perhaps in part.
        queue.discard(0, identify.blocks.min(volume.div_ceil(BLOCK_SIZE as u64)))?;
    }
    if !is_blank {
        for range in plan.to_zero() {
            sink.zero(range)?;
        }
    }
    plan.write(&mut |at, bytes| sink.put(at, 0, bytes))?;
    for (group, at) in plan.backups() {
        sink.put(at, 0, plan.superblock(group, sink.kib()).as_bytes())?;
    }
    sink.flush()?;
    let first = plan.superblock(0, sink.kib());
    sink.put(plan.sb.super_block(), plan.sb.super_byte(), first.as_bytes())?;
    sink.flush()?;
    Ok(report)
}

fn place<'a>(identify: &Identify, options: &'a MkfsOptions) -> Result<Plan<'a>> {
    if identify.zones.is_some() {
        return Err(Error::unsupported("ext4 on a zoned drive"));
    }
    Plan::new(options, identify.blocks.saturating_mul(BLOCK_SIZE as u64))
}

fn describe(plan: &Plan<'_>, trimmed: bool) -> FormatReport {
    let sb = &plan.sb;
    let backups = plan.backups().map(|(_, at)| at).collect();
    FormatReport { superblock: sb.clone(), journal_blocks: plan.journal_len(), backups, trimmed }
}
