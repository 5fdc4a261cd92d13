//! The superblock (`struct f2fs_super_block`, 3072 bytes at byte 1024 of blocks 0 and 1).
//!
//! [`Superblock`] is the validated geometry: the areas are contiguous and fit the volume, and every
//! derived number is in range. So the engine computes addresses without checks.

mod geometry;

use bitflags::bitflags;
use drive::Block;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::encoding::Casefold;
use super::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, MAGIC, Nid, crc32, sit};
use crate::error::{Error, Result};

/// The byte of its block at which the superblock begins.
pub const SUPER_OFFSET: usize = 1024;
/// Blocks that hold a copy.
pub const COPIES: [BlockAddr; 2] = [0, 1];
/// Value of `checksum_offset` when there is a checksum.
pub const CRC_OFFSET: usize = 3068;
/// Entries of the extension list, cold and hot together.
pub const MAX_EXTENSIONS: usize = 64;
/// Bytes for a device's name, including its NUL.
pub const DEVICE_PATH_LEN: usize = 64;
/// Devices a volume can span.
pub const MAX_DEVICES: usize = 8;
/// Most segments of a volume: 16 TiB.
pub const MAX_SEGMENTS: u32 = 8 << 20;

/// One of the devices of a volume, 68 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDevice {
    /// Path, NUL padded; empty = unused.
    pub path: [u8; DEVICE_PATH_LEN],
    /// Segments on it.
    pub total_segments: U32,
}

/// `struct f2fs_super_block`, 3072 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; what matters is said at `Superblock`")]
pub struct RawSuperblock {
    pub magic: U32,
    pub major_ver: U16,
    pub minor_ver: U16,
    pub log_sectorsize: U32,
    pub log_sectors_per_block: U32,
    pub log_blocksize: U32,
    pub log_blocks_per_seg: U32,
    pub segs_per_sec: U32,
    pub secs_per_zone: U32,
    pub checksum_offset: U32,
    pub block_count: U64,
    pub section_count: U32,
    pub segment_count: U32,
    pub segment_count_ckpt: U32,
    pub segment_count_sit: U32,
    pub segment_count_nat: U32,
    pub segment_count_ssa: U32,
    pub segment_count_main: U32,
    pub segment0_blkaddr: U32,
    pub cp_blkaddr: U32,
    pub sit_blkaddr: U32,
    pub nat_blkaddr: U32,
    pub ssa_blkaddr: U32,
    pub main_blkaddr: U32,
    pub root_ino: U32,
    pub node_ino: U32,
    pub meta_ino: U32,
    pub uuid: [u8; 16],
    pub volume_name: [U16; 512],
    pub extension_count: U32,
    pub extension_list: [[u8; 8]; MAX_EXTENSIONS],
    pub cp_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; MAX_DEVICES],
    pub qf_ino: [U32; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_stop_reason: [u8; 32],
    pub s_errors: [u8; 16],
    pub reserved: [u8; 258],
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == 3072);
    assert!(std::mem::offset_of!(RawSuperblock, block_count) == 0x24);
    assert!(std::mem::offset_of!(RawSuperblock, main_blkaddr) == 0x5c);
    assert!(std::mem::offset_of!(RawSuperblock, extension_list) == 0x480);
    assert!(std::mem::offset_of!(RawSuperblock, feature) == 0x884);
    assert!(std::mem::offset_of!(RawSuperblock, qf_ino) == 0xab9);
    assert!(std::mem::offset_of!(RawSuperblock, s_errors) == 0xaea);
    assert!(std::mem::offset_of!(RawSuperblock, crc) == CRC_OFFSET);
};

bitflags! {
    /// Optional parts of the format that a volume uses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Encrypted files.
        const ENCRYPT = 0x1;
        /// The volume is on a zoned drive.
        const BLKZONED = 0x2;
        /// Atomic writes; a hint only.
        const ATOMIC_WRITE = 0x4;
        /// Inodes have extra attributes.
        const EXTRA_ATTR = 0x8;
        /// Project quota.
        const PRJQUOTA = 0x10;
        /// Inodes carry a checksum.
        const INODE_CHKSUM = 0x20;
        /// The inline xattr size is in the inode.
        const FLEXIBLE_INLINE_XATTR = 0x40;
        /// Quota files are inodes of their own.
        const QUOTA_INO = 0x80;
        /// Inodes have a creation time.
        const INODE_CRTIME = 0x100;
        /// There is a `lost+found`.
        const LOST_FOUND = 0x200;
        /// fs-verity files.
        const VERITY = 0x400;
        /// The superblock carries a checksum.
        const SB_CHKSUM = 0x800;
        /// Directories may fold case.
        const CASEFOLD = 0x1000;
        /// Compressed files.
        const COMPRESSION = 0x2000;
        /// Read-only image.
        const RO = 0x4000;
    }
}

impl Features {
    /// Features that need fields among the extra attributes.
    pub const NEED_EXTRA_ATTR: Self = Self::PRJQUOTA
        .union(Self::INODE_CHKSUM)
        .union(Self::FLEXIBLE_INLINE_XATTR)
        .union(Self::INODE_CRTIME)
        .union(Self::COMPRESSION);
}

/// One device of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it was when the volume was made.
    pub path: String,
    /// Segments on it.
    pub segments: u32,
}

/// The geometry of a volume, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Blocks of the device.
    pub block_count: u64,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Sections of the main area.
    pub section_count: u32,
    /// Segments from segment 0 to the end.
    pub segment_count: u32,
    /// Segments of the checkpoint area, 2.
    pub segment_count_ckpt: u32,
    /// Segments of the SIT, both copies.
    pub segment_count_sit: u32,
    /// Segments of the NAT, both copies.
    pub segment_count_nat: u32,
    /// Segments of the summary area.
    pub segment_count_ssa: u32,
    /// Segments of the main area.
    pub segment_count_main: u32,
    /// First block of segment 0.
    pub segment0_blkaddr: BlockAddr,
    /// First checkpoint pack.
    pub cp_blkaddr: BlockAddr,
    /// Segment information table.
    pub sit_blkaddr: BlockAddr,
    /// Node address table.
    pub nat_blkaddr: BlockAddr,
    /// Segment summary area.
    pub ssa_blkaddr: BlockAddr,
    /// Main area.
    pub main_blkaddr: BlockAddr,
    /// Root directory, 3.
    pub root_ino: Nid,
    /// Inode number that stands for node blocks, 1.
    pub node_ino: Nid,
    /// Inode number that stands for metadata blocks, 2.
    pub meta_ino: Nid,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Label.
    pub label: String,
    /// Blocks of bitmap behind the checkpoint's header.
    pub cp_payload: u32,
    /// Optional features in use.
    pub features: Features,
    /// Further devices and how much is on each; empty for a single one.
    pub devices: Vec<Device>,
    /// Name extensions of files that rarely change.
    pub cold_extensions: Vec<String>,
    /// Name extensions of files that often change.
    pub hot_extensions: Vec<String>,
    /// How names are folded in directories that fold case, if the volume can have such directories.
    pub casefold: Option<Casefold>,
    /// Quota inodes: user, group, project; 0 = none.
    pub quota_inos: [Nid; 3],
    /// Seed of every inode's checksum.
    pub inode_chksum_seed: u32,
    /// A mount met an error (`s_errors`) or stopped without a shutdown (`s_stop_reason`).
    pub has_errors: bool,
}

/// A volume needs so many segments, free or for metadata, to work at all.
const MIN_SEGMENTS: u32 = 9;

impl RawSuperblock {
    /// The superblock in a block's bytes.
    pub fn of(block: &[u8; BLOCK_SIZE]) -> &Self {
        let (_, rest) = block.split_at(SUPER_OFFSET);
        let bytes = rest.first_chunk::<3072>().expect("3072 bytes follow byte 1024");
        zerocopy::transmute_ref!(bytes)
    }

    /// The block that holds this superblock; the rest of it is zero.
    pub fn to_block(&self) -> Block {
        let mut block = [0; BLOCK_SIZE];
        block[SUPER_OFFSET..].copy_from_slice(self.as_bytes());
        Block::new(block)
    }

    /// Sets the checksum if the volume has that feature.
    pub fn seal(&mut self) {
        if self.feature.get() & Features::SB_CHKSUM.bits() != 0 {
            self.checksum_offset.set(CRC_OFFSET as u32);
            self.crc.set(self.compute_crc());
        }
    }

    fn compute_crc(&self) -> u32 {
        crc32(MAGIC, &self.as_bytes()[..CRC_OFFSET])
    }

    /// Volume label.
    pub fn label(&self) -> String {
        let units: Vec<u16> =
            self.volume_name.iter().map(|u| u.get()).take_while(|&u| u != 0).collect();
        String::from_utf16_lossy(&units)
    }

    /// Sets the volume label, cut at 512 UTF-16 units.
    pub fn set_label(&mut self, label: &str) {
        let mut units = label.encode_utf16();
        for slot in &mut self.volume_name {
            slot.set(units.next().unwrap_or(0));
        }
    }
}

/// The text before the first NUL.
fn c_str(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Superblock {
    /// Reads the superblock from a copy that is sound, preferably the first. Returns which.
    pub fn select(mut read: impl FnMut(BlockAddr) -> Result<Block>) -> Result<(Self, BlockAddr)> {
        let first = match read(COPIES[0]).and_then(|block| Self::parse(&block, COPIES[0])) {
            Ok(sb) => return Ok((sb, COPIES[0])),
            Err(error) => error,
        };
        match read(COPIES[1]).and_then(|block| Self::parse(&block, COPIES[1])) {
            Ok(sb) => Ok((sb, COPIES[1])),
            // If a volume is only unsupported, that is reported even if the other copy is garbage.
            Err(second @ Error::Unsupported { .. }) => Err(second),
            Err(_) => Err(first),
        }
    }

    /// Decodes and checks the copy in block `at`.
    pub fn parse(block: &[u8; BLOCK_SIZE], at: BlockAddr) -> Result<Self> {
        let raw = RawSuperblock::of(block);
        check_constants(raw, at)?;
        check_crc(raw, at)?;
        let sb = Self::decode(raw, at)?;
        sb.check_features(at)?;
        sb.check_geometry(at)?;
        sb.check_devices(at)?;
        Ok(sb)
    }

    fn decode(raw: &RawSuperblock, at: BlockAddr) -> Result<Self> {
        let features = Features::from_bits(raw.feature.get()).ok_or_else(|| {
            Error::unsupported(format!("features {:#x}", raw.feature.get() & !0x7fff))
        })?;
        let (cold, hot) = (raw.extension_count.get() as usize, raw.hot_ext_count as usize);
        let total = cold.saturating_add(hot);
        if total > MAX_EXTENSIONS {
            return Err(Error::corrupt("superblock.extension_count", at, total, "0..=64"));
        }
        let extension = |e: &[u8; 8]| c_str(e);
        Ok(Self {
            block_count: raw.block_count.get(),
            segs_per_sec: raw.segs_per_sec.get(),
            secs_per_zone: raw.secs_per_zone.get(),
            section_count: raw.section_count.get(),
            segment_count: raw.segment_count.get(),
            segment_count_ckpt: raw.segment_count_ckpt.get(),
            segment_count_sit: raw.segment_count_sit.get(),
            segment_count_nat: raw.segment_count_nat.get(),
            segment_count_ssa: raw.segment_count_ssa.get(),
            segment_count_main: raw.segment_count_main.get(),
            segment0_blkaddr: raw.segment0_blkaddr.get(),
            cp_blkaddr: raw.cp_blkaddr.get(),
            sit_blkaddr: raw.sit_blkaddr.get(),
            nat_blkaddr: raw.nat_blkaddr.get(),
            ssa_blkaddr: raw.ssa_blkaddr.get(),
            main_blkaddr: raw.main_blkaddr.get(),
            root_ino: raw.root_ino.get(),
            node_ino: raw.node_ino.get(),
            meta_ino: raw.meta_ino.get(),
            uuid: raw.uuid,
            label: raw.label(),
            cp_payload: raw.cp_payload.get(),
            features,
            devices: raw
                .devs
                .iter()
                .take_while(|d| d.path[0] != 0)
                .map(|d| Device { path: c_str(&d.path), segments: d.total_segments.get() })
                .collect(),
            cold_extensions: raw.extension_list[..cold].iter().map(extension).collect(),
            hot_extensions: raw.extension_list[cold..total].iter().map(extension).collect(),
            casefold: Casefold::decode(raw, features)?,
            quota_inos: raw.qf_ino.map(U32::get),
            inode_chksum_seed: crc32(!0, &raw.uuid),
            has_errors: raw.s_stop_reason[1..].iter().chain(&raw.s_errors).any(|&b| b != 0),
        })
    }

    fn check_features(&self, at: BlockAddr) -> Result<()> {
        let needy = self.features & Features::NEED_EXTRA_ATTR;
        if !needy.is_empty() && !self.features.contains(Features::EXTRA_ATTR) {
            let found = format!("{:#x}", self.features.bits());
            return Err(Error::corrupt("superblock.feature", at, found, "extra_attr with these"));
        }
        Ok(())
    }

    fn check_geometry(&self, at: BlockAddr) -> Result<()> {
        let bad =
            |field, found: u64, allowed: String| Err(Error::corrupt(field, at, found, allowed));
        let count = self.segment_count;
        if !(MIN_SEGMENTS..=MAX_SEGMENTS).contains(&count)
            || u64::from(count) > self.block_count / u64::from(BLOCKS_PER_SEGMENT)
        {
            let most = (self.block_count / 512).min(u64::from(MAX_SEGMENTS));
            return bad("superblock.segment_count", count.into(), format!("9..={most}"));
        }
        let (per_sec, main) = (self.segs_per_sec, self.segment_count_main);
        if per_sec == 0 || per_sec > count {
            return bad("superblock.segs_per_sec", per_sec.into(), format!("1..={count}"));
        }
        if self.secs_per_zone == 0 || self.secs_per_zone > self.section_count {
            let allowed = format!("1..={}", self.section_count);
            return bad("superblock.secs_per_zone", self.secs_per_zone.into(), allowed);
        }
        if self.section_count == 0
            || u64::from(self.section_count) * u64::from(per_sec) != u64::from(main)
        {
            let allowed = format!("{main} segments / {per_sec}");
            return bad("superblock.section_count", self.section_count.into(), allowed);
        }
        if self.segment_count_ckpt != 2 {
            return bad(
                "superblock.segment_count_ckpt",
                self.segment_count_ckpt.into(),
                "2".into(),
            );
        }
        let tables = [self.segment_count_sit, self.segment_count_nat];
        if tables.iter().any(|&n| n < 2 || n % 2 != 0) {
            let found = format!("sit {}, nat {}", tables[0], tables[1]);
            return Err(Error::corrupt("superblock table sizes", at, found, "even, 2 or more"));
        }
        if self.cp_payload >= BLOCKS_PER_SEGMENT - 8 {
            return bad("superblock.cp_payload", self.cp_payload.into(), "0..=503".into());
        }
        self.check_areas(at)?;
        self.check_tables(at)
    }

    /// Checks that every area begins where the one before ends, and that the last ends with the
    /// volume.
    fn check_areas(&self, at: BlockAddr) -> Result<()> {
        let mut expect = u64::from(self.segment0_blkaddr);
        for (field, start, segments) in [
            ("superblock.cp_blkaddr", self.cp_blkaddr, self.segment_count_ckpt),
            ("superblock.sit_blkaddr", self.sit_blkaddr, self.segment_count_sit),
            ("superblock.nat_blkaddr", self.nat_blkaddr, self.segment_count_nat),
            ("superblock.ssa_blkaddr", self.ssa_blkaddr, self.segment_count_ssa),
            ("superblock.main_blkaddr", self.main_blkaddr, self.segment_count_main),
        ] {
            if u64::from(start) != expect {
                return Err(Error::corrupt(field, at, start, expect));
            }
            expect += u64::from(segments) * u64::from(BLOCKS_PER_SEGMENT);
        }
        let end = u64::from(self.segment0_blkaddr)
            + u64::from(self.segment_count) * u64::from(BLOCKS_PER_SEGMENT);
        if expect != end || end > self.block_count || end >= u64::from(super::COMPRESS_ADDR) {
            return Err(Error::corrupt(
                "superblock.segment_count_main",
                at,
                format!("main area ends at {expect}"),
                format!("{end}, within {} blocks", self.block_count),
            ));
        }
        Ok(())
    }

    /// Checks that the SIT and the summary area describe every segment of the main area.
    fn check_tables(&self, at: BlockAddr) -> Result<()> {
        let main = u64::from(self.segment_count_main);
        let sit = u64::from(self.sit_blocks()) * sit::ENTRIES_PER_BLOCK as u64;
        if sit < main {
            return Err(Error::corrupt("superblock.segment_count_sit", at, sit, main));
        }
        let ssa = u64::from(self.segment_count_ssa) * u64::from(BLOCKS_PER_SEGMENT);
        if ssa < main && !self.features.contains(Features::RO) {
            return Err(Error::corrupt("superblock.segment_count_ssa", at, ssa, main));
        }
        Ok(())
    }

    fn check_devices(&self, at: BlockAddr) -> Result<()> {
        let sum: u64 = self.devices.iter().map(|d| u64::from(d.segments)).sum();
        if !self.devices.is_empty() && sum != u64::from(self.segment_count) {
            return Err(Error::corrupt("superblock.devs", at, sum, self.segment_count));
        }
        Ok(())
    }
}

fn check_constants(raw: &RawSuperblock, at: BlockAddr) -> Result<()> {
    let sum = raw.log_sectorsize.get().checked_add(raw.log_sectors_per_block.get());
    for (field, found, allowed) in [
        ("superblock.magic", raw.magic.get(), MAGIC),
        ("superblock.log_blocksize", raw.log_blocksize.get(), 12),
        ("superblock.log_blocks_per_seg", raw.log_blocks_per_seg.get(), 9),
        ("superblock.log_sectors_per_block", sum.unwrap_or(0), 12),
        ("superblock.node_ino", raw.node_ino.get(), 1),
        ("superblock.meta_ino", raw.meta_ino.get(), 2),
        ("superblock.root_ino", raw.root_ino.get(), 3),
    ] {
        if found != allowed {
            let (found, allowed) = (format!("{found:#x}"), format!("{allowed:#x}"));
            return Err(Error::corrupt(field, at, found, allowed));
        }
    }
    let log = raw.log_sectorsize.get();
    if !(9..=12).contains(&log) {
        return Err(Error::corrupt("superblock.log_sectorsize", at, log, "9..=12"));
    }
    Ok(())
}

fn check_crc(raw: &RawSuperblock, at: BlockAddr) -> Result<()> {
    if raw.feature.get() & Features::SB_CHKSUM.bits() == 0 {
        return Ok(());
    }
    let offset = raw.checksum_offset.get();
    if offset != CRC_OFFSET as u32 {
        return Err(Error::corrupt("superblock.checksum_offset", at, offset, CRC_OFFSET));
    }
    let (found, allowed) = (raw.crc.get(), raw.compute_crc());
    if found != allowed {
        let (found, allowed) = (format!("{found:#010x}"), format!("{allowed:#010x}"));
        return Err(Error::corrupt("superblock.crc", at, found, allowed));
    }
    Ok(())
}
