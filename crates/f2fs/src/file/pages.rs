//! Where the pages of a file are, to compare whole volumes without reading through the page cache.

use std::ops::Range;

use vfs::kind::PageAt;
use vfs::{Errno, Ino};

use crate::F2fs;
use crate::error::Result;
use crate::ondisk::{ADDRS_PER_BLOCK, Nid, is_data_addr};

impl F2fs {
    /// Shows, in order, which of these pages of a file are no holes, and where they are. False if
    /// its contents are not in blocks of their own, inline or compressed, or of two inodes, while
    /// it is written atomically.
    pub fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        let ino = Nid::try_from(ino).map_err(|_| Errno::NOENT)?;
        let mut volume = self.lock();
        if volume.top_inode(ino) != ino
            || volume.has_inline_data(ino)?
            || volume.layout(ino)?.cluster().is_some()
        {
            return Ok(false);
        }
        let mut from = range.start;
        while from < range.end {
            let most = usize::try_from(range.end - from).unwrap_or(usize::MAX);
            let Some(first) = volume.next_allocated(ino, from..range.end, true)? else { break };
            let addrs = volume.addrs_from(ino, first, most.min(ADDRS_PER_BLOCK as usize))?;
            from = first + addrs.len().max(1) as u64;
            for (index, addr) in (first..range.end).zip(addrs) {
                match volume.inodes.of(ino).pages.peek(ino.into(), index) {
                    Some(page) => see(index, PageAt::Memory(page)),
                    None if is_data_addr(addr) => see(index, PageAt::Drive(addr.into())),
                    None => {}
                }
            }
        }
        Ok(true)
    }
}
