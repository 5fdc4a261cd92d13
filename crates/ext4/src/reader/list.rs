//! Listing a directory: its blocks one by one, or what is in the inode.
//!
//! A position (cookie) is the byte behind an entry in the directory's file. What is in the inode
//! has the position that it would have in a block.

use vfs::{DirEntry, FileKind};

use super::Reader;
use super::blocks::Buf;
use super::inode::Inode;
use super::map::Place;
use crate::error::Result;
use crate::ondisk::dirent::{self, Dirent, Dirents};
use crate::ondisk::features::{Incompat, RoCompat};
use crate::ondisk::htree;
use crate::ondisk::inode::{Flags, I_BLOCK_SIZE};
use crate::ondisk::{FileBlock, FsBlock, Ino, xattr};

/// Bytes of the parent's number in front of entries in the inode.
const INLINE_PARENT: usize = 4;

/// A block of a directory.
pub(crate) struct DirBlock {
    /// Its bytes.
    pub(crate) buf: Buf,
    /// Where it is.
    pub(crate) at: FsBlock,
}

impl Reader {
    /// Blocks of a directory.
    pub(crate) fn dir_blocks(&self, dir: &Inode) -> u32 {
        // Its size was checked against the volume.
        (dir.raw.size() / u64::from(self.sb.block_size)).min(u32::MAX.into()) as u32
    }

    /// Block `block` of a directory, verified; `None` for a hole.
    pub(crate) fn dir_block(&self, dir: &Inode, block: FileBlock) -> Result<Option<DirBlock>> {
        let at = match self.locate(dir, block)?.place {
            Place::At(at) => at,
            Place::Hole | Place::Unwritten(_) => return Ok(None),
        };
        let buf = self.block(at, "directory")?;
        if let Some(seed) = dir.seed {
            match self.tree_place(dir, block, &buf) {
                Some(place) => htree::verify(&buf, place, seed, at)?,
                None => dirent::verify(&buf, seed, at)?,
            }
        }
        Ok(Some(DirBlock { buf, at }))
    }

    /// Which part of a hash tree a block of a directory is; `None` for one with names.
    fn tree_place(&self, dir: &Inode, block: FileBlock, buf: &[u8]) -> Option<htree::Place> {
        let place = htree::Place::of(buf).filter(|_| dir.flags().contains(Flags::INDEX))?;
        let expected = if block == 0 { htree::Place::Root } else { htree::Place::Node };
        (place == expected).then_some(place)
    }

    /// What a record says, as an entry that ends at position `next`.
    fn entry(&self, dirent: &Dirent<'_>, at: FsBlock, next: u64) -> Result<DirEntry> {
        dirent.check_name(at)?;
        let kind = match FileKind::from_dirent_type(dirent.file_type) {
            Some(kind) if self.sb.incompat.contains(Incompat::FILETYPE) => kind,
            _ => self.inode(dirent.ino)?.kind,
        };
        Ok(DirEntry { name: dirent.name.to_vec(), ino: dirent.ino.into(), kind, next })
    }

    /// Passes entries behind position `from` to `emit` until it returns false.
    pub(crate) fn list_dir(
        &self,
        dir: &Inode,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        dir.check_readable()?;
        if dir.flags().contains(Flags::INLINE_DATA) {
            return self.list_inline(dir, from, emit);
        }
        let size = u64::from(self.sb.block_size);
        let mut block = from / size;
        while block < self.dir_blocks(dir).into() {
            let found = self.dir_block(dir, block as FileBlock)?;
            let Some(DirBlock { buf, at }) = found else {
                return Err(dir.corrupt("directory", format!("a hole at block {block}"), "none"));
            };
            let start = block * size;
            for dirent in Dirents::new(&buf, at) {
                let dirent = dirent?;
                let next = start + (dirent.offset + dirent.rec_len) as u64;
                if dirent.ino != 0 && next > from && !emit(self.entry(&dirent, at, next)?) {
                    return Ok(());
                }
            }
            block += 1;
        }
        Ok(())
    }

    /// The records of a directory in the inode: those in `i_block` behind the parent's number, then
    /// those of an attribute; and the parent.
    pub(crate) fn inline_records(&self, dir: &Inode) -> Result<(Ino, [Vec<u8>; 2])> {
        let (parent, front) = dir.raw.block.split_at(INLINE_PARENT);
        let parent = u32::from_le_bytes([parent[0], parent[1], parent[2], parent[3]]);
        let front = &front[..I_BLOCK_SIZE - INLINE_PARENT];
        let rest = self.xattr_here(dir, xattr::SYSTEM, xattr::INLINE_DATA)?.unwrap_or_default();
        Ok((parent, [front.to_vec(), rest.into_owned()]))
    }

    fn list_inline(
        &self,
        dir: &Inode,
        from: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let (parent, areas) = self.inline_records(dir)?;
        let dots = [(&b"."[..], dir.ino, 12), (b"..", parent, 24)];
        for (name, ino, next) in dots {
            let (name, kind) = (name.to_vec(), FileKind::Directory);
            if next > from && !emit(DirEntry { name, ino: ino.into(), kind, next }) {
                return Ok(());
            }
        }
        let mut start = 24;
        for area in &areas {
            for dirent in Dirents::new(area, dir.at) {
                let dirent = dirent?;
                let next = start + (dirent.offset + dirent.rec_len) as u64;
                if dirent.ino != 0 && next > from && !emit(self.entry(&dirent, dir.at, next)?) {
                    return Ok(());
                }
            }
            start += area.len() as u64;
        }
        Ok(())
    }

    /// Whether directories have hash trees with one more level.
    pub(crate) fn deepest_tree(&self) -> u8 {
        if self.sb.incompat.contains(Incompat::LARGEDIR) { 2 } else { 1 }
    }

    /// Whether blocks have checksums.
    pub(crate) fn has_checksums(&self) -> bool {
        self.sb.ro_compat.contains(RoCompat::METADATA_CSUM)
    }
}
