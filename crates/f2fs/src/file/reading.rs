//! Reading what is not cached. Nothing is locked while the drive works.
//!
//! What was read counts if the file still has these blocks and nothing was written to them
//! meanwhile. No other contents get the place of a block in use before the next checkpoint, so it
//! is enough that none has begun and that nothing was overwritten in place. What does not count is
//! read again with the volume locked.
//!
//! Blocks are looked up in cached nodes, which readers share (hybridF2FS's nCache). The exclusive
//! holder of the volume reads the nodes that are missing.

use std::ops::Range;

use drive::{Blocks, Lba};
use queue::IoError;
use vfs::file::{self, Miss};
use vfs::{Hold, Ino, PageCache};

use crate::F2fs;
use crate::error::Result;
use crate::inode::change::Change;
use crate::inode::mapping::Mapping;
use crate::inode::see::{Glance, Own, See, Sight, Unseen};
use crate::mount::engine::Engine;
use crate::mount::iostat::Moved;
use crate::mount::options::Inject;
use crate::ondisk::Nid;

/// Blocks to read, and what has to be as it was before.
pub(crate) struct Reading {
    pub(crate) miss: Miss<Nid>,
    /// The checkpoint's version.
    version: u64,
    /// How often a file of the shard was overwritten in place.
    in_place: u64,
}

impl Reading {
    /// How many blocks.
    pub(crate) fn len(&self) -> usize {
        (self.miss.blocks.end - self.miss.blocks.start) as usize
    }
}

/// The beginning and the end of a read, under a lock.
pub(crate) trait Reads: Mapping {
    /// The blocks of `miss` are about to be read.
    fn begin_reading(&mut self, miss: Miss<Nid>) -> Result<Reading, Self::Error> {
        let version = self.engine().checkpoint.version;
        let in_place = self.shard(miss.file)?.in_place;
        Ok(Reading { miss, version, in_place })
    }

    /// Whether nothing else can have been written to the blocks since then.
    fn is_undisturbed(&mut self, reading: &Reading) -> Result<bool, Self::Error> {
        let in_place = self.shard(reading.miss.file)?.in_place;
        let engine = self.engine();
        let is_same = engine.checkpoint.version == reading.version && in_place == reading.in_place;
        Ok(is_same || engine.options.inject.contains(Inject::TRUST_READS))
    }

    /// Whether the file still has all of the blocks.
    fn has_all(&mut self, reading: &Reading) -> Result<bool, Self::Error> {
        let Miss { file, index, blocks } = &reading.miss;
        let run = self.run_from(*file, *index, blocks.end - blocks.start)?;
        Ok(run.as_ref() == Some(blocks))
    }
}

impl<M: Mapping> Reads for M {}

impl<'a, S: Sight<'a>> Glance<'a, S> {
    /// What to read for `pages`, of which the first is missing: as many as lie side by side on the
    /// drive and are missing.
    pub(crate) fn missing(
        &mut self,
        ino: Nid,
        pages: Range<u64>,
        is_missing: impl Fn(&PageCache, u64) -> bool,
    ) -> Result<Reading, Unseen> {
        if self.view(ino)?.layout().cluster().is_some() {
            return Err(Unseen::Absent);
        }
        let most = pages.end.saturating_sub(pages.start);
        let run = self.run_from(ino, pages.start, most)?.ok_or(Unseen::Absent)?;
        let cache = &self.shard(ino)?.pages;
        let indices = (pages.start..).take((run.end - run.start) as usize);
        let count = indices.take_while(|index| is_missing(cache, *index)).count() as u64;
        let blocks = run.start..run.start + count;
        if count == 0 || self.engine().io.has_in_flight(blocks.clone()) {
            return Err(Unseen::Absent);
        }
        self.begin_reading(Miss { file: ino, index: pages.start, blocks })
    }
}

impl Own<'_> {
    /// Puts what was read into the page cache; false if it does not count.
    fn keep(&mut self, reading: &Reading, blocks: Blocks) -> Result<bool, Unseen> {
        if !self.is_undisturbed(reading)? || !self.has_all(reading)? {
            return Ok(false);
        }
        let Miss { file, index, .. } = reading.miss;
        let (pages, ino) = (&mut self.shard_mut(file)?.pages, Ino::from(file));
        for (index, block) in (index..).zip(blocks) {
            if pages.peek(ino, index).is_none() {
                pages.insert_clean(ino, index, block);
            }
        }
        Ok(true)
    }
}

impl Engine {
    /// Puts what was read into the page cache, where it still is what the file has. False if it
    /// does not count.
    fn end_reading(&mut self, reading: &Reading, blocks: Blocks) -> Result<bool> {
        let ino = reading.miss.file;
        if !self.is_there(ino)? || !self.is_undisturbed(reading)? {
            return Ok(false);
        }
        file::insert(self, &reading.miss, blocks, |volume, index, lba| {
            let known = volume.inodes.of(ino).extents.at(ino, index);
            let addr = known.map_or_else(|| volume.addr_of(ino, index), Ok)?;
            Ok(Lba::from(addr) == lba)
        })?;
        Ok(true)
    }

    /// Whether there still is such an inode: that of an atomic write may be gone.
    pub(crate) fn is_there(&mut self, ino: Nid) -> Result<bool> {
        Ok(!self.nat.get_mut().get(&self.io, ino)?.is_free())
    }
}

impl F2fs {
    /// What the drive has at the blocks. No lock is held.
    pub(crate) fn read_from_drive(&self, reading: &Reading) -> Result<Blocks, IoError> {
        let Range { start, end } = reading.miss.blocks;
        let blocks = self.queue().read_blocks(start, (end - start) as u32)?;
        self.iostat.add_blocks(Moved::FsDataRead, (end - start) as usize);
        Ok(blocks)
    }

    /// What the drive has at the blocks; `None` if it does not count.
    pub(crate) fn read_shared(&self, reading: &Reading) -> Result<Option<Blocks>> {
        // An error is reported by the exclusive retry.
        let Ok(blocks) = self.read_from_drive(reading) else { return Ok(None) };
        let counts = self.glance_within(|volume| {
            Ok(volume.is_undisturbed(reading)? && volume.has_all(reading)?)
        })?;
        Ok(counts.unwrap_or(false).then_some(blocks))
    }

    /// Reads blocks into the page cache; false if that takes the volume.
    pub(crate) fn read_into_cache(&self, reading: &Reading) -> bool {
        // An error is reported by the exclusive retry.
        let Ok(blocks) = self.read_from_drive(reading) else { return false };
        self.own_cache(reading.miss.file, |own| own.keep(reading, blocks)).unwrap_or(false)
    }

    /// Reads the blocks of a miss into the page cache, for a caller that had the volume and gets
    /// it back. `holds` if it is to be kept meanwhile. Also returns whether what was read did not
    /// count, for `holds` of the retry.
    pub(crate) fn fetch<'a>(
        &'a self,
        mut volume: Hold<'a, Engine>,
        miss: Miss<Nid>,
        holds: bool,
    ) -> Result<(Hold<'a, Engine>, bool)> {
        if holds || volume.io.has_in_flight(miss.blocks.clone()) {
            file::read_miss(&mut *volume, miss)?;
            return Ok((volume, false));
        }
        let reading = volume.begin_reading(miss)?;
        drop(volume);
        let blocks = self.read_from_drive(&reading);
        let mut volume = self.lock();
        let counts = volume.end_reading(&reading, blocks?)?;
        Ok((volume, !counts))
    }
}
