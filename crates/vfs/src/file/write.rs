//! Writing into the page cache, with blocks reserved for write-back.

use std::ops::Range;

use cores::Residence;
use drive::{BLOCK_SIZE, Block};
use smallvec::SmallVec;

use super::{Map, charge, page};
use crate::{Errno, Piece, pieces};

/// How far a write came.
#[derive(Debug)]
pub struct Written<E> {
    /// Bytes written.
    pub len: usize,
    /// Why not all of them were, and the page up to which blocks may have been reserved in vain.
    pub failed: Option<(E, u64)>,
}

/// Data on its way into a file. Its whole pages are made at once, so that they are not copied under
/// a lock.
pub struct Write<'a> {
    offset: u64,
    data: &'a [u8],
    whole: SmallVec<[Option<Block>; 2]>,
}

/// A page of a [`Write`].
pub enum Page<'a> {
    /// All of it.
    Whole(Block),
    /// A part.
    Part(&'a [u8]),
}

impl<'a> Write<'a> {
    /// Of `data`, from `offset` on. If it would end where no file can, only the caller that finds
    /// that out may use it: it has no pages.
    pub fn new(offset: u64, data: &'a [u8]) -> Self {
        let page = |piece: Piece| data[piece.buffer].try_into().ok().map(Block::copy_of);
        let fits = offset.checked_add(data.len() as u64).is_some();
        let len = if fits { data.len() } else { 0 };
        Self { offset, data, whole: pieces(offset, len).map(page).collect() }
    }

    /// Where it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// All of it.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The indexes of its pages.
    pub fn range(&self) -> Range<u64> {
        let end = self.offset.saturating_add(self.data.len() as u64);
        self.offset / BLOCK_SIZE as u64..end.div_ceil(BLOCK_SIZE as u64)
    }

    /// Its pages, and where they go.
    #[inline]
    pub fn pages(self) -> impl Iterator<Item = (Piece, Page<'a>)> {
        let data = self.data;
        pieces(self.offset, data.len()).zip(self.whole).map(move |(piece, whole)| {
            let page = whole.map_or_else(|| Page::Part(&data[piece.buffer.clone()]), Page::Whole);
            (piece, page)
        })
    }
}

/// Writes into memory. Short only if it failed on the way.
///
/// # Errors
///
/// Those of [`Map::reserve_run`]; nothing is written then.
pub fn write<M: Map>(
    map: &mut M,
    file: M::File,
    write: Write<'_>,
) -> Result<Written<M::Error>, M::Error> {
    let (offset, end) = (write.offset, write.offset + write.data.len() as u64);
    let whole = offset.div_ceil(BLOCK_SIZE as u64)..end / BLOCK_SIZE as u64;
    let ready = whole.start..map.reserve_run(file, whole)?;
    let mut len = 0;
    for (piece, page) in write.pages() {
        let done = match page {
            Page::Whole(page) => {
                let is_ready = ready.contains(&piece.page);
                write_page(map, file, piece.page, page, is_ready)
            }
            Page::Part(bytes) => page_to_change(map, file, piece.page)
                .map(|page| page[piece.within].copy_from_slice(bytes)),
        };
        if let Err(error) = done {
            return Ok(Written { len, failed: Some((error, ready.end)) });
        }
        charge(map.pages(file), file.into(), piece.page, piece.buffer.len(), Residence::write);
        len = piece.buffer.end;
    }
    Ok(Written { len, failed: None })
}

fn write_page<M: Map>(
    map: &mut M,
    file: M::File,
    index: u64,
    page: Block,
    is_ready: bool,
) -> Result<(), M::Error> {
    if !is_ready && !map.pages(file).is_dirty(file.into(), index) {
        map.reserve(file, index)?;
    }
    insert_dirty(map, file, index, page);
    Ok(())
}

fn insert_dirty<M: Map>(map: &mut M, file: M::File, index: u64, page: Block) {
    map.make_room();
    map.pages(file).insert_dirty(file.into(), index, page);
}

/// Page `index` with its present contents, reserved and dirty.
///
/// # Errors
///
/// Those of the map.
pub fn page_to_change<M: Map>(
    map: &mut M,
    file: M::File,
    index: u64,
) -> Result<&mut [u8; BLOCK_SIZE], M::Error> {
    map.unshare(file, index)?;
    if page(map, file, index, index + 1)?.is_none() {
        let below = map.below(file, index)?;
        map.reserve(file, index)?;
        insert_dirty(map, file, index, below);
    }
    let page = map.pages(file).dirty_mut(file.into(), index).ok_or(Errno::IO)?;
    Ok(page.make_mut())
}

/// Zeroes `bytes`, which lie within one page, if that page exists.
///
/// # Errors
///
/// Those of the map.
pub fn zero_in_page<M: Map>(map: &mut M, file: M::File, bytes: Range<u64>) -> Result<(), M::Error> {
    let index = bytes.start / BLOCK_SIZE as u64;
    if bytes.is_empty() || page(map, file, index, index + 1)?.is_none() {
        return Ok(());
    }
    let start = (bytes.start % BLOCK_SIZE as u64) as usize;
    let len = (bytes.end - bytes.start) as usize;
    page_to_change(map, file, index)?[start..start + len].fill(0);
    Ok(())
}

/// Zeroes both ends of `bytes` that are parts of a page, where that page exists. Returns the whole
/// pages between them.
///
/// # Errors
///
/// Those of the map.
pub fn zero_ends<M: Map>(
    map: &mut M,
    file: M::File,
    bytes: Range<u64>,
) -> Result<Range<u64>, M::Error> {
    const PAGE: u64 = BLOCK_SIZE as u64;
    let first = bytes.start.next_multiple_of(PAGE).min(bytes.end);
    let last = (bytes.end / PAGE * PAGE).max(first);
    zero_in_page(map, file, bytes.start..first)?;
    zero_in_page(map, file, last..bytes.end)?;
    Ok(first / PAGE..last / PAGE)
}
