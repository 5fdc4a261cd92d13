//! F2FS in user space, on the kernel's disk format.
//!
//! The rooms: [`ondisk`] is the format; `mount` a volume from mount to unmount; `alloc` where a
//! block goes; `inode`, `dir` and `file` what users see; [`fsync`] holds the techniques,
//! `checkpoint` makes metadata durable, and `recover` makes both true after a cut. [`check`] finds
//! and repairs what is wrong; `offline` makes, resizes, labels and shows volumes.
//!
//! ```no_run
//! use vfs::FileSystem;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let drive: std::sync::Arc<dyn drive::Drive> = drive::ram(1 << 15);
//! f2fs::mkfs::format(&drive, &f2fs::mkfs::MkfsOptions::default())?;
//! let fs = f2fs::F2fs::mount(drive, &"fsync_mode=strict".parse()?)?;
//! let file = fs.create(fs.root(), b"hello", 0o644, vfs::Creator::default())?;
//! fs.write(file.ino, 0, b"durable when the next line returns")?;
//! fs.fsync(file.ino, false)?;
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
    AllocationMode, BackgroundGc, F2fs, Format, FsyncMode, GcMode, Inject, Maintenance,
    MountOptions, OnError, Status, Tunables, devices,
};
pub use offline::{dump, label, mkfs, resize};
pub use ondisk::error;
pub use recover::RecoveryReport;
