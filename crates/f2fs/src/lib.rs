//! F2FS in user space.

#![forbid(unsafe_code)]

mod error;
pub mod mkfs;
pub mod ondisk;

pub use error::{Error, Result};
