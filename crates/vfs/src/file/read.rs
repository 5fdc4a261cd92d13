//! Reading: what is cached, and what has to be read from the drive first.

use std::ops::Range;

use cores::Residence;
use drive::{BLOCK_SIZE, Block, Blocks, Lba};

use super::{Map, charge};
use crate::{Errno, Ino, PageCache, Piece, pieces};

/// Blocks read at once when they lie side by side on the drive.
const READ_AHEAD: u64 = 256;

/// What a read found in memory, and where it went on to.
#[derive(Debug)]
pub struct Part<F> {
    /// Bytes read.
    pub len: usize,
    /// What has to be read before it can go on; `None` at the end.
    pub miss: Option<Miss<F>>,
}

/// Pages of a file that are not in memory and lie side by side on the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss<F> {
    /// The file whose pages they are: see [`Map::seen`].
    pub file: F,
    /// The first of them, which is the one that is wanted.
    pub index: u64,
    /// Where they are.
    pub blocks: Range<Lba>,
}

/// Fills `buf`, which ends within the file, reading what is not in memory.
///
/// # Errors
///
/// Those of the map.
pub fn read<M: Map>(
    map: &mut M,
    file: M::File,
    offset: u64,
    buf: &mut [u8],
) -> Result<(), M::Error> {
    let mut done = 0;
    loop {
        let part = read_cached(map, file, offset + done as u64, &mut buf[done..])?;
        done += part.len;
        match part.miss {
            Some(miss) => read_miss(map, miss)?,
            None => return Ok(()),
        }
    }
}

/// Fills `buf`, which ends within the file, up to the first page that is not in memory.
///
/// # Errors
///
/// Those of the map.
#[inline]
pub fn read_cached<M: Map>(
    map: &mut M,
    file: M::File,
    offset: u64,
    buf: &mut [u8],
) -> Result<Part<M::File>, M::Error> {
    read_part::<M, false>(map, file, offset, buf)
}

/// As [`read_cached`], past the cache: from memory comes only what the drive does not have yet.
///
/// # Errors
///
/// Those of the map.
pub fn read_direct<M: Map>(
    map: &mut M,
    file: M::File,
    offset: u64,
    buf: &mut [u8],
) -> Result<Part<M::File>, M::Error> {
    read_part::<M, true>(map, file, offset, buf)
}

#[inline]
fn read_part<M: Map, const DIRECT: bool>(
    map: &mut M,
    file: M::File,
    offset: u64,
    buf: &mut [u8],
) -> Result<Part<M::File>, M::Error> {
    let len = buf.len();
    let last = (offset + len as u64).div_ceil(BLOCK_SIZE as u64);
    for Piece { page: index, within, buffer } in pieces(offset, len) {
        let done = buffer.start;
        let into = &mut buf[buffer];
        let file = map.seen(file, index)?;
        charge(map.pages(file), file.into(), index, into.len(), Residence::read);
        let pages = map.pages(file);
        let is_due = !DIRECT || pages.is_dirty(file.into(), index);
        if let Some(page) = is_due.then(|| pages.get(file.into(), index)).flatten() {
            into.copy_from_slice(&page[within]);
        } else if map.load(file, index)? {
            let page = map.pages(file).get(file.into(), index).ok_or(Errno::IO)?;
            into.copy_from_slice(&page[within]);
        } else if let Some(miss) = locate::<M, DIRECT>(map, file, index, last)? {
            return Ok(Part { len: done, miss: Some(miss) });
        } else {
            into.fill(0);
        }
    }
    Ok(Part { len, miss: None })
}

/// Fills `buf`, which ends within the file, up to the first page that is not in `pages`, under the
/// shared lock of the cache. Returns how much that is; holes count as missing.
pub fn read_in_memory(pages: &PageCache, file: Ino, offset: u64, buf: &mut [u8]) -> usize {
    fill(pages, file, offset, buf, |index| pages.touch(file, index))
}

/// As [`read_in_memory`], from the pages that `find` finds.
pub(crate) fn fill<'p>(
    pages: &PageCache,
    file: Ino,
    offset: u64,
    buf: &mut [u8],
    find: impl Fn(u64) -> Option<&'p Block>,
) -> usize {
    for Piece { page: index, within, buffer } in pieces(offset, buf.len()) {
        let Some(page) = find(index) else { return buffer.start };
        charge(pages, file, index, buffer.len(), Residence::read);
        buf[buffer].copy_from_slice(&page[within]);
    }
    buf.len()
}

/// Page `index` of a file, `None` for a hole. Reads ahead, but not to page `end`.
///
/// # Errors
///
/// Those of the map.
pub fn page<M: Map>(
    map: &mut M,
    file: M::File,
    index: u64,
    end: u64,
) -> Result<Option<&Block>, M::Error> {
    if map.pages(file).get(file.into(), index).is_none() && !map.load(file, index)? {
        let Some(miss) = locate::<M, false>(map, file, index, end)? else { return Ok(None) };
        read_miss(map, miss)?;
    }
    Ok(map.pages(file).get(file.into(), index))
}

/// Where page `index`, which is to be read from the drive, is there, and with it those that follow
/// it up to page `end` and are to be read, too.
fn locate<M: Map, const DIRECT: bool>(
    map: &mut M,
    file: M::File,
    index: u64,
    end: u64,
) -> Result<Option<Miss<M::File>>, M::Error> {
    let most = end.saturating_sub(index).clamp(1, READ_AHEAD);
    let Some(blocks) = map.locate(file, index, most)? else { return Ok(None) };
    let pages = map.pages(file);
    let is_missing = |at: &u64| match DIRECT {
        true => !pages.is_dirty(file.into(), *at),
        false => pages.peek(file.into(), *at).is_none(),
    };
    let found = blocks.end - blocks.start;
    let missing = 1 + (index + 1..index + found).take_while(is_missing).count() as u64;
    Ok(Some(Miss { file, index, blocks: blocks.start..blocks.start + missing }))
}

/// Reads what was missed.
///
/// # Errors
///
/// Those of the map.
pub fn read_miss<M: Map>(map: &mut M, miss: Miss<M::File>) -> Result<(), M::Error> {
    let blocks = map.read_blocks(miss.blocks.clone())?;
    insert(map, &miss, blocks, |_, _, _| Ok(true))
}

/// Puts the blocks that were read for a miss into memory, except for pages that are there by now
/// and those of which `is_still_there` says that the page of this index no longer is this block.
/// Others may have changed the file if the caller did not hold it during the read.
///
/// # Errors
///
/// Those of `is_still_there`.
pub fn insert<M: Map>(
    map: &mut M,
    miss: &Miss<M::File>,
    blocks: Blocks,
    mut is_still_there: impl FnMut(&mut M, u64, Lba) -> Result<bool, M::Error>,
) -> Result<(), M::Error> {
    let (file, ino) = (miss.file, miss.file.into());
    // The one asked for goes in last: in a full cache each may push out one before it.
    for (i, block) in blocks.into_iter().enumerate().rev() {
        let i = i as u64;
        let index = miss.index + i;
        if map.pages(file).peek(ino, index).is_none()
            && is_still_there(map, index, miss.blocks.start + i)?
        {
            map.make_room();
            map.pages(file).insert_clean(ino, index, block);
        }
    }
    Ok(())
}
