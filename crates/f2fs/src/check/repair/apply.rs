//! Puts right what a walk found wrong, in the volume in memory. Nothing here writes to the drive,
//! except that blocks claimed by two files are copied to free space. The checkpoint at the end of a
//! repair makes everything take effect at once.

use drive::Block;
use vfs::{Creator, FileKind, Ino};

use super::Changes;
use crate::alloc::gc::Hands;
use crate::check::{Mend, NewName};
use crate::dir::change::Entries;
use crate::dir::entries::Names;
use crate::dir::namei::Namei;
use crate::dir::namei::NewInode;
use crate::error::{Error, Result};
use crate::inode::mapping::Mapping;
use crate::mount::engine::Engine;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::inode::{InodeLayout, RawInodeBlock};
use crate::ondisk::{NEW_ADDR, Nid};

/// How many copies are made before they are written back.
const COPIES_AT_ONCE: usize = 256;
/// Where inodes without a name go. If a file has this name, the directory gets another one.
const LOST_AND_FOUND: &str = "lost+found";

impl Engine {
    /// Installs nodes and directory blocks as they should be.
    pub(super) fn put_mended_blocks(&mut self, mend: &Mend) -> Result<()> {
        for (&nid, (ino, block)) in &mend.nodes {
            let mut block = block.clone();
            let mut layout = InodeLayout::default();
            if nid == *ino {
                let raw = RawInodeBlock::of_mut(block.make_mut());
                raw.seal(&self.sb);
                layout = raw.check(&self.sb, nid, self.sb.main_blkaddr)?;
            }
            self.inodes.of(*ino).nodes.insert_new(nid, *ino, block, layout);
        }
        for (&(dir, index), block) in &mend.dirs {
            self.inodes.of(dir).pages.insert_dirty(Ino::from(dir), index, block.clone());
        }
        Ok(())
    }

    /// Gives each file that claimed another's block a copy of it.
    pub(super) fn copy_shared_blocks(&mut self, mend: &Mend, changes: &mut Changes) -> Result<()> {
        for copies in mend.copies.chunks(COPIES_AT_ONCE) {
            for copy in copies {
                // The orphan is gone by now, with its blocks.
                if self.addr_of(copy.ino, copy.index).ok() != Some(NEW_ADDR) {
                    continue;
                }
                let block = self.io.read(copy.from).unwrap_or_else(|_| Block::zeroed());
                self.inodes.make_room();
                self.inodes.of(copy.ino).pages.insert_dirty(Ino::from(copy.ino), copy.index, block);
                changes.copied_blocks += 1;
            }
            self.write_back_all()?;
        }
        Ok(())
    }

    /// Takes the quota files as the walk has counted. From here on, each change is counted there.
    pub(super) fn put_mended_quotas(&mut self, mend: &Mend) -> Result<()> {
        let wanted = self.sb.quota_inos.iter().filter(|&&ino| ino != 0).count();
        if mend.quotas.len() < wanted {
            return Err(Error::unsupported("repairing a volume without an inode of a quota file"));
        }
        for (kind, file) in &mend.quotas {
            self.quotas.install(*kind, file.clone());
        }
        self.checkpoint.flags -= CpFlags::QUOTA_NEED_FSCK;
        Ok(())
    }

    /// Adds names that were missing, or that no lookup would find where they were.
    pub(super) fn add_missing_names(&mut self, names: &[NewName]) -> Result<()> {
        for NewName { dir, name, ino, kind } in names {
            if self.find_entry(*dir, name)?.is_none() {
                self.add_entry(*dir, name, *ino, *kind)?;
            }
        }
        Ok(())
    }

    /// Gives each inode without a name one in `lost+found`: its number, as `fsck.f2fs` does.
    pub(super) fn reconnect(&mut self, lost: &[Nid], changes: &mut Changes) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let home = self.lost_and_found()?;
        for &ino in lost {
            let kind = self.kind_of(ino)?;
            let name = self.unused_name(home, &ino.to_string())?;
            self.add_entry(home, name.as_bytes(), ino, kind)?;
            if kind == FileKind::Directory {
                let dots = self.find_entry(ino, b"..")?;
                match dots {
                    Some(found) => self.set_entry(ino, found.place, home, FileKind::Directory)?,
                    None => self.add_entry(ino, b"..", home, FileKind::Directory)?,
                }
                self.add_links(home, 1)?;
            }
            self.inode_mut(ino)?.set_name(home, name.as_bytes());
            changes.reconnected.push((ino, name));
        }
        Ok(())
    }

    fn lost_and_found(&mut self) -> Result<Nid> {
        let root = self.sb.root_ino;
        if let Some(found) = self.find_entry(root, LOST_AND_FOUND.as_bytes())?
            && found.kind == FileKind::Directory
        {
            return Ok(found.ino);
        }
        let name = self.unused_name(root, LOST_AND_FOUND)?;
        self.make(&NewInode {
            parent: root,
            name: name.as_bytes(),
            kind: FileKind::Directory,
            perm: 0o700,
            rdev: 0,
            creator: Creator::default(),
        })
    }

    /// `name`, or `name` with a number after it, so that `dir` has no such entry.
    fn unused_name(&mut self, dir: Nid, name: &str) -> Result<String> {
        let mut candidate = name.to_owned();
        for number in 1..=u32::MAX {
            if self.find_entry(dir, candidate.as_bytes())?.is_none() {
                return Ok(candidate);
            }
            candidate = format!("{name}_{number}");
        }
        Err(Error::NoSpace)
    }
}
