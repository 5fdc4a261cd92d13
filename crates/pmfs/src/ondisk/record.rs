//! A journal record: words of metadata and where they belong.
//!
//! Each core has a slot. Its first line holds the mark, which is zero, or the number of the record
//! behind it. The record has its number, its length and a checksum of both and of its patches,
//! since an old record with a good checksum lies under every new one.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::Layout;
use super::{BLOCK, Corrupt};

/// Bytes of a slot.
pub(crate) const SLOT_SIZE: u64 = 2 * BLOCK;
/// Where the record begins in its slot; the mark is at zero, on a line of its own.
pub(crate) const RECORD_AT: u64 = drive::pm::LINE;
/// Most bytes of patches.
pub(crate) const PATCHES_MAX: u64 = SLOT_SIZE - RECORD_AT - size_of::<RawRecord>() as u64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawRecord {
    pub(crate) number: U64,
    /// Bytes of patches.
    pub(crate) len: U32,
    /// CRC32C of number, length and patches.
    pub(crate) crc: U32,
}

/// Before the bytes of each patch.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawPatch {
    /// Address, a multiple of 8.
    pub(crate) at: U64,
    /// Bytes, a multiple of 8.
    pub(crate) len: U64,
}

impl RawRecord {
    /// The head of a record with these patches.
    pub(crate) fn new(number: u64, patches: &[u8]) -> Self {
        let mut head =
            Self { number: number.into(), len: (patches.len() as u32).into(), crc: U32::ZERO };
        head.crc = head.sum(patches);
        head
    }

    fn sum(&self, patches: &[u8]) -> U32 {
        let head = crc32c::crc32c(&self.as_bytes()[..12]);
        crc32c::crc32c_append(head, patches).into()
    }

    /// Fails unless it is the record that `mark` names, with these patches.
    pub(crate) fn check(&self, at: u64, mark: u64, patches: &[u8]) -> Result<(), Corrupt> {
        let wrong =
            |what, found, allowed| Err(Corrupt { structure: "record", at, what, found, allowed });
        if self.number.get() != mark {
            return wrong("number", self.number.get(), "that of the mark");
        }
        if self.crc != self.sum(patches) {
            return wrong("checksum", self.crc.get().into(), "that of its bytes");
        }
        Ok(())
    }
}

/// A patch: where, and which bytes.
pub(crate) type Patch<'a> = (u64, &'a [u8]);

/// Takes the patches of a record apart. Each lies where records may change something.
pub(crate) fn patches<'a>(
    at: u64,
    mut bytes: &'a [u8],
    layout: &Layout,
) -> Result<Vec<Patch<'a>>, Corrupt> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let wrong =
            |what, found, allowed| Corrupt { structure: "record", at, what, found, allowed };
        let cut = || wrong("patch", bytes.len() as u64, "whole");
        let (patch, rest) = RawPatch::read_from_prefix(bytes).map_err(|_| cut())?;
        let (to, len) = (patch.at.get(), patch.len.get());
        if !layout.may_change(to, len) || !to.is_multiple_of(8) || !len.is_multiple_of(8) {
            return Err(wrong("address of a patch", to, "words of metadata"));
        }
        let len = usize::try_from(len).map_err(|_| cut())?;
        let (new, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        all.push((to, new));
        bytes = rest;
    }
    Ok(all)
}
