//! Reading: one copy, from the medium to the caller.

use cores::Stage;
use vfs::{Errno, Ino, Result, Seek};

use super::map::Map;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;

impl Pmfs {
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(ino)?;
        let inode = node.lock.read();
        inode.check_file()?;
        Ok(match inode.segments {
            None => self.read_inode(&inode, offset, buf),
            Some(_) => self.read_shared(&inode, offset, buf),
        })
    }

    /// Reads contents of any inode, up to its size.
    pub(crate) fn read_inode(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> usize {
        self.copy_out(&inode.map, inode.raw.size.get(), offset, buf)
    }

    /// Reads what `map` has of a file of this size.
    pub(super) fn copy_out(&self, map: &Map, size: u64, offset: u64, buf: &mut [u8]) -> usize {
        let left = size.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        cores::charge(Stage::MapBlock);
        let end = offset + len as u64;
        let mut at = offset;
        for extent in map.within(offset / BLOCK, end.div_ceil(BLOCK)) {
            let start = (extent.page * BLOCK).max(offset);
            let stop = (extent.end() * BLOCK).min(end);
            buf[(at - offset) as usize..(start - offset) as usize].fill(0);
            let from = extent.block * BLOCK + (start - extent.page * BLOCK);
            self.pm.read(from, &mut buf[(start - offset) as usize..(stop - offset) as usize]);
            at = stop;
        }
        buf[(at - offset) as usize..].fill(0);
        len
    }

    /// Allocated pages count as data.
    pub(crate) fn seek_file(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        let node = self.node(ino)?;
        let inode = node.lock.read();
        inode.check_file()?;
        let size = inode.raw.size.get();
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        let (page, end) = (offset / BLOCK, size.div_ceil(BLOCK));
        let found = match seek {
            Seek::Data => {
                let first = inode.map.within(page, end).next().ok_or(Errno::NXIO)?;
                first.page * BLOCK
            }
            Seek::Hole => {
                let behind = inode.map.within(page, end).try_fold(page, |at, extent| {
                    if extent.page == at { Ok(extent.end()) } else { Err(at) }
                });
                behind.unwrap_or_else(|at| at) * BLOCK
            }
        };
        Ok(found.max(offset).min(size))
    }
}
