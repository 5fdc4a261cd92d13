//! What every file system here has in common: the [`FileSystem`] trait, errors, paths, the page
//! cache, and an in-memory reference file system that tests hold the others against.

#![forbid(unsafe_code)]

pub mod acl;
mod error;
mod fs;
mod memfs;
pub mod ops;
mod page_cache;
pub mod path;
mod pieces;
mod rules;
mod types;

pub use drive::Block;
pub use error::{Errno, Error, Result};
pub use fs::FileSystem;
pub use memfs::MemFs;
pub use page_cache::PageCache;
pub use pieces::{Piece, pieces};
pub use rules::{check_fallocate, check_name, check_xattr_name};
pub use types::{
    Attr, Creator, DirEntry, FallocateMode, FileKind, Ino, InodeFlags, RenameFlags, Seek, SetAttr,
    StatFs, Timespec, XattrMode,
};
