//! ext4 in user space, on the kernel's disk format.
//!
//! The parts: [`ondisk`] is the format, one file per structure, to parse and to emit. `blocks` is
//! what walks through it ask for, so that each is written once. `mount` is the way in. `alloc`,
//! `inode`, `dir`, `file` and `fsync` are the read-write engine, over a journal. `reader` is a
//! volume that is only looked at, `recover` replays its journal in memory, `check` finds what is
//! wrong, and `offline` is what is done to a volume that is not mounted.

#![forbid(unsafe_code)]

mod alloc;
mod blocks;
mod check;
mod dir;
mod file;
mod fsync;
mod inode;
mod mount;
mod offline;
pub mod ondisk;
mod reader;
mod recover;

pub use mount::{DataMode, Ext4, Format, Inject, Maintenance, MountOptions, OnError, Replay};
pub use offline::mkfs;
pub use ondisk::error;
pub use ondisk::error::{Error, Result};
