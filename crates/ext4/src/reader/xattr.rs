//! Extended attributes of an inode: in it, in a block, and large values in inodes of their own.

use std::borrow::Cow;
use std::ops::ControlFlow;

use vfs::acl;

use super::Reader;
use super::inode::Inode;
use crate::error::Result;
use crate::ondisk::FsBlock;
use crate::ondisk::inode::{Flags, fields_len};
use crate::ondisk::xattr::{self, ACL_ACCESS, ACL_DEFAULT, BLOCK_FIRST, Value, Xattr};

/// The longest value in an inode of its own: `XATTR_SIZE_MAX`.
const VALUE_MAX: u32 = 65_536;

impl Reader {
    /// Passes the attributes of an inode to `see`, those in the inode first, until it breaks.
    fn each_xattr<T>(
        &self,
        inode: &Inode,
        mut see: impl FnMut(&Xattr<'_>) -> Result<ControlFlow<T>>,
    ) -> Result<Option<T>> {
        let fields = fields_len(&inode.bytes, inode.at)?;
        if let Some(area) = xattr::in_inode(&inode.bytes, fields) {
            for xattr in xattr::entries(area, 0, inode.at)? {
                if let ControlFlow::Break(found) = see(&xattr)? {
                    return Ok(Some(found));
                }
            }
        }
        let at = inode.raw.file_acl();
        if at == 0 {
            return Ok(None);
        }
        let block = self.xattr_block(at)?;
        for xattr in xattr::entries(&block, BLOCK_FIRST, at)? {
            if let ControlFlow::Break(found) = see(&xattr)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A block with attributes, verified.
    pub(crate) fn xattr_block(&self, at: FsBlock) -> Result<super::blocks::Buf> {
        let block = self.block(at, "inode.i_file_acl")?;
        xattr::header(&block, at)?;
        if let Some(seed) = self.sb.checksums.seed() {
            xattr::verify(&block, seed, at)?;
        }
        Ok(block)
    }

    /// The value of an attribute as it is stored.
    fn stored_xattr(&self, inode: &Inode, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.each_xattr(inode, |xattr| {
            if (xattr.index, xattr.name) != (index, name) {
                return Ok(ControlFlow::Continue(()));
            }
            Ok(ControlFlow::Break(match xattr.value {
                Value::Here(value) => value.to_vec(),
                Value::Inode(ino, size) => self.value_inode(ino, size)?,
            }))
        })
    }

    /// The value of an attribute that is in the inode itself.
    pub(crate) fn xattr_here<'a>(
        &self,
        inode: &'a Inode,
        index: u8,
        name: &[u8],
    ) -> Result<Option<Cow<'a, [u8]>>> {
        let fields = fields_len(&inode.bytes, inode.at)?;
        let Some(area) = xattr::in_inode(&inode.bytes, fields) else { return Ok(None) };
        let mut all = xattr::entries(area, 0, inode.at)?.into_iter();
        Ok(all.find(|xattr| (xattr.index, xattr.name) == (index, name)).and_then(
            |xattr| match xattr.value {
                Value::Here(value) => Some(value.into()),
                Value::Inode(..) => None,
            },
        ))
    }

    /// A value that has an inode of its own (feature `ea_inode`).
    fn value_inode(&self, ino: u32, size: u32) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if !inode.flags().contains(Flags::EA_INODE) {
            return Err(inode.corrupt("inode.i_flags", "no EA_INODE", "EA_INODE"));
        }
        if size > VALUE_MAX || u64::from(size) != inode.raw.size() {
            return Err(inode.corrupt("inode.i_size", inode.raw.size(), size));
        }
        let mut value = vec![0; size as usize];
        self.read_file(&inode, 0, &mut value)?;
        Ok(value)
    }

    /// The value of the attribute with this full name.
    pub(crate) fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = xattr::split_name(name).ok_or(vfs::Errno::OPNOTSUPP)?;
        if (index, rest) == (xattr::SYSTEM, xattr::INLINE_DATA) {
            return Err(vfs::Errno::NODATA.into());
        }
        let value = self.stored_xattr(inode, index, rest)?.ok_or(vfs::Errno::NODATA)?;
        match index {
            ACL_ACCESS | ACL_DEFAULT => match acl::decode(&value) {
                Ok(list) => Ok(list.to_xattr()),
                Err(what) => {
                    Err(inode.corrupt("ext4_acl", what, "a version 1 list that is complete"))
                }
            },
            _ => Ok(value),
        }
    }

    /// Full names of all attributes.
    pub(crate) fn list_xattrs(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.each_xattr::<()>(inode, |xattr| {
            let hidden = (xattr.index, xattr.name) == (xattr::SYSTEM, xattr::INLINE_DATA);
            names.extend(xattr.full_name().filter(|_| !hidden));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(names)
    }
}
