//! Metadata blocks, checked, wherever they come from: what every walk through the format asks for.
//!
//! A mounted volume answers from its cache: a walk that lacks a block ends there, and is tried
//! again when the block has been read. A volume that is only read (`reader`) asks the drive.

use drive::Block;
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::inode::map::Mapped;
use crate::ondisk::dirent::Dirent;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FileBlock, FsBlock, Ino, dirent, extent, htree, orphan, xattr};

/// Metadata blocks of a volume.
///
/// The provided methods are for what old or rare volumes have: files without extents, names without
/// types, values in inodes. They refuse it, as a volume that is written does.
pub(crate) trait Blocks {
    /// Why a walk ends early.
    type Stop: From<Error>;

    /// The volume's superblock.
    fn sb(&self) -> &Superblock;

    /// The block `at`, checked as its `kind` asks for.
    fn block(&self, at: FsBlock, kind: Kind) -> Walked<Block, Self>;

    /// What `block` of a file without extents is.
    fn find_indirect(&self, _inode: &Inode, _block: FileBlock) -> Walked<Mapped, Self> {
        Err(Error::unsupported("files without extents").into())
    }

    /// The type of the file that an entry names.
    fn kind_of(&self, dirent: &Dirent<'_>) -> Walked<FileKind, Self> {
        Ok(FileKind::from_dirent_type(dirent.file_type).unwrap_or(FileKind::Regular))
    }

    /// The value of an attribute that has an inode of its own, of `size` bytes.
    fn value_inode(&self, _ino: Ino, _size: u32) -> Walked<Vec<u8>, Self> {
        Err(Error::unsupported("attributes in inodes (ea_inode)").into())
    }
}

/// Result of a walk through blocks of `B`.
pub(crate) type Walked<T, B> = Result<T, <B as Blocks>::Stop>;

/// What a metadata block is, and the seed of its checksum, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of the inode table, or of the tables of groups; checked by its reader.
    Table,
    /// A bitmap; its checksum is in the descriptor.
    Bitmap,
    /// A node of an extent tree.
    Extents(Option<u32>),
    /// Numbers of blocks of a file without extents.
    Numbers,
    /// A directory's block with entries, or a node of its hash tree.
    Dir(Option<u32>),
    /// Extended attributes; the checksum is with the volume's seed.
    Xattrs,
    /// A block of the orphan file.
    Orphans(Option<u32>),
    /// The target of a symbolic link; checked by its reader.
    Target,
}

impl Kind {
    /// What names the block.
    pub(crate) fn pointer(self) -> &'static str {
        match self {
            Self::Table => "table of inodes or groups",
            Self::Bitmap => "bitmap",
            Self::Extents(_) => "extent_idx.ei_leaf",
            Self::Numbers => "inode.i_block",
            Self::Dir(_) => "directory",
            Self::Xattrs => "inode.i_file_acl",
            Self::Orphans(_) => "orphan file",
            Self::Target => "symlink",
        }
    }

    /// Fails if `block`, read from block `at` of a volume, is not of this kind.
    pub(crate) fn verify(self, sb: &Superblock, block: &[u8], at: FsBlock) -> Result<()> {
        match self {
            Self::Dir(Some(seed)) => verify_dir(block, seed, at),
            Self::Extents(Some(seed)) => extent::verify(block, seed, at),
            Self::Orphans(Some(seed)) => orphan::verify(block, seed, at),
            Self::Xattrs => {
                xattr::header(block, at)?;
                sb.checksums.seed().map_or(Ok(()), |seed| xattr::verify(block, seed, at))
            }
            _ => Ok(()),
        }
    }
}

/// A block of a directory is one with entries or, with a hash tree, one of its nodes, which leaves
/// no room for the tail of the former.
fn verify_dir(block: &[u8], seed: u32, at: FsBlock) -> Result<()> {
    match htree::Place::of(block) {
        Some(place) => htree::verify(block, place, seed, at),
        None => dirent::verify(block, seed, at),
    }
}
