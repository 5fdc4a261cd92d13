//! The volume's label, as e2label shows and sets it.

use std::sync::Arc;

use drive::Drive;
use vfs::kind::Label;

use super::superblock;
use crate::error::{Error, Result};
use crate::ondisk::features::Incompat;
use crate::ondisk::superblock::Superblock;
use crate::recover;

/// Bytes of a label.
const LABEL_MAX: usize = 16;

/// Label and UUID of the volume on `drive`.
pub(crate) fn get(drive: &Arc<dyn Drive>) -> Result<Label> {
    superblock::read(drive).map(|sb| named(&sb))
}

fn named(sb: &Superblock) -> Label {
    Label { label: String::from_utf8_lossy(sb.raw.label()).into_owned(), uuid: sb.raw.uuid }
}

/// Sets the label, in the first superblock: as everything that changes while a volume is in use, it
/// is not in the backups. A journal is replayed first, or its copy of the superblock would bring
/// the old label back.
pub(crate) fn set(drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
    if label.len() > LABEL_MAX {
        let len = label.len();
        return Err(Error::usage(format!("a label of {len} bytes, {LABEL_MAX} fit")));
    }
    if drive.identify().read_only {
        return Err(Error::ReadOnly);
    }
    if superblock::read(drive)?.incompat.contains(Incompat::RECOVER) {
        recover::run(drive)?;
    }
    let sb = superblock::edit(drive, |raw| {
        raw.volume_name = [0; LABEL_MAX];
        raw.volume_name[..label.len()].copy_from_slice(label.as_bytes());
    })?;
    Ok(named(&sb))
}
