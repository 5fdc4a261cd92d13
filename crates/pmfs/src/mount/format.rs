//! pmfs as one of the file systems there are.

use std::sync::Arc;

use drive::Drive;
use drive::pm::{Pm, PmFaulty, PmOverlay};
use vfs::Errno;
use vfs::kind::{self, Checked, Error, Label, Repaired, Result, Technique};
use vfs::record::Record;

use super::options::{MountOptions, OPTIONS};
use super::technique;
use super::{Pmfs, is_clean};
use crate::check;
use crate::offline::{dump, label, mkfs};
use crate::ondisk::superblock::{Layout, RawSuperblock};
use crate::recover::Image;

/// The file system for persistent memory.
pub struct Format;

/// The memory behind a drive.
fn memory(drive: &Arc<dyn Drive>) -> Result<Arc<dyn Pm>> {
    let needs = "pmfs needs persistent memory, not a block drive";
    drive.pm().ok_or_else(|| Error::Usage(needs.into()))
}

/// The superblock of the volume that must be there.
pub(crate) fn load(pm: &dyn Pm) -> Result<(RawSuperblock, Layout)> {
    match Layout::load(pm) {
        Some(found) => Ok(found?),
        None => Err(Error::Unknown("not pmfs".into())),
    }
}

impl kind::Format for Format {
    fn name(&self) -> &'static str {
        "pmfs"
    }

    fn probe(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        Ok(drive.pm().is_some_and(|pm| Layout::load(&*pm).is_some()))
    }

    fn make(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        self.make_with(drive, "")
    }

    fn make_with(&self, drive: &Arc<dyn Drive>, features: &str) -> Result<()> {
        let options = mkfs::MkfsOptions { features: features.into(), ..Default::default() };
        mkfs::make(&*memory(drive)?, &options)
    }

    fn check_options(&self, options: &str) -> Result<String> {
        MountOptions::parse(options).map(|options| OPTIONS.show(&options))
    }

    fn has_option(&self, name: &str) -> bool {
        OPTIONS.has(name)
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn kind::Volume>> {
        let mut options = MountOptions::parse(options)?;
        options.read_only |= drive.identify().read_only;
        let mut pm = memory(&drive)?;
        if options.read_only {
            // Recovery happens in memory only.
            pm = PmOverlay::new(pm);
        }
        let (_, layout) = load(&*pm)?;
        options.check(layout.design)?;
        if let Some(forget) = options.inject {
            pm = PmFaulty::new(pm, forget.fault(&layout));
        }
        let recovered = Image::open(pm)?.recover().map_err(vfs::Error::from)?;
        Ok(Arc::new(Pmfs::new(recovered, options)))
    }

    fn is_clean(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        let pm = memory(drive)?;
        load(&*pm)?;
        Ok(is_clean(&*pm))
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked> {
        check::check(memory(drive)?)
    }

    fn repair(&self, drive: &Arc<dyn Drive>, rescue: bool) -> Result<Repaired> {
        if rescue {
            let why = "there is nothing to rebuild pmfs from; see fsck without --rescue";
            return Err(Error::Usage(why.into()));
        }
        if drive.identify().read_only {
            return Err(vfs::Error::from(Errno::ROFS).into());
        }
        check::repair(memory(drive)?)
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        technique::ALL
    }

    fn faults(&self) -> Vec<String> {
        technique::FAULTS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn dump(
        &self,
        drive: &Arc<dyn Drive>,
        view: Option<&str>,
        which: Option<&str>,
        see: &mut dyn FnMut(Record) -> bool,
    ) -> Result<()> {
        dump::dump(&*memory(drive)?, view, which, see)
    }

    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label> {
        let (raw, _) = load(&*memory(drive)?)?;
        Ok(Label { label: raw.label(), uuid: raw.uuid })
    }

    fn set_label(&self, drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
        if drive.identify().read_only {
            return Err(vfs::Error::from(Errno::ROFS).into());
        }
        label::set(&*memory(drive)?, label)?;
        self.label(drive)
    }
}
