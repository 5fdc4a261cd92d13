//! The table of areas of a journal in use: where the log of each begins.
//!
//! One write moves the tails of several areas at once, so no cut finds one ahead of another.

use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::Block;
use queue::Io;

use crate::area::{Area, LogBlocks, LogSpace, Ring};
use crate::error::{Error, Result};
use crate::journal::Options;
use crate::ondisk::areas::{Span, TABLES, Table, areas_max};
use crate::ondisk::commit::{SECTOR, marks_max};
use crate::ondisk::header::Tid;
use crate::ondisk::superblock::Superblock;
use crate::policy::Areas;
use crate::records::Records;

/// Blocks of an area, unless the number of areas is given.
const AREA_USUAL: u32 = 256;

/// Where the areas' logs begin, in memory and on the drive.
pub(crate) struct Tails {
    /// Changed only by the thread that runs the checkpoint.
    table: Mutex<Table>,
    superblock: Superblock,
    ring: Range<u32>,
    blocks: Arc<LogBlocks>,
}

impl Tails {
    /// Divides the log into areas and marks it as in use. Both are durable when this returns: the
    /// table before the superblock that says that there is one.
    pub(crate) fn begin<K>(
        io: &Io,
        space: LogSpace,
        options: &Options,
    ) -> Result<(Self, Vec<Area<K>>)> {
        let LogSpace { superblock, blocks } = space;
        let blocks = Arc::new(blocks);
        let whole = Ring::new(&superblock, blocks.clone())?;
        if !superblock.incompat().has_sums() {
            return Err(Error::unsupported("journal areas without checksums"));
        }
        let ring = superblock.ring();
        let count = areas_in(io, &superblock, options)?;
        let table = Table::divide(ring.clone(), count, superblock.sequence());
        let area = |(index, span): (u16, &Span)| {
            Area::new(index, span.sequence, Some(whole.part(span.ring.clone())), None)
        };
        let areas = (0..).zip(&table.areas).map(area).collect();
        let table = Mutex::ranked(Rank::Meta, "journal tails", table).keyed(u64::MAX);
        let mut tails = Self { table, superblock, ring, blocks };
        tails.write(io)?;
        let first = tails.ring.start;
        tails.superblock.set_areas(Some(first), tails.superblock.sequence());
        tails.write_superblock(io, &tails.superblock)?;
        Ok((tails, areas))
    }

    /// The logs of these areas begin there. Durable when this returns.
    pub(crate) fn advance(
        &self,
        io: &Io,
        moved: impl Iterator<Item = (u16, (u32, Tid))>,
    ) -> Result<()> {
        let mut table = self.table.lock();
        for (area, (start, sequence)) in moved {
            let span = &mut table.areas[usize::from(area)];
            (span.start, span.sequence) = (start, sequence);
        }
        table.version += 1;
        drop(table);
        self.write(io)
    }

    /// The log is a single one again, and closed; its next transaction is `sequence`.
    pub(crate) fn end(&self, io: &Io, sequence: Tid) -> Result<()> {
        let mut superblock = self.superblock.clone();
        superblock.set_areas(None, sequence);
        superblock.drop_records();
        self.write_superblock(io, &superblock)
    }

    fn write(&self, io: &Io) -> Result<()> {
        let (mut block, size) = (Block::unspecified(), self.superblock.block_size() as usize);
        let at = {
            let table = self.table.lock();
            table.emit(&mut block.make_mut()[..size], self.superblock.sequence());
            table.slot(&self.ring)
        };
        force(io, &self.blocks, at, block)
    }

    fn write_superblock(&self, io: &Io, superblock: &Superblock) -> Result<()> {
        force(io, &self.blocks, 0, Block::from_prefix(&superblock.emit()))
    }
}

fn force(io: &Io, blocks: &LogBlocks, at: u32, block: Block) -> Result<()> {
    let mut set = queue::WriteSet::default();
    set.push_forced(io, blocks(at).expect("it was there when the log was opened"), block);
    Ok(set.wait(io.queue())?)
}

impl LogSpace {
    /// Fails if the log cannot be divided as the options say, which opening it would find out, too.
    pub fn check(&self, io: &Io, options: &Options) -> Result<()> {
        let mut superblock = self.superblock.clone();
        if options.policy.areas != Areas::PerCore {
            return Ok(());
        }
        if options.policy.records.is_some() {
            superblock.use_records(Records::areas());
        }
        areas_in(io, &superblock, options).map(drop)
    }
}

/// How many areas the log is divided into: as many as are asked for, or one for each core.
fn areas_in(io: &Io, superblock: &Superblock, options: &Options) -> Result<u16> {
    let (ring, size) = (superblock.ring(), superblock.block_size() as usize);
    let blocks = ring.end.saturating_sub(ring.start + TABLES);
    // A commit block may name all others, and what is whole of one that a cut has torn.
    let whole = size.min(io.queue().identify().atomic_write as usize).max(SECTOR);
    let max = areas_max(size).min(1 + marks_max(whole));
    let max = (blocks / options.area_min).clamp(1, max as u32);
    let count = match options.areas {
        0 => (cores::core_count() as u32).min(blocks / AREA_USUAL).clamp(1, max),
        wanted => wanted.into(),
    };
    if count > max {
        let what = format!("{count} areas in a journal of {blocks} blocks, where {max} fit");
        return Err(Error::unsupported(what));
    }
    Ok(count as u16)
}
