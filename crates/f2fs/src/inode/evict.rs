//! The end of an inode: it is freed when it has no name, is not open, and no operation on it is
//! under way (`f2fs_evict_inode`).

use vfs::FileKind;

use crate::error::Result;
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::ondisk::Nid;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::inode::Inline;

impl Engine {
    /// To be called when an inode has lost its last name.
    pub(crate) fn orphan_or_evict(&mut self, ino: Nid) {
        self.orphans.insert(ino);
        self.evict_if_unused(ino);
    }

    /// Frees an inode without a name, unless it is open or an fsync of it is under way.
    pub(crate) fn evict_if_unused(&mut self, ino: Nid) {
        if !self.opens.is_open(ino.into()) && !self.turns.will_free(ino.into()) {
            self.evict_orphan(ino);
        }
    }

    /// Frees an inode whose name is already gone. If part of it cannot be read, it stays an orphan
    /// and the next mount tries again.
    pub(crate) fn evict_orphan(&mut self, ino: Nid) {
        if self.faults.fires(FaultType::EVICT_INODE) || self.evict(ino).is_err() {
            self.checkpoint.flags |= CpFlags::FSCK;
        }
    }

    /// Frees everything of an inode that has no name and no user.
    pub(crate) fn evict(&mut self, ino: Nid) -> Result<()> {
        self.abort_atomic(ino)?;
        self.inodes.of(ino).forget(ino);
        let inode = self.inode(ino)?;
        let has_blocks = !inode.inline().intersects(Inline::DATA | Inline::DENTRY)
            && matches!(
                inode.file_kind(),
                FileKind::Regular | FileKind::Directory | FileKind::Symlink
            );
        let xattr_nid = inode.xattr_nid.get();
        drop(inode);
        if has_blocks {
            self.truncate_blocks(ino, 0)?;
        }
        if xattr_nid != 0 {
            self.free_xattr_node(ino, xattr_nid)?;
        }
        self.free_inode_node(ino)?;
        self.orphans.remove(&ino);
        self.lazy_atimes.remove(&ino);
        self.write_errors.remove(&ino);
        self.since_checkpoint.forget(ino);
        Ok(())
    }
}
