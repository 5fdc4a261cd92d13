//! Extended attributes (`xattr.c`): in the inode, behind its fields, as long as there is room, then
//! in a block of their own.
//!
//! Such a block may be shared by inodes with the same attributes (`h_refcount`). We never make a
//! block shared, but copy a shared one before we change it. Concurrent changes of its count are
//! ordered by a lock of the volume, held from the plan until it is applied. A block of one inode
//! only is protected by the lock of the inode's shard.

use std::sync::Arc;

use drive::Block;
use vfs::{Errno, XattrMode, check_xattr_name};

use crate::blocks::{Blocks, Kind, Walked};
use crate::error::{Error, Result};
use crate::inode::acl::{decode, list_of};
use crate::inode::cached::Inode;
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::want::{Step, Want};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::xattr::{self, BLOCK_FIRST, Value, Xattr};
use crate::ondisk::{FsBlock, Ino};

use vfs::op::Stop;

/// Longest value, `XATTR_SIZE_MAX` of Linux.
const SIZE_MAX: usize = 65_536;
/// Bytes of the magic number in front of the attributes in an inode.
const MAGIC_LEN: usize = 4;
/// Room in the log that changing an attribute needs, most often.
const ROOM: u32 = 8;

/// The attributes in an inode.
pub(crate) fn in_inode(inode: &Inode) -> Result<Vec<Xattr<'_>>> {
    let area = xattr::in_inode(&inode.rest);
    area.map_or(Ok(Vec::new()), |area| xattr::entries(area, 0, inode.at))
}

/// The block of an inode that has attributes, and where it is.
fn attribute_block<B: Blocks>(blocks: &B, inode: &Inode) -> Walked<Option<(FsBlock, Block)>, B> {
    match inode.raw.file_acl() {
        0 => Ok(None),
        at => Ok(Some((at, blocks.block(at, Kind::Xattrs)?))),
    }
}

/// The attributes in such a block.
fn in_block<'b>(sb: &Superblock, block: Option<&'b (FsBlock, Block)>) -> Result<Vec<Xattr<'b>>> {
    let entries = |(at, block): &'b (FsBlock, Block)| {
        xattr::entries(&block[..sb.block_size as usize], BLOCK_FIRST, *at)
    };
    block.map_or(Ok(Vec::new()), entries)
}

/// Passes the attributes of an inode to `see`, those in the inode first, until it has an answer.
pub(crate) fn search<B: Blocks, T>(
    blocks: &B,
    inode: &Inode,
    mut see: impl FnMut(&Xattr<'_>) -> Walked<Option<T>, B>,
) -> Walked<Option<T>, B> {
    let mut search =
        |list: Vec<Xattr<'_>>| list.iter().find_map(|xattr| see(xattr).transpose()).transpose();
    if let Some(found) = search(in_inode(inode)?)? {
        return Ok(Some(found));
    }
    let block = attribute_block(blocks, inode)?;
    search(in_block(blocks.sb(), block.as_ref())?)
}

/// The value of an attribute as it is stored.
pub(crate) fn stored<B: Blocks>(
    blocks: &B,
    inode: &Inode,
    index: u8,
    name: &[u8],
) -> Walked<Option<Vec<u8>>, B> {
    search(blocks, inode, |xattr| match (xattr.index, xattr.name) == (index, name) {
        true => value(blocks, xattr).map(Some),
        false => Ok(None),
    })
}

fn value<B: Blocks>(blocks: &B, xattr: &Xattr<'_>) -> Walked<Vec<u8>, B> {
    match xattr.value {
        Value::Here(value) => Ok(value.to_vec()),
        Value::Inode(ino, size) => blocks.value_inode(ino, size),
    }
}

/// The value of an attribute as programs see it, from the one that is stored.
fn shown(inode: &Inode, index: u8, value: Vec<u8>) -> Result<Vec<u8>> {
    Ok(if list_of(index).is_some() { decode(&value, inode)?.to_xattr() } else { value })
}

/// The value of attribute `name`.
pub(crate) fn get<B: Blocks>(blocks: &B, inode: &Inode, name: &[u8]) -> Walked<Vec<u8>, B> {
    let (index, name) = split(inode, name, Errno::NODATA)?;
    let value = stored(blocks, inode, index, name)?.ok_or(Error::Posix(Errno::NODATA))?;
    Ok(shown(inode, index, value)?)
}

/// Full names of all attributes.
pub(crate) fn list<B: Blocks>(blocks: &B, inode: &Inode) -> Walked<Vec<Vec<u8>>, B> {
    let mut names = Vec::new();
    search(blocks, inode, |xattr| {
        let is_hidden = (xattr.index, xattr.name) == (xattr::SYSTEM, xattr::INLINE_DATA);
        names.extend(xattr.full_name().filter(|_| !is_hidden));
        Ok(None::<()>)
    })?;
    Ok(names)
}

/// Fails if an attribute of the inode is not what it should be.
pub(crate) fn check<B: Blocks>(blocks: &B, inode: &Inode) -> Walked<(), B> {
    let checked = search(blocks, inode, |xattr| {
        shown(inode, xattr.index, value(blocks, xattr)?)?;
        Ok(None::<()>)
    });
    checked.map(drop)
}

impl Engine {
    /// Value of attribute `name`.
    pub(crate) fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.look(ino.into(), |shard| get(self, &shard.inode(ino)?.inode, name))
    }

    /// Full names of all attributes.
    pub(crate) fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.look(ino.into(), |shard| list(self, &shard.inode(ino)?.inode))
    }

    /// Sets attribute `name`, or removes it (`value: None`).
    pub(crate) fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if value.is_some_and(|value| value.len() > SIZE_MAX) {
            return Err(Errno::TOOBIG.into());
        }
        self.change(&[ino.into()], ROOM, |draft| {
            let inode = draft.inode(ino)?;
            inode.protection().check_changeable()?;
            let (index, name) = split(inode, name, Errno::PERM)?;
            match list_of(index) {
                Some(which) => vfs::acl::set(draft, ino.into(), which, value),
                None => draft.store_xattr(ino, index, name, value, mode),
            }
        })
    }
}

/// The namespace of an attribute's full name, and the rest of it.
fn split<'n>(inode: &Inode, name: &'n [u8], not_here: Errno) -> Result<(u8, &'n [u8])> {
    let checked = check_xattr_name(inode.kind(), name, not_here);
    checked.map_err(|error| Error::Posix(error.errno()))?;
    xattr::split_name(name).ok_or(Error::Posix(Errno::OPNOTSUPP))
}

impl Draft<'_, '_> {
    /// Sets or removes an attribute as it is stored (`ext4_xattr_set_handle`).
    pub(crate) fn store_xattr(
        &mut self,
        ino: Ino,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Step<()> {
        let inode = &self.inode(ino)?.clone();
        let block = attribute_block(self, inode)?;
        let (mut here, mut there) = (in_inode(inode)?, in_block(self.sb(), block.as_ref())?);
        if here.iter().chain(&there).any(|known| matches!(known.value, Value::Inode(..))) {
            return Err(Error::unsupported("attributes in inodes (ea_inode)").into());
        }
        let is_it = |known: &Xattr<'_>| (known.index, known.name) == (index, name);
        let counts = (here.len(), there.len());
        let old = here.iter().chain(&there).find(|known| is_it(known));
        match (old, mode, value) {
            (Some(_), XattrMode::Create, Some(_)) => return Err(Errno::EXIST.into()),
            (None, XattrMode::Replace, _) | (None, _, None) => return Err(Errno::NODATA.into()),
            (Some(old), _, Some(value)) if old.value == Value::Here(value) => return Ok(()),
            _ => {}
        }
        here.retain(|known| !is_it(known));
        there.retain(|known| !is_it(known));
        let (mut is_here, mut is_there) = (here.len() != counts.0, there.len() != counts.1);
        if let Some(value) = value {
            here.push(Xattr { index, name, value: Value::Here(value) });
            if fits_inode(inode, &here) {
                is_here = true;
            } else {
                there.extend(here.pop());
                there.sort_by_key(order);
                is_there = true;
            }
        }
        if is_there {
            self.store_in_block(ino, &there)?;
        }
        if is_here {
            self.store_in_inode(ino, &here)?;
        }
        let now = self.now;
        self.inode_mut(ino)?.raw.set_ctime(now);
        Ok(())
    }

    fn store_in_inode(&mut self, ino: Ino, list: &[Xattr<'_>]) -> Step<()> {
        let inode = self.inode_mut(ino)?;
        let mut rest = vec![0; inode.rest.len()];
        if !list.is_empty() {
            rest[..MAGIC_LEN].copy_from_slice(&xattr::MAGIC.to_le_bytes());
            xattr::emit(&mut rest[MAGIC_LEN..], 0, list);
        }
        inode.rest = Arc::from(rest);
        Ok(())
    }

    /// Without attributes the block is freed. Whatever does not fit it is `ENOSPC`, as in the
    /// kernel.
    fn store_in_block(&mut self, ino: Ino, list: &[Xattr<'_>]) -> Step<()> {
        let old = self.inode(ino)?.raw.file_acl();
        if list.is_empty() {
            return self.drop_xattr_block(ino);
        }
        let mut block = Block::zeroed();
        let bytes = self.volume().sb.bytes_mut(&mut block);
        if !xattr::emit(bytes, BLOCK_FIRST, list) {
            return Err(Error::NoSpace.into());
        }
        xattr::emit_header(bytes, 1, list);
        let at = if old != 0 && !self.is_shared(old)? {
            old
        } else {
            self.check_room(1)?;
            self.drop_xattr_block(ino)?;
            self.new_meta_block(ino)?
        };
        if let Some(seed) = self.volume().sb.checksums.seed() {
            xattr::seal(bytes, seed, at);
        }
        self.put(at, block);
        self.mark_mixed(ino);
        self.note_more();
        self.inode_mut(ino)?.raw.set_file_acl(at);
        Ok(())
    }

    /// The inode has no block with attributes any more (`ext4_xattr_release_block`).
    pub(crate) fn drop_xattr_block(&mut self, ino: Ino) -> Step<()> {
        let at = self.inode(ino)?.raw.file_acl();
        if at == 0 {
            return Ok(());
        }
        if self.is_shared(at)? {
            let pin = self.volume().journal.pin_cached(at);
            let pin = pin.ok_or(Stop::Want(Want::Block(at, Kind::Xattrs)))?;
            self.changes.unshared = Some((at, pin));
            self.count_blocks(ino, -1)?;
        } else {
            self.free_meta_block(ino, at)?;
        }
        self.mark_mixed(ino);
        self.note_more();
        self.inode_mut(ino)?.raw.set_file_acl(0);
        Ok(())
    }

    /// Whether other inodes share this block. If so, locks its count until this is applied.
    fn is_shared(&mut self, at: FsBlock) -> Step<bool> {
        let count = |draft: &Self| -> Step<u32> {
            let block = draft.block_of(at, Kind::Xattrs)?;
            match xattr::header(&block[..], at)?.refcount.get() {
                0 => Err(Error::corrupt("xattr_header.h_refcount", at, 0, "1 or more").into()),
                count => Ok(count),
            }
        };
        if count(self)? == 1 {
            return Ok(false);
        }
        let engine = self.volume();
        self.changes.shares.get_or_insert_with(|| engine.shares.lock());
        Ok(count(self)? > 1)
    }
}

/// Blocks keep their entries in this order (`ext4_xattr_block_find`).
fn order<'x>(known: &Xattr<'x>) -> (u8, usize, &'x [u8]) {
    (known.index, known.name.len(), known.name)
}

/// Whether an inode has room for these attributes. Those with `i_extra_isize` 0 have none.
fn fits_inode(inode: &Inode, list: &[Xattr<'_>]) -> bool {
    let room = inode.rest.len().saturating_sub(MAGIC_LEN);
    let has_room = inode.raw.extra_isize.get() > 0 && room > 0;
    has_room && xattr::emit(&mut vec![0; room], 0, list)
}
