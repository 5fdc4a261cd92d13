//! The two ends of a copy, and what each of them must be able to do.

use vfs::{Attr, FileKind, Result, Seek, Timespec};

/// A file's extended attributes: names and values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Where a copy comes from.
pub(crate) trait Source {
    /// One file or directory.
    type Node;
    /// An open file.
    type File;

    /// Its name for people.
    fn show(&self, node: &Self::Node) -> String;
    /// Attributes; symbolic links are not followed.
    fn attr(&self, node: &Self::Node) -> Result<Attr>;
    /// Identifies a file: two names of one file have it in common.
    fn identity(&self, node: &Self::Node, attr: &Attr) -> (u64, u64);
    /// What a symbolic link leads to.
    fn follow(&self, node: &Self::Node) -> Result<Self::Node>;
    /// What is in a directory, in the order of the names' bytes.
    fn children(&self, node: &Self::Node) -> Result<Vec<(Vec<u8>, Self::Node)>>;
    /// Contents of a symbolic link.
    fn target(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// Extended attributes.
    fn xattrs(&self, node: &Self::Node) -> Result<Xattrs>;
    /// Opens a regular file.
    fn open(&self, node: &Self::Node) -> Result<Self::File>;
    /// Reads at `offset`; 0 only at the end.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Next data or hole at or behind `offset`; `None` if there is none.
    fn seek(&self, file: &Self::File, offset: u64, seek: Seek) -> Result<Option<u64>>;
}

/// What to make.
pub(crate) enum New<'a> {
    /// An empty directory.
    Directory,
    /// An empty file.
    File,
    /// A symbolic link.
    Symlink(&'a [u8]),
    /// Anything else, with its device number.
    Special(FileKind, u64),
}

/// Where a copy goes to.
pub(crate) trait Sink {
    /// One file or directory.
    type Node: Clone;
    /// An open file.
    type File;

    /// The name of `path` for people.
    fn show(&self, path: &[u8]) -> String;
    /// What `name` stands for in a directory, if anything.
    fn look(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, FileKind)>>;
    /// Makes `name`, which is not there.
    fn make(&self, dir: &Self::Node, name: &[u8], new: &New<'_>) -> Result<Self::Node>;
    /// Gives a file one more name.
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<()>;
    /// Removes a name that is not a directory's.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Result<()>;
    /// Opens a regular file for writing.
    fn open(&self, node: &Self::Node) -> Result<Self::File>;
    /// Writes all of `data`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    /// Sets the size.
    fn set_size(&self, file: &Self::File, size: u64) -> Result<()>;
    /// Sets owner and group; returns whether they are now as requested.
    fn set_owner(&self, node: &Self::Node, uid: u32, gid: u32) -> Result<bool>;
    /// Sets the permission bits; not of a symbolic link.
    fn set_mode(&self, node: &Self::Node, perm: u16) -> Result<()>;
    /// Sets access and modification time.
    fn set_times(&self, node: &Self::Node, atime: Timespec, mtime: Timespec) -> Result<()>;
    /// Sets an extended attribute.
    fn set_xattr(&self, node: &Self::Node, name: &[u8], value: &[u8]) -> Result<()>;
    /// Makes a file durable.
    fn fsync(&self, node: &Self::Node) -> Result<()>;
    /// Whether writing has become impossible.
    fn is_gone(&self) -> bool;
}
