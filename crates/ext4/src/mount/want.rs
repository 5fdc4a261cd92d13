//! What an operation may lack, and how it says so.

use vfs::file::Miss;
use vfs::op::Stop;

use crate::blocks::Kind;
use crate::error::Error;
use crate::ondisk::{FsBlock, Group, Ino};

/// Something to bring into memory.
#[derive(Debug)]
pub(crate) enum Want {
    /// An inode.
    Inode(Ino),
    /// A metadata block.
    Block(FsBlock, Kind),
    /// A group's bitmaps.
    Group(Group),
    /// Blocks of a group's inode table that were never used, up to that of this inode of it.
    Table(Group, u32),
    /// Pages of a file.
    Pages(Miss<vfs::Ino>),
    /// The end of the turn of the thread that moves the blocks of this inode.
    Turn(Ino),
    /// A commit: blocks that the running transaction has freed are needed.
    Commit,
}

/// An error, or what is missing.
pub(crate) type Halt = Stop<Want, Error>;

/// Result of a step of a plan.
pub(crate) type Step<T> = std::result::Result<T, Halt>;
