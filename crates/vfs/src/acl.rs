//! POSIX access control lists, acl(5): their form in extended attributes, and how they and the
//! permission bits stay in step.
//!
//! Source: POSIX.1e draft 17 section 23; `struct posix_acl_xattr_header` and `_entry` of Linux
//! (`include/uapi/linux/posix_acl_xattr.h`), little-endian, version 2. An [`Acl`] is always valid
//! in the sense of acl_valid(3).

use crate::{Errno, Result};

mod holder;
mod stored;

pub use holder::{Holder, Which, chmod, inherit, set};
pub use stored::{decode, encode};

/// The attribute that holds a file's access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that holds the list its new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_SIZE: usize = 4;
const ENTRY_SIZE: usize = 8;
/// The `id` of an entry that names nobody.
const NO_ID: u32 = u32::MAX;

/// Whom an entry concerns, in the order of the entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// `ACL_USER_OBJ`: the owner.
    UserObj,
    /// `ACL_USER`.
    User(u32),
    /// `ACL_GROUP_OBJ`: the owning group.
    GroupObj,
    /// `ACL_GROUP`.
    Group(u32),
    /// `ACL_MASK`: the most that named users and any group can have.
    Mask,
    /// `ACL_OTHER`.
    Other,
}

impl Tag {
    /// The tag's number, `ACL_USER_OBJ` and so on.
    pub const fn number(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    /// The user or group of a named entry.
    pub const fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }

    /// The tag with this number. Only named entries use `id`.
    pub const fn from_number(number: u16, id: u32) -> Option<Self> {
        Some(match number {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

/// One entry: who, and the bits `rwx` as in one digit of chmod(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it concerns.
    pub tag: Tag,
    /// 0..=7.
    pub perm: u16,
}

/// A valid access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// A list of these entries, or `None` if it is not valid. A valid list is in order, has each
    /// entry once and the three obligatory ones, and has a mask if it names anybody.
    pub fn new(entries: Vec<Entry>) -> Option<Self> {
        let ordered = entries.windows(2).all(|pair| {
            // Linux requires order among kinds only; named entries may come in any order.
            pair[0].tag.number() <= pair[1].tag.number()
        });
        let count = |tag| entries.iter().filter(|e| e.tag == tag).count();
        let named = entries.iter().any(|e| e.tag.id().is_some());
        let valid = ordered
            && entries.iter().all(|e| e.perm <= 7)
            && [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(|tag| count(tag) == 1)
            && count(Tag::Mask) <= 1
            && (count(Tag::Mask) == 1 || !named)
            && entries.iter().all(|e| e.tag.id() != Some(NO_ID));
        valid.then_some(Self { entries })
    }

    /// The list in an attribute's value; `None` if it has no entries, which stands for having no
    /// list.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a value that is not a list, `EOPNOTSUPP` for another version.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Self>> {
        let (version, body) = value.split_first_chunk::<HEADER_SIZE>().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (chunks, rest) = body.as_chunks::<ENTRY_SIZE>();
        if !rest.is_empty() {
            return Err(Errno::INVAL.into());
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries: Option<Vec<Entry>> = chunks.iter().map(parse).collect();
        Ok(Some(entries.and_then(Self::new).ok_or(Errno::INVAL)?))
    }

    /// The list as an attribute's value.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend_from_slice(&entry.tag.number().to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&entry.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        value
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the permission bits say everything that the list says (`posix_acl_equiv_mode`).
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine permission bits that `stat` shows for a file with this list. The group's bits are
    /// the mask's.
    pub fn perm(&self) -> u16 {
        self.entries.iter().fold(0, |perm, entry| match entry.tag {
            Tag::UserObj => perm | entry.perm << 6,
            Tag::GroupObj if !self.has_mask() => perm | entry.perm << 3,
            Tag::Mask => perm | entry.perm << 3,
            Tag::Other => perm | entry.perm,
            _ => perm,
        })
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.tag == Tag::Mask)
    }

    /// The list after a chmod(2) to `perm` (`posix_acl_chmod`).
    #[must_use]
    pub fn chmod(&self, perm: u16) -> Self {
        self.map_classes(|_, class| perm >> class & 7)
    }

    /// What a new file that asks for `perm` inherits from this default list: its own list and the
    /// permission bits that match it (`posix_acl_create`).
    #[must_use]
    pub fn inherited(&self, perm: u16) -> (Self, u16) {
        let list = self.map_classes(|old, class| old & (perm >> class & 7));
        let bits = list.perm();
        (list, perm & !0o777 | bits)
    }

    /// Changes the entries that the permission bits stand for. `change` gets an entry's bits and
    /// the position of its bits in the mode.
    fn map_classes(&self, change: impl Fn(u16, u16) -> u16) -> Self {
        let has_mask = self.has_mask();
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            let class = match entry.tag {
                Tag::UserObj => 6,
                Tag::GroupObj if !has_mask => 3,
                Tag::Mask => 3,
                Tag::Other => 0,
                _ => continue,
            };
            entry.perm = change(entry.perm, class);
        }
        Self { entries }
    }
}

fn parse(bytes: &[u8; ENTRY_SIZE]) -> Option<Entry> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let tag = Tag::from_number(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
    Some(Entry { tag, perm: u16::from_le_bytes([p0, p1]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u16)]) -> Option<Acl> {
        Acl::new(entries.iter().map(|&(tag, perm)| Entry { tag, perm }).collect())
    }

    fn named() -> Acl {
        let user = (Tag::User(7), 7);
        acl(&[(Tag::UserObj, 6), user, (Tag::GroupObj, 4), (Tag::Mask, 6), (Tag::Other, 0)])
            .unwrap()
    }

    #[test]
    fn lists_round_trip() {
        let list = named();
        let value = list.to_xattr();
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(value[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(Acl::from_xattr(&value).unwrap(), Some(list));
        assert_eq!(Acl::from_xattr(&value[..4]).unwrap(), None);
        assert!(Acl::from_xattr(&value[..7]).is_err() && Acl::from_xattr(&[]).is_err());
    }

    #[test]
    fn invalid_lists_are_refused() {
        assert!(acl(&[(Tag::UserObj, 6), (Tag::GroupObj, 4)]).is_none(), "no other");
        let unmasked = [(Tag::UserObj, 6), (Tag::User(7), 7), (Tag::GroupObj, 4), (Tag::Other, 0)];
        assert!(acl(&unmasked).is_none(), "a name without a mask");
        assert!(acl(&[(Tag::GroupObj, 4), (Tag::UserObj, 6), (Tag::Other, 0)]).is_none(), "order");
        assert!(acl(&[(Tag::UserObj, 8), (Tag::GroupObj, 4), (Tag::Other, 0)]).is_none(), "bits");
    }

    #[test]
    fn lists_and_permission_bits_follow_each_other() {
        let list = named();
        assert_eq!(list.perm(), 0o660);
        assert_eq!(list.chmod(0o751).perm(), 0o751);
        let group = list.chmod(0o751).entries()[2];
        assert_eq!(group, Entry { tag: Tag::GroupObj, perm: 4 }, "the mask stands for the group");
        let (inherited, perm) = list.inherited(0o1644);
        assert_eq!((inherited.perm(), perm), (0o640, 0o1640));
        assert_eq!(inherited.entries()[1].perm, 7, "named entries are inherited as they are");
    }
}
