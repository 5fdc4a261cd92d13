//! F2FS in user space, on the kernel's disk format.
//!
//! The parts: [`ondisk`] is the format, `mount` a volume from mount to unmount, and `alloc` decides
//! where a block goes. `inode`, `dir` and `file` are what users see. [`fsync`] has the techniques,
//! `checkpoint` makes metadata durable, and `recover` restores both after a cut. [`check`] finds
//! and repairs what is wrong; `offline` makes, resizes, labels and shows volumes.
//!
//! ```
//! use f2fs::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let drive: Arc<dyn Drive> = drive::ram(1 << 15);
//! mkfs::format(&drive, &MkfsOptions::default())?;
//! let fs = F2fs::mount(drive, &"fsync_mode=strict".parse()?)?;
//! let file = fs.create(fs.root(), b"hello", 0o644, Creator::default())?.ino;
//! fs.write(file, 0, b"durable when the next line returns")?;
//! fs.fsync(file, false)?;
//! assert_eq!(path::read_to_vec(&fs, file)?, b"durable when the next line returns");
//! fs.unmount()?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod alloc;
pub mod check;
mod checkpoint;
mod dir;
mod file;
pub mod fsync;
mod inode;
mod mount;
mod offline;
pub mod ondisk;
mod recover;

pub use check::repair;
pub use error::{Error, Result};
pub use fsync::technique;
pub use mount::{
    AllocationMode, BackgroundGc, F2fs, Format, FsyncMode, GcMode, Inject, IpuPolicy, Knobs,
    LookupMode, Maintenance, MountOptions, OnError, RangeLock, Status, attributes, devices,
    versions,
};
pub use offline::{dump, label, mkfs, resize};
pub use ondisk::error;
pub use recover::RecoveryReport;

/// Everything a program needs to have a volume inside it: `use f2fs::prelude::*;`.
///
/// The crates [`drive`] and [`vfs`] come with it, so a program need only depend on
/// `strandline-f2fs`.
pub mod prelude {
    pub use std::sync::Arc;

    pub use drive::{self, Drive, Spec, Ssd, Timing, image};
    pub use vfs::{self, Creator, DirEntry, FileKind, FileSystem, Ino, SetAttr, path};

    pub use crate::check::{CheckOptions, check};
    pub use crate::mkfs::{self, MkfsOptions};
    pub use crate::{F2fs, FsyncMode, MountOptions};
}
