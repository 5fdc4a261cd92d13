//! One inode in memory: its attributes as they are on the medium, where its pages are and, for a
//! directory, its names.

use cores::{Rank, RwLock};
use drive::pm::Pm;
use vfs::{Attr, Errno, FileKind, Ino};
use zerocopy::{FromZeros, IntoBytes};

use crate::dir::index::Index;
use crate::file::map::Map;
use crate::ondisk::Corrupt;
use crate::ondisk::extent::parse_run;
use crate::ondisk::inode::RawInode;
use crate::ondisk::superblock::Layout;

/// An inode that somebody has used since the mount.
pub(crate) struct Node {
    pub(crate) ino: Ino,
    /// Protects everything about the inode, in memory and on the medium. Several are taken in the
    /// order of their numbers, and kept until the change is durable.
    pub(crate) lock: RwLock<Inode>,
}

/// What the lock protects.
pub(crate) struct Inode {
    /// Where it is in the table.
    pub(crate) at: u64,
    /// As on the medium. The mode is zero once the inode was freed.
    pub(crate) raw: RawInode,
    pub(crate) map: Map,
    /// Of a directory.
    pub(crate) index: Index,
    /// Blocks of the extended attributes.
    pub(crate) xattrs: Option<(u64, u64)>,
}

impl Node {
    pub(crate) fn new(ino: Ino, inode: Inode) -> Self {
        Self { ino, lock: RwLock::ranked(Rank::Inode, "pmfs inode", inode).keyed(ino) }
    }
}

impl Inode {
    /// A new one, without contents.
    pub(crate) fn empty(at: u64, raw: RawInode) -> Self {
        Self { at, raw, map: Map::default(), index: Index::default(), xattrs: None }
    }

    /// Reads inode `ino`; `None` if it is free.
    pub(crate) fn load(pm: &dyn Pm, layout: &Layout, ino: Ino) -> Result<Option<Self>, Corrupt> {
        let Some(at) = layout.inode_at(ino) else { return Ok(None) };
        let raw = read_raw(pm, at);
        if raw.mode.get() == 0 {
            return Ok(None);
        }
        let kind = raw.check(at)?;
        let map = Map::load(pm, layout, at, raw.map.get())?;
        let index = match kind {
            FileKind::Directory => Index::load(pm, at, &map, raw.size.get())?,
            _ => Index::default(),
        };
        let xattrs = parse_run(at, raw.xattrs.get(), layout)?;
        Ok(Some(Self { at, raw, map, index, xattrs }))
    }

    pub(crate) fn is_free(&self) -> bool {
        self.raw.mode.get() == 0
    }

    /// Its kind, unless it was freed while the caller waited.
    pub(crate) fn kind(&self) -> Result<FileKind, Errno> {
        self.raw.kind().ok_or(Errno::NOENT)
    }

    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        Ok(self.raw.attr(ino, self.kind()?, self.blocks()))
    }

    /// Blocks that it has.
    pub(crate) fn blocks(&self) -> u64 {
        self.map.blocks() + self.xattrs.map_or(0, |run| run.1)
    }

    /// A directory that still has a name. In one that was removed while in use, nothing is found
    /// and nothing is made.
    pub(crate) fn check_dir(&self) -> Result<(), Errno> {
        match self.kind()? {
            FileKind::Directory if self.raw.links.get() == 0 => Err(Errno::NOENT),
            FileKind::Directory => Ok(()),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// A regular file. Anything else is `EISDIR` or `EINVAL`, as for read(2) and write(2).
    pub(crate) fn check_file(&self) -> Result<(), Errno> {
        match self.kind()? {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }
}

/// The attributes at `at`, unchecked.
pub(crate) fn read_raw(pm: &dyn Pm, at: u64) -> RawInode {
    let mut raw = RawInode::new_zeroed();
    pm.read(at, raw.as_mut_bytes());
    raw
}
