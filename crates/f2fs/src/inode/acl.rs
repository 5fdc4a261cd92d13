//! Access control lists: how they follow the permission bits (`acl.c`).

use vfs::acl::{self, Acl, encode};
use vfs::{FileKind, XattrMode};

use crate::error::{Error, Result};
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// Whether the attributes of this namespace are access control lists.
pub(crate) fn is_acl(index: u8) -> bool {
    index == ACL_ACCESS.0 || index == ACL_DEFAULT.0
}

/// Decodes a stored list. Errors name inode `ino`.
pub(crate) fn decode(value: &[u8], ino: Nid) -> Result<Acl> {
    acl::decode(value)
        .map_err(|what| Error::corrupt("f2fs_acl", ino, what, "a version 1 list that is complete"))
}

impl Engine {
    /// The list of an inode in the namespace of `which`, if it has one.
    pub(crate) fn acl(&mut self, ino: Nid, which: (u8, &[u8])) -> Result<Option<Acl>> {
        if !self.view(ino)?.may_have_xattrs() {
            return Ok(None);
        }
        let stored = self.stored_xattr(ino, which.0, b"")?;
        stored.map(|value| decode(&value, ino)).transpose()
    }

    /// Sets the access list, and the permission bits and the time of change according to it. A list
    /// that says no more than these bits is not stored.
    pub(crate) fn set_access_acl(&mut self, ino: Nid, acl: &Acl) -> Result<()> {
        self.set_perm_bits(ino, acl.perm())?;
        if acl.is_minimal() {
            return self.drop_acl(ino, ACL_ACCESS);
        }
        self.store_xattr(ino, ACL_ACCESS.0, b"", Some(&encode(acl)), XattrMode::Set)
    }

    /// Removes a list, if there is one.
    pub(crate) fn drop_acl(&mut self, ino: Nid, which: (u8, &[u8])) -> Result<()> {
        match self.store_xattr(ino, which.0, b"", None, XattrMode::Replace) {
            Err(Error::Posix(vfs::Errno::NODATA)) => Ok(()),
            done => done,
        }
    }

    /// Makes the list follow a change of the permission bits to `perm`.
    pub(crate) fn chmod_acl(&mut self, ino: Nid, perm: u16) -> Result<()> {
        let Some(acl) = self.acl(ino, ACL_ACCESS)? else { return Ok(()) };
        let changed = encode(&acl.chmod(perm));
        self.store_xattr(ino, ACL_ACCESS.0, b"", Some(&changed), XattrMode::Set)
    }

    /// Gives a new inode the lists that it inherits from `dir` (`f2fs_init_acl`). Its permission
    /// bits are still those that were requested.
    pub(crate) fn inherit_acl(&mut self, dir: Nid, ino: Nid, kind: FileKind) -> Result<()> {
        if kind == FileKind::Symlink {
            return Ok(());
        }
        let Some(default) = self.acl(dir, ACL_DEFAULT)? else { return Ok(()) };
        let perm = self.inode(ino)?.mode.get() & 0o7777;
        let (acl, _) = default.inherited(perm);
        self.set_access_acl(ino, &acl)?;
        if kind == FileKind::Directory {
            let value = encode(&default);
            self.store_xattr(ino, ACL_DEFAULT.0, b"", Some(&value), XattrMode::Set)?;
        }
        Ok(())
    }

    fn set_perm_bits(&mut self, ino: Nid, perm: u16) -> Result<()> {
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        let others = inode.mode.get() & !0o777;
        inode.mode.set(others | perm & 0o777);
        inode.set_ctime(now);
        Ok(())
    }
}
