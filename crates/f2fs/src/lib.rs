//! F2FS in user space, on the kernel's disk format.
//!
//! The rooms, from the drive up: [`ondisk`] is the format; `segments`, `curseg`, `nat`,
//! `sit_table` and `checkpoint` are where blocks go and how metadata becomes durable; `node_cache`,
//! `mapping`, `file`, `dir`, `namei` and `xattr` are files; [`fsync`] holds the techniques and
//! `recover` what makes them true after a cut.
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

mod acl;
mod atomic_write;
mod attr;
mod casefold;
pub mod check;
mod checkpoint;
mod compress;
mod curseg;
mod defrag;
pub mod devices;
mod dir;
pub mod dump;
pub mod error;
mod evict;
mod fallocate;
mod file;
mod flags;
mod fs;
pub mod fsync;
mod gc;
mod inline;
mod io;
mod ioctl;
pub mod label;
mod maintain;
mod mapping;
pub mod mkfs;
mod mount;
mod namei;
mod nat;
mod node_cache;
mod node_write;
mod nokey;
pub mod ondisk;
mod options;
mod pages;
mod protected;
mod recover;
pub mod repair;
pub mod resize;
mod segments;
mod sit_table;
mod space;
mod status;
mod super_write;
mod truncate;
mod tunables;
mod turns;
mod volume;
mod wanted;
mod writeback;
mod xattr;
mod zones;

pub use defrag::DefragReport;
pub use error::{Error, Result};
pub use fs::F2fs;
pub use ioctl::Shutdown;
pub use maintain::Maintenance;
pub use options::{AllocationMode, BackgroundGc, FsyncMode, Inject, MountOptions, OnError};
pub use pages::PageAt;
pub use recover::RecoveryReport;
pub use status::Status;
pub use tunables::{GcMode, Tunables};
