//! pmfs: a file system for persistent memory. Every call is durable and atomic in its metadata when
//! it returns; `fsync` has nothing to do.
//!
//! No page cache, no block layer: contents go from the caller to their place and back in one copy.
//! The medium holds inodes, extents and names; what is free, and every index, is memory's. How a
//! change becomes durable is the *design*, chosen by mkfs: `inplace` stores data in place and
//! journals metadata (`commit/inplace.rs`); `nova` has a log per inode and copies data on write
//! (`commit/lite.rs`). These files say what each promises and why it keeps that.
//!
//! Not the PMFS of Intel, whose magic is another.

#![forbid(unsafe_code)]

mod alloc;
mod check;
mod commit;
mod dir;
mod file;
mod inode;
mod log;
mod mount;
mod offline;
mod ondisk;
mod recover;

pub use mount::format::Format;
pub use offline::mkfs;
pub use ondisk::Corrupt;
pub use recover::speed::{FILES as LOGS_FILLED, fill_logs};
