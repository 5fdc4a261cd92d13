//! Names: those of directories with blocks are found and listed as on a mounted volume; here are
//! also those in the inode itself.
//!
//! A position (cookie) is the byte behind an entry in the directory's file. What is in the inode
//! has the position that it would have in a block.

use vfs::{DirEntry, Errno, FileKind};

use super::Reader;
use crate::dir::htree::is_indexed;
use crate::dir::{entries, list};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::ondisk::dirent::Dirents;
use crate::ondisk::inode::Flags;
use crate::ondisk::{Ino, NAME_MAX, ROOT_INO, le32};

/// Bytes of the parent's number in front of entries in the inode.
const INLINE_PARENT: usize = 4;

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
        let found = match entries::find(self, dir, name) {
            // As the kernel does: the names themselves may still be sound (`ERR_BAD_DX_DIR`).
            Err(Error::Corrupt(_)) if is_indexed(&self.sb, dir) => {
                entries::find_before(self, dir, name, entries::block_count(&self.sb, dir))?
            }
            found => found?,
        };
        Ok(found.map(|found| found.ino))
    }

    fn find_inline(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let (parent, areas) = self.inline_records(dir)?;
        match name {
            b"." => return Ok(Some(dir.ino)),
            b".." => return Ok(Some(parent)),
            _ => {}
        }
        for area in areas {
            if let Some(found) = entries::find_in(area, dir.at, name)? {
                return Ok(Some(found.ino));
            }
        }
        Ok(None)
    }

    /// The records of a directory in the inode: those in `i_block` behind the parent's number, then
    /// those of an attribute; and the parent.
    pub(crate) fn inline_records<'a>(&self, dir: &'a Inode) -> Result<(Ino, [&'a [u8]; 2])> {
        let (parent, front) = dir.raw.block.split_at(INLINE_PARENT);
        Ok((le32(parent, 0), [front, self.inline_rest(dir)?]))
    }

    /// Passes entries behind position `from` to `emit` until it returns false.
    pub(crate) fn list_dir(
        &self,
        dir: &Inode,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        dir.check_readable()?;
        list::emit_all(from, emit, |from| match dir.flags().contains(Flags::INLINE_DATA) {
            true => Ok((self.list_inline(dir, from)?, None)),
            false => list::by_place(self, dir, from),
        })
    }

    fn list_inline(&self, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
        let (parent, areas) = self.inline_records(dir)?;
        let dot = |name: &[u8], ino: Ino, next| DirEntry {
            name: name.to_vec(),
            ino: ino.into(),
            kind: FileKind::Directory,
            next,
        };
        let mut found = vec![dot(b".", dir.ino, 12), dot(b"..", parent, 24)];
        found.retain(|dot| dot.next > from);
        let mut start = 24;
        for area in areas {
            for dirent in Dirents::new(area, dir.at) {
                let dirent = dirent?;
                let next = start + (dirent.offset + dirent.rec_len) as u64;
                if dirent.ino != 0 && next > from {
                    found.push(list::entry(self, &dirent, dir.at, next)?);
                }
            }
            start += area.len() as u64;
        }
        Ok(found)
    }
}
