//! Directory entries (`struct ext4_dir_entry_2`: 8 bytes and the name), and the checksum behind
//! them.
//!
//! A block of a directory is a chain of records that fill it. A record with inode 0 is free, and so
//! is what a record has behind its name. With checksums, the last record is a tail of 12 bytes that
//! looks like a free record to older readers.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{compare, crc32c};
use super::{FsBlock, Ino};
use crate::error::{Error, Result};

/// Bytes in front of a name.
pub const HEADER: usize = 8;
/// Bytes of the tail with the checksum.
pub const TAIL: usize = size_of::<RawTail>();
/// The type of the tail: `EXT4_FT_DIR_CSUM`.
const TAIL_TYPE: u8 = 0xde;

/// The start of `struct ext4_dir_entry_2`, 8 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirent {
    /// Inode; 0 if the record is free.
    pub inode: U32,
    /// Bytes to the next record.
    pub rec_len: U16,
    /// Bytes of the name.
    pub name_len: u8,
    /// Type; see [`vfs::FileKind::dirent_type`]. Without the feature `filetype`, the upper half of
    /// the name's length.
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirent>() == HEADER);

/// `struct ext4_dir_entry_tail`, 12 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    fake: RawDirent,
    checksum: U32,
}
const _: () = assert!(TAIL == 12);

/// Bytes that a record needs for a name of `len` bytes (`ext4_dir_rec_len`).
pub fn record_len(len: usize) -> usize {
    (HEADER + len).next_multiple_of(4)
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Byte of the block (or of the inline area) at which it begins.
    pub offset: usize,
    /// Inode; 0 if the record is free.
    pub ino: Ino,
    /// Bytes to the next record.
    pub rec_len: usize,
    /// Type as stored; see [`vfs::FileKind::from_dirent_type`].
    pub file_type: u8,
    /// Name.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// Fails if the record, which was read from block `at` and is not free, has a name that no path
    /// can have. Encrypted names are any bytes.
    pub fn check_name(&self, at: FsBlock) -> Result<()> {
        if self.name.is_empty() || self.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            let found = format!("{:?} at byte {}", self.name, self.offset);
            return Err(Error::corrupt("dirent.name", at, found, "bytes other than NUL and '/'"));
        }
        Ok(())
    }
}

/// All records of a block, free ones and the tail included. Ends at the first corrupt one.
pub struct Dirents<'a> {
    bytes: &'a [u8],
    offset: usize,
    at: FsBlock,
}

impl<'a> Dirents<'a> {
    /// The records in `bytes`, from block `at`.
    pub fn new(bytes: &'a [u8], at: FsBlock) -> Self {
        Self { bytes, offset: 0, at }
    }

    #[inline]
    fn parse(&self) -> Result<Dirent<'a>> {
        let rest = &self.bytes[self.offset..];
        let (raw, behind) = RawDirent::ref_from_prefix(rest)
            .map_err(|_| self.corrupt("dirent", rest.len(), "8 bytes or more"))?;
        let rec_len = usize::from(raw.rec_len.get());
        let name_len = usize::from(raw.name_len);
        if rec_len > rest.len() || !rec_len.is_multiple_of(4) || rec_len < record_len(1) {
            return Err(self.corrupt(
                "dirent.rec_len",
                rec_len,
                "a multiple of 4 within the block",
            ));
        }
        if rec_len < record_len(name_len) {
            return Err(self.corrupt("dirent.name_len", name_len, "less than the record"));
        }
        let (name, ino) = (&behind[..name_len], raw.inode.get());
        Ok(Dirent { offset: self.offset, ino, rec_len, file_type: raw.file_type, name })
    }

    #[cold]
    fn corrupt(&self, field: &'static str, found: usize, allowed: &str) -> Error {
        let found = format!("{found} at byte {}", self.offset);
        Error::corrupt(field, self.at, found, allowed)
    }
}

impl<'a> Iterator for Dirents<'a> {
    type Item = Result<Dirent<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let found = self.parse();
        self.offset = match &found {
            Ok(dirent) => self.offset + dirent.rec_len,
            Err(_) => self.bytes.len(),
        };
        Some(found)
    }
}

/// Writes a record of `rec_len` bytes at byte `offset`. `rec_len` is at least [`record_len`] of the
/// name; what the record has behind its name stays.
pub fn emit(bytes: &mut [u8], offset: usize, rec_len: usize, ino: Ino, file_type: u8, name: &[u8]) {
    let raw = RawDirent {
        inode: ino.into(),
        rec_len: (rec_len as u16).into(),
        name_len: name.len() as u8,
        file_type,
    };
    bytes[offset..offset + HEADER].copy_from_slice(raw.as_bytes());
    bytes[offset + HEADER..offset + HEADER + name.len()].copy_from_slice(name);
}

/// Writes the tail that a block with a checksum ends with.
pub fn emit_tail(block: &mut [u8]) {
    let at = block.len() - TAIL;
    emit(block, at, TAIL, 0, TAIL_TYPE, b"");
}

fn tail(block: &[u8]) -> Option<&RawTail> {
    let (_, tail) = RawTail::ref_from_suffix(block).ok()?;
    let fake = &tail.fake;
    let is_tail = fake.inode.get() == 0
        && usize::from(fake.rec_len.get()) == TAIL
        && fake.name_len == 0
        && fake.file_type == TAIL_TYPE;
    is_tail.then_some(tail)
}

/// Sets the checksum of a block that has a tail (`ext4_dirblock_csum_set`). `seed` is that of the
/// directory.
pub fn seal(block: &mut [u8], seed: u32) {
    let at = block.len() - TAIL;
    let right = crc32c(seed, &block[..at]);
    block[at + HEADER..].copy_from_slice(&right.to_le_bytes());
}

/// Fails if the block, which was read from block `at`, has no tail or a wrong checksum. `seed` is
/// that of the directory.
pub fn verify(block: &[u8], seed: u32, at: FsBlock) -> Result<()> {
    let Some(tail) = tail(block) else {
        return Err(Error::corrupt("dirent_tail", at, "none", "a tail with a checksum"));
    };
    let right = crc32c(seed, &block[..block.len() - TAIL]);
    compare("dirent_tail.det_checksum", at, tail.checksum.get(), right)
}

#[cfg(test)]
mod tests {
    use vfs::FileKind;

    use super::*;

    fn block() -> Vec<u8> {
        let mut block = vec![0; 1024];
        emit(&mut block, 0, 12, 2, 2, b".");
        emit(&mut block, 12, 12, 2, 2, b"..");
        emit(&mut block, 24, 1024 - 24 - TAIL, 12, 1, b"a name");
        emit_tail(&mut block);
        block
    }

    #[test]
    fn records_round_trip() {
        let mut block = block();
        seal(&mut block, 5);
        verify(&block, 5, 0).unwrap();
        let all: Result<Vec<_>> = Dirents::new(&block, 0).collect();
        let names: Vec<_> = all.unwrap().iter().map(|dirent| (dirent.ino, dirent.name)).collect();
        assert_eq!(names, [(2, &b"."[..]), (2, b".."), (12, b"a name"), (0, b"")]);
        block[13] ^= 1;
        assert!(verify(&block, 5, 0).is_err());
        block[1019] = 0;
        assert!(verify(&block, 5, 0).unwrap_err().to_string().contains("found "));
    }

    #[test]
    fn broken_records_end_the_chain() {
        for (byte, value) in [(16, 0), (16, 13), (17, 4), (18, 200)] {
            let mut block = block();
            block[byte] = value;
            let all: Vec<_> = Dirents::new(&block, 9).collect();
            assert_eq!(all.len(), 2, "{byte} {value}");
            assert!(all[0].is_ok() && all[1].is_err(), "{byte} {value}");
        }
    }

    #[test]
    fn names_are_those_of_paths() {
        for (byte, value) in [(32, b'/'), (33, 0), (30, 0)] {
            let mut block = block();
            block[byte] = value;
            let third = Dirents::new(&block, 9).nth(2).unwrap().unwrap();
            assert!(third.check_name(9).is_err(), "{byte}");
        }
        assert!(Dirents::new(&block(), 9).nth(2).unwrap().unwrap().check_name(9).is_ok());
    }

    #[test]
    fn types_round_trip() {
        for number in 1..=7 {
            assert_eq!(FileKind::from_dirent_type(number).map(FileKind::dirent_type), Some(number));
        }
        assert_eq!((FileKind::from_dirent_type(0), FileKind::from_dirent_type(8)), (None, None));
    }
}
