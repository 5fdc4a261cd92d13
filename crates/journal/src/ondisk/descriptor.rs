//! Descriptor blocks: tags that say which blocks' images follow (`journal_block_tag_t`,
//! `journal_block_tag3_t`).
//!
//! An image that begins with the journal's magic could be taken for a block of the log, so those
//! four bytes are logged as zeroes and the tag says so (*escape*). Its checksum covers what is
//! logged.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::header::{BlockType, MAGIC, RawHeader, Tid, emit};
use super::superblock::Incompat;
use super::{TAIL, crc32c, has_good_tail, seal_tail};

const HEADER: usize = size_of::<RawHeader>();
/// A UUID follows the first tag of a block.
const UUID: usize = 16;
const ESCAPE: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// `journal_block_tag3_t`, 16 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag3 {
    t_blocknr: U32,
    t_flags: U32,
    t_blocknr_high: U32,
    t_checksum: U32,
}

/// `journal_block_tag_t`, 12 bytes. Without 64-bit numbers, the last field is not there; with
/// checksums v2, two more bytes follow that are not used (`journal_tag_bytes`).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag {
    t_blocknr: U32,
    t_checksum: U16,
    t_flags: U16,
    t_blocknr_high: U32,
}

const _: () = assert!(size_of::<RawTag3>() == 16 && size_of::<RawTag>() == 12);

/// What one tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block whose image it is.
    pub home: u64,
    /// Its first four bytes are the journal's magic, logged as zeroes.
    pub escaped: bool,
    /// Checksum of the image as logged: 16 bits in v2, meaningless without checksums.
    pub sum: u32,
}

/// How tags are laid out.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    incompat: Incompat,
    seed: u32,
}

impl Format {
    /// The format of a log with these features, whose checksums begin with `seed`.
    pub fn new(incompat: Incompat, seed: u32) -> Self {
        Self { incompat, seed }
    }

    /// Bytes of a tag (`journal_tag_bytes`).
    fn tag_bytes(self) -> usize {
        if self.incompat.contains(Incompat::CSUM_V3) {
            return size_of::<RawTag3>();
        }
        let sum = if self.incompat.contains(Incompat::CSUM_V2) { 2 } else { 0 };
        let high = if self.incompat.contains(Incompat::BIT64) { 0 } else { 4 };
        size_of::<RawTag>() + sum - high
    }

    fn tail(self) -> usize {
        if self.incompat.has_sums() { TAIL } else { 0 }
    }

    /// Tags that fit a block of `block_size` bytes.
    pub fn tags_per_block(self, block_size: usize) -> usize {
        (block_size - self.tail() - HEADER - UUID) / self.tag_bytes()
    }

    /// Whether the checksum of the descriptor or revoke block is right, or there is none.
    pub fn is_sound(self, block: &[u8]) -> bool {
        !self.incompat.has_sums() || has_good_tail(self.seed, block)
    }

    /// Whether `tag` has the right checksum of `image`, if it has one.
    pub fn fits(self, tag: &Tag, tid: Tid, image: &[u8]) -> bool {
        !self.incompat.has_sums() || tag.sum == self.sum(tid, image)
    }

    /// The checksum of `image`, as logged in transaction `tid`.
    pub fn sum(self, tid: Tid, image: &[u8]) -> u32 {
        let sum = || crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), image);
        match self.incompat {
            with if with.contains(Incompat::CSUM_V3) => sum(),
            with if with.contains(Incompat::CSUM_V2) => sum() & 0xffff,
            _ => 0,
        }
    }

    /// The tags of a descriptor block.
    pub fn tags(self, block: &[u8]) -> Vec<Tag> {
        let (mut tags, end, mut at) = (Vec::new(), block.len() - self.tail(), HEADER);
        while at + self.tag_bytes() <= end {
            let (tag, flags) = self.tag(&block[at..at + self.tag_bytes()]);
            tags.push(tag);
            if flags & LAST != 0 {
                break;
            }
            at += self.tag_bytes() + if flags & SAME_UUID == 0 { UUID } else { 0 };
        }
        tags
    }

    fn tag(self, bytes: &[u8]) -> (Tag, u32) {
        let (low, high, flags, sum) = if self.incompat.contains(Incompat::CSUM_V3) {
            let raw = RawTag3::read_from_bytes(bytes).expect("its size");
            (raw.t_blocknr, raw.t_blocknr_high.get(), raw.t_flags.get(), raw.t_checksum.get())
        } else {
            // What is missing of a shorter tag is zero.
            let mut whole = [0; size_of::<RawTag>()];
            let length = bytes.len().min(whole.len());
            whole[..length].copy_from_slice(&bytes[..length]);
            let raw = RawTag::read_from_bytes(&whole).expect("its size");
            let (flags, sum) = (raw.t_flags.get().into(), raw.t_checksum.get().into());
            (raw.t_blocknr, raw.t_blocknr_high.get(), flags, sum)
        };
        let high = if self.incompat.contains(Incompat::BIT64) { high } else { 0 };
        let home = u64::from(high) << 32 | u64::from(low.get());
        (Tag { home, escaped: flags & ESCAPE != 0, sum }, flags)
    }

    /// Fills `block` as the descriptor of `tags`, which must be at most
    /// [`Format::tags_per_block`].
    pub fn emit(self, block: &mut [u8], tid: Tid, tags: &[Tag]) {
        block.fill(0);
        emit(block, BlockType::Descriptor, tid);
        let mut at = HEADER;
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = if tag.escaped { ESCAPE } else { 0 };
            flags |= if index > 0 { SAME_UUID } else { 0 };
            flags |= if index + 1 == tags.len() { LAST } else { 0 };
            self.emit_tag(&mut block[at..at + self.tag_bytes()], tag, flags);
            at += self.tag_bytes() + if index == 0 { UUID } else { 0 };
        }
        if self.incompat.has_sums() {
            seal_tail(self.seed, block);
        }
    }

    fn emit_tag(self, bytes: &mut [u8], tag: &Tag, flags: u32) {
        let (low, high) = ((tag.home as u32).into(), ((tag.home >> 32) as u32).into());
        if self.incompat.contains(Incompat::CSUM_V3) {
            let raw = RawTag3 {
                t_blocknr: low,
                t_flags: flags.into(),
                t_blocknr_high: high,
                t_checksum: tag.sum.into(),
            };
            bytes.copy_from_slice(raw.as_bytes());
        } else {
            let raw = RawTag {
                t_blocknr: low,
                t_checksum: (tag.sum as u16).into(),
                t_flags: (flags as u16).into(),
                t_blocknr_high: high,
            };
            let length = bytes.len().min(size_of::<RawTag>());
            bytes[..length].copy_from_slice(&raw.as_bytes()[..length]);
        }
    }
}

/// Whether `image` must be escaped.
pub fn needs_escape(image: &[u8]) -> bool {
    image.starts_with(&MAGIC.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_every_format_come_back() {
        let sums = [Incompat::empty(), Incompat::CSUM_V2, Incompat::CSUM_V3];
        for incompat in sums.into_iter().flat_map(|sum| [sum, sum | Incompat::BIT64]) {
            let format = Format::new(incompat, 7);
            let high = if incompat.contains(Incompat::BIT64) { 3 << 32 } else { 0 };
            for count in [1, 2, format.tags_per_block(1024)] {
                let tag = |n: u64| Tag {
                    home: high + n,
                    escaped: n.is_multiple_of(3),
                    sum: format.sum(Tid(4), &n.to_be_bytes()),
                };
                let tags: Vec<Tag> = (0..count as u64).map(tag).collect();
                let mut block = [0xaa; 1024];
                format.emit(&mut block, Tid(4), &tags);
                assert!(format.is_sound(&block));
                assert_eq!(format.tags(&block), tags, "{incompat:?}");
            }
        }
    }

    #[test]
    fn tags_have_the_kernels_sizes() {
        let bytes = |incompat| Format::new(incompat, 0).tag_bytes();
        assert_eq!(bytes(Incompat::empty()), 8);
        assert_eq!(bytes(Incompat::BIT64), 12);
        assert_eq!(bytes(Incompat::CSUM_V2), 10);
        assert_eq!(bytes(Incompat::CSUM_V2 | Incompat::BIT64), 14);
        assert_eq!(bytes(Incompat::CSUM_V3), 16);
        assert_eq!(bytes(Incompat::CSUM_V3 | Incompat::BIT64), 16);
    }
}
