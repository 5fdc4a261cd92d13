//! What walks through the format ask of a volume that is only read: blocks from the drive, and what
//! old or rare volumes have.

use drive::Block;
use vfs::FileKind;

use super::Reader;
use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map::Mapped;
use crate::ondisk::dirent::Dirent;
use crate::ondisk::extent::{Extent, HOLE_END};
use crate::ondisk::features::Incompat;
use crate::ondisk::indirect::{DIRECT, Path, number};
use crate::ondisk::inode::Flags;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FileBlock, FsBlock};

/// The longest value in an inode of its own: `XATTR_SIZE_MAX`.
const VALUE_MAX: u32 = 65_536;

impl Blocks for Reader {
    type Stop = Error;

    fn sb(&self) -> &Superblock {
        &self.sb
    }

    fn block(&self, at: FsBlock, kind: Kind) -> Result<Block> {
        self.sb.check_blocks(at, 1, kind.pointer(), at)?;
        let block = self.blocks.read(at)?;
        kind.verify(&self.sb, self.sb.bytes(&block), at)?;
        Ok(block)
    }

    fn find_indirect(&self, inode: &Inode, block: FileBlock) -> Result<Mapped> {
        let size = self.sb.block_size;
        let Some(path) = Path::to(block, size) else { return Ok(Mapped::Hole(HOLE_END)) };
        let (mut at, mut slots) = (inode.at, DIRECT);
        let mut held;
        let mut numbers: &[u8] = &inode.raw.block;
        for (depth, slot) in path.slots().iter().enumerate() {
            if depth > 0 {
                held = self.block(at, Kind::Numbers)?;
                (numbers, slots) = (self.sb.bytes(&held), size / 4);
            }
            at = number(numbers, *slot);
            if at == 0 {
                return Ok(Mapped::Hole(u64::from(block) + path.rest(depth, size)));
            }
        }
        let last = path.slots().last().map_or(0, |slot| *slot);
        let adjacent =
            (last..slots).zip(at..).take_while(|(slot, at)| number(numbers, *slot) == *at);
        let len = adjacent.count() as u32;
        self.sb.check_blocks(at, len.into(), "inode.i_block", at)?;
        Ok(Mapped::Extent(Extent { block, len, start: at, unwritten: false }))
    }

    fn kind_of(&self, dirent: &Dirent<'_>) -> Result<FileKind> {
        match FileKind::from_dirent_type(dirent.file_type) {
            Some(kind) if self.sb.incompat.contains(Incompat::FILETYPE) => Ok(kind),
            _ => Ok(self.inode(dirent.ino)?.kind()),
        }
    }

    fn value_inode(&self, ino: u32, size: u32) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if !inode.flags().contains(Flags::EA_INODE) {
            return Err(inode.corrupt("inode.i_flags", "no EA_INODE", "EA_INODE"));
        }
        if size > VALUE_MAX || u64::from(size) != inode.size {
            return Err(inode.corrupt("inode.i_size", inode.size, size));
        }
        let mut value = vec![0; size as usize];
        self.read_file(&inode, 0, &mut value)?;
        Ok(value)
    }
}
