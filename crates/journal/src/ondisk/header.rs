//! The header of every block that belongs to the log itself (`journal_header_t`, 12 bytes), and the
//! order of transaction numbers.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `JBD2_MAGIC_NUMBER`
pub const MAGIC: u32 = 0xc03b_3998;

/// `journal_header_t`, 12 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names")]
pub struct RawHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 12);

/// What a block of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Says which blocks' images follow.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// Says which blocks' older images no longer count.
    Revoke,
    /// A superblock, or nothing that jbd2 knows.
    Other(u32),
}

impl BlockType {
    fn number(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::Revoke => 5,
            Self::Other(number) => number,
        }
    }
}

/// Number of a transaction. Numbers wrap, so they are compared by their difference (`tid_gt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// The next transaction's number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number before.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// How many numbers this one lies behind `other`. Correct as [`Tid::is_after`] is.
    pub(crate) fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether this transaction comes after `other`. Correct if fewer than 2^31 are between them.
    pub fn is_after(self, other: Self) -> bool {
        self.since(other) > 0
    }

    /// Whether this is `other` or comes after it.
    pub fn reaches(self, other: Self) -> bool {
        !other.is_after(self)
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Type and number of the log block `bytes`; `None` for anything else.
pub fn parse(bytes: &[u8]) -> Option<(BlockType, Tid)> {
    let (header, _) = RawHeader::read_from_prefix(bytes).ok()?;
    let kind = match header.h_blocktype.get() {
        1 => BlockType::Descriptor,
        2 => BlockType::Commit,
        5 => BlockType::Revoke,
        other => BlockType::Other(other),
    };
    (header.h_magic.get() == MAGIC).then_some((kind, Tid(header.h_sequence.get())))
}

/// Writes the header of a log block.
pub fn emit(bytes: &mut [u8], kind: BlockType, tid: Tid) {
    let header = RawHeader {
        h_magic: MAGIC.into(),
        h_blocktype: kind.number().into(),
        h_sequence: tid.0.into(),
    };
    bytes[..size_of::<RawHeader>()].copy_from_slice(header.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_their_wrap() {
        let (last, first) = (Tid(u32::MAX), Tid(0));
        assert_eq!(last.next(), first);
        assert!(first.is_after(last) && !last.is_after(first));
        assert!(first.reaches(first) && !first.is_after(first));
        assert!(Tid(5).is_after(Tid(0xffff_fff0)));
    }
}
