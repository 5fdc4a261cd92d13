//! pmfs: a file system for persistent memory. Every call is durable and atomic in its metadata when
//! it returns; `fsync` has nothing to do.
//!
//! No page cache, no block layer: contents go from the caller to their place and back in one copy.
//! The medium holds inodes, extents and names; what is free, and every index, is memory's. How a
//! change becomes durable is the *design*, chosen by mkfs. There is one so far, `inplace`
//! (`commit/inplace.rs` says what it promises and why it keeps that).
//!
//! Not the PMFS of Intel, whose magic is another.

#![forbid(unsafe_code)]

mod alloc;
mod check;
mod commit;
mod dir;
mod file;
mod inode;
mod mount;
mod offline;
mod ondisk;
mod recover;

pub use mount::format::Format;
pub use mount::technique::INPLACE;
pub use offline::mkfs;
pub use ondisk::Corrupt;
