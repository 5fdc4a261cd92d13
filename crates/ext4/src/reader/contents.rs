//! Reading contents: from blocks, from the inode, from the fields of a short symlink.

use std::borrow::Cow;

use vfs::{FileKind, Seek};

use super::Reader;
use crate::error::Result;
use crate::file::seek;
use crate::inode::cached::Inode;
use crate::inode::xattr::in_inode;
use crate::inode::{map, symlink};
use crate::ondisk::inode::{Flags, I_BLOCK_SIZE};
use crate::ondisk::xattr::{INLINE_DATA, SYSTEM, Value, Xattr};

impl Reader {
    /// Reads from `offset`; short only at the end of the file. Returns how many bytes.
    pub(crate) fn read_file(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        inode.check_readable()?;
        let left = inode.size.saturating_sub(offset);
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
            let found = map::find(self, inode, block as u32)?;
            let here = usize::try_from(found.end() * size - at).unwrap_or(usize::MAX);
            let end = buf.len().min(done.saturating_add(here));
            let into = &mut buf[done..end];
            match found.written_at(block as u32) {
                Some(start) => self.blocks.read_bytes(start, skip as usize, into)?,
                None => into.fill(0),
            }
            done = end;
        }
        Ok(())
    }

    /// Contents that are in the inode: what its map would take, then an attribute.
    fn inline_data<'a>(&self, inode: &'a Inode) -> Result<Cow<'a, [u8]>> {
        let size = inode.size;
        let front = &inode.raw.block;
        if size <= I_BLOCK_SIZE as u64 {
            return Ok(front[..size as usize].into());
        }
        let rest = self.inline_rest(inode)?;
        if size > (I_BLOCK_SIZE + rest.len()) as u64 {
            let allowed = format!("up to {} bytes", I_BLOCK_SIZE + rest.len());
            return Err(inode.corrupt("inode.i_size", size, allowed));
        }
        let mut data = [&front[..], rest].concat();
        data.truncate(size as usize);
        Ok(data.into())
    }

    /// What `i_block` had no room for of contents in the inode.
    pub(super) fn inline_rest<'a>(&self, inode: &'a Inode) -> Result<&'a [u8]> {
        let is_it = |known: &Xattr<'_>| (known.index, known.name) == (SYSTEM, INLINE_DATA);
        let found = in_inode(inode)?.into_iter().find(is_it);
        match found.map(|found| found.value) {
            Some(Value::Here(rest)) => Ok(rest),
            _ => Ok(&[]),
        }
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        inode.check_readable()?;
        if inode.kind() == FileKind::Symlink && inode.flags().contains(Flags::INLINE_DATA) {
            let target = self.inline_data(inode)?;
            symlink::check(inode, &target)?;
            return Ok(target.into_owned());
        }
        symlink::target(self, inode)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, seek: Seek) -> Result<u64> {
        if offset < inode.size && inode.flags().contains(Flags::INLINE_DATA) {
            return Ok(if seek == Seek::Data { offset } else { inode.size });
        }
        seek::find(self, inode, offset, seek, |_| std::iter::empty())
    }
}
