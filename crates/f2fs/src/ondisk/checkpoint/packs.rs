//! Which of the two packs counts.

use drive::Block;
use zerocopy::FromBytes;

use super::{
    BITMAP_OFFSET, CRC_OFFSET, Checkpoint, LARGE, RawCheckpoint, Selected, compute_crc, stored_crc,
};
use crate::error::{Error, Result};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr};

impl Checkpoint {
    /// Reads both packs and decodes the newer valid one.
    ///
    /// A block that cannot be *read* is an error and not an invalid pack. The older pack would undo
    /// what was committed, and its blocks may have been reused since.
    pub fn select(
        sb: &Superblock,
        mut read: impl FnMut(BlockAddr) -> Result<Block>,
    ) -> Result<Selected> {
        let mut first_error = None;
        let mut best: Option<(u64, usize, Block)> = None;
        for pack in 0..2 {
            match read_pack(sb.cp_pack(pack), &mut read) {
                Ok((version, header)) => {
                    let newer = |v: u64| version.wrapping_sub(v).cast_signed() > 0;
                    if best.as_ref().is_none_or(|(v, ..)| newer(*v)) {
                        best = Some((version, pack, header));
                    }
                }
                Err(error @ Error::Corrupt(_)) => {
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let Some((_, pack, header)) = best else {
            return Err(first_error.unwrap_or(Error::Posix(vfs::Errno::UCLEAN)));
        };
        Ok(Selected { checkpoint: Self::read_all(sb, pack, &header, &mut read)?, pack })
    }

    /// As [`Self::select`], for a repair. If a pack's header has a valid checksum but makes no
    /// sense, or cannot be read, the other pack is used. If a pack's header is damaged, its tail is
    /// read instead, which is the same block. A tail is written last, when everything else is
    /// durable, so a sound tail proves that its pack is complete.
    pub fn select_any(
        sb: &Superblock,
        mut read: impl FnMut(BlockAddr) -> Result<Block>,
    ) -> Result<Selected> {
        let mut first_error = None;
        let mut best: Option<Selected> = None;
        for pack in 0..2 {
            let found = read_pack(sb.cp_pack(pack), &mut read)
                .or_else(|error| find_tail(sb.cp_pack(pack), &mut read).ok_or(error))
                .and_then(|(_, header)| Self::read_all(sb, pack, &header, &mut read));
            match found {
                Ok(checkpoint) => {
                    let newer = |other: &Selected| {
                        checkpoint.version.wrapping_sub(other.checkpoint.version).cast_signed() > 0
                    };
                    if best.as_ref().is_none_or(newer) {
                        best = Some(Selected { checkpoint, pack });
                    }
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        match (best, first_error) {
            (Some(selected), _) => Ok(selected),
            (None, Some(error @ Error::Corrupt(_))) => Err(error),
            (None, error) => {
                let found = error.map_or_else(String::new, |error| error.to_string());
                Err(Error::corrupt("checkpoint", sb.cp_pack(0), found, "one that can be read"))
            }
        }
    }

    /// The checkpoint of `pack`, which has this `header`.
    fn read_all(
        sb: &Superblock,
        pack: usize,
        header: &Block,
        mut read: impl FnMut(BlockAddr) -> Result<Block>,
    ) -> Result<Self> {
        let at = sb.cp_pack(pack);
        let mut bytes = header.bytes().to_vec();
        for i in 0..sb.cp_payload {
            bytes.extend_from_slice(read(at + 1 + i)?.bytes());
        }
        Self::decode(sb, &bytes, at)
    }
}

/// Reads and verifies header and tail of the pack at `start`; returns the version and the header.
fn read_pack(
    start: BlockAddr,
    read: &mut impl FnMut(BlockAddr) -> Result<Block>,
) -> Result<(u64, Block)> {
    let header = read(start)?;
    let raw = verify(&header, start)?;
    let (total, version) = (raw.cp_pack_total_block_count.get(), raw.checkpoint_ver.get());
    if !(3..=BLOCKS_PER_SEGMENT).contains(&total) {
        let field = "checkpoint.cp_pack_total_block_count";
        return Err(Error::corrupt(field, start, total, "3..=512"));
    }
    let end = start + total - 1;
    let tail = read(end)?;
    let tail_version = verify(&tail, end)?.checkpoint_ver.get();
    if tail_version != version {
        return Err(Error::corrupt("checkpoint tail's version", end, tail_version, version));
    }
    Ok((version, header))
}

/// The tail of the pack at `start`, found without its header. `None` if the header is sound.
fn find_tail(
    start: BlockAddr,
    read: &mut impl FnMut(BlockAddr) -> Result<Block>,
) -> Option<(u64, Block)> {
    if read(start).is_ok_and(|header| verify(&header, start).is_ok()) {
        return None;
    }
    let tails = (2..BLOCKS_PER_SEGMENT).filter_map(|at| {
        let block = read(start + at).ok()?;
        let raw = verify(&block, start + at).ok()?;
        let version = raw.checkpoint_ver.get();
        (raw.cp_pack_total_block_count.get() == at + 1).then_some((version, block))
    });
    tails.max_by_key(|(version, _)| *version)
}

/// Checks the checksum of a header or tail.
fn verify(block: &Block, at: BlockAddr) -> Result<&RawCheckpoint> {
    let bytes = block.bytes();
    let (raw, _) = RawCheckpoint::ref_from_prefix(bytes.as_slice())
        .map_err(|_| Error::corrupt("checkpoint", at, bytes.len(), "4096 bytes"))?;
    let offset = raw.checksum_offset.get() as usize;
    let large = raw.ckpt_flags.get() & LARGE.bits() != 0;
    if !(BITMAP_OFFSET..=CRC_OFFSET).contains(&offset) || large && offset != BITMAP_OFFSET {
        let allowed = if large { "192" } else { "192..=4092" };
        return Err(Error::corrupt("checkpoint.checksum_offset", at, offset, allowed));
    }
    let (found, allowed) = (stored_crc(bytes, offset), compute_crc(bytes, offset));
    if found != allowed {
        let (found, allowed) = (format!("{found:#010x}"), format!("{allowed:#010x}"));
        return Err(Error::corrupt("checkpoint.crc", at, found, allowed));
    }
    Ok(raw)
}
