//! What all file systems here have in common: the [`FileSystem`] trait; [`kind`], what a file
//! system can do beyond it; the parts from which they are built; and an in-memory file system with
//! which tests compare them.
//!
//! The parts: [`Gate`] holds a volume; [`op`] is the loop of an operation that says what it lacks,
//! and [`names`] has POSIX's rules for directory entries. [`inode`] says who works on an inode and
//! who has it open. [`PageCache`] keeps contents, and [`mod@file`] reads and writes them there.
//! [`Ranges`] locks parts of a file, and [`Overwrites`] are several of cached pages at once.
//! [`Buffers`] keeps metadata until a commit. [`upkeep`] writes back what has been dirty for long.
//! [`options`] and [`attributes`] are what can be set at mount and later, [`finding`] and
//! [`record`] what a check and a dump show.

#![forbid(unsafe_code)]

pub mod acl;
pub mod attributes;
mod budget;
mod buffers;
#[cfg(not(target_os = "linux"))]
mod errno;
mod error;
pub mod file;
pub mod finding;
mod flags;
mod fs;
mod gate;
mod health;
pub mod inode;
pub mod kind;
mod memfs;
pub mod names;
pub mod op;
pub mod ops;
pub mod options;
mod overwrites;
mod pages;
pub mod path;
mod pieces;
mod ranges;
pub mod record;
mod root_reserve;
mod rules;
mod types;
pub mod upkeep;
mod volume_error;
pub mod words;

pub use budget::{Budget, WriteBack};
pub use buffers::Buffers;
pub use drive::Block;
pub use error::{Corrupt, Errno, Error, Result, io_errno};
pub use fs::FileSystem;
pub use gate::{Gate, Hold, Look};
pub use health::{Clock, Health};
pub use memfs::MemFs;
pub use overwrites::{Overwrite, Overwrites};
pub use pages::PageCache;
pub use pieces::{Piece, pieces};
pub use ranges::{Locked, Ranges};
pub use root_reserve::RootReserve;
pub use rules::{check_fallocate, check_name, check_xattr_name};
pub use types::{
    Attr, Creator, DirEntry, FallocateMode, FileKind, Ino, InodeFlags, NewInode, RenameFlags, Seek,
    SetAttr, StatFs, Timespec, XattrMode,
};
pub use volume_error::VolumeError;
