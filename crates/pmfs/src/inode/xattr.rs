//! Extended attributes: all of an inode's in one run of blocks, written anew with every change, and
//! one word of the inode that points to them. So a change of attributes is atomic, whatever its
//! length.
//!
//! The run begins with the number of bytes that follow; then, for each attribute: the length of the
//! name (1 byte), that of the value (4), name and value.

use std::collections::BTreeMap;

use drive::pm::Pm;
use vfs::acl::{self, Acl};
use vfs::{Errno, FileKind, Ino, Result, XattrMode, check_xattr_name};

use crate::alloc::{BlockRun, Taken};
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::extent::{LENGTH_MAX, run_word};
use crate::ondisk::inode::RawInode;
use crate::ondisk::{BLOCK, Corrupt};

/// Longest value, `XATTR_SIZE_MAX`.
const VALUE_MAX: usize = 65_536;
/// All attributes of an inode.
const ALL_MAX: u64 = 1 << 20;
const COUNT: u64 = 8;

/// Names and values.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The blocks of new attributes, until the change that points to them is committed.
#[derive(Default)]
pub(crate) struct Staged<'a>(Option<Taken<'a>>);

impl Staged<'_> {
    /// The change is about to be durable. Returns the blocks.
    pub(crate) fn keep(self) -> Option<BlockRun> {
        self.0.and_then(|taken| taken.keep().first().copied())
    }
}

impl Pmfs {
    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(ino)?;
        let inode = node.lock.read();
        check_xattr_name(inode.kind()?, name, Errno::NODATA)?;
        self.xattrs_of(&inode)?.remove(name).ok_or_else(|| Errno::NODATA.into())
    }

    pub(crate) fn xattr_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let node = self.node(ino)?;
        let inode = node.lock.read();
        inode.kind()?;
        Ok(self.xattrs_of(&inode)?.into_keys().collect())
    }

    pub(crate) fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        let kind = inode.kind()?;
        check_xattr_name(kind, name, Errno::PERM)?;
        let mut all = self.xattrs_of(&inode)?;
        if name == acl::ACCESS || name == acl::DEFAULT {
            return self.set_acl(&mut inode, all, name, value);
        }
        match (mode, all.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Errno::EXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        all.insert(name.to_vec(), value.to_vec());
        let mut raw = inode.raw;
        raw.touch_ctime();
        self.store_xattrs(&mut inode, raw, &all)
    }

    pub(crate) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        check_xattr_name(inode.kind()?, name, Errno::PERM)?;
        let mut all = self.xattrs_of(&inode)?;
        if all.remove(name).is_none() {
            // Linux removes an access control list by setting none, which always succeeds.
            let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
            return if is_acl { Ok(()) } else { Err(Errno::NODATA.into()) };
        }
        let mut raw = inode.raw;
        raw.touch_ctime();
        self.store_xattrs(&mut inode, raw, &all)
    }

    /// Sets an access control list, or removes it if it has no entries. The permission bits follow
    /// the access list; one that says no more than they do is not stored.
    fn set_acl(&self, inode: &mut Inode, mut all: Xattrs, name: &[u8], value: &[u8]) -> Result<()> {
        let list = Acl::from_xattr(value)?;
        let mut raw = inode.raw;
        raw.touch_ctime();
        match list {
            Some(_) if name == acl::DEFAULT && !raw.is_dir() => return Err(Errno::ACCESS.into()),
            Some(list) => {
                if name == acl::ACCESS {
                    raw.set_perm(raw.perm() & !0o777 | list.perm());
                }
                match list.is_minimal() && name == acl::ACCESS {
                    true => drop(all.remove(name)),
                    false => drop(all.insert(name.to_vec(), list.to_xattr())),
                }
            }
            None => drop(all.remove(name)),
        }
        self.store_xattrs(inode, raw, &all)
    }

    /// The attributes of an inode whose access list follows a chmod(2) to `perm`; `None` if there
    /// is no such list.
    pub(crate) fn chmod_acl(&self, inode: &Inode, perm: u16) -> Result<Option<Xattrs>> {
        let mut all = self.xattrs_of(inode)?;
        let Some(value) = all.get_mut(acl::ACCESS) else { return Ok(None) };
        let Some(list) = Acl::from_xattr(value)? else { return Ok(None) };
        *value = list.chmod(perm).to_xattr();
        Ok(Some(all))
    }

    /// What a new inode inherits from its directory's default list (`posix_acl_create`): its
    /// attributes, and its permission bits instead of `perm`.
    pub(crate) fn inherited(
        &self,
        dir: &Inode,
        kind: FileKind,
        perm: u16,
    ) -> Result<(Xattrs, u16)> {
        let mut new = Xattrs::new();
        if kind == FileKind::Symlink || dir.xattrs.is_none() {
            return Ok((new, perm));
        }
        let Some(value) = self.xattrs_of(dir)?.remove(acl::DEFAULT) else { return Ok((new, perm)) };
        let Some(default) = Acl::from_xattr(&value)? else { return Ok((new, perm)) };
        let (list, perm) = default.inherited(perm);
        if !list.is_minimal() {
            new.insert(acl::ACCESS.to_vec(), list.to_xattr());
        }
        if kind == FileKind::Directory {
            new.insert(acl::DEFAULT.to_vec(), value);
        }
        Ok((new, perm))
    }

    fn xattrs_of(&self, inode: &Inode) -> Result<Xattrs, Corrupt> {
        inode.xattrs_in(&*self.pm)
    }

    /// Makes `all` the inode's extended attributes and `raw` its other ones.
    fn store_xattrs(&self, inode: &mut Inode, mut raw: RawInode, all: &Xattrs) -> Result<()> {
        let mut change = Change::new(&*self.pm);
        let staged = self.stage_xattrs(&mut change, &mut raw, all)?;
        let _done = self.commit_raw(inode, change, raw)?;
        self.swap_xattrs(inode, staged);
        Ok(())
    }

    /// Stores `all` in new blocks, to which `raw` points then.
    pub(crate) fn stage_xattrs(
        &self,
        change: &mut Change<'_>,
        raw: &mut RawInode,
        all: &Xattrs,
    ) -> Result<Staged<'_>> {
        let bytes = print(all);
        let blocks = if all.is_empty() { 0 } else { (bytes.len() as u64).div_ceil(BLOCK) };
        if bytes.len() as u64 > ALL_MAX || blocks > LENGTH_MAX {
            return Err(Errno::NOSPC.into());
        }
        if blocks == 0 {
            raw.xattrs = 0.into();
            return Ok(Staged(None));
        }
        let taken = self.space.take_run(blocks).ok_or(Errno::NOSPC)?;
        let &[(block, len)] = taken.runs() else { return Err(Errno::NOSPC.into()) };
        change.stream(block * BLOCK, &bytes);
        raw.xattrs = run_word(block, len).into();
        Ok(Staged(Some(taken)))
    }

    /// The inode durably has the attributes that were staged.
    pub(crate) fn swap_xattrs(&self, inode: &mut Inode, staged: Staged<'_>) {
        if let Some((block, len)) = std::mem::replace(&mut inode.xattrs, staged.keep()) {
            self.space.give(block, len);
        }
    }
}

impl Inode {
    /// All attributes of an inode.
    pub(crate) fn xattrs_in(&self, pm: &dyn Pm) -> Result<Xattrs, Corrupt> {
        let Some((block, len)) = self.xattrs else { return Ok(Xattrs::new()) };
        let at = block * BLOCK;
        let wrong = |what, found, allowed| Corrupt {
            structure: "extended attributes",
            at,
            what,
            found,
            allowed,
        };
        let count = pm.load(at);
        if count > (len * BLOCK - COUNT).min(ALL_MAX) {
            return Err(wrong("bytes", count, "as many as fit"));
        }
        let mut bytes = vec![0; count as usize];
        pm.read(at + COUNT, &mut bytes);
        parse(&bytes).ok_or_else(|| wrong("attribute", count, "whole"))
    }
}

fn print(all: &Xattrs) -> Vec<u8> {
    let mut bytes = vec![0; COUNT as usize];
    for (name, value) in all {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    let count = bytes.len() as u64 - COUNT;
    bytes[..COUNT as usize].copy_from_slice(&count.to_le_bytes());
    bytes
}

fn parse(mut bytes: &[u8]) -> Option<Xattrs> {
    let mut all = Xattrs::new();
    while let Some((&name_len, rest)) = bytes.split_first() {
        let (value_len, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(name_len.into())?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        all.insert(name.to_vec(), value.to_vec());
        bytes = rest;
    }
    Some(all)
}
