//! Attributes of inodes (`ext4_setattr`).

use vfs::op::look;
use vfs::{Attr, SetAttr};

use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

impl Engine {
    /// Attributes of an inode.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr> {
        look(self, ino.into(), |shard| {
            let cached = shard.inode(ino)?;
            Ok(cached.inode.attr(ino, cached.promised, self.sb.block_size))
        })
    }

    /// Changes all attributes but the size.
    pub(crate) fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        self.change(&[ino.into()], 2, |draft| {
            let now = draft.now;
            let raw = &mut draft.inode_mut(ino)?.raw;
            if let Some(perm) = set.perm {
                raw.mode = (raw.mode.get() & !0o7777 | perm & 0o7777).into();
            }
            set.uid.into_iter().for_each(|uid| raw.set_uid(uid));
            set.gid.into_iter().for_each(|gid| raw.set_gid(gid));
            set.atime.into_iter().for_each(|at| raw.set_atime(at));
            set.mtime.into_iter().for_each(|at| raw.set_mtime(at));
            raw.set_ctime(set.ctime.unwrap_or(now));
            Ok(())
        })
    }
}
