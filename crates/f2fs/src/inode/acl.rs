//! Access control lists: how F2FS stores them, and how they follow the permission bits (`acl.c`).

use vfs::acl::{Acl, Entry, Tag};
use vfs::{FileKind, XattrMode};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// `F2FS_ACL_VERSION`, the four bytes of `struct f2fs_acl_header`.
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER_SIZE: usize = 4;

/// `struct f2fs_acl_entry_short`, 4 bytes. For a named entry, the id follows in 4 more bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    tag: U16,
    perm: U16,
}
const _: () = assert!(size_of::<RawEntry>() == 4);

/// Whether the attributes of this namespace are access control lists.
pub(crate) fn is_acl(index: u8) -> bool {
    index == ACL_ACCESS.0 || index == ACL_DEFAULT.0
}

/// A list as F2FS stores it.
pub(crate) fn encode(acl: &Acl) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in acl.entries() {
        let raw = RawEntry { tag: U16::new(entry.tag.number()), perm: U16::new(entry.perm) };
        value.extend_from_slice(raw.as_bytes());
        if let Some(id) = entry.tag.id() {
            value.extend_from_slice(&id.to_le_bytes());
        }
    }
    value
}

/// Decodes a stored list. Errors name inode `ino`.
pub(crate) fn decode(value: &[u8], ino: Nid) -> Result<Acl> {
    let corrupt = |what| Error::corrupt("f2fs_acl", ino, what, "a version 1 list that is complete");
    let (version, mut rest) =
        U32::read_from_prefix(value).map_err(|_| corrupt("less than a header"))?;
    if version.get() != VERSION {
        return Err(corrupt("another version"));
    }
    debug_assert_eq!(value.len() - rest.len(), HEADER_SIZE);
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (raw, behind) =
            RawEntry::read_from_prefix(rest).map_err(|_| corrupt("half an entry"))?;
        rest = behind;
        let mut tag = Tag::from_number(raw.tag.get(), 0).ok_or_else(|| corrupt("a wrong tag"))?;
        if tag.id().is_some() {
            let (id, behind) =
                U32::read_from_prefix(rest).map_err(|_| corrupt("an entry without its id"))?;
            rest = behind;
            tag = Tag::from_number(raw.tag.get(), id.get()).unwrap_or(tag);
        }
        entries.push(Entry { tag, perm: raw.perm.get() });
    }
    Acl::new(entries).ok_or_else(|| corrupt("an invalid list"))
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

    /// Sets the access list, and the permission bits according to it. A list that says no more than
    /// these bits is not stored.
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
        let inode = self.inode_mut(ino)?;
        let others = inode.mode.get() & !0o777;
        inode.mode.set(others | perm & 0o777);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip_and_damage_is_named() {
        let list = [(Tag::UserObj, 6), (Tag::User(1000), 4), (Tag::GroupObj, 4), (Tag::Mask, 4)];
        let mut entries: Vec<_> = list.map(|(tag, perm)| Entry { tag, perm }).into();
        entries.push(Entry { tag: Tag::Other, perm: 0 });
        let acl = Acl::new(entries).unwrap();
        let value = encode(&acl);
        assert_eq!(value.len(), 4 + 4 * 4 + 8);
        assert_eq!(decode(&value, 7).unwrap(), acl);
        for len in 0..value.len() {
            assert!(decode(&value[..len], 7).is_err(), "{len} bytes");
        }
    }
}
