//! How large everything is: groups, inode tables, descriptors, the journal.
//!
//! The numbers are those of mke2fs (`ext2fs_initialize`), so that a volume made here is the one
//! that mke2fs makes. Pure computation: nothing here does I/O.

use zerocopy::FromZeros;
use zerocopy::little_endian::U32;

use super::options::{MkfsOptions, require};
use crate::error::{Error, Result};
use crate::ondisk::checksum::crc32c;
use crate::ondisk::features::{Compat, Incompat, RoCompat};
use crate::ondisk::inode::{EXTRA_ISIZE, GOOD_OLD_SIZE};
use crate::ondisk::superblock::{
    CHECKSUM_CRC32C, FLAG_SIGNED_HASH, RawSuperblock, STATE_CLEAN, Superblock,
};
use crate::ondisk::{FIRST_INO, MAGIC};

/// Blocks of the journal for each one that is for fast commits (`EXT2_JOURNAL_TO_FC_BLKS_RATIO`).
const FAST_COMMIT_SHARE: u32 = 64;
/// Blocks of a group whose bitmaps have room for more (`EXT2_MAX_BLOCKS_PER_GROUP`).
const GROUP_BLOCKS_MAX: u32 = (1 << 16) - 8;
/// Inodes of a group at least: the first group has all reserved ones and a few more.
const GROUP_INODES_MIN: u32 = 16;
/// Blocks that a shorter last group has free at least, or it is left out.
const LAST_GROUP_FREE: u64 = 50;
/// More groups (1 PiB in blocks of 4 KiB) would need more memory for descriptors than is sensible.
const GROUPS_MAX: u64 = 1 << 23;
/// `s_default_mount_opts`: `user_xattr` and `acl`.
const DEFAULT_MOUNT_OPTS: u32 = 0xc;
/// Blocks of the smallest log (`JBD2_MIN_JOURNAL_BLOCKS`).
const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// Blocks of the largest log.
const JOURNAL_BLOCKS_MAX: u64 = 10_240_000;

/// The superblock of a volume on a drive of `device` bytes, without free space and journal.
pub(super) fn layout(options: &MkfsOptions, device: u64) -> Result<Superblock> {
    options.check()?;
    let size = options.block_size();
    let (bits, first) = (size * 8, u64::from(size == 1024));
    let (mut raw, inodes) = first_guess(options, device)?;
    let whole = raw.blocks_count();
    // mke2fs goes on from the rounded number, not from the percentage that was asked for.
    let percent = 100.0 * raw.r_blocks_count() as f64 / whole as f64;
    loop {
        let (blocks, each) = (raw.blocks_count(), raw.blocks_per_group.get());
        let groups = blocks.saturating_sub(first).div_ceil(each.into());
        require(groups > 0, too_few(blocks, size))?;
        if groups > GROUPS_MAX {
            return Err(Error::unsupported(format!("volumes of {groups} groups")));
        }
        let wanted = inodes.max(u64::from(FIRST_INO) + 1).div_ceil(groups);
        if wanted > bits.into() {
            require(each >= 256 + 8, format!("{inodes} inodes are too many"))?;
            raw.blocks_per_group = (each - 8).into();
            // The last of smaller groups may be long enough to stay.
            raw.set_blocks_count(whole);
            continue;
        }
        let in_group = inodes_per_group(wanted as u32, groups as u32, size, options);
        raw.inodes_per_group = in_group.into();
        raw.inodes_count = in_group.wrapping_mul(groups as u32).into();
        set_reserved_gdt(&mut raw, options, groups as u32, first);
        let sb = with_features(raw.clone(), options, groups as u32)?;
        let short = (blocks - first) % u64::from(each);
        let last = sb.groups - 1;
        let needed = u64::from(2 + sb.table_blocks() + sb.base_meta_blocks(last));
        require(needed <= each.into(), format!("{inodes} inodes leave groups no room"))?;
        if short == 0 || short >= needed + LAST_GROUP_FREE {
            return Ok(sb);
        }
        require(last > 0, too_few(blocks, size))?;
        raw.set_blocks_count(blocks - short);
        // Of as many as there were when a last group was left out.
        raw.set_r_blocks_count(reserved(percent, blocks - short));
    }
}

fn reserved(percent: f64, blocks: u64) -> u64 {
    (percent * blocks as f64 / 100.0) as u64
}

fn too_few(blocks: u64, size: u32) -> String {
    format!("{blocks} blocks of {size} bytes are too few for a volume")
}

/// The superblock if nothing were in the way, without what follows from the number of groups, and
/// how many inodes there should be.
fn first_guess(options: &MkfsOptions, device: u64) -> Result<(RawSuperblock, u64)> {
    let size = options.block_size();
    let there = device / u64::from(size);
    let blocks = options.blocks.unwrap_or(there);
    require(blocks <= there, format!("{blocks} blocks are more than the device's {there}"))?;
    let can_grow = options.resize.is_none_or(|most| most > blocks);
    require(can_grow, format!("-E resize: more than the volume's {blocks} blocks"))?;
    let features = options.features;
    let is_long = blocks > u32::MAX.into();
    let has_numbers = !is_long || features.incompat.contains(Incompat::BIT64);
    require(has_numbers, format!("{blocks} blocks need the feature 64bit"))?;
    let bytes = blocks.saturating_mul(size.into());
    let inodes = options.inodes.unwrap_or(bytes / options.ratio(bytes));
    let fits = options.inodes.is_none_or(|inodes| inodes <= u32::MAX.into());
    require(fits, format!("{inodes} inodes are more than 2^32"))?;
    let mut compat = features.compat;
    // The inode's map has numbers of 32 bits.
    compat.set(Compat::RESIZE_INODE, compat.contains(Compat::RESIZE_INODE) && !is_long);
    let mut raw = fixed_fields(options);
    raw.set_blocks_count(blocks);
    raw.set_r_blocks_count(reserved(options.reserved_percent, blocks));
    let blocks_per_group = options.blocks_per_group.unwrap_or((size * 8).min(GROUP_BLOCKS_MAX));
    raw.blocks_per_group = blocks_per_group.into();
    raw.feature_compat = compat.bits().into();
    raw.feature_incompat = features.incompat.bits().into();
    raw.feature_ro_compat = features.ro_compat.bits().into();
    Ok((raw, inodes.min(u32::MAX.into())))
}

/// Inodes of a group that should have `wanted`: whole blocks of them, a multiple of 8.
fn inodes_per_group(wanted: u32, groups: u32, size: u32, options: &MkfsOptions) -> u32 {
    let in_block = size / options.inode_size;
    let mut wanted = wanted.min((1 << 16) - in_block);
    loop {
        let whole = wanted.next_multiple_of(in_block);
        let inodes = whole.max(GROUP_INODES_MIN) & !7;
        if u64::from(inodes) * u64::from(groups) <= u32::MAX.into() || inodes <= GROUP_INODES_MIN {
            return inodes;
        }
        wanted = (inodes - 1).min(wanted - 1);
    }
}

/// Blocks that are kept for more descriptors, or descriptors in the groups themselves if they would
/// fill most of a group.
fn set_reserved_gdt(raw: &mut RawSuperblock, options: &MkfsOptions, groups: u32, first: u64) {
    let (size, blocks) = (options.block_size(), raw.blocks_count());
    let each = raw.blocks_per_group.get();
    let per_block = size / if raw.incompat().contains(Incompat::BIT64) { 64 } else { 32 };
    let tables = groups.div_ceil(per_block);
    let mut reserved = 0;
    if raw.compat().contains(Compat::RESIZE_INODE) {
        let more = |most: u64| {
            let most = most.clamp(blocks, u64::from(u32::MAX).max(blocks));
            let groups = (most - first).div_ceil(each.into());
            groups.div_ceil(per_block.into()).saturating_sub(tables.into())
        };
        // What needs no more descriptors than there are is not asked for.
        let asked = options.resize.map(more).filter(|more| *more > 0);
        let more = asked.unwrap_or_else(|| more(blocks.saturating_mul(1024)));
        reserved = more.min((size / 4).into()) as u32;
    }
    if reserved + tables > each / 4 * 3 {
        raw.feature_incompat = (raw.incompat() | Incompat::META_BG).bits().into();
        raw.feature_compat = (raw.compat() - Compat::RESIZE_INODE).bits().into();
        reserved = 0;
    }
    raw.reserved_gdt_blocks = (reserved as u16).into();
}

/// What the options say by themselves.
fn fixed_fields(options: &MkfsOptions) -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    let size = options.block_size();
    let time = U32::from(options.time as u32);
    raw.first_data_block = u32::from(size == 1024).into();
    raw.log_block_size = size.ilog2().saturating_sub(10).into();
    raw.log_cluster_size = raw.log_block_size;
    (raw.wtime, raw.lastcheck, raw.mkfs_time) = (time, time, time);
    let high = (options.time >> 32) as u8;
    (raw.wtime_hi, raw.lastcheck_hi, raw.mkfs_time_hi) = (high, high, high);
    raw.max_mnt_count = u16::MAX.into();
    raw.magic = MAGIC.into();
    raw.state = STATE_CLEAN.into();
    raw.errors = (options.on_error as u16).into();
    raw.rev_level = 1.into();
    raw.first_ino = FIRST_INO.into();
    raw.inode_size = (options.inode_size as u16).into();
    raw.uuid = options.uuid;
    put_text(&mut raw.volume_name, &options.label);
    put_text(&mut raw.last_mounted, &options.last_mounted);
    for (word, bytes) in raw.hash_seed.iter_mut().zip(options.hash_seed.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes).into();
    }
    raw.def_hash_version = 1;
    raw.default_mount_opts = DEFAULT_MOUNT_OPTS.into();
    raw.flags = FLAG_SIGNED_HASH.into();
    raw.raid_stride = options.stride.into();
    raw.raid_stripe_width = options.stripe_width.into();
    raw
}

/// The superblock with the fields that come with a feature.
fn with_features(mut raw: RawSuperblock, options: &MkfsOptions, groups: u32) -> Result<Superblock> {
    raw.clusters_per_group = raw.blocks_per_group;
    if raw.incompat().contains(Incompat::BIT64) {
        raw.desc_size = 64.into();
    }
    if options.inode_size as usize > GOOD_OLD_SIZE
        && raw.ro_compat().contains(RoCompat::EXTRA_ISIZE)
    {
        (raw.min_extra_isize, raw.want_extra_isize) = (EXTRA_ISIZE.into(), EXTRA_ISIZE.into());
    }
    if raw.compat().contains(Compat::RESIZE_INODE) && resize_inode_size(options) >= 1 << 31 {
        raw.feature_ro_compat = (raw.ro_compat() | RoCompat::LARGE_FILE).bits().into();
    }
    if raw.incompat().contains(Incompat::FLEX_BG) {
        raw.log_groups_per_flex = options.flex_groups.trailing_zeros() as u8;
    }
    if raw.ro_compat().contains(RoCompat::METADATA_CSUM) {
        raw.checksum_type = CHECKSUM_CRC32C;
    }
    if raw.incompat().contains(Incompat::CSUM_SEED) {
        raw.checksum_seed = crc32c(!0, &options.uuid).into();
    }
    if raw.compat().contains(Compat::SPARSE_SUPER2) {
        let last = groups - 1;
        raw.backup_bgs = [last.min(1).into(), if last > 1 { last.into() } else { 0.into() }];
    }
    raw.seal();
    Superblock::parse(raw, u64::from(options.block_size() == 1024))
}

/// Bytes of the resize inode: as many as a map with a second level can have.
pub(super) fn resize_inode_size(options: &MkfsOptions) -> u64 {
    let size = u64::from(options.block_size());
    let numbers = size / 4;
    (numbers * numbers + numbers + 12) * size
}

fn put_text(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// Blocks of the journal; `None` if the volume has none, or is too small for one.
pub(super) fn journal_blocks(options: &MkfsOptions, sb: &Superblock) -> Result<Option<u32>> {
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let fast = fast_commit_blocks(sb);
    let Some(mib) = options.journal_mib else {
        return Ok(default_journal_blocks(sb.blocks).map(|blocks| blocks + fast));
    };
    let blocks = mib.saturating_mul(1 << 20) / u64::from(sb.block_size);
    let (least, most) = (JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX.min(sb.blocks / 2));
    let why_not = format!("a journal of {blocks} blocks; allowed: {least} up to {most}");
    require((least..=most).contains(&blocks), why_not)?;
    Ok(Some(blocks as u32 + fast))
}

/// Blocks of the journal that are for fast commits, on top of those for transactions
/// (`ext2fs_get_journal_params`).
pub(super) fn fast_commit_blocks(sb: &Superblock) -> u32 {
    match sb.compat.contains(Compat::FAST_COMMIT) {
        true => default_journal_blocks(sb.blocks).unwrap_or(0) / FAST_COMMIT_SHARE,
        false => 0,
    }
}

/// `ext2fs_default_journal_size`.
fn default_journal_blocks(blocks: u64) -> Option<u32> {
    const K: u64 = 1024;
    Some(match blocks {
        0..2048 => return None,
        2048..32_768 => 1024,
        32_768..0x4_0000 => 4096,
        0x4_0000..0x8_0000 => 8192,
        _ if blocks < 4096 * K => 16_384,
        _ if blocks < 8192 * K => 32_768,
        _ if blocks < 16_384 * K => 65_536,
        _ if blocks < 32_768 * K => 131_072,
        _ => 262_144,
    })
}

/// Blocks of the orphan file.
pub(super) fn orphan_blocks(sb: &Superblock) -> u32 {
    (sb.blocks / 4096).clamp(32, 512) as u32
}
