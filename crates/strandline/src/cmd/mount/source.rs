//! What a mount is of: opened once, or twice if a read-only mount becomes writable.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use drive::linux::Access;
use drive::{Drive, Ssd, Timing};
use lab::record::harness::Gate;
use vfs::kind::{Format, Volume};

use super::{FAILED, failed, unmountable, usage};
use crate::failure::{Failure, Outcome};
use crate::target::{Devices, open_to_serve, open_volume};

/// How a volume is opened.
pub(super) struct Source {
    pub(super) image: PathBuf,
    pub(super) devices: Devices,
    pub(super) timing: Timing,
    /// It is to lose what is not durable while it is mounted.
    pub(super) cuttable: bool,
    /// The options of the file system, without `ro`.
    pub(super) options: String,
}

/// A volume that is mounted in this process. Dropped, its image is free.
pub(super) struct Served {
    /// What happens in the background, until this is dropped.
    pub(super) maintenance: Option<Box<dyn Any + Send>>,
    pub(super) volume: Arc<dyn Volume>,
    /// The drive that it is on.
    pub(super) drive: Arc<dyn Drive>,
    /// The drives it is on, if they are emulated.
    pub(super) drives: Vec<Arc<Ssd>>,
    /// What is in front of a real drive that is to lose what is not durable.
    pub(super) gate: Option<Gate>,
    pub(super) format: &'static dyn Format,
}

impl Source {
    /// Opens the drive and mounts the volume on it.
    pub(super) fn open(&self, access: Access) -> Outcome<Served> {
        let Self { image, devices, timing, options, cuttable } = self;
        let open = if *cuttable { open_volume } else { open_to_serve };
        let opened = open(image, devices, access, *timing)
            .map_err(|failure| Failure::Coded { message: failure.to_string(), code: FAILED })?;
        let is_real = opened.emulated().is_empty() && opened.drive.pm().is_none();
        let gate = (*cuttable && is_real).then(|| Gate::new(opened.drive.clone()));
        let drive = gate.as_ref().map_or_else(|| opened.drive.clone(), Gate::drive);
        let format = devices.kind.of(&opened.drive).map_err(failed(image))?;
        let ro = if access == Access::Write { "" } else { ",ro" };
        let options = format!("{options}{ro}");
        format.check_options(&options).map_err(|error| usage(error.to_string()))?;
        let volume = format.mount(drive.clone(), &options);
        let volume = volume.map_err(|error| unmountable(image, format, &error))?;
        let drives = opened.emulated().to_vec();
        Ok(Served { maintenance: None, volume, drive, drives, gate, format })
    }
}
