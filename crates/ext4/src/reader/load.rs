//! Opening: from a drive to a volume whose superblock agrees with itself and with the drive
//! (`ext4_fill_super`).

use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;
use zerocopy::FromBytes;

use super::Reader;
use crate::error::{Error, Result};
use crate::ondisk::features::{Compat, Incompat, RoCompat};
use crate::ondisk::superblock::{RawSuperblock, STATE_CLEAN, Superblock};

/// What a volume may use to be read here. Single files may still be refused: encrypted ones.
const READABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// The superblock on a drive, as it is.
pub(crate) fn superblock(queue: &BlockQueue) -> Result<RawSuperblock> {
    if queue.identify().blocks == 0 {
        let volume = drive::BLOCK_SIZE as u64;
        return Err(Error::Truncated { volume, drive: 0, unit: "bytes" });
    }
    RawSuperblock::of_first_block(queue.read_block(0)?.bytes())
}

/// The superblock on a drive, if it agrees with itself, or a cut has torn it.
pub(crate) fn valid_superblock(queue: &BlockQueue) -> Result<Superblock> {
    let raw = superblock(queue)?;
    match Superblock::parse(raw.clone(), 0) {
        Err(error) if raw.checksum.get() != raw.right_checksum() => {
            torn_superblock(queue, raw)?.ok_or(error)
        }
        parsed => parsed,
    }
}

/// The superblock, if it may be `raw` because a cut has torn a write of it: what changes is in the
/// first of its two sectors and the checksum in the second. All else must be as in the backup in
/// the second group. The volume was in use then, so its log has to be replayed; the next write of
/// the superblock is whole.
fn torn_superblock(queue: &BlockQueue, mut raw: RawSuperblock) -> Result<Option<Superblock>> {
    if raw.compat().contains(Compat::HAS_JOURNAL) {
        raw.feature_incompat = (raw.incompat() | Incompat::RECOVER).bits().into();
    }
    raw.state = (raw.state.get() & !STATE_CLEAN).into();
    raw.seal();
    let Ok(sb) = Superblock::parse(raw, 0) else { return Ok(None) };
    let first = u64::from(sb.raw.first_data_block.get()) + u64::from(sb.blocks_per_group);
    let (each, size) = (drive::BLOCK_SIZE as u64, u64::from(sb.block_size));
    let (lba, byte) = (first * size / each, (first * size % each) as usize);
    if sb.groups == 1 || lba >= queue.identify().blocks {
        return Ok(None);
    }
    let block = queue.read_block(lba)?;
    let Ok((backup, _)) = RawSuperblock::read_from_prefix(&block[byte..]) else { return Ok(None) };
    let is_sound = backup.checksum.get() == backup.right_checksum();
    Ok((is_sound && backup.agrees_with(&sb.raw)).then_some(sb))
}

/// The volume on a drive, which has no feature that is unknown here. `cache` is in bytes.
pub(crate) fn open(drive: Arc<dyn Drive>, cache: u64) -> Result<Reader> {
    let queue = Arc::new(BlockQueue::new(drive));
    let sb = valid_superblock(&queue)?;
    check_readable(&sb)?;
    check_fits(&sb, &queue)?;
    Ok(Reader::new(sb, queue, cache))
}

/// Fails if the volume is larger than its drive.
pub(crate) fn check_fits(sb: &Superblock, queue: &BlockQueue) -> Result<()> {
    let volume = sb.blocks.saturating_mul(sb.block_size.into());
    let drive = queue.identify().blocks.saturating_mul(drive::BLOCK_SIZE as u64);
    if volume > drive { Err(Error::Truncated { volume, drive, unit: "bytes" }) } else { Ok(()) }
}

/// Fails with the names of what the volume uses and nothing here can read. What is unknown among
/// `ro_compat` can be read by definition.
pub(crate) fn check_readable(sb: &Superblock) -> Result<()> {
    let refused = sb.incompat.difference(READABLE);
    if !refused.is_empty() {
        return Err(Error::unsupported(refused));
    }
    if sb.ro_compat.contains(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM) {
        let found = "metadata_csum and uninit_bg";
        return Err(Error::corrupt("superblock.s_feature_ro_compat", 0_u32, found, "one of them"));
    }
    Ok(())
}
