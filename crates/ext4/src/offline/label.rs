//! The volume's label, as e2label shows and sets it.

use std::sync::Arc;

use drive::{Block, Drive};
use queue::BlockQueue;
use vfs::kind::Label;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::ondisk::SUPERBLOCK_OFFSET;
use crate::ondisk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};

/// Bytes of a label.
const LABEL_MAX: usize = 16;

/// Label and UUID of the volume on `drive`.
pub(crate) fn get(drive: &Arc<dyn Drive>) -> Result<Label> {
    let raw = crate::reader::superblock(&BlockQueue::new(drive.clone()))?;
    Superblock::parse(raw, 0).map(|sb| named(&sb))
}

fn named(sb: &Superblock) -> Label {
    Label { label: String::from_utf8_lossy(sb.raw.label()).into_owned(), uuid: sb.raw.uuid }
}

/// Sets the label, in the first superblock: as everything that changes while a volume is in use, it
/// is not in the backups.
pub(crate) fn set(drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
    if label.len() > LABEL_MAX {
        let len = label.len();
        return Err(Error::usage(format!("a label of {len} bytes, {LABEL_MAX} fit")));
    }
    let queue = BlockQueue::new(drive.clone());
    if queue.identify().read_only {
        return Err(Error::ReadOnly);
    }
    let mut block = queue.read_block(0)?;
    let mut raw = Superblock::parse(RawSuperblock::of_first_block(block.bytes())?, 0)?.raw;
    raw.volume_name = [0; LABEL_MAX];
    raw.volume_name[..label.len()].copy_from_slice(label.as_bytes());
    raw.seal();
    let bytes = block.make_mut();
    bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    let blocks: [Block; 1] = [block];
    queue.write_blocks(0, drive::Blocks::from_iter(blocks), true)?;
    queue.flush()?;
    Superblock::parse(raw, 0).map(|sb| named(&sb))
}
