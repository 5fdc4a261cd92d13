//! Extended attributes, in the inode or in a block (`struct ext4_xattr_header`,
//! `ext4_xattr_entry`).
//!
//! Both forms are an area with a list of entries from its start and values from its end. In the
//! inode the list begins behind a magic number, and values are counted from the list; in a block it
//! begins behind a header of 32 bytes, and values are counted from the block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{compare, crc32c};
use super::{FsBlock, Ino, ensure, le32};
use crate::error::{Error, Result};

/// `EXT4_XATTR_MAGIC`.
pub const MAGIC: u32 = 0xea02_0000;
/// Byte of a block at which its entries begin.
pub const BLOCK_FIRST: usize = size_of::<RawHeader>();
/// The namespace of the access list.
pub const ACL_ACCESS: u8 = 2;
/// The namespace of the list that new entries inherit.
pub const ACL_DEFAULT: u8 = 3;
/// The namespace of the kernel's own attributes, such as the rest of inline data.
pub const SYSTEM: u8 = 7;
/// The attribute with the rest of inline data, in [`SYSTEM`].
pub const INLINE_DATA: &[u8] = b"data";

/// Prefixes of names. Whole names, which do not end with a dot, come before their namespace.
const PREFIXES: [(u8, &[u8]); 7] = [
    (1, b"user."),
    (ACL_ACCESS, b"system.posix_acl_access"),
    (ACL_DEFAULT, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
    (8, b"system.richacl"),
    (SYSTEM, b"system."),
];

/// `struct ext4_xattr_header`, 32 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// Inodes that share the block.
    pub refcount: U32,
    /// 1.
    pub blocks: U32,
    /// Hash of all entries, by which equal blocks are found.
    pub hash: U32,
    /// Checksum.
    pub checksum: U32,
    /// 0.
    pub reserved: [U32; 3],
}

/// The start of `struct ext4_xattr_entry`, 16 bytes; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    name_len: u8,
    name_index: u8,
    value_offs: U16,
    value_inum: U32,
    value_size: U32,
    hash: U32,
}
const ENTRY: usize = size_of::<RawEntry>();
const _: () = assert!(BLOCK_FIRST == 32 && ENTRY == 16);

/// Where the value of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Here.
    Here(&'a [u8]),
    /// In an inode of its own, of so many bytes.
    Inode(Ino, u32),
}

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Namespace.
    pub index: u8,
    /// Name without the namespace's prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: Value<'a>,
}

impl Xattr<'_> {
    /// The name with its prefix; `None` for a namespace that only the kernel sees.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let prefix = PREFIXES.iter().find(|known| known.0 == self.index)?.1;
        Some([prefix, self.name].concat())
    }
}

/// The namespace of a full name, and the rest of the name.
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        (rest.is_empty() != prefix.ends_with(b".")).then_some((*index, rest))
    })
}

/// The area with attributes of an inode, from the bytes behind its fields: without the magic
/// number. `None` if it has none.
pub fn in_inode(rest: &[u8]) -> Option<&[u8]> {
    (le32(rest, 0) == MAGIC).then(|| &rest[4..])
}

/// The attributes of an area whose list begins at byte `first`: 0 in an inode, [`BLOCK_FIRST`] in a
/// block. `at` is the block it was read from.
pub fn entries(area: &[u8], first: usize, at: FsBlock) -> Result<Vec<Xattr<'_>>> {
    let corrupt = |field, found: usize, allowed: &str| Error::corrupt(field, at, found, allowed);
    let mut found = Vec::new();
    let mut values = Vec::new();
    let mut offset = first;
    loop {
        let rest = area.get(offset..).unwrap_or_default();
        match rest.first_chunk::<4>() {
            Some([0, 0, 0, 0]) => break,
            Some(_) => {}
            // A list that fills the area to its last word has no room for its end.
            None if rest.is_empty() && offset == area.len() => break,
            None => return Err(corrupt("xattr_entry", rest.len(), "an end of 4 zero bytes")),
        }
        let (raw, behind) = RawEntry::ref_from_prefix(rest)
            .map_err(|_| corrupt("xattr_entry", rest.len(), "16 bytes or more"))?;
        let name_len = usize::from(raw.name_len);
        let name = behind
            .get(..name_len)
            .ok_or_else(|| corrupt("xattr_entry.e_name_len", name_len, "within the area"))?;
        let (start, size) = (usize::from(raw.value_offs.get()), raw.value_size.get() as usize);
        let value =
            match raw.value_inum.get() {
                0 => {
                    let value = area.get(start..).and_then(|value| value.get(..size));
                    if size > 0 {
                        values.push(start);
                    }
                    Value::Here(value.ok_or_else(|| {
                        corrupt("xattr_entry.e_value_size", size, "within the area")
                    })?)
                }
                ino => Value::Inode(ino, raw.value_size.get()),
            };
        found.push(Xattr { index: raw.name_index, name, value });
        offset += ENTRY + name_len.next_multiple_of(4);
    }
    match values.into_iter().find(|start| *start < offset) {
        Some(start) => Err(corrupt("xattr_entry.e_value_offs", start, "behind the list")),
        None => Ok(found),
    }
}

/// The header of an attribute block, read from block `at`.
pub fn header(block: &[u8], at: FsBlock) -> Result<&RawHeader> {
    let (header, _) = RawHeader::ref_from_prefix(block)
        .map_err(|_| Error::corrupt("xattr_header", at, block.len(), "32 bytes or more"))?;
    let (magic, blocks) = (header.magic.get(), header.blocks.get());
    ensure(magic == MAGIC, "xattr_header.h_magic", at, magic, "0xea020000")?;
    ensure(blocks == 1, "xattr_header.h_blocks", at, blocks, "1")?;
    Ok(header)
}

/// Writes a list of attributes and their values to an area whose list begins at byte `first`, and
/// zeroes what is between. False if there is no room; the area is then unchanged. In a block they
/// must be in order of index, length of name, name.
pub fn emit(area: &mut [u8], first: usize, xattrs: &[Xattr<'_>]) -> bool {
    let aligned = |len: usize| len.next_multiple_of(4);
    let here = |xattr: &Xattr<'_>| match xattr.value {
        Value::Here(value) => value.len(),
        Value::Inode(..) => 0,
    };
    let list: usize = xattrs.iter().map(|xattr| ENTRY + aligned(xattr.name.len())).sum();
    let values: usize = xattrs.iter().map(|xattr| aligned(here(xattr))).sum();
    if first + list + 4 + values > area.len() {
        return false;
    }
    area[first..].fill(0);
    let (mut offset, mut end) = (first, area.len() / 4 * 4);
    for xattr in xattrs {
        let (start, inum, size) = match xattr.value {
            Value::Here([]) => (0, 0, 0),
            Value::Here(value) => {
                end -= aligned(value.len());
                area[end..end + value.len()].copy_from_slice(value);
                (end, 0, value.len() as u32)
            }
            Value::Inode(ino, size) => (0, ino, size),
        };
        let raw = RawEntry {
            name_len: xattr.name.len() as u8,
            name_index: xattr.index,
            value_offs: (start as u16).into(),
            value_inum: inum.into(),
            value_size: size.into(),
            // In an inode the hash is not used.
            hash: if first == 0 { 0 } else { entry_hash(xattr) }.into(),
        };
        area[offset..offset + ENTRY].copy_from_slice(raw.as_bytes());
        offset += ENTRY;
        area[offset..offset + xattr.name.len()].copy_from_slice(xattr.name);
        offset += aligned(xattr.name.len());
    }
    true
}

/// `ext4_xattr_hash_entry`, with names as unsigned chars as since Linux 6.2. A value in an inode
/// counts as empty, which `ext4_xattr_rehash` treats as not shareable.
fn entry_hash(xattr: &Xattr<'_>) -> u32 {
    let hash = xattr.name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    let Value::Here(value) = xattr.value else { return 0 };
    value.chunks(4).fold(hash, |hash, piece| {
        let mut word = [0; 4];
        word[..piece.len()].copy_from_slice(piece);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Writes the header of a block whose entries are there already (`ext4_xattr_rehash`). [`seal`]
/// then sets the checksum.
pub fn emit_header(block: &mut [u8], refcount: u32, xattrs: &[Xattr<'_>]) {
    let hashes = xattrs.iter().map(entry_hash);
    let shareable = hashes.clone().all(|hash| hash != 0);
    let hash = hashes.fold(0_u32, |hash, entry| hash.rotate_left(16) ^ entry);
    let raw = RawHeader {
        magic: MAGIC.into(),
        refcount: refcount.into(),
        blocks: 1.into(),
        hash: if shareable { hash } else { 0 }.into(),
        checksum: 0.into(),
        reserved: [0.into(); 3],
    };
    block[..BLOCK_FIRST].copy_from_slice(raw.as_bytes());
}

/// One inode less has the block at block `at`. `seed` is the volume's, if it has checksums.
pub fn unshare(block: &mut [u8], seed: Option<u32>, at: FsBlock) {
    if let Ok((header, _)) = RawHeader::mut_from_prefix(block) {
        header.refcount = header.refcount.get().saturating_sub(1).into();
    }
    if let Some(seed) = seed {
        seal(block, seed, at);
    }
}

/// Byte of the checksum in a block.
const CHECKSUM_AT: usize = 16;

/// `ext4_xattr_block_csum`: with the number of the block, without the inode, because several may
/// share it.
fn right_checksum(block: &[u8], seed: u32, at: FsBlock) -> u32 {
    let state = crc32c(crc32c(seed, &at.to_le_bytes()), &block[..CHECKSUM_AT]);
    crc32c(crc32c(state, &[0; 4]), &block[CHECKSUM_AT + 4..])
}

/// Sets the checksum of the block that will be at block `at`. `seed` is the volume's.
pub fn seal(block: &mut [u8], seed: u32, at: FsBlock) {
    let right = right_checksum(block, seed, at);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&right.to_le_bytes());
}

/// Fails if the checksum of the block read from block `at` is wrong. `seed` is the volume's.
pub fn verify(block: &[u8], seed: u32, at: FsBlock) -> Result<()> {
    let found = header(block, at)?.checksum.get();
    compare("xattr_header.h_checksum", at, found, right_checksum(block, seed, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Xattr<'_>; 2] = [
        Xattr { index: 1, name: b"mime", value: Value::Here(b"text/plain") },
        Xattr { index: 6, name: b"empty", value: Value::Here(b"") },
    ];

    #[test]
    fn areas_round_trip() {
        for (len, first) in [(92, 0), (1024, BLOCK_FIRST)] {
            let mut area = vec![0xff; len];
            assert!(emit(&mut area, first, &TWO));
            assert_eq!(entries(&area, first, 0).unwrap(), TWO);
        }
        assert!(!emit(&mut [0; 48], 0, &TWO), "16+4 + 16+8 + 4 + 12 bytes");
        assert!(emit(&mut [0; 60], 0, &TWO));
    }

    #[test]
    fn sealed_blocks_verify() {
        let mut block = vec![0; 1024];
        emit(&mut block, BLOCK_FIRST, &TWO);
        emit_header(&mut block, 3, &TWO);
        seal(&mut block, 5, 77);
        verify(&block, 5, 77).unwrap();
        verify(&block, 5, 78).unwrap_err();
        assert_eq!(header(&block, 77).unwrap().refcount.get(), 3);
        unshare(&mut block, Some(5), 77);
        verify(&block, 5, 77).unwrap();
        assert_eq!(header(&block, 77).unwrap().refcount.get(), 2);
    }

    #[test]
    fn names_have_prefixes() {
        assert_eq!(split_name(b"user.mime"), Some((1, &b"mime"[..])));
        assert_eq!(split_name(b"system.posix_acl_access"), Some((ACL_ACCESS, &b""[..])));
        assert_eq!(split_name(b"system.data"), Some((SYSTEM, &b"data"[..])));
        assert_eq!((split_name(b"user."), split_name(b"other.x")), (None, None));
        assert_eq!(TWO[0].full_name().unwrap(), b"user.mime");
    }

    #[test]
    fn values_and_names_stay_in_their_area() {
        let mut area = vec![0; 92];
        emit(&mut area, 0, &TWO);
        for (byte, value) in [(0, 250), (2, 90), (2, 8), (9, 1)] {
            let mut broken = area.clone();
            broken[byte] = value;
            assert!(entries(&broken, 0, 0).is_err(), "{byte}");
        }
    }
}
