//! Where files are written: a volume in this process, a directory of the kernel's, or bare memory.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use drive::pm::Pm;
use rustix::fs::OFlags;
use vfs::kind::Volume;
use vfs::{Creator, Ino, path};

use super::Durable;
use crate::{Error, Result};

/// Name of the file; there is one at a time.
const NAME: &str = "strandline-iozone";

/// Where the files are.
pub enum Place {
    /// In this process. Each call may cost an empty system call in addition.
    Volume {
        /// The volume.
        volume: Arc<dyn Volume>,
        /// Whether the calls of a program are system calls.
        with_call: bool,
    },
    /// In a directory, through the kernel.
    Dir(PathBuf),
    /// Nowhere: what would be a file's is streamed to the front of a memory, and fenced.
    Memory(Arc<dyn Pm>),
}

/// An open file.
pub(super) enum File<'a> {
    Volume { volume: &'a dyn Volume, ino: Ino, with_call: bool, sync: bool },
    Kernel { file: fs::File, path: PathBuf },
    Memory(&'a dyn Pm),
}

impl Place {
    /// A new file.
    pub(super) fn create(&self, durable: Durable) -> Result<File<'_>> {
        let sync = durable == Durable::Osync;
        match self {
            Self::Volume { volume, with_call } => {
                let made = volume.create(volume.root(), NAME.as_bytes(), 0o600, Creator::default());
                let ino = made.map_err(Error::at("create", NAME.as_bytes()))?.ino;
                volume.open(ino).map_err(Error::at("open", NAME.as_bytes()))?;
                Ok(File::Volume { volume: &**volume, ino, with_call: *with_call, sync })
            }
            Self::Dir(dir) => {
                let path = dir.join(NAME);
                let flags = if sync { OFlags::SYNC } else { OFlags::empty() };
                let mut options = fs::OpenOptions::new();
                options.write(true).create_new(true).custom_flags(flags.bits().cast_signed());
                let file = options.open(&path).map_err(Error::host(&path))?;
                Ok(File::Kernel { file, path })
            }
            Self::Memory(pm) => Ok(File::Memory(&**pm)),
        }
    }

    /// Closes and removes it.
    pub(super) fn remove(&self, file: File<'_>) -> Result<()> {
        match file {
            File::Volume { volume, ino, .. } => {
                volume.release(ino);
                let gone = volume.unlink(volume.root(), NAME.as_bytes());
                gone.map_err(Error::at("unlink", NAME.as_bytes()))
            }
            File::Kernel { file, path } => {
                drop(file);
                fs::remove_file(&path).map_err(Error::host(&path))
            }
            File::Memory(_) => Ok(()),
        }
    }
}

impl File<'_> {
    pub(super) fn write(&self, at: u64, record: &[u8]) -> Result<()> {
        match self {
            Self::Volume { volume, ino, with_call, sync } => {
                enter(*with_call);
                let written = path::write_all(*volume, *ino, at, record);
                let done = written.and_then(|()| match sync {
                    true => volume.fsync(*ino, false),
                    false => Ok(()),
                });
                done.map_err(Error::at("write", NAME.as_bytes()))
            }
            Self::Kernel { file, path } => file.write_all_at(record, at).map_err(Error::host(path)),
            Self::Memory(pm) => {
                pm.stream(at, record);
                pm.fence();
                Ok(())
            }
        }
    }

    pub(super) fn fsync(&self) -> Result<()> {
        match self {
            Self::Volume { volume, ino, with_call, .. } => {
                enter(*with_call);
                volume.fsync(*ino, false).map_err(Error::at("fsync", NAME.as_bytes()))
            }
            Self::Kernel { file, path } => file.sync_all().map_err(Error::host(path)),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// A system call that does nothing.
fn enter(with_call: bool) {
    if with_call {
        let _parent = rustix::process::getppid();
    }
}
