//! ext4 in user space, on the kernel's disk format.
//!
//! [`ondisk`] is the format: one file per structure, to parse and to emit.

#![forbid(unsafe_code)]

pub mod ondisk;

pub use ondisk::error;
pub use ondisk::error::{Error, Result};
