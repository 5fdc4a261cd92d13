//! Extended attributes (`struct f2fs_xattr_header`, 24 bytes, followed by entries).
//!
//! The inode's inline area and the xattr node form one buffer. The functions here work on the
//! whole; callers join and split it.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::NAME_MAX;
use crate::error::{Error, Result};

/// `F2FS_XATTR_MAGIC`.
pub const MAGIC: u32 = 0xf2f5_2011;
/// Bytes of an xattr node that hold attributes.
pub const NODE_CAPACITY: usize = super::node::FOOTER_OFFSET;
/// Bytes of the header.
pub const HEADER_SIZE: usize = size_of::<RawXattrHeader>();

const ENTRY_SIZE: usize = size_of::<RawXattrEntry>();
/// The list ends with a zero word.
const END_SIZE: usize = 4;

/// `struct f2fs_xattr_header`, 24 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// 1.
    pub refcount: U32,
    reserved: [U32; 4],
}
const _: () = assert!(HEADER_SIZE == 24);

/// `struct f2fs_xattr_entry`, 4 bytes, then name and value, padded to 4.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrEntry {
    /// Namespace; see [`split_name`].
    pub name_index: u8,
    /// Bytes of the name.
    pub name_len: u8,
    /// Bytes of the value.
    pub value_size: U16,
}
const _: () = assert!(ENTRY_SIZE == 4);

const PREFIXES: [(u8, &[u8]); 3] = [(1, b"user."), (4, b"trusted."), (6, b"security.")];
/// Namespace and full name of the access list.
pub const ACL_ACCESS: (u8, &[u8]) = (2, vfs::acl::ACCESS);
/// Namespace and full name of the list that new files in a directory inherit.
pub const ACL_DEFAULT: (u8, &[u8]) = (3, vfs::acl::DEFAULT);

/// Namespace and rest of a full attribute name; `None` if F2FS does not store such attributes.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    for (index, name) in [ACL_ACCESS, ACL_DEFAULT] {
        if full == name {
            return Some((index, b""));
        }
    }
    PREFIXES
        .iter()
        .find_map(|(index, prefix)| Some((*index, full.strip_prefix(*prefix)?)))
        .filter(|(_, rest)| !rest.is_empty() && rest.len() <= NAME_MAX)
}

/// The full name of an attribute; `None` for attributes that F2FS itself uses.
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    for (own, full) in [ACL_ACCESS, ACL_DEFAULT] {
        if own == index {
            return Some(full.to_vec());
        }
    }
    PREFIXES.iter().find(|(own, _)| *own == index).map(|(_, prefix)| [prefix, name].concat())
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Namespace.
    pub index: u8,
    /// Name in it.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl Xattr<'_> {
    /// Bytes the entry takes.
    pub fn len(&self) -> usize {
        entry_len(self.name.len(), self.value.len())
    }

    /// Never true: an entry has at least its head.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Bytes an entry takes.
pub fn entry_len(name: usize, value: usize) -> usize {
    (ENTRY_SIZE + name + value).next_multiple_of(4)
}

/// The most bytes that all attributes may take, with header and end, if `inline` bytes are in the
/// inode.
pub fn capacity(inline: usize) -> usize {
    inline + NODE_CAPACITY
}

/// The attributes in `buffer`, which begins with the header. An all-zero header means that there
/// are none. Errors name block `at`.
pub fn parse(buffer: &[u8], at: u64) -> Result<Vec<Xattr<'_>>> {
    let Ok((header, mut rest)) = RawXattrHeader::ref_from_prefix(buffer) else {
        return Ok(Vec::new());
    };
    match header.magic.get() {
        0 => return Ok(Vec::new()),
        MAGIC => {}
        found => {
            let (found, allowed) = (format!("{found:#x}"), format!("{MAGIC:#x}"));
            return Err(Error::corrupt("xattr_header.h_magic", at, found, allowed));
        }
    }
    let mut found = Vec::new();
    loop {
        let Ok((raw, body)) = RawXattrEntry::ref_from_prefix(rest) else { return Ok(found) };
        if raw.as_bytes() == [0; ENTRY_SIZE] {
            return Ok(found);
        }
        let (name_len, size) = (usize::from(raw.name_len), usize::from(raw.value_size.get()));
        let Some(name_and_value) = body.get(..name_len + size) else {
            let left = body.len();
            return Err(Error::corrupt("xattr_entry", at, name_len + size, format!("0..={left}")));
        };
        let (name, value) = name_and_value.split_at(name_len);
        found.push(Xattr { index: raw.name_index, name, value });
        rest = rest.get(entry_len(name_len, size)..).unwrap_or_default();
    }
}

/// Ends the list in `buffer` before the first damaged attribute. If attributes follow the header,
/// the header is corrected.
pub fn cut_off_damage(buffer: &mut [u8]) {
    if let Some(magic) = buffer.first_chunk_mut::<4>() {
        *magic = MAGIC.to_le_bytes();
    }
    let mut at = HEADER_SIZE;
    while let Some(rest) = buffer.get(at..) {
        let Ok((raw, body)) = RawXattrEntry::ref_from_prefix(rest) else { break };
        let (name_len, size) = (usize::from(raw.name_len), usize::from(raw.value_size.get()));
        if raw.as_bytes() == [0; ENTRY_SIZE] || body.len() < name_len + size {
            break;
        }
        at += entry_len(name_len, size);
    }
    buffer.get_mut(at..).unwrap_or_default().fill(0);
    if at <= HEADER_SIZE {
        buffer.fill(0);
    }
}

/// Header, attributes and end as one buffer; `None` if they take more than `capacity` bytes or if a
/// field is too large. Without attributes, the buffer is empty.
pub fn build<'a>(
    attributes: impl IntoIterator<Item = Xattr<'a>>,
    capacity: usize,
) -> Option<Vec<u8>> {
    let header = RawXattrHeader {
        magic: U32::new(MAGIC),
        refcount: U32::new(1),
        reserved: [U32::new(0); 4],
    };
    let mut buffer = header.as_bytes().to_vec();
    for attribute in attributes {
        let raw = RawXattrEntry {
            name_index: attribute.index,
            name_len: attribute.name.len().try_into().ok()?,
            value_size: U16::new(attribute.value.len().try_into().ok()?),
        };
        buffer.extend_from_slice(raw.as_bytes());
        buffer.extend_from_slice(attribute.name);
        buffer.extend_from_slice(attribute.value);
        buffer.resize(buffer.len().next_multiple_of(4), 0);
    }
    if buffer.len() == HEADER_SIZE {
        return Some(Vec::new());
    }
    buffer.resize(buffer.len() + END_SIZE, 0);
    (buffer.len() <= capacity).then_some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        let attributes = [
            Xattr { index: 1, name: b"colour", value: b"sand" },
            Xattr { index: 2, name: b"", value: &[7; 100] },
            Xattr { index: 6, name: b"x", value: b"" },
        ];
        let buffer = build(attributes, 4096).unwrap();
        assert_eq!(parse(&buffer, 0).unwrap(), attributes);
        assert_eq!(buffer.len(), 24 + 16 + 104 + 8 + 4);
        assert!(build(attributes, buffer.len() - 1).is_none());
        assert!(parse(&buffer[..60], 0).is_err(), "a value beyond the end");
    }

    #[test]
    fn damage_is_cut_off() {
        let attributes = [
            Xattr { index: 1, name: b"colour", value: b"sand" },
            Xattr { index: 6, name: b"x", value: b"long enough" },
        ];
        let sound = build(attributes, 4096).unwrap();
        let mut buffer = sound.clone();
        buffer[0] ^= 1;
        cut_off_damage(&mut buffer);
        assert_eq!(parse(&buffer, 0).unwrap(), attributes);
        buffer[24 + 16 + 3] = 0xff;
        cut_off_damage(&mut buffer);
        assert_eq!(parse(&buffer, 0).unwrap(), attributes[..1]);
        buffer[24 + 3] = 0xff;
        cut_off_damage(&mut buffer);
        assert!(buffer.iter().all(|b| *b == 0));
    }

    #[test]
    fn names_split_and_join() {
        for name in [&b"user.a"[..], b"trusted.b", b"security.c", b"system.posix_acl_access"] {
            let (index, rest) = split_name(name).unwrap();
            assert_eq!(full_name(index, rest).unwrap(), name);
        }
        assert!(split_name(b"user.").is_none() && split_name(b"btrfs.x").is_none());
        assert!(full_name(9, b"c").is_none());
    }
}
