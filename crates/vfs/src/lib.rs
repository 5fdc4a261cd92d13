//! What every file system here has in common: the [`FileSystem`] trait, errors, paths, the page
//! cache, and an in-memory reference file system with which tests compare the others.

#![forbid(unsafe_code)]

pub mod acl;
pub mod attributes;
mod buffers;
mod error;
pub mod finding;
mod fs;
mod gate;
pub mod inode;
pub mod kind;
mod memfs;
pub mod ops;
pub mod options;
mod pages;
pub mod path;
mod pieces;
pub mod record;
mod rules;
mod types;
pub mod upkeep;

pub use buffers::Buffers;
pub use drive::Block;
pub use error::{Errno, Error, Result};
pub use fs::FileSystem;
pub use gate::{Gate, Hold};
pub use memfs::MemFs;
pub use pages::PageCache;
pub use pieces::{Piece, pieces};
pub use rules::{check_fallocate, check_name, check_xattr_name};
pub use types::{
    Attr, Creator, DirEntry, FallocateMode, FileKind, Ino, InodeFlags, RenameFlags, Seek, SetAttr,
    StatFs, Timespec, XattrMode,
};
