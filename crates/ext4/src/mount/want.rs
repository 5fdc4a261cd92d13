//! What an operation may lack, and how it says so.

use vfs::file::Miss;
use vfs::op::Stop;

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
    /// Pages of a file.
    Pages(Miss<vfs::Ino>),
    /// The end of the turn of the thread that moves the blocks of this inode.
    Turn(Ino),
    /// A commit: blocks that the running transaction has freed are needed.
    Commit,
}

/// What a metadata block is, and the seed of its checksum, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of the inode table, or of the tables of groups; checked by its reader.
    Table,
    /// A bitmap; its checksum is in the descriptor.
    Bitmap,
    /// A node of an extent tree.
    Extents(Option<u32>),
    /// A directory's block with entries, or a node of its hash tree.
    Dir(Option<u32>),
    /// Extended attributes; the checksum is with the volume's seed.
    Xattrs,
}

/// An error, or what is missing.
pub(crate) type Halt = Stop<Want, Error>;

/// Result of a step of a plan.
pub(crate) type Step<T> = std::result::Result<T, Halt>;

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
