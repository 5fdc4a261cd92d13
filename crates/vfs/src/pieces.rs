//! A byte range of a file, page by page, as a read or write needs it for its buffer.

use std::ops::Range;

use drive::BLOCK_SIZE;

/// The part of a transfer that lies in one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the page in the file.
    pub page: u64,
    /// Which bytes of the page.
    pub within: Range<usize>,
    /// Which bytes of the buffer.
    pub buffer: Range<usize>,
}

/// Splits `offset..offset + len` at page boundaries.
#[inline]
pub fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let first = (at % BLOCK_SIZE as u64) as usize;
        let part = (BLOCK_SIZE - first).min(len - done);
        let buffer = done..done + part;
        done += part;
        Some(Piece { page: at / BLOCK_SIZE as u64, within: first..first + part, buffer })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_once() {
        let piece = |page, within, buffer| Piece { page, within, buffer };
        assert_eq!(pieces(5000, 0).count(), 0);
        assert_eq!(pieces(4096, 4096).collect::<Vec<_>>(), [piece(1, 0..4096, 0..4096)]);
        let three =
            [piece(0, 4000..4096, 0..96), piece(1, 0..4096, 96..4192), piece(2, 0..8, 4192..4200)];
        assert_eq!(pieces(4000, 4200).collect::<Vec<_>>(), three);
    }
}
