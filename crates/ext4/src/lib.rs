//! ext4 in user space, on the kernel's disk format.
//!
//! The parts: [`ondisk`] is the format, one file per structure, to parse and to emit. `reader` is a
//! volume that is looked at, `recover` replays the journal, `mount` is the way in, `check` finds
//! what is wrong, and `offline` is what is done to a volume that is not mounted.

#![forbid(unsafe_code)]

mod check;
mod mount;
mod offline;
pub mod ondisk;
mod reader;
mod recover;

pub use mount::{Format, MountOptions};
pub use ondisk::error;
pub use ondisk::error::{Error, Result};
