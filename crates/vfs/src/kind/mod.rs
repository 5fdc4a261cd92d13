//! What a kind of file system is to everything above it: how to make, find, mount, check and repair
//! one ([`Format`]), what a mounted one can do beyond POSIX ([`Volume`]), and its ways to do an
//! fsync, each with its promises ([`Technique`]).
//!
//! The layers above use only these traits; `subjects` lists the implementations.

pub mod ioctl;
mod report;
mod signature;
mod technique;
mod volume;

use std::sync::Arc;

use drive::{Block, Drive, Lba};
use thiserror::Error;

use crate::Ino;
use crate::attributes::{Attribute, AttributeError};
use crate::options::OptionError;
use crate::record::Record;

pub use ioctl::Ioctl;
pub use report::{Checked, Finding, Label, Repaired, Row};
pub use signature::signature;
pub use technique::{Habits, Promise, Technique};
pub use volume::{Atomic, Defragmented, PageAt, Recovery, Shutdown, Volume, Witness};

/// Result of an operation on a volume as a whole.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume cannot be made, mounted, checked or repaired.
#[derive(Debug, Error)]
pub enum Error {
    /// The caller asked for something that does not exist.
    #[error("{0}")]
    Usage(String),
    /// The drive holds something else, nothing known, or only part of a volume.
    #[error("{0}")]
    Unknown(String),
    /// The volume or its drive does not allow it.
    #[error("{0}")]
    Volume(#[from] crate::Error),
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<AttributeError> for Error {
    fn from(error: AttributeError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl Error {
    /// Whether a repair may be able to help.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Volume(error) if error.is_corruption())
    }
}

/// One device of a volume that spans several.
pub struct Device {
    /// Its name, as people and superblocks write it.
    pub name: String,
    /// The device.
    pub drive: Arc<dyn Drive>,
}

/// A kind of file system.
pub trait Format: Send + Sync {
    /// The name on the command line, and the word behind `mkfs.` and `fsck.`.
    fn name(&self) -> &'static str;

    /// Whether the drive holds such a volume, sound or damaged.
    fn probe(&self, drive: &Arc<dyn Drive>) -> Result<bool>;

    /// Joins the devices of one volume into one drive, the first device first.
    fn join(&self, devices: Vec<Device>) -> Result<Arc<dyn Drive>> {
        drop(devices);
        Err(Error::Usage(format!("{} volumes are on one device each", self.name())))
    }

    /// Makes an empty volume with the defaults of its mkfs.
    fn make(&self, drive: &Arc<dyn Drive>) -> Result<()>;

    /// As [`Format::make`], with features as for mkfs's `-O`, and what else the format knows.
    fn make_with(&self, drive: &Arc<dyn Drive>, features: &str) -> Result<()> {
        match features {
            "" => self.make(drive),
            _ => Err(Error::Usage(format!("{}: no such feature: {features}", self.name()))),
        }
    }

    /// Whether a page of a volume with these features lies in one block of the drive, so that a cut
    /// leaves all of it where the technique says so.
    fn has_whole_pages(&self, way: &Technique, features: &str) -> bool {
        let _ = (way, features);
        true
    }

    /// The features, as for mkfs's `-O`, of a volume for which these mount options mean something.
    fn features_for(&self, options: &str) -> &'static str {
        let _ = options;
        ""
    }

    /// What [`Volume::options`] would say of a volume mounted with these `options`. Fails if this
    /// file system does not know one of them.
    fn check_options(&self, options: &str) -> Result<String>;

    /// Whether there is a mount option of this name (`cache` of `cache=1m`), for callers whose
    /// options are meant for several file systems. A wrong value is an error all the same.
    fn has_option(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Whether a mount option is taken, because the same file system elsewhere has it, and has no
    /// effect here.
    fn without_effect(&self, option: &str) -> bool {
        let _ = option;
        false
    }

    /// Mount options that change no promise, and are worth more or less as the load and the drive
    /// are.
    fn advisable(&self) -> &'static [&'static str] {
        &[]
    }

    /// Mounts, after recovery if it is needed. `options` are as in `mount -o`.
    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn Volume>>;

    /// Recovers as a mount does, and leaves the volume clean.
    fn recover(&self, drive: &Arc<dyn Drive>) -> Result<Recovery> {
        let volume = self.mount(drive.clone(), "")?;
        let recovery = volume.recovery();
        volume.unmount()?;
        Ok(recovery)
    }

    /// Whether the volume is marked as cleanly unmounted and free of errors.
    fn is_clean(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        self.check(drive).map(|report| report.clean_unmount && report.findings.is_empty())
    }

    /// Checks everything that an unmounted volume says about itself. An error means that there is
    /// no volume to check; everything else is a finding.
    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked>;

    /// Whether a finding is about data rather than structure: the structures are sound, but point
    /// to a block that never reached the medium. Whether that is damage depends on the technique's
    /// promise.
    fn is_about_data(&self, finding: &Finding) -> bool {
        let _ = finding;
        false
    }

    /// The program that repairs its volumes, if [`Format::repair`] does not.
    fn repaired_by(&self) -> Option<&'static str> {
        None
    }

    /// What [`Format::repair`] rebuilds a volume from in a rescue; none if there is no rescue.
    fn rescued_from(&self) -> Option<&'static str> {
        None
    }

    /// What recovery replays, in this file system's words.
    fn log_entry(&self) -> &'static str {
        "transaction"
    }

    /// Repairs what [`Format::check`] finds. With `rescue`, nothing is trusted that can be rebuilt.
    /// An error means that nothing was changed.
    fn repair(&self, drive: &Arc<dyn Drive>, rescue: bool) -> Result<Repaired> {
        let _ = (drive, rescue);
        let name = self.name();
        Err(Error::Usage(match self.repaired_by() {
            Some(other) => format!("{name} is repaired with {other}; nothing was changed"),
            None => format!("there is no repair for {name}"),
        }))
    }

    /// The ways it can do an fsync. Never empty; the first is the default.
    fn techniques(&self) -> &'static [&'static Technique];

    /// The deliberate faults that its option `inject` takes, for campaigns that must find them.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The attributes of its volumes when they are mounted, without their values.
    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    /// What it may leave after a cut by habit, with one of its techniques, which is not damage.
    fn habits(&self, technique: &Technique) -> Habits {
        let _ = technique;
        Habits::default()
    }

    /// What the block at `lba` is, if it is part of inode `ino`'s metadata.
    fn describe(&self, block: &Block, lba: Lba, ino: Ino) -> Option<&'static str> {
        let _ = (block, lba, ino);
        None
    }

    /// Shows structures as they are on the drive, damaged or not. `view` names the kind of
    /// structure and `which` selects one; without `which` it shows what a mount reads first. `see`
    /// returns false to stop.
    fn dump(
        &self,
        drive: &Arc<dyn Drive>,
        view: Option<&str>,
        which: Option<&str>,
        see: &mut dyn FnMut(Record) -> bool,
    ) -> Result<()> {
        let _ = (drive, view, which, see);
        Err(Error::Usage(format!("nothing is shown of {}", self.name())))
    }

    /// Label and UUID.
    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label>;

    /// Sets the label.
    fn set_label(&self, drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
        let _ = (drive, label);
        Err(Error::Usage(format!("{} volumes have no label", self.name())))
    }
}
