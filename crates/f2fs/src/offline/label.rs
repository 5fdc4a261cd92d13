//! The volume's label, as `f2fslabel` shows and sets it.

use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;

use crate::error::{Error, Result};
use crate::mount::devices::check_size;
use crate::offline::super_write;
use crate::ondisk::superblock::Superblock;

/// How many UTF-16 units a label can have, `MAX_VOLUME_NAME`.
pub const LABEL_MAX: usize = 512;

/// The superblock of the volume on `drive`, with label and UUID.
pub fn superblock(drive: &Arc<dyn Drive>) -> Result<Superblock> {
    super_write::read(&BlockQueue::new(Arc::clone(drive))).map(|(_, sb)| sb)
}

/// Sets the label.
pub fn set(drive: &Arc<dyn Drive>, label: &str) -> Result<Superblock> {
    let units = label.encode_utf16().count();
    if units > LABEL_MAX {
        return Err(Error::usage(format!("a label of {units} UTF-16 units, {LABEL_MAX} fit")));
    }
    let queue = BlockQueue::new(Arc::clone(drive));
    if queue.identify().read_only {
        return Err(Error::ReadOnly);
    }
    let (mut raw, sb) = super_write::read(&queue)?;
    // If there are several devices, the first one has the superblocks and is smaller than the
    // volume.
    if sb.devices.is_empty() {
        check_size(&sb, queue.identify())?;
    }
    raw.set_label(label);
    super_write::replace(&queue, raw)
}
