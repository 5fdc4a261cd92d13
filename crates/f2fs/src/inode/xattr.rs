//! Extended attributes: one list, which begins in the inode and continues in a node of its own
//! (`xattr.c`).

use vfs::{Errno, XattrMode};

use crate::error::{Error, Result};
use crate::inode::acl::{decode, list_of};
use crate::inode::flags::Forbidden;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::Inline;
use crate::ondisk::node::{FOOTER_OFFSET, XATTR_NODE_OFFSET};
use crate::ondisk::xattr::{self, NODE_CAPACITY, Xattr};

/// Longest value, `XATTR_SIZE_MAX` of Linux.
const SIZE_MAX: usize = 65536;

impl Engine {
    /// The whole list as one buffer: the inode's part, then the node's.
    fn xattr_buffer(&mut self, ino: Nid) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let nid = inode.xattr_nid.get();
        let mut buffer = self.inline_xattrs(ino)?;
        if nid != 0 {
            let node = self.node_at(nid, ino, XATTR_NODE_OFFSET)?;
            buffer.extend_from_slice(&node.block[..FOOTER_OFFSET]);
        }
        Ok(buffer)
    }

    fn inline_xattrs(&mut self, ino: Nid) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        Ok(if inode.inline().contains(Inline::XATTR) {
            inode.block()[inode.layout.xattr_range()].to_vec()
        } else {
            Vec::new()
        })
    }

    fn check_xattr_name(&mut self, ino: Nid, name: &[u8], not_here: Errno) -> Result<()> {
        let kind = self.inode(ino)?.file_kind();
        vfs::check_xattr_name(kind, name, not_here).map_err(|error| Error::Posix(error.errno()))
    }

    /// Value of attribute `name`.
    pub(crate) fn get_xattr(&mut self, ino: Nid, name: &[u8]) -> Result<Vec<u8>> {
        self.check_xattr_name(ino, name, Errno::NODATA)?;
        let (index, name) = xattr::split_name(name).ok_or(Error::Posix(Errno::OPNOTSUPP))?;
        let value = self.stored_xattr(ino, index, name)?.ok_or(Error::Posix(Errno::NODATA))?;
        match list_of(index) {
            Some(_) => Ok(decode(&value, ino)?.to_xattr()),
            None => Ok(value),
        }
    }

    /// Value of an attribute as it is on the drive.
    pub(crate) fn stored_xattr(
        &mut self,
        ino: Nid,
        index: u8,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let buffer = self.xattr_buffer(ino)?;
        let all = xattr::parse(&buffer, ino.into())?;
        let found = all.iter().find(|x| x.index == index && x.name == name);
        Ok(found.map(|x| x.value.to_vec()))
    }

    /// Full names of all attributes.
    pub(crate) fn list_xattrs(&mut self, ino: Nid) -> Result<Vec<Vec<u8>>> {
        let buffer = self.xattr_buffer(ino)?;
        let all = xattr::parse(&buffer, ino.into())?;
        Ok(all.iter().filter_map(|x| xattr::full_name(x.index, x.name)).collect())
    }

    /// Sets attribute `name`, or removes it (`value: None`).
    pub(crate) fn set_xattr(
        &mut self,
        ino: Nid,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if value.is_some_and(|value| value.len() > SIZE_MAX) {
            return Err(Errno::TOOBIG.into());
        }
        self.check_changeable(ino)?;
        self.check_xattr_name(ino, name, Errno::PERM)?;
        let (index, name) = xattr::split_name(name).ok_or(Error::Posix(Errno::OPNOTSUPP))?;
        match list_of(index) {
            Some(which) => vfs::acl::set(self, ino.into(), which, value),
            None => self.store_xattr(ino, index, name, value, mode),
        }
    }

    /// Sets or removes an attribute as it is on the drive.
    pub(crate) fn store_xattr(
        &mut self,
        ino: Nid,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let buffer = self.xattr_buffer(ino)?;
        let mut all = xattr::parse(&buffer, ino.into())?;
        let at = all.iter().position(|x| x.index == index && x.name == name);
        match (at, mode, value) {
            (Some(_), XattrMode::Create, Some(_)) => return Err(Errno::EXIST.into()),
            (None, XattrMode::Replace, _) | (None, _, None) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        if let Some(at) = at {
            all.remove(at);
        }
        if let Some(value) = value {
            all.push(Xattr { index, name, value });
        }
        let inline = self.inline_xattrs(ino)?.len();
        let list = xattr::build(all, xattr::capacity(inline)).ok_or(Error::Posix(Errno::TOOBIG))?;
        self.store_xattrs(ino, inline, &list)?;
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        inode.set_ctime(now);
        if self.inode(ino)?.is_dir() {
            self.since_checkpoint.xattr_changed(ino);
        }
        Ok(())
    }

    fn store_xattrs(&mut self, ino: Nid, inline: usize, list: &[u8]) -> Result<()> {
        let (head, tail) = list.split_at(list.len().min(inline));
        let mut nid = self.inode(ino)?.xattr_nid.get();
        if tail.is_empty() && nid != 0 {
            self.free_xattr_node(ino, nid)?;
            self.inode_mut(ino)?.xattr_nid.set(0);
        } else if !tail.is_empty() {
            if nid == 0 {
                nid = self.new_node(ino, XATTR_NODE_OFFSET)?;
                self.inode_mut(ino)?.xattr_nid.set(nid);
            }
            let room = &mut self.node_mut(ino, nid)?[..NODE_CAPACITY];
            room.fill(0);
            room[..tail.len()].copy_from_slice(tail);
        }
        if inline > 0 {
            let range = self.layout(ino)?.xattr_range();
            let area = &mut self.node_mut(ino, ino)?[range];
            area.fill(0);
            area[..head.len()].copy_from_slice(head);
        }
        Ok(())
    }

    /// Frees the node of an inode's attributes.
    pub(crate) fn free_xattr_node(&mut self, ino: Nid, nid: Nid) -> Result<()> {
        self.node_at(nid, ino, XATTR_NODE_OFFSET)?;
        self.free_node(nid, ino)
    }
}
