//! A language of file system operations, for model tests and campaigns.
//!
//! An [`Op`] is one system call on paths, printed as one line of text (see [`parse`]). A failing
//! case is a list of such lines, which can be replayed. [`Generator`] makes sequences from a seed,
//! a [`Session`] applies them to any file system, and a [`Tree`] is what the file system then
//! holds, for comparison with another's.
//!
//! A path `#NAME` stands for the inode that [`Op::Open`] kept under that handle, even if its name
//! is gone or stands for another inode.
//!
//! ```
//! use vfs::MemFs;
//! use vfs::ops::{self, Session};
//!
//! let fs = MemFs::new();
//! let mut session = Session::new(&fs);
//! for op in ops::parse("create a 644\nwrite a 4096+100 seed=7\nfsync a")? {
//!     session.apply(&op)?;
//! }
//! let tree = ops::snapshot(&fs)?;
//! assert_eq!(tree.0[&b"a"[..]].size, 4196);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod generate;
mod shrink;
mod text;
mod tree;

pub use apply::{Outcome, Session, apply, fill};
pub use generate::{Generator, Mix};
#[cfg(feature = "proptest")]
pub use shrink::sequences;
pub use shrink::shrink;
pub use text::{ParseError, is_comment, parse, print};
pub use tree::{Tree, TreeNode, snapshot};

use crate::{FallocateMode, FileKind, InodeFlags, RenameFlags, Timespec, XattrMode};

/// One operation. Offsets, lengths and sizes are in bytes; data is not stored but made by [`fill`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the system call's arguments")]
pub enum Op {
    /// Makes a regular file; `EEXIST` if the name is taken.
    Create { path: String, perm: u16 },
    /// Makes a directory.
    Mkdir { path: String, perm: u16 },
    /// Makes a node of another kind.
    Mknod { path: String, kind: FileKind, perm: u16, rdev: u64 },
    /// Makes a symbolic link at `path`.
    Symlink { target: String, path: String },
    /// Gives `from` another name. A symbolic link `from` is not followed.
    Link { from: String, path: String },
    /// Removes a name.
    Unlink { path: String },
    /// Removes an empty directory.
    Rmdir { path: String },
    /// Moves a name.
    Rename { from: String, path: String, flags: RenameFlags },
    /// Keeps the inode in use under `handle` until it is closed.
    Open { path: String, handle: String },
    /// Ends that use.
    Close { handle: String },
    /// Writes `len` bytes of [`fill`]`(seed)`.
    Write { path: String, offset: u64, len: u64, seed: u32 },
    /// Writes them at the end.
    Append { path: String, len: u64, seed: u32 },
    /// Reads.
    Read { path: String, offset: u64, len: u64 },
    /// Sets the size.
    Truncate { path: String, size: u64 },
    /// Allocates, punches, moves.
    Fallocate { path: String, mode: FallocateMode, offset: u64, len: u64 },
    /// Copies a range from one file into another.
    Copy { from: String, from_offset: u64, path: String, offset: u64, len: u64 },
    /// Sets the permission bits.
    Chmod { path: String, perm: u16 },
    /// Sets owner and group.
    Chown { path: String, uid: u32, gid: u32 },
    /// Sets the times of the last access and the last change; `None` leaves one as it is.
    Utimens { path: String, atime: Option<Timespec>, mtime: Option<Timespec> },
    /// Sets all the flags.
    Chattr { path: String, flags: InodeFlags },
    /// Sets an attribute to `len` bytes of [`fill`]`(seed)`.
    SetXattr { path: String, name: String, len: u64, seed: u32, mode: XattrMode },
    /// Reads an attribute.
    GetXattr { path: String, name: String },
    /// Removes an attribute.
    RemoveXattr { path: String, name: String },
    /// Reads the attributes of an inode.
    Stat { path: String },
    /// Lists a directory.
    List { path: String },
    /// Makes a file or directory durable.
    Fsync { path: String },
    /// Makes a file's data durable.
    Fdatasync { path: String },
    /// Makes everything durable.
    Sync,
}
