//! Reading contents: from blocks, from the inode, from the fields of a short symlink.

use std::borrow::Cow;

use vfs::{Errno, FileKind, Seek};

use super::Reader;
use super::inode::Inode;
use super::map::Place;
use crate::error::Result;
use crate::ondisk::inode::{Flags, I_BLOCK_SIZE};
use crate::ondisk::xattr;

impl Reader {
    /// Reads from `offset`; short only at the end of the file. Returns how many bytes.
    pub(crate) fn read_file(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        inode.check_readable()?;
        let left = inode.raw.size().saturating_sub(offset);
        let len = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        if inode.flags().contains(Flags::INLINE_DATA) {
            let data = self.inline_data(inode)?;
            let data = data.get(offset as usize..).unwrap_or_default();
            let have = data.len().min(len);
            buf[..have].copy_from_slice(&data[..have]);
            buf[have..].fill(0);
        } else {
            self.read_blocks(inode, offset, buf)?;
        }
        Ok(len)
    }

    /// Fills `buf`, which ends within the file, from the file's blocks.
    fn read_blocks(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = u64::from(self.sb.block_size);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (block, skip) = (at / size, at % size);
            // The size of a file is less than 2^32 blocks.
            let run = self.locate(inode, block as u32)?;
            let here = usize::try_from(run.len * size - skip).unwrap_or(usize::MAX);
            let end = buf.len().min(done.saturating_add(here));
            let into = &mut buf[done..end];
            match run.place {
                Place::At(start) => self.blocks.read_bytes(start * size + skip, into)?,
                Place::Hole | Place::Unwritten(_) => into.fill(0),
            }
            done = end;
        }
        Ok(())
    }

    /// Contents that are in the inode: what its map would take, then an attribute.
    pub(crate) fn inline_data<'a>(&self, inode: &'a Inode) -> Result<Cow<'a, [u8]>> {
        let size = inode.raw.size();
        let front = &inode.raw.block;
        if size <= I_BLOCK_SIZE as u64 {
            return Ok(front[..size as usize].into());
        }
        let rest = self.xattr_here(inode, xattr::SYSTEM, xattr::INLINE_DATA)?.unwrap_or_default();
        if size > (I_BLOCK_SIZE + rest.len()) as u64 {
            let allowed = format!("up to {} bytes", I_BLOCK_SIZE + rest.len());
            return Err(inode.corrupt("inode.i_size", size, allowed));
        }
        let mut data = [&front[..], &rest[..]].concat();
        data.truncate(size as usize);
        Ok(data.into())
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind != FileKind::Symlink {
            return Err(Errno::INVAL.into());
        }
        inode.check_readable()?;
        let size = inode.raw.size() as usize;
        let mut target = vec![0; size];
        if self.is_fast_symlink(inode) {
            target.copy_from_slice(&inode.raw.block[..size]);
        } else {
            self.read_file(inode, 0, &mut target)?;
        }
        if size == 0 || target.contains(&0) {
            return Err(inode.corrupt("symlink", "an empty target or a NUL", "a path"));
        }
        Ok(target)
    }

    /// Whether a symlink's target is in `i_block` (`ext4_inode_is_fast_symlink`): then it has no
    /// blocks of its own.
    pub(crate) fn is_fast_symlink(&self, inode: &Inode) -> bool {
        let ours = if inode.raw.file_acl() == 0 { 0 } else { self.cluster_sectors() };
        inode.kind == FileKind::Symlink
            && inode.raw.size() < I_BLOCK_SIZE as u64
            && inode.raw.sectors(self.sb.block_size) == ours
            && !inode.flags().intersects(Flags::INLINE_DATA | Flags::EXTENTS)
    }

    /// Units of 512 bytes that one cluster takes.
    fn cluster_sectors(&self) -> u64 {
        u64::from(self.sb.block_size / 512) * u64::from(self.sb.cluster_ratio)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`. What is unwritten is a hole.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, seek: Seek) -> Result<u64> {
        let size = inode.raw.size();
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        if inode.flags().contains(Flags::INLINE_DATA) {
            return Ok(if seek == Seek::Data { offset } else { size });
        }
        let block_size = u64::from(self.sb.block_size);
        let mut block = offset / block_size;
        while block * block_size < size {
            let run = self.locate(inode, block as u32)?;
            let is_data = matches!(run.place, Place::At(_));
            if is_data == (seek == Seek::Data) {
                return Ok(offset.max(block * block_size));
            }
            block += run.len;
        }
        match seek {
            Seek::Data => Err(Errno::NXIO.into()),
            Seek::Hole => Ok(size),
        }
    }
}
