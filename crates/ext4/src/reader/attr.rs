//! What stat(2) says of an inode.

use vfs::Attr;

use super::Reader;
use super::inode::Inode;

impl Reader {
    /// Attributes.
    pub(crate) fn attr(&self, inode: &Inode) -> Attr {
        let raw = &inode.raw;
        let is_device =
            matches!(inode.kind, vfs::FileKind::CharDevice | vfs::FileKind::BlockDevice);
        Attr {
            ino: inode.ino.into(),
            kind: inode.kind,
            perm: raw.mode.get() & 0o7777,
            nlink: raw.links_count.get().into(),
            uid: raw.uid(),
            gid: raw.gid(),
            rdev: if is_device { raw.rdev() } else { 0 },
            size: raw.size(),
            blocks: raw.sectors(self.sb.block_size),
            atime: raw.atime(),
            mtime: raw.mtime(),
            ctime: raw.ctime(),
            crtime: raw.crtime(),
            generation: raw.generation.get(),
        }
    }
}
