//! Attributes of inodes (`ext4_setattr`).

use vfs::{Attr, Errno, InodeFlags, SetAttr, Timespec, acl};

use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

impl Engine {
    /// Attributes of an inode.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr> {
        self.look(ino.into(), |shard| {
            let cached = shard.inode(ino)?;
            // What the table has of a freed inode is no file.
            if cached.inode.links() == 0 && !self.opens.is_open(ino.into()) {
                return Err(Errno::NOENT.into());
            }
            Ok(cached.inode.attr(cached.promised, self.sb.block_size))
        })
    }

    /// Changes all attributes but the size.
    pub(crate) fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        self.change(&[ino.into()], 2, |draft| {
            draft.inode(ino)?.protection().check_may_set(set)?;
            let now = draft.now;
            let raw = &mut draft.inode_mut(ino)?.raw;
            if let Some(perm) = set.perm {
                raw.mode = (raw.mode.get() & !0o7777 | perm & 0o7777).into();
            }
            set.uid.into_iter().for_each(|uid| raw.set_uid(uid));
            set.gid.into_iter().for_each(|gid| raw.set_gid(gid));
            set.atime.into_iter().for_each(|at| raw.set_atime(at));
            set.mtime.into_iter().for_each(|at| raw.set_mtime(at));
            let ctime = set.ctime.unwrap_or(now);
            raw.set_ctime(ctime);
            if let Some(perm) = set.perm {
                acl::chmod(draft, ino.into(), perm)?;
                draft.inode_mut(ino)?.raw.set_ctime(ctime);
            }
            Ok(())
        })
    }

    /// Records that an inode was read, in memory only: the time reaches the drive with the inode's
    /// next change, or when the flusher comes (`lazytime`).
    pub(crate) fn touch_atime(&self, ino: Ino, time: Timespec) -> Result<()> {
        self.attr(ino)?;
        let mut shard = self.inodes.own(ino.into());
        if self.check_writable().is_ok()
            && let Some(cached) = shard.inodes.get_mut(&ino)
            && !cached.inode.protection().contains(InodeFlags::NOATIME)
        {
            cached.inode.raw.set_atime(time);
            shard.changed.insert(ino);
        }
        Ok(())
    }
}
