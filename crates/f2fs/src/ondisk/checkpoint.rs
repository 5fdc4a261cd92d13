//! The checkpoint pack's header and tail (`struct f2fs_checkpoint`, 192 bytes, then the version
//! bitmaps of NAT and SIT).
//!
//! Two packs take turns. One is valid when its header and its tail, the last block written, are
//! whole and carry the same version; the newer valid one is the volume.

mod packs;

use bitflags::bitflags;
use drive::Block;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::curseg::{Curseg, decode_cursegs};
use super::sit::LogType;
use super::superblock::{Features, Superblock};
use super::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, MAGIC, Nid, crc32};
use crate::error::{Error, Result};

/// Where the checksum is, except on volumes with a large NAT bitmap.
pub const CRC_OFFSET: usize = 4092;
/// First byte after the header's fields. With a large NAT bitmap, the checksum is here.
pub const BITMAP_OFFSET: usize = 192;
/// Segment number in the slots of unused logs.
const NO_SEGNO: u32 = u32::MAX;
/// [`Checkpoint::ours`], in unused slots of `alloc_type`: the version, which other programs that
/// write checkpoints change, and "OPRWours", or "OPRWseal" if [`Checkpoint::sealed`] too.
const OURS: [u64; 2] = [0x4f50_5257_6f75_7273, 0x4f50_5257_7365_616c];
const OURS_AT: std::ops::Range<usize> = 8..16;

/// `struct f2fs_checkpoint` up to its bitmaps, 192 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; what matters is said at `Checkpoint`")]
pub struct RawCheckpoint {
    pub checkpoint_ver: U64,
    pub user_block_count: U64,
    pub valid_block_count: U64,
    pub rsvd_segment_count: U32,
    pub overprov_segment_count: U32,
    pub free_segment_count: U32,
    pub cur_node_segno: [U32; 8],
    pub cur_node_blkoff: [U16; 8],
    pub cur_data_segno: [U32; 8],
    pub cur_data_blkoff: [U16; 8],
    pub ckpt_flags: U32,
    pub cp_pack_total_block_count: U32,
    pub cp_pack_start_sum: U32,
    pub valid_node_count: U32,
    pub valid_inode_count: U32,
    pub next_free_nid: U32,
    pub sit_ver_bitmap_bytesize: U32,
    pub nat_ver_bitmap_bytesize: U32,
    pub checksum_offset: U32,
    pub elapsed_time: U64,
    pub alloc_type: [u8; 16],
}

const _: () = {
    assert!(size_of::<RawCheckpoint>() == BITMAP_OFFSET);
    assert!(std::mem::offset_of!(RawCheckpoint, cur_node_segno) == 0x24);
    assert!(std::mem::offset_of!(RawCheckpoint, ckpt_flags) == 0x84);
    assert!(std::mem::offset_of!(RawCheckpoint, checksum_offset) == 0xa4);
    assert!(std::mem::offset_of!(RawCheckpoint, alloc_type) == 0xb0);
};

bitflags! {
    /// `ckpt_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CpFlags: u32 {
        /// Written at unmount; there is no roll-forward chain.
        const UMOUNT = 0x1;
        /// The pack has orphan blocks.
        const ORPHAN_PRESENT = 0x2;
        /// Data summaries are compact.
        const COMPACT_SUM = 0x4;
        /// An error was seen.
        const ERROR = 0x8;
        /// fsck has been asked for.
        const FSCK = 0x10;
        /// The pack has node summaries although it was not written at unmount.
        const FASTBOOT = 0x20;
        /// Node footers carry this checkpoint's checksum in the upper half of `cp_ver`.
        const CRC_RECOVERY = 0x40;
        /// nat_bits at the end of the pack's segment.
        const NAT_BITS = 0x80;
        /// Nothing is left to discard.
        const TRIMMED = 0x100;
        /// Ignore the upper half of `cp_ver` in node footers.
        const NOCRC_RECOVERY = 0x200;
        /// NAT bitmap first, checksum at byte 192.
        const LARGE_NAT_BITMAP = 0x400;
        /// Quota cannot be trusted.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpointing was disabled.
        const DISABLED = 0x1000;
        /// As above, for a moment.
        const DISABLED_QUICK = 0x2000;
        /// A resize was under way.
        const RESIZEFS = 0x4000;
        const _ = !0;
    }
}

/// A checkpoint that has been checked against its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Version. The next checkpoint's is one more.
    pub version: u64,
    /// Blocks users can fill, with their nodes.
    pub user_block_count: u64,
    /// Blocks in use or reserved.
    pub valid_block_count: u64,
    /// Segments kept back for the cleaner.
    pub rsvd_segment_count: u32,
    /// Segments kept from users, including the cleaner's.
    pub overprov_segment_count: u32,
    /// Segments without a valid block that no log uses.
    pub free_segment_count: u32,
    /// The six logs, indexed by [`LogType`].
    pub cursegs: [Curseg; 6],
    /// State of the volume and shape of the pack.
    pub flags: CpFlags,
    /// Blocks in the pack.
    pub pack_total: u32,
    /// Block of the pack where data summaries begin.
    pub start_sum: u32,
    /// Nodes in use.
    pub valid_node_count: u32,
    /// Inodes in use.
    pub valid_inode_count: u32,
    /// Where to look for a free node number first; a hint.
    pub next_free_nid: Nid,
    /// How many seconds this volume has been mounted.
    pub elapsed_time: u64,
    /// This engine wrote it and wrote everything since: nodes of this version point only to data
    /// that was durable when their fsync returned. Linux's nodes may also point to data that was
    /// still in flight.
    pub ours: bool,
    /// Fsyncs after it also end with a checksum of all their nodes ([`super::node_sums`]).
    pub sealed: bool,
    /// Which copy of each SIT block is valid, most significant bit first.
    pub sit_bitmap: Vec<u8>,
    /// Which copy of each NAT block is valid, most significant bit first.
    pub nat_bitmap: Vec<u8>,
    /// Checksum of the header, as read or last encoded.
    pub crc: u32,
}

/// The checkpoint from which a volume is mounted.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Its contents.
    pub checkpoint: Checkpoint,
    /// Pack it was in, 0 or 1; the next one goes to the other.
    pub pack: usize,
}

impl Checkpoint {
    /// Decodes header and payload, whose checksum has been verified, from the pack at `at`.
    fn decode(sb: &Superblock, bytes: &[u8], at: BlockAddr) -> Result<Self> {
        let (raw, _) = RawCheckpoint::ref_from_prefix(bytes)
            .map_err(|_| Error::corrupt("checkpoint", at, bytes.len(), "4096 bytes"))?;
        let flags = CpFlags::from_bits_retain(raw.ckpt_flags.get());
        check_bitmap_sizes(sb, raw, at)?;
        let place = Placement::of(sb, flags);
        let limit = if place.in_header_end > BITMAP_OFFSET && !flags.contains(LARGE) {
            raw.checksum_offset.get() as usize
        } else {
            BLOCK_SIZE
        };
        if place.in_header_end > limit {
            let allowed = format!("bitmaps before byte {limit}");
            return Err(Error::corrupt("checkpoint.bitmaps", at, place.in_header_end, allowed));
        }
        let slice = |offset: usize, size: u32| {
            let end = offset + size as usize;
            let found = bytes.get(offset..end).map(<[u8]>::to_vec);
            found.ok_or_else(|| Error::corrupt("checkpoint.bitmaps", at, end, bytes.len()))
        };
        let version = raw.checkpoint_ver.get();
        let ours = OURS.map(|mark| raw.alloc_type[OURS_AT] == (mark ^ version).to_le_bytes());
        let checkpoint = Self {
            version,
            user_block_count: raw.user_block_count.get(),
            valid_block_count: raw.valid_block_count.get(),
            rsvd_segment_count: raw.rsvd_segment_count.get(),
            overprov_segment_count: raw.overprov_segment_count.get(),
            free_segment_count: raw.free_segment_count.get(),
            cursegs: decode_cursegs(sb, raw, at)?,
            flags,
            pack_total: raw.cp_pack_total_block_count.get(),
            start_sum: raw.cp_pack_start_sum.get(),
            valid_node_count: raw.valid_node_count.get(),
            valid_inode_count: raw.valid_inode_count.get(),
            next_free_nid: raw.next_free_nid.get(),
            elapsed_time: raw.elapsed_time.get(),
            ours: ours.contains(&true),
            sealed: ours[1],
            sit_bitmap: slice(place.sit, sb.sit_bitmap_size())?,
            nat_bitmap: slice(place.nat, sb.nat_bitmap_size())?,
            crc: stored_crc(bytes, raw.checksum_offset.get() as usize),
        };
        checkpoint.check(sb, at)?;
        Ok(checkpoint)
    }

    /// The header block, and the payload blocks after it. Computes [`Self::crc`]. The pack's tail
    /// is the same block as its header.
    pub fn encode(&mut self, sb: &Superblock) -> Vec<Block> {
        let place = Placement::of(sb, self.flags);
        let crc_at = if self.flags.contains(LARGE) { BITMAP_OFFSET } else { CRC_OFFSET };
        let mut bytes = vec![0; BLOCK_SIZE * (1 + sb.cp_payload as usize)];
        bytes[..BITMAP_OFFSET].copy_from_slice(self.to_raw(sb, crc_at).as_bytes());
        for (offset, bitmap) in [(place.sit, &self.sit_bitmap), (place.nat, &self.nat_bitmap)] {
            bytes[offset..offset + bitmap.len()].copy_from_slice(bitmap);
        }
        self.crc = compute_crc(&bytes[..BLOCK_SIZE], crc_at);
        bytes[crc_at..crc_at + 4].copy_from_slice(&self.crc.to_le_bytes());
        bytes.chunks_exact(BLOCK_SIZE).map(Block::from_prefix).collect()
    }

    fn to_raw(&self, sb: &Superblock, crc_at: usize) -> RawCheckpoint {
        let logs = |range: std::ops::Range<usize>| {
            let mut segno = [U32::new(NO_SEGNO); 8];
            let mut blkoff = [U16::new(0); 8];
            for (i, log) in self.cursegs[range].iter().enumerate() {
                segno[i].set(log.segno);
                blkoff[i].set(log.blkoff);
            }
            (segno, blkoff)
        };
        let (cur_data_segno, cur_data_blkoff) = logs(0..3);
        let (cur_node_segno, cur_node_blkoff) = logs(3..6);
        let mut alloc_type = [0; 16];
        for (slot, log) in alloc_type.iter_mut().zip(&self.cursegs) {
            *slot = u8::from(log.ssr);
        }
        if self.ours {
            let mark = OURS[usize::from(self.sealed)] ^ self.version;
            alloc_type[OURS_AT].copy_from_slice(&mark.to_le_bytes());
        }
        RawCheckpoint {
            checkpoint_ver: U64::new(self.version),
            user_block_count: U64::new(self.user_block_count),
            valid_block_count: U64::new(self.valid_block_count),
            rsvd_segment_count: U32::new(self.rsvd_segment_count),
            overprov_segment_count: U32::new(self.overprov_segment_count),
            free_segment_count: U32::new(self.free_segment_count),
            cur_node_segno,
            cur_node_blkoff,
            cur_data_segno,
            cur_data_blkoff,
            ckpt_flags: U32::new(self.flags.bits()),
            cp_pack_total_block_count: U32::new(self.pack_total),
            cp_pack_start_sum: U32::new(self.start_sum),
            valid_node_count: U32::new(self.valid_node_count),
            valid_inode_count: U32::new(self.valid_inode_count),
            next_free_nid: U32::new(self.next_free_nid),
            sit_ver_bitmap_bytesize: U32::new(sb.sit_bitmap_size()),
            nat_ver_bitmap_bytesize: U32::new(sb.nat_bitmap_size()),
            checksum_offset: U32::new(crc_at as u32),
            elapsed_time: U64::new(self.elapsed_time),
            alloc_type,
        }
    }

    /// The log `log`.
    pub fn curseg(&self, log: LogType) -> &Curseg {
        &self.cursegs[log.index()]
    }

    /// Whether the pack ends with the node logs' summaries.
    pub fn has_node_summaries(&self) -> bool {
        self.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
    }

    /// Which block of the pack has the full summary of `log`. `None` for a node log if the pack has
    /// no node summaries. For data logs, only valid if the summaries are not compact.
    pub fn summary_block(&self, log: LogType) -> Option<u32> {
        let index = log.index() as u32;
        match (self.has_node_summaries(), log.is_node()) {
            (true, _) => self.pack_total.checked_sub(7 - index),
            (false, false) => self.pack_total.checked_sub(4 - index),
            (false, true) => None,
        }
    }

    /// Blocks of the pack that hold orphans.
    pub fn orphan_blocks(&self, sb: &Superblock) -> std::ops::Range<u32> {
        let start = 1 + sb.cp_payload;
        let present = self.flags.contains(CpFlags::ORPHAN_PRESENT);
        start..if present { self.start_sum.max(start) } else { start }
    }

    /// The `cp_ver` in footers of nodes written after this checkpoint.
    pub fn node_cp_ver(&self) -> u64 {
        let crc = if self.flags.contains(CpFlags::CRC_RECOVERY) { self.crc } else { 0 };
        self.version | u64::from(crc) << 32
    }

    /// Whether a node with `cp_ver` in its footer was written after this checkpoint.
    pub fn owns_node(&self, cp_ver: u64) -> bool {
        if self.flags.contains(CpFlags::NOCRC_RECOVERY) {
            self.version as u32 == cp_ver as u32
        } else {
            self.node_cp_ver() == cp_ver
        }
    }

    fn check(&self, sb: &Superblock, at: BlockAddr) -> Result<()> {
        let main = u64::from(sb.main_blocks());
        let nodes = u64::from(sb.max_nid()) - 3;
        let last_sum = BLOCKS_PER_SEGMENT - 7;
        let (users, blocks) = (self.user_block_count, self.valid_block_count);
        // A volume that is never written needs no reserve.
        let (users_end, kept_from) =
            if sb.features.contains(Features::RO) { (main + 1, 0) } else { (main, 1) };
        let (sums, segments) = (self.summaries_min(), sb.segment_count_main);
        for (field, found, allowed) in [
            ("checkpoint.user_block_count", users, 1..users_end),
            ("checkpoint.valid_block_count", blocks, 0..users.saturating_add(1)),
            (
                "checkpoint.rsvd_segment_count",
                self.rsvd_segment_count.into(),
                kept_from..main / 512,
            ),
            (
                "checkpoint.overprov_segment_count",
                self.overprov_segment_count.into(),
                kept_from..main / 512,
            ),
            ("checkpoint.free_segment_count", self.free_segment_count.into(), 0..main / 512 + 1),
            ("checkpoint.valid_node_count", self.valid_node_count.into(), 0..nodes + 1),
            (
                "checkpoint.valid_inode_count",
                self.valid_inode_count.into(),
                0..u64::from(self.valid_node_count) + 1,
            ),
            (
                "checkpoint.cp_pack_start_sum",
                self.start_sum.into(),
                u64::from(sb.cp_payload) + 1..u64::from(last_sum) + 1,
            ),
            (
                "checkpoint.cp_pack_total_block_count",
                self.pack_total.into(),
                u64::from(self.start_sum) + sums + 1..u64::from(BLOCKS_PER_SEGMENT) + 1,
            ),
        ] {
            if !allowed.contains(&found) {
                return Err(Error::corrupt(field, at, found, format!("{allowed:?}")));
            }
        }
        for (i, log) in self.cursegs.iter().enumerate() {
            if log.segno >= segments {
                return Err(Error::corrupt(
                    "checkpoint curseg",
                    at,
                    log.segno,
                    format!("0..{segments}"),
                ));
            }
            if u32::from(log.blkoff) >= BLOCKS_PER_SEGMENT {
                return Err(Error::corrupt("checkpoint blkoff", at, log.blkoff, "0..512"));
            }
            let same = self.cursegs[..i].iter().any(|other| other.segno == log.segno);
            if same && sb.has_log(LogType::ALL[i]) {
                return Err(Error::corrupt(
                    "checkpoint curseg",
                    at,
                    log.segno,
                    "one log a segment",
                ));
            }
        }
        Ok(())
    }

    /// The least number of summary blocks in a pack with these flags.
    fn summaries_min(&self) -> u64 {
        let data = if self.flags.contains(CpFlags::COMPACT_SUM) { 1 } else { 3 };
        let node = if self.has_node_summaries() { 3 } else { 0 };
        data + node
    }
}

const LARGE: CpFlags = CpFlags::LARGE_NAT_BITMAP;

/// Where the version bitmaps are, in bytes from the header's start and into the payload.
struct Placement {
    sit: usize,
    nat: usize,
    /// End of what lies in the header block.
    in_header_end: usize,
}

impl Placement {
    fn of(sb: &Superblock, flags: CpFlags) -> Self {
        let (sit_size, nat_size) = (sb.sit_bitmap_size() as usize, sb.nat_bitmap_size() as usize);
        if flags.contains(LARGE) {
            let nat = BITMAP_OFFSET + 4;
            Self { nat, sit: nat + nat_size, in_header_end: BITMAP_OFFSET }
        } else if sb.cp_payload > 0 {
            let nat = BITMAP_OFFSET;
            Self { nat, sit: BLOCK_SIZE, in_header_end: nat + nat_size }
        } else {
            let (sit, nat) = (BITMAP_OFFSET, BITMAP_OFFSET + sit_size);
            Self { nat, sit, in_header_end: nat + nat_size }
        }
    }
}

/// Checksum of a header block without the checksum itself, which is at `offset`, at most 4092.
fn compute_crc(bytes: &[u8], offset: usize) -> u32 {
    let seed = crc32(MAGIC, &bytes[..offset]);
    if offset < CRC_OFFSET { crc32(seed, &bytes[offset + 4..BLOCK_SIZE]) } else { seed }
}

/// The checksum stored at `offset`; 0 if that is out of range, which callers prevent.
fn stored_crc(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(<[u8]>::first_chunk::<4>);
    field.map_or(0, |b| u32::from_le_bytes(*b))
}

fn check_bitmap_sizes(sb: &Superblock, raw: &RawCheckpoint, at: BlockAddr) -> Result<()> {
    for (field, found, allowed) in [
        ("checkpoint.sit_ver_bitmap_bytesize", raw.sit_ver_bitmap_bytesize, sb.sit_bitmap_size()),
        ("checkpoint.nat_ver_bitmap_bytesize", raw.nat_ver_bitmap_bytesize, sb.nat_bitmap_size()),
    ] {
        if found.get() != allowed {
            return Err(Error::corrupt(field, at, found.get(), allowed));
        }
    }
    Ok(())
}
