//! Writing: into memory, with a promise of blocks for later.

use std::ops::Range;

use drive::{BLOCK_SIZE, Block};

use super::{Map, page};
use crate::{Errno, pieces};

/// How far a write came.
#[derive(Debug)]
pub struct Written<E> {
    /// Bytes written.
    pub len: usize,
    /// Why not all of them were, and the page up to which blocks may have been reserved in vain.
    pub failed: Option<(E, u64)>,
}

/// Writes `data` into memory. Short only if it failed on the way.
///
/// # Errors
///
/// Those of [`Map::reserve_run`]; nothing is written then.
pub fn write<M: Map>(
    map: &mut M,
    file: M::File,
    offset: u64,
    data: &[u8],
) -> Result<Written<M::Error>, M::Error> {
    let end = offset + data.len() as u64;
    let whole = offset.div_ceil(BLOCK_SIZE as u64)..end / BLOCK_SIZE as u64;
    let ready = whole.start..map.reserve_run(file, whole)?;
    let mut len = 0;
    for piece in pieces(offset, data.len()) {
        let bytes = &data[piece.buffer.clone()];
        let done = match <&[u8; BLOCK_SIZE]>::try_from(bytes) {
            Ok(page) if ready.contains(&piece.page) => {
                let page = Block::copy_of(page);
                map.pages(file).insert_dirty(file.into(), piece.page, page);
                Ok(())
            }
            Ok(page) => write_page(map, file, piece.page, page),
            Err(_) => page_to_change(map, file, piece.page)
                .map(|page| page[piece.within].copy_from_slice(bytes)),
        };
        if let Err(error) = done {
            return Ok(Written { len, failed: Some((error, ready.end)) });
        }
        len = piece.buffer.end;
    }
    Ok(Written { len, failed: None })
}

fn write_page<M: Map>(
    map: &mut M,
    file: M::File,
    index: u64,
    page: &[u8; BLOCK_SIZE],
) -> Result<(), M::Error> {
    if !map.pages(file).is_dirty(file.into(), index) {
        map.reserve(file, index)?;
    }
    map.pages(file).insert_dirty(file.into(), index, Block::copy_of(page));
    Ok(())
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
        map.pages(file).insert_dirty(file.into(), index, below);
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
