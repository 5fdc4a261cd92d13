//! Targets of symbolic links: short ones are in the inode, others have a block.

use drive::Block;
use vfs::{Errno, FileKind};

use crate::blocks::{Blocks, Kind, Walked};
use crate::error::Error;
use crate::inode::cached::Inode;
use crate::inode::map;
use crate::mount::draft::Draft;
use crate::mount::want::Step;
use crate::ondisk::Ino;
use crate::ondisk::extent::{Extent, emit_leaf};
use crate::ondisk::inode::{Flags, I_BLOCK_SIZE};

/// The target of a symbolic link.
pub(crate) fn target<B: Blocks>(blocks: &B, inode: &Inode) -> Walked<Vec<u8>, B> {
    if inode.kind() != FileKind::Symlink {
        return Err(Error::Posix(Errno::INVAL).into());
    }
    let len = usize::try_from(inode.size).unwrap_or(usize::MAX);
    let held;
    let room: &[u8] = if inode.is_fast_symlink(blocks.sb()) {
        &inode.raw.block
    } else {
        held = map::block(blocks, inode, 0, Kind::Target)?.1;
        blocks.sb().bytes(&held)
    };
    let target = room.get(..len).unwrap_or_default();
    check(inode, target)?;
    Ok(target.to_vec())
}

/// Fails if no symbolic link can have this target.
pub(crate) fn check(inode: &Inode, target: &[u8]) -> crate::Result<()> {
    if target.is_empty() || target.contains(&0) {
        let found = "an empty or too long target, or a NUL";
        return Err(inode.corrupt("symlink", found, "a path of up to a block"));
    }
    Ok(())
}

impl Draft<'_, '_> {
    /// Makes `target` that of the new symbolic link `ino`.
    pub(crate) fn init_symlink(&mut self, ino: Ino, target: &[u8]) -> Step<()> {
        let inode = self.inode_mut(ino)?;
        inode.size = target.len() as u64;
        inode.raw.set_size(inode.size);
        if target.len() < I_BLOCK_SIZE {
            inode.raw.block[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        inode.raw.flags = (inode.raw.flags() | Flags::EXTENTS).bits().into();
        emit_leaf(&mut inode.raw.block, &[]);
        let at = self.new_meta_block(ino)?;
        self.insert_extent(ino, Extent { block: 0, len: 1, start: at, unwritten: false })?;
        self.put(at, Block::from_prefix(target));
        Ok(())
    }
}
