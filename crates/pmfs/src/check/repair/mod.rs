//! Repairs what [`super::check`] finds: first what no mount can read is voided ([`voids`]), then
//! names and links are made to agree on the mounted volume ([`names`]).
//!
//! Both steps are done twice, the first time in memory only: an error, or a finding that is left,
//! means that the medium was not changed. On the medium each change is whole or has not happened,
//! and makes things no worse; a repair that is cut is repeated.

mod names;
mod voids;

use std::sync::Arc;

use drive::pm::{Pm, PmOverlay};
use vfs::kind::{Error, Finding, Repaired, Result};

use super::check;
use crate::mount::Pmfs;
use crate::mount::options::MountOptions;
use crate::recover::Image;

/// For [`vfs::kind::Format::repair`].
pub(crate) fn repair(pm: Arc<dyn Pm>) -> Result<Repaired> {
    let found = check(pm.clone())?;
    if found.findings.is_empty() && found.clean_unmount {
        return Ok(Repaired::default());
    }
    let rehearsal = PmOverlay::new(pm.clone());
    repair_on(rehearsal.clone())?;
    if let Some(left) = check(rehearsal)?.findings.first() {
        let Finding { place, what, .. } = left;
        return Err(Error::Unknown(format!("{place}: {what}: there is no repair for this")));
    }
    Ok(Repaired { findings: found.findings, changed: true, ..repair_on(pm)? })
}

fn repair_on(pm: Arc<dyn Pm>) -> Result<Repaired> {
    let mut notes = voids::void(&*pm)?;
    let recovered = Image::open(pm.clone())?.recover().map_err(vfs::Error::from)?;
    let recovery = recovered.recovery;
    let fs = Pmfs::new(recovered, MountOptions::default());
    let reconnected = names::agree(&fs, &mut notes)?;
    vfs::FileSystem::unmount(&fs)?;
    // A memory with an undo log that could not be written has not been changed.
    pm.sync().map_err(|error| vfs::Error::caused(vfs::Errno::IO, error))?;
    Ok(Repaired { reconnected, notes, recovery, ..Repaired::default() })
}
