//! Changes the label, and writes both superblocks.
//!
//! First the second copy, then the first: one of the two is whole at any time. If the power goes in
//! between, the label is the old one, or the new one where the first copy was torn.

use drive::pm::Pm;
use vfs::kind::{Error, Result};
use zerocopy::IntoBytes;

use crate::mount::format::load;
use crate::ondisk::superblock::{Layout, RawSuperblock};

pub(crate) fn set(pm: &dyn Pm, label: &str) -> Result<()> {
    let (mut raw, layout) = load(pm)?;
    if label.len() >= raw.label.len() || label.contains('\0') {
        return Err(Error::Usage("a label has at most 47 bytes".into()));
    }
    raw.label = [0; 48];
    raw.label[..label.len()].copy_from_slice(label.as_bytes());
    write(pm, &raw.summed(), &layout)
}

/// Makes both copies of the superblock `raw`.
pub(crate) fn write(pm: &dyn Pm, raw: &RawSuperblock, layout: &Layout) -> Result<()> {
    for at in copies(layout) {
        pm.stream(at, raw.as_bytes());
        pm.fence();
    }
    pm.sync().map_err(|error| vfs::Error::caused(vfs::Errno::IO, error).into())
}

/// The copies that are not `raw`, by their places.
pub(crate) fn others(pm: &dyn Pm, raw: &RawSuperblock, layout: &Layout) -> Vec<u64> {
    let differs = |at: &u64| {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        pm.read(*at, &mut bytes);
        bytes != raw.as_bytes()
    };
    copies(layout).into_iter().filter(differs).collect()
}

fn copies(layout: &Layout) -> [u64; 2] {
    [layout.copy_at(), 0]
}
