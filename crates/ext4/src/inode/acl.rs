//! Access control lists: where they are stored. How they follow the permission bits is in
//! [`vfs::acl`].

use vfs::acl::{self, Acl, Holder, Which, encode};
use vfs::{Errno, FileKind, XattrMode};

use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::xattr;
use crate::mount::draft::{Draft, ino as narrow};
use crate::mount::want::{Halt, Step};
use crate::ondisk::xattr::{ACL_ACCESS, ACL_DEFAULT};

use vfs::op::Stop;

/// The list that is stored in this namespace, if it is one of a list.
pub(crate) fn list_of(index: u8) -> Option<Which> {
    match index {
        ACL_ACCESS => Some(Which::Access),
        ACL_DEFAULT => Some(Which::Default),
        _ => None,
    }
}

fn index_of(which: Which) -> u8 {
    match which {
        Which::Access => ACL_ACCESS,
        Which::Default => ACL_DEFAULT,
    }
}

/// Decodes a stored list of `inode`.
pub(crate) fn decode(value: &[u8], inode: &Inode) -> Result<Acl> {
    let corrupt = |what| inode.corrupt("ext4_acl", what, "a version 1 list that is complete");
    acl::decode(value).map_err(corrupt)
}

impl Holder for Draft<'_, '_> {
    type Error = Halt;

    fn acl(&mut self, ino: vfs::Ino, which: Which) -> Step<Option<Acl>> {
        let inode = self.inode(narrow(ino)?)?;
        let stored = xattr::stored(self, inode, index_of(which), b"")?;
        Ok(stored.map(|value| decode(&value, inode)).transpose()?)
    }

    fn put_acl(&mut self, ino: vfs::Ino, which: Which, acl: Option<&Acl>) -> Step<()> {
        let (ino, index) = (narrow(ino)?, index_of(which));
        let value = acl.map(encode);
        match self.store_xattr(ino, index, b"", value.as_deref(), XattrMode::Set) {
            Err(Stop::Failed(Error::Posix(Errno::NODATA))) if acl.is_none() => Ok(()),
            done => done,
        }
    }

    fn kind_and_perm(&mut self, ino: vfs::Ino) -> Step<(FileKind, u16)> {
        let inode = self.inode(narrow(ino)?)?;
        Ok((inode.kind(), inode.raw.mode.get() & 0o7777))
    }

    fn set_perm(&mut self, ino: vfs::Ino, perm: u16) -> Step<()> {
        let now = self.now;
        let raw = &mut self.inode_mut(narrow(ino)?)?.raw;
        raw.mode = (raw.mode.get() & !0o7777 | perm & 0o7777).into();
        raw.set_ctime(now);
        Ok(())
    }
}
