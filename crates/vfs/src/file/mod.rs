//! The contents of a file, page by page: reading them into the page cache and out of it, and
//! writing them into it. A file system provides a [`Map`] for that.
//!
//! Nothing here locks, and nothing waits but [`Map::read_blocks`]. To unlock the file while the
//! drive reads, a reader calls [`read_cached`], unlocks, reads the blocks of the [`Miss`] that it
//! got, locks again, and passes them to [`insert`]. Then it goes on.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;

use cores::{Residence, Stage};
use drive::{Block, Blocks, Lba};

use crate::{Errno, Ino, PageCache};

pub(crate) use read::fill;
pub use read::{
    Miss, Part, insert, page, read, read_cached, read_direct, read_in_memory, read_miss,
};
pub use write::{Page, Write, Written, page_to_change, write, zero_ends, zero_in_page};

/// Charges a virtual machine for `bytes` of a page that are copied, and for finding it.
#[inline]
pub fn charge(
    pages: &PageCache,
    file: Ino,
    index: u64,
    bytes: usize,
    copied: fn(&Residence, usize),
) {
    #[cold]
    fn charge(page: Option<&Residence>, bytes: usize, copied: fn(&Residence, usize)) {
        cores::charge(Stage::CopyPage);
        if let Some(page) = page {
            copied(page, bytes);
        }
    }
    if cores::is_virtual() {
        charge(pages.residence(file, index), bytes, copied);
    }
}

/// Where the pages of files are, in memory and on the drive.
///
/// The rest is the caller's: the size of a file and what limits it, its times, and contents that
/// lie in the inode.
///
/// A file system on which all pages of a file lie in one piece:
///
/// ```
/// use std::ops::Range;
///
/// use drive::{Blocks, Lba};
/// use vfs::file::{self, Map, Write};
/// use vfs::{Block, Errno, Ino, PageCache};
///
/// struct Linear(PageCache);
///
/// impl Map for Linear {
///     type File = Ino;
///     type Error = Errno;
///
///     fn pages(&mut self, _: Ino) -> &mut PageCache {
///         &mut self.0
///     }
///
///     fn locate(&mut self, ino: Ino, index: u64, most: u64) -> Result<Option<Range<Lba>>, Errno> {
///         let start = ino * 1000 + index;
///         Ok(Some(start..start + most))
///     }
///
///     fn read_blocks(&mut self, blocks: Range<Lba>) -> Result<Blocks, Errno> {
///         Ok(blocks.map(|lba| Block::new([lba as u8; 4096])).collect())
///     }
///
///     fn reserve(&mut self, _: Ino, _: u64) -> Result<(), Errno> {
///         Ok(())
///     }
/// }
///
/// let mut map = Linear(PageCache::new(1 << 20));
/// assert_eq!(file::write(&mut map, 0, Write::new(4095, b"abc"))?.len, 3);
/// let mut buf = [0; 6];
/// file::read(&mut map, 0, 4094, &mut buf)?;
/// assert_eq!(&buf, b"\0abc\x01\x01");
/// # Ok::<(), Errno>(())
/// ```
pub trait Map {
    /// What stands for a file: its number, or a hold of it where it has a lock of its own.
    type File: Copy + Into<Ino>;
    /// What can go wrong.
    type Error: From<Errno>;

    /// The cache that has the pages of `file`.
    fn pages(&mut self, file: Self::File) -> &mut PageCache;

    /// Makes room for another page in the cache that the next page goes to. A cache with a budget
    /// of its own evicts by itself.
    fn make_room(&mut self) {}

    /// The blocks of page `index`, which is not in memory, and of the pages that follow it both in
    /// the file and on the drive, `most` at most. `None` if the page is a hole.
    fn locate(
        &mut self,
        file: Self::File,
        index: u64,
        most: u64,
    ) -> Result<Option<Range<Lba>>, Self::Error>;

    /// Reads blocks that lie side by side.
    fn read_blocks(&mut self, blocks: Range<Lba>) -> Result<Blocks, Self::Error>;

    /// Reserves space for the write-back of page `index`: a block, or a count of one.
    fn reserve(&mut self, file: Self::File, index: u64) -> Result<(), Self::Error>;

    /// As [`Map::reserve`], for as many of `pages` as can be reserved at once. Returns the page up
    /// to which they are. The others are reserved one by one, and an error is reported only then.
    fn reserve_run(&mut self, _file: Self::File, pages: Range<u64>) -> Result<u64, Self::Error> {
        Ok(pages.start)
    }

    /// The file whose page `index` readers see in `file`. It is another one where a file lies over
    /// this one, as during an atomic write.
    fn seen(&mut self, file: Self::File, _index: u64) -> Result<Self::File, Self::Error> {
        Ok(file)
    }

    /// Puts page `index` into memory if it has no block of its own on the drive, for instance
    /// because it is compressed. False if it has one, or is a hole.
    fn load(&mut self, _file: Self::File, _index: u64) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Takes apart what page `index` shares with other pages, before a part of it changes. For a
    /// page that is written whole, [`Map::reserve`] has to do that.
    fn unshare(&mut self, _file: Self::File, _index: u64) -> Result<(), Self::Error> {
        Ok(())
    }

    /// What page `index`, which is a hole, holds before its first write.
    fn below(&mut self, _file: Self::File, _index: u64) -> Result<Block, Self::Error> {
        Ok(Block::zeroed())
    }
}
