//! Lists as file systems store them: `struct f2fs_acl_header` and `ext4_acl_header` with their
//! entries, which are the same bytes (version 1, little-endian).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Acl, Entry, Tag};

/// `F2FS_ACL_VERSION`, `EXT4_ACL_VERSION`: the four bytes of the header.
const VERSION: u32 = 1;

/// `struct f2fs_acl_entry_short`, `ext4_acl_entry_short`, 4 bytes. For a named entry, the id
/// follows in 4 more bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    tag: U16,
    perm: U16,
}
const _: () = assert!(size_of::<RawEntry>() == 4);

/// The bytes of a list.
pub fn encode(acl: &Acl) -> Vec<u8> {
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

/// The list that these bytes are.
///
/// # Errors
///
/// What is wrong with them, for the file system to name the inode.
pub fn decode(value: &[u8]) -> Result<Acl, &'static str> {
    let (version, mut rest) = U32::read_from_prefix(value).map_err(|_| "less than a header")?;
    if version.get() != VERSION {
        return Err("another version");
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (raw, behind) = RawEntry::read_from_prefix(rest).map_err(|_| "half an entry")?;
        rest = behind;
        let mut tag = Tag::from_number(raw.tag.get(), 0).ok_or("a wrong tag")?;
        if tag.id().is_some() {
            let (id, behind) =
                U32::read_from_prefix(rest).map_err(|_| "an entry without its id")?;
            rest = behind;
            tag = Tag::from_number(raw.tag.get(), id.get()).unwrap_or(tag);
        }
        entries.push(Entry { tag, perm: raw.perm.get() });
    }
    Acl::new(entries).ok_or("an invalid list")
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
        assert_eq!(decode(&value).unwrap(), acl);
        for len in 0..value.len() {
            assert!(decode(&value[..len]).is_err(), "{len} bytes");
        }
    }
}
