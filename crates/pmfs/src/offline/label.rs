//! Changes the label.
//!
//! First the second copy, then the first: one of the two is whole at any time. If the power goes in
//! between, the label is the old one, or the new one where the first copy was torn.

use drive::pm::Pm;
use vfs::kind::{Error, Result};
use zerocopy::IntoBytes;

use crate::mount::format::load;

pub(crate) fn set(pm: &dyn Pm, label: &str) -> Result<()> {
    let (mut raw, layout) = load(pm)?;
    if label.len() >= raw.label.len() || label.contains('\0') {
        return Err(Error::Usage("a label has at most 47 bytes".into()));
    }
    raw.label = [0; 48];
    raw.label[..label.len()].copy_from_slice(label.as_bytes());
    let raw = raw.summed();
    for at in [layout.copy_at(), 0] {
        pm.stream(at, raw.as_bytes());
        pm.fence();
    }
    pm.sync().map_err(|error| vfs::Error::caused(vfs::Errno::IO, error).into())
}
