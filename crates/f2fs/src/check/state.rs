//! What a volume says about its own state, which tells whether it needs a check at all.

use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;

use crate::error::Result;
use crate::mount::devices::check_complete;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::superblock::Superblock;

/// How a volume was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// The last checkpoint was written at unmount.
    pub clean_unmount: bool,
    /// Checkpoint or superblock say that something is wrong, or ask for a check.
    pub has_errors: bool,
}

impl VolumeState {
    /// Whether `fsck -a` may leave the volume alone.
    pub fn needs_no_check(self) -> bool {
        self.clean_unmount && !self.has_errors
    }
}

/// Reads only the superblock and the checkpoint of the volume on `drive`.
pub fn state(drive: &Arc<dyn Drive>) -> Result<VolumeState> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let read = |addr: u32| Ok(queue.read_block(addr.into())?);
    let (sb, _) = Superblock::select(read)?;
    check_complete(&sb, queue.identify())?;
    let flags = Checkpoint::select(&sb, read)?.checkpoint.flags;
    let asks = CpFlags::ERROR | CpFlags::FSCK | CpFlags::QUOTA_NEED_FSCK;
    Ok(VolumeState {
        clean_unmount: flags.contains(CpFlags::UMOUNT),
        has_errors: sb.has_errors || flags.intersects(asks),
    })
}
