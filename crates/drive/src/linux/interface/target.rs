//! What interfaces read and write: a file or device of this machine, or a drive of this project.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::super::device;
use super::super::{Access, BlockDevice, OpenError};
use super::{Kind, Way};
use crate::{BLOCK_SIZE, Drive};

/// Something opened, for all jobs of one run.
#[derive(Clone)]
pub enum Target {
    /// A file or a block device.
    File {
        /// Open, past the page cache if that was wanted.
        file: Arc<File>,
        /// Its size.
        bytes: u64,
    },
    /// A drive with commands and queues.
    Drive(Arc<dyn Drive>),
}

impl Target {
    /// Opens the file or device at `path` for interface `kind`: exclusively for writes; for reads
    /// it may be in use.
    pub fn open(path: &Path, kind: Kind, way: Way, direct: bool) -> Result<Self, OpenError> {
        let access = if way == Way::Write { Access::Write } else { Access::Inspect };
        let unusable =
            |what: &str| Err(OpenError::Unusable { path: path.to_owned(), what: what.to_owned() });
        if kind == Kind::Drive {
            if !direct {
                return unusable("as a drive only past the page cache");
            }
            return Ok(Self::Drive(Arc::new(BlockDevice::open(path, access)?)));
        }
        let (file, bytes) = device::open_raw(path, access)?;
        let flags = fcntl_getfl(&file).map_err(|error| OpenError::io(path)(error.into()))?;
        match (direct, flags.contains(OFlags::DIRECT)) {
            (true, false) => return unusable("its file system has no direct I/O"),
            (false, true) => fcntl_setfl(&file, flags - OFlags::DIRECT)
                .map_err(|error| OpenError::io(path)(error.into()))?,
            _ => {}
        }
        Ok(Self::File { file: Arc::new(file), bytes })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Drive(drive) => drive.identify().blocks * BLOCK_SIZE as u64,
        }
    }
}
