//! Finding a name: through the hash tree, or block by block.

use vfs::Errno;

use super::Reader;
use super::blocks::Buf;
use super::inode::Inode;
use crate::error::{Error, Result};
use crate::ondisk::dirent::Dirents;
use crate::ondisk::features::Compat;
use crate::ondisk::hash::Hasher;
use crate::ondisk::htree::{self, Node, Place};
use crate::ondisk::inode::Flags;
use crate::ondisk::{FileBlock, FsBlock, Ino, NAME_MAX, ROOT_INO};

/// A name that is looked for in a tree.
struct Wanted<'a> {
    name: &'a [u8],
    hash: u32,
    /// Blocks that may still be read: a sound tree has each block once.
    left: u32,
}

impl Reader {
    /// The inode that `name` stands for in `dir`.
    pub(crate) fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Ino> {
        dir.check_directory()?;
        dir.check_readable()?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let found = self.find_name(dir, name)?.ok_or(Errno::NOENT)?;
        if found != ROOT_INO && (found < self.sb.first_ino || self.is_internal(found)) {
            return Err(dir.corrupt("dirent.inode", found, "an inode that is not reserved"));
        }
        Ok(found)
    }

    /// Whether the volume keeps this inode for itself although its number is an ordinary one.
    pub(crate) fn is_internal(&self, ino: Ino) -> bool {
        let raw = &self.sb.raw;
        let own = [raw.orphan_file_inum, raw.usr_quota_inum, raw.grp_quota_inum];
        own.iter().any(|own| own.get() == ino) || raw.prj_quota_inum.get() == ino
    }

    fn find_name(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        if dir.flags().contains(Flags::INLINE_DATA) {
            return self.find_inline(dir, name);
        }
        let is_indexed = dir.flags().contains(Flags::INDEX)
            && !dir.flags().contains(Flags::CASEFOLD)
            && self.sb.compat.contains(Compat::DIR_INDEX);
        // The tree does not know these.
        if is_indexed && name != b"." && name != b".." {
            match self.find_in_tree(dir, name) {
                // As the kernel does: the names themselves may still be sound (`ERR_BAD_DX_DIR`).
                Err(Error::Corrupt(_)) => {}
                found => return found,
            }
        }
        for block in 0..self.dir_blocks(dir) {
            let Some(found) = self.dir_block(dir, block)? else {
                return Err(dir.corrupt("directory", format!("a hole at block {block}"), "none"));
            };
            if let Some(ino) = find_in(&found.buf, found.at, name)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    fn find_inline(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let (parent, areas) = self.inline_records(dir)?;
        match name {
            b"." => return Ok(Some(dir.ino)),
            b".." => return Ok(Some(parent)),
            _ => {}
        }
        for area in &areas {
            if let Some(ino) = find_in(area, dir.at, name)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// How a directory whose root says `version` hashes names.
    pub(crate) fn hasher(&self, version: u8) -> Hasher {
        Hasher { version, unsigned: self.sb.unsigned_hash(), seed: self.sb.hash_seed() }
    }

    /// The block of a directory that a tree points to.
    pub(crate) fn tree_block(&self, dir: &Inode, block: FileBlock) -> Result<(Buf, FsBlock)> {
        match self.dir_block(dir, block)? {
            Some(found) => Ok((found.buf, found.at)),
            None => Err(dir.corrupt("dx_entry.block", block, "a block of the directory")),
        }
    }

    fn find_in_tree(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let (root, at) = self.tree_block(dir, 0)?;
        let info = htree::info(&root, self.deepest_tree(), at)?;
        let hash = self.hasher(info.hash_version).hash(name).ok_or_else(|| {
            dir.corrupt("dx_root_info.hash_version", info.hash_version, "0, 1 or 2")
        })?;
        let mut wanted = Wanted { name, hash: hash.major, left: self.dir_blocks(dir) };
        self.find_below(dir, (&root, at), Place::Root, info.indirect_levels, &mut wanted)
    }

    /// Looks below a node with `levels` of nodes below it. Names with one hash may continue in the
    /// children that follow, which then have bit 0 of their hash set.
    fn find_below(
        &self,
        dir: &Inode,
        (buf, at): (&Buf, FsBlock),
        place: Place,
        levels: u8,
        wanted: &mut Wanted<'_>,
    ) -> Result<Option<Ino>> {
        let node = Node::parse(buf, place, self.has_checksums(), at)?;
        let first = node.find(wanted.hash);
        for slot in first..node.len() {
            let Some(child) = node.entry(slot) else { break };
            if slot > first && child.hash != wanted.hash | 1 {
                break;
            }
            wanted.left = wanted
                .left
                .checked_sub(1)
                .ok_or_else(|| dir.corrupt("dx_entry.block", child.block, "each block once"))?;
            let (below, below_at) = self.tree_block(dir, child.block)?;
            let found = match levels {
                0 => find_in(&below, below_at, wanted.name)?,
                _ => self.find_below(dir, (&below, below_at), Place::Node, levels - 1, wanted)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The inode of `name` in a block or an area of records, which was read from block `at`.
fn find_in(bytes: &[u8], at: FsBlock, name: &[u8]) -> Result<Option<Ino>> {
    for dirent in Dirents::new(bytes, at) {
        let dirent = dirent?;
        if dirent.ino != 0 && dirent.name == name {
            return Ok(Some(dirent.ino));
        }
    }
    Ok(None)
}
