//! Extended attributes: all of an inode's in one run of blocks, written anew with every change, and
//! one word of the inode that points to them. So a change of attributes is atomic, whatever its
//! length.
//!
//! The run begins with the number of bytes that follow; then, for each attribute: the length of the
//! name (1 byte), that of the value (4), name and value.

use std::collections::BTreeMap;

use drive::pm::Pm;
use vfs::{Errno, FileKind, Ino, Result, XattrMode, acl, check_xattr_name};

use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::extent::{LENGTH_MAX, run_word};
use crate::ondisk::{BLOCK, Corrupt};

/// Longest value, `XATTR_SIZE_MAX`.
const VALUE_MAX: usize = 65_536;
/// All attributes of an inode.
const ALL_MAX: u64 = 1 << 20;
const COUNT: u64 = 8;

/// Names and values.
type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

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
        if name == acl::DEFAULT && kind != FileKind::Directory {
            return Err(Errno::ACCESS.into());
        }
        let mut all = self.xattrs_of(&inode)?;
        match (mode, all.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Errno::EXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        all.insert(name.to_vec(), value.to_vec());
        self.store_xattrs(&mut inode, &all)
    }

    pub(crate) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        check_xattr_name(inode.kind()?, name, Errno::PERM)?;
        let mut all = self.xattrs_of(&inode)?;
        if all.remove(name).is_none() {
            return Err(Errno::NODATA.into());
        }
        self.store_xattrs(&mut inode, &all)
    }

    fn xattrs_of(&self, inode: &Inode) -> Result<Xattrs, Corrupt> {
        inode.xattrs_in(&*self.pm)
    }

    /// Makes `all` the inode's attributes.
    fn store_xattrs(&self, inode: &mut Inode, all: &Xattrs) -> Result<()> {
        let bytes = print(all);
        let mut change = Change::new(&*self.pm);
        let mut raw = inode.raw;
        raw.touch_ctime();
        let blocks = if all.is_empty() { 0 } else { (bytes.len() as u64).div_ceil(BLOCK) };
        if bytes.len() as u64 > ALL_MAX || blocks > LENGTH_MAX {
            return Err(Errno::NOSPC.into());
        }
        let run = match blocks {
            0 => None,
            _ => {
                let taken = self.space.take_run(blocks).ok_or(Errno::NOSPC)?;
                taken.keep().first().copied()
            }
        };
        if let Some((block, _)) = run {
            change.stream(block * BLOCK, &bytes);
        }
        raw.xattrs = run.map_or(0, |(block, len)| run_word(block, len)).into();
        let _done = self.commit_raw(inode, change, raw);
        if let Some((block, len)) = std::mem::replace(&mut inode.xattrs, run) {
            self.space.give(block, len);
        }
        Ok(())
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
