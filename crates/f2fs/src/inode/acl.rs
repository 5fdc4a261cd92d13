//! Access control lists: where they are stored. How they follow the permission bits is in
//! [`vfs::acl`].

use vfs::acl::{self, Acl, Holder, Which, encode};
use vfs::{FileKind, Ino, XattrMode};

use crate::error::{Error, Result};
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// The list that is stored in this namespace, if it is one of a list.
pub(crate) fn list_of(index: u8) -> Option<Which> {
    match index {
        _ if index == ACL_ACCESS.0 => Some(Which::Access),
        _ if index == ACL_DEFAULT.0 => Some(Which::Default),
        _ => None,
    }
}

fn index_of(which: Which) -> u8 {
    match which {
        Which::Access => ACL_ACCESS.0,
        Which::Default => ACL_DEFAULT.0,
    }
}

/// Decodes a stored list. Errors name inode `ino`.
pub(crate) fn decode(value: &[u8], ino: Nid) -> Result<Acl> {
    acl::decode(value)
        .map_err(|what| Error::corrupt("f2fs_acl", ino, what, "a version 1 list that is complete"))
}

impl Holder for Engine {
    type Error = Error;

    fn acl(&mut self, ino: Ino, which: Which) -> Result<Option<Acl>> {
        let ino = ino as Nid;
        if !self.view(ino)?.may_have_xattrs() {
            return Ok(None);
        }
        let stored = self.stored_xattr(ino, index_of(which), b"")?;
        stored.map(|value| decode(&value, ino)).transpose()
    }

    fn put_acl(&mut self, ino: Ino, which: Which, acl: Option<&Acl>) -> Result<()> {
        let (ino, index) = (ino as Nid, index_of(which));
        let Some(acl) = acl else {
            return match self.store_xattr(ino, index, b"", None, XattrMode::Replace) {
                Err(Error::Posix(vfs::Errno::NODATA)) => Ok(()),
                done => done,
            };
        };
        self.store_xattr(ino, index, b"", Some(&encode(acl)), XattrMode::Set)
    }

    fn kind_and_perm(&mut self, ino: Ino) -> Result<(FileKind, u16)> {
        let inode = self.view(ino as Nid)?;
        Ok((inode.file_kind(), inode.mode.get() & 0o7777))
    }

    fn set_perm(&mut self, ino: Ino, perm: u16) -> Result<()> {
        let now = self.clock.now();
        let inode = self.inode_mut(ino as Nid)?;
        inode.mode.set(inode.mode.get() & !0o7777 | perm & 0o7777);
        inode.set_ctime(now);
        Ok(())
    }
}
