//! The superblock (`struct ext4_super_block`, 1024 bytes at byte 1024 of the volume, with backups
//! at the start of some groups).
//!
//! [`Superblock`] is the validated form: sizes are powers of two within the format's limits, and
//! the counts agree with each other, so the engine computes addresses without checks. Block numbers
//! that structures name are still checked against [`Superblock::blocks`].

mod layout;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{Checksums, compare, crc16, crc32c};
use super::features::{Compat, Incompat, RoCompat};
use super::{FIRST_INO, MAGIC, SUPERBLOCK_OFFSET, ensure};
use crate::error::{Error, Result};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_checksum_type`: CRC-32C, the only one.
pub const CHECKSUM_CRC32C: u8 = 1;
/// `s_state`: unmounted cleanly.
pub const STATE_CLEAN: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERRORS: u16 = 2;
/// `s_state`: orphans are being freed.
pub const STATE_ORPHANS: u16 = 4;
/// `s_flags`: names are hashed as signed chars.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: names are hashed as unsigned chars.
pub const FLAG_UNSIGNED_HASH: u32 = 2;
/// Largest `s_log_block_size` that is supported: 4 KiB, the drive's block.
const LOG_BLOCK_SIZE_MAX: u32 = 2;

/// `struct ext4_super_block`, 1024 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; what matters is said at `Superblock`")]
pub struct RawSuperblock {
    pub inodes_count: U32,
    pub blocks_count_lo: U32,
    pub r_blocks_count_lo: U32,
    pub free_blocks_count_lo: U32,
    pub free_inodes_count: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mtime: U32,
    pub wtime: U32,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_rev_level: U16,
    pub lastcheck: U32,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub rev_level: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub block_group_nr: U16,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithm_usage_bitmap: U32,
    pub prealloc_blocks: u8,
    pub prealloc_dir_blocks: u8,
    pub reserved_gdt_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inum: U32,
    pub journal_dev: U32,
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub def_hash_version: u8,
    pub jnl_backup_type: u8,
    pub desc_size: U16,
    pub default_mount_opts: U32,
    pub first_meta_bg: U32,
    pub mkfs_time: U32,
    pub jnl_blocks: [U32; 17],
    pub blocks_count_hi: U32,
    pub r_blocks_count_hi: U32,
    pub free_blocks_count_hi: U32,
    pub min_extra_isize: U16,
    pub want_extra_isize: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub encryption_level: u8,
    pub reserved_pad: u8,
    pub kbytes_written: U64,
    pub snapshot_inum: U32,
    pub snapshot_id: U32,
    pub snapshot_r_blocks_count: U64,
    pub snapshot_list: U32,
    pub error_count: U32,
    pub first_error_time: U32,
    pub first_error_ino: U32,
    pub first_error_block: U64,
    pub first_error_func: [u8; 32],
    pub first_error_line: U32,
    pub last_error_time: U32,
    pub last_error_ino: U32,
    pub last_error_line: U32,
    pub last_error_block: U64,
    pub last_error_func: [u8; 32],
    pub mount_opts: [u8; 64],
    pub usr_quota_inum: U32,
    pub grp_quota_inum: U32,
    pub overhead_clusters: U32,
    pub backup_bgs: [U32; 2],
    pub encrypt_algos: [u8; 4],
    pub encrypt_pw_salt: [u8; 16],
    pub lpf_ino: U32,
    pub prj_quota_inum: U32,
    pub checksum_seed: U32,
    pub wtime_hi: u8,
    pub mtime_hi: u8,
    pub mkfs_time_hi: u8,
    pub lastcheck_hi: u8,
    pub first_error_time_hi: u8,
    pub last_error_time_hi: u8,
    pub first_error_errcode: u8,
    pub last_error_errcode: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub orphan_file_inum: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
}
const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, feature_compat) == 0x5c);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, blocks_count_hi) == 0x150);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, checksum_seed) == 0x270);

impl RawSuperblock {
    /// The superblock in the first block (4 KiB) of the volume.
    pub fn of_first_block(bytes: &[u8; drive::BLOCK_SIZE]) -> Result<Self> {
        let bytes = &bytes[SUPERBLOCK_OFFSET..];
        let (raw, _) = Self::read_from_prefix(bytes)
            .map_err(|_| Error::corrupt("superblock", 0_u32, bytes.len(), SUPERBLOCK_SIZE))?;
        Ok(raw)
    }

    /// Changes the superblock with which `bytes` begin.
    pub fn edit(bytes: &mut [u8], change: impl FnOnce(&mut Self)) {
        if let Ok((raw, _)) = Self::mut_from_prefix(bytes) {
            change(raw);
            raw.seal();
        }
    }

    /// `s_feature_compat`.
    pub fn compat(&self) -> Compat {
        Compat::from_bits_retain(self.feature_compat.get())
    }

    /// `s_feature_incompat`.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.feature_incompat.get())
    }

    /// `s_feature_ro_compat`.
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.feature_ro_compat.get())
    }

    halves! {
        /// Blocks of the volume.
        blocks_count set_blocks_count blocks_count_lo blocks_count_hi: u64, u32;
        /// Blocks that only root can use.
        r_blocks_count set_r_blocks_count r_blocks_count_lo r_blocks_count_hi: u64, u32;
        /// Free blocks. The kernel leaves it stale until a sync; the descriptors' counts are right.
        free_blocks_count set_free_blocks_count free_blocks_count_lo free_blocks_count_hi: u64, u32;
    }

    /// Whether both say the same but for what changes while a volume is in use, and for its names.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let mut same = self.clone();
        let (mine, its) = (self.compat(), other.compat());
        same.feature_compat = ((mine - Compat::EXT_ATTR) | (its & Compat::EXT_ATTR)).bits().into();
        let (mine, its) = (self.incompat(), other.incompat());
        same.feature_incompat =
            ((mine - Incompat::RECOVER) | (its & Incompat::RECOVER)).bits().into();
        let (mine, its) = (self.ro_compat(), other.ro_compat());
        let may_differ = RoCompat::LARGE_FILE | RoCompat::ORPHAN_PRESENT;
        same.feature_ro_compat = ((mine - may_differ) | (its & may_differ)).bits().into();
        macro_rules! take {
            ($($field:ident)*) => { $(same.$field = other.$field;)* };
        }
        take!(free_blocks_count_lo free_blocks_count_hi free_inodes_count mtime mtime_hi);
        take!(wtime wtime_hi);
        take!(mnt_count state lastcheck lastcheck_hi block_group_nr volume_name last_mounted);
        take!(last_orphan kbytes_written overhead_clusters lpf_ino jnl_backup_type jnl_blocks);
        take!(error_count first_error_time first_error_time_hi first_error_ino first_error_block);
        take!(first_error_func first_error_line first_error_errcode last_error_time);
        take!(last_error_time_hi last_error_ino last_error_line last_error_block last_error_func);
        take!(last_error_errcode checksum);
        same.as_bytes() == other.as_bytes()
    }

    /// Notes that corruption was met at `now`, in seconds since 1970.
    pub fn note_error(&mut self, now: u64) {
        let (low, high) = ((now as u32).into(), (now >> 32) as u8);
        self.state = (self.state.get() | STATE_ERRORS).into();
        self.error_count = self.error_count.get().saturating_add(1).into();
        (self.last_error_time, self.last_error_time_hi) = (low, high);
        if self.first_error_time.get() == 0 {
            (self.first_error_time, self.first_error_time_hi) = (low, high);
        }
    }

    /// Marks the volume as clean, and forgets what the kernel noted about errors.
    pub fn forget_errors(&mut self) {
        self.state = STATE_CLEAN.into();
        self.error_count = 0.into();
        (self.first_error_time, self.first_error_time_hi) = (0.into(), 0);
        (self.last_error_time, self.last_error_time_hi) = (0.into(), 0);
    }

    /// The right `s_checksum` (`ext4_superblock_csum`).
    pub fn right_checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..SUPERBLOCK_SIZE - 4])
    }

    /// Sets `s_checksum`, if the volume has checksums. Do this last.
    pub fn seal(&mut self) {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            self.checksum = self.right_checksum().into();
        }
    }

    /// What checksums start from (`s_csum_seed`): the stored seed only with `metadata_csum_seed`.
    pub fn checksums(&self) -> Checksums {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            Checksums::Metadata(if self.incompat().contains(Incompat::CSUM_SEED) {
                self.checksum_seed.get()
            } else {
                crc32c(!0, &self.uuid)
            })
        } else if self.ro_compat().contains(RoCompat::GDT_CSUM) {
            Checksums::Descriptors(crc16(!0, &self.uuid))
        } else {
            Checksums::None
        }
    }

    /// The label, up to its NUL.
    pub fn label(&self) -> &[u8] {
        self.volume_name.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// A valid superblock: the geometry, and what the volume uses.
#[derive(Clone)]
pub struct Superblock {
    /// As it is on the drive.
    pub raw: RawSuperblock,
    /// Features that others may ignore.
    pub compat: Compat,
    /// Features needed to read.
    pub incompat: Incompat,
    /// Features needed to write.
    pub ro_compat: RoCompat,
    /// What is protected by checksums, and how.
    pub checksums: Checksums,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Bytes of a block: 1024, 2048 or 4096.
    pub block_size: u32,
    /// Blocks that one bit of a block bitmap stands for; 1 without `bigalloc`.
    pub cluster_ratio: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Bits of a group's block bitmap.
    pub clusters_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Bytes of a group descriptor: 32 or 64.
    pub desc_size: u32,
    /// The first inode that is not reserved.
    pub first_ino: u32,
}

impl Superblock {
    /// Checks a superblock read from file system block `at`. An error of this is the volume's, not
    /// of what this build supports, except for sizes: features are checked at mount.
    pub fn parse(raw: RawSuperblock, at: u64) -> Result<Self> {
        ensure(raw.magic.get() == MAGIC, "superblock.s_magic", at, raw.magic.get(), "0xef53")?;
        if raw.ro_compat().contains(RoCompat::METADATA_CSUM) {
            let kind = raw.checksum_type;
            ensure(kind == CHECKSUM_CRC32C, "superblock.s_checksum_type", at, kind, "1")?;
            compare("superblock.s_checksum", at, raw.checksum.get(), raw.right_checksum())?;
        }
        if raw.incompat().contains(Incompat::JOURNAL_DEV) {
            return Err(Error::unsupported("a journal of other volumes (journal_dev)"));
        }
        let block_size = block_size(&raw, at)?;
        let (inode_size, first_ino) = inode_size(&raw, block_size, at)?;
        let desc_size = desc_size(&raw, at)?;
        let cluster_ratio = cluster_ratio(&raw, at)?;
        let bits = block_size * 8;
        let (blocks, first) = (raw.blocks_count(), u64::from(raw.first_data_block.get()));
        let per_group = raw.blocks_per_group.get();
        let fits = (8..=bits.saturating_mul(cluster_ratio)).contains(&per_group)
            && per_group.is_multiple_of(8 * cluster_ratio);
        ensure(fits, "superblock.s_blocks_per_group", at, per_group, "8 per bit")?;
        let fits = first == 1 || (first == 0 && (block_size > 1024 || cluster_ratio > 1));
        ensure(fits, "superblock.s_first_data_block", at, first, "1 iff blocks are 1 KiB")?;
        let fits = blocks > first && blocks <= 1 << 48;
        ensure(fits, "superblock.s_blocks_count", at, blocks, "up to 2^48")?;
        let groups = (blocks - first).div_ceil(per_group.into());
        let fits = groups <= u32::MAX.into();
        ensure(fits, "superblock.s_blocks_count", at, blocks, "2^32 groups at most")?;
        let (inodes, each) = (raw.inodes_count.get(), raw.inodes_per_group.get());
        let fits = (block_size / inode_size..=bits).contains(&each);
        ensure(fits, "superblock.s_inodes_per_group", at, each, "1 block of bits")?;
        let fits = u64::from(each) * groups == u64::from(inodes);
        ensure(fits, "superblock.s_inodes_count", at, inodes, "that of all groups")?;
        let (reserved, allowed) = (raw.reserved_gdt_blocks.get(), "one block of numbers");
        let fits = u32::from(reserved) <= block_size / 4;
        ensure(fits, "superblock.s_reserved_gdt_blocks", at, reserved, allowed)?;
        Ok(Self {
            compat: raw.compat(),
            incompat: raw.incompat(),
            ro_compat: raw.ro_compat(),
            checksums: raw.checksums(),
            blocks,
            groups: groups as u32,
            block_size,
            cluster_ratio,
            blocks_per_group: per_group,
            clusters_per_group: per_group / cluster_ratio,
            inodes_per_group: each,
            inode_size,
            desc_size,
            first_ino,
            raw,
        })
    }

    /// Whether the volume was unmounted cleanly, and no error was found on it.
    pub fn is_clean(&self) -> bool {
        let marks = self.raw.state.get() & (STATE_CLEAN | STATE_ERRORS);
        marks == STATE_CLEAN && !self.incompat.contains(Incompat::RECOVER)
    }

    /// Whether names are hashed as unsigned chars.
    pub fn unsigned_hash(&self) -> bool {
        self.raw.flags.get() & FLAG_UNSIGNED_HASH != 0
    }

    /// `s_hash_seed`.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(U32::get)
    }
}

fn block_size(raw: &RawSuperblock, at: u64) -> Result<u32> {
    let log = raw.log_block_size.get();
    ensure(log <= 6, "superblock.s_log_block_size", at, log, "0..=6")?;
    if log > LOG_BLOCK_SIZE_MAX {
        return Err(Error::unsupported(format!("blocks of {} KiB", 1 << log)));
    }
    Ok(1024 << log)
}

fn inode_size(raw: &RawSuperblock, block_size: u32, at: u64) -> Result<(u32, u32)> {
    // Revision 0 has neither field (`EXT4_GOOD_OLD_REV`).
    if raw.rev_level.get() == 0 {
        return Ok((128, FIRST_INO));
    }
    let (size, first) = (u32::from(raw.inode_size.get()), raw.first_ino.get());
    let fits = size.is_power_of_two() && (128..=block_size).contains(&size);
    ensure(fits, "superblock.s_inode_size", at, size, "128 up to a block")?;
    ensure(first >= FIRST_INO, "superblock.s_first_ino", at, first, "11 or more")?;
    Ok((size, first))
}

fn desc_size(raw: &RawSuperblock, at: u64) -> Result<u32> {
    if !raw.incompat().contains(Incompat::BIT64) {
        return Ok(32);
    }
    match u32::from(raw.desc_size.get()) {
        64 => Ok(64),
        size @ (128 | 256 | 512 | 1024) => {
            Err(Error::unsupported(format!("group descriptors of {size} bytes")))
        }
        size => Err(Error::corrupt("superblock.s_desc_size", at, size, "64")),
    }
}

fn cluster_ratio(raw: &RawSuperblock, at: u64) -> Result<u32> {
    if !raw.ro_compat().contains(RoCompat::BIGALLOC) {
        return Ok(1);
    }
    let (cluster, block) = (raw.log_cluster_size.get(), raw.log_block_size.get());
    let fits = (block..=block + 20).contains(&cluster) && cluster < 30;
    ensure(fits, "superblock.s_log_cluster_size", at, cluster, "a size")?;
    let ratio = cluster - block;
    let (found, bits) = (raw.clusters_per_group.get(), raw.blocks_per_group.get() >> ratio);
    ensure(found == bits, "superblock.s_clusters_per_group", at, found, bits)?;
    Ok(1 << ratio)
}

#[cfg(test)]
mod tests;
