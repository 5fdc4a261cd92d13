//! One inode in memory: its attributes as they are on the medium, where its pages are and, for a
//! directory, its names.

use std::sync::atomic::AtomicBool;

use drive::pm::Pm;
use vfs::{Attr, Errno, FileKind, Ino, Timespec};
use zerocopy::{FromZeros, IntoBytes};

use crate::alloc::BlockRun;
use crate::commit::Change;
use crate::dir::index::Index;
use crate::file::map::Map;
use crate::file::segments::Segments;
use crate::inode::lock::InodeLock;
use crate::log::cores::CoreLogs;
use crate::log::{self, Log};
use crate::ondisk::Corrupt;
use crate::ondisk::extent::{Extent, parse_run};
use crate::ondisk::inode::{BIRTH_AT, LOG_AT, RawInode};
use crate::ondisk::log::Entry;
use crate::ondisk::superblock::{Design, Layout};

/// An inode that was used since the mount.
pub(crate) struct Node {
    pub(crate) ino: Ino,
    /// Several are taken in the order of their numbers, and kept until the change is durable.
    pub(crate) lock: InodeLock,
    /// Whether overwrites share the inode, if they go to the logs of cores.
    pub(crate) is_shared: Option<bool>,
    /// It was freed, and another may have its number.
    pub(crate) is_gone: AtomicBool,
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
    pub(crate) xattrs: Option<BlockRun>,
    /// In designs with logs.
    pub(crate) log: Option<Log>,
    /// Of a file that overwrites go to the logs of cores of.
    pub(crate) segments: Option<Box<Segments>>,
    /// The logs of cores.
    pub(crate) cores: Option<Box<CoreLogs>>,
}

impl Node {
    pub(crate) fn new(ino: Ino, inode: Inode) -> Self {
        let is_shared = inode.segments.as_ref().map(|segments| segments.is_shared);
        let lock = InodeLock::new(ino, inode, is_shared == Some(true));
        Self { ino, lock, is_shared, is_gone: AtomicBool::new(false) }
    }
}

impl Inode {
    /// A new one, without contents.
    pub(crate) fn empty(at: u64, raw: RawInode) -> Self {
        let (map, index) = (Map::default(), Index::default());
        Self { at, raw, map, index, xattrs: None, log: None, segments: None, cores: None }
    }

    /// A new one with this extent.
    pub(crate) fn new(design: Design, at: u64, raw: RawInode, extent: Option<Extent>) -> Self {
        let inode = Self::empty(at, raw);
        match design {
            Design::Inplace => Self { map: Map::of_new(at, extent), ..inode },
            Design::Nova => {
                Self { map: Map::born(extent), log: Some(Log::new(at + LOG_AT)), ..inode }
            }
        }
    }

    /// Reads an inode with a log. Names are left out unless they are wanted.
    fn load_log(
        pm: &dyn Pm,
        layout: &Layout,
        at: u64,
        raw: RawInode,
        names: bool,
    ) -> Result<Self, Corrupt> {
        let birth = [pm.load(at + BIRTH_AT), pm.load(at + BIRTH_AT + 8)];
        let map = Map::born(Extent::parse(at + BIRTH_AT, birth, layout)?);
        let mut inode = Self { map, ..Self::empty(at, raw) };
        let (log, cores) = log::replay_all(pm, layout, at, &mut |is_of_core, entry| {
            inode.replay(is_of_core, entry, names);
        })?;
        inode.raw.check(at)?;
        inode.xattrs = parse_run(at, inode.raw.xattrs.get(), layout)?;
        Ok(Self { log: Some(log), cores: cores.map(Box::new), ..inode })
    }

    /// Does what an entry says. Those of cores neither move the end of a file nor its time back.
    fn replay(&mut self, is_of_core: bool, entry: Entry, names: bool) {
        match entry {
            Entry::Write { extent, size, mtime } => {
                self.map.overwrite(extent);
                let old = (self.raw.mtime.get(), self.raw.mtime_nanos.get());
                let (secs, nanos) = if is_of_core { mtime.max(old) } else { mtime };
                if !is_of_core {
                    self.raw.size = size.into();
                }
                self.raw.set_mtime(Timespec { secs, nanos });
                self.raw.set_ctime(Timespec { secs, nanos });
            }
            Entry::Hole { page, pages } => drop(self.map.remove(page, page + pages)),
            Entry::Attr(new) => self.raw = *new,
            Entry::Name { cookie, to, name } if names => self.index.replay(cookie, to, name),
            Entry::Name { .. } => {}
        }
    }

    /// Reads inode `ino`; `None` if it is free.
    pub(crate) fn load(pm: &dyn Pm, layout: &Layout, ino: Ino) -> Result<Option<Self>, Corrupt> {
        let Some(at) = layout.inode_at(ino) else { return Ok(None) };
        let Some(mut inode) = Self::load_at(pm, layout, at, true)? else { return Ok(None) };
        if inode.raw.is_dir() && inode.log.is_none() {
            inode.index = Index::load(pm, at, &inode.map, inode.raw.size.get())?;
        }
        Ok(Some(inode))
    }

    /// Reads the inode at `at`, all but its names.
    pub(crate) fn load_bare(
        pm: &dyn Pm,
        layout: &Layout,
        at: u64,
    ) -> Result<Option<Self>, Corrupt> {
        Self::load_at(pm, layout, at, false)
    }

    fn load_at(
        pm: &dyn Pm,
        layout: &Layout,
        at: u64,
        names: bool,
    ) -> Result<Option<Self>, Corrupt> {
        let raw = read_raw(pm, at);
        if raw.mode.get() == 0 {
            return Ok(None);
        }
        raw.check(at)?;
        if layout.design == Design::Nova {
            return Self::load_log(pm, layout, at, raw, names).map(Some);
        }
        let map = Map::load(pm, layout, at, raw.map.get())?;
        let xattrs = parse_run(at, raw.xattrs.get(), layout)?;
        Ok(Some(Self { map, xattrs, ..Self::empty(at, raw) }))
    }

    /// Makes `raw` its attributes, as part of `change`.
    pub(crate) fn set_raw(&mut self, change: &mut Change<'_>, raw: RawInode) {
        match &mut self.log {
            None => change.inode(self.at, &self.raw, &raw),
            Some(log) => log.is_touched = true,
        }
        self.raw = raw;
    }

    /// Every run of blocks that the medium says it has.
    pub(crate) fn runs(&self) -> impl Iterator<Item = BlockRun> {
        let pages = self.log.iter().flat_map(|log| log.pages().iter().map(|&block| (block, 1)));
        let cores = self.cores.iter().flat_map(|cores| cores.runs());
        self.map.runs().chain(self.xattrs).chain(pages).chain(cores)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.raw.mode.get() == 0
    }

    /// Its kind, unless it was freed while the caller waited.
    pub(crate) fn kind(&self) -> Result<FileKind, Errno> {
        self.raw.kind().ok_or(Errno::NOENT)
    }

    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let mut attr = self.raw.attr(ino, self.kind()?, self.blocks());
        if let Some(time) = self.overwritten()
            && (time.secs, time.nanos) > (attr.mtime.secs, attr.mtime.nanos)
        {
            (attr.mtime, attr.ctime) = (time, time);
        }
        Ok(attr)
    }

    /// Blocks that it has, as stat(2) tells. Not those of its log: a rename, which writes there,
    /// must not change them.
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
