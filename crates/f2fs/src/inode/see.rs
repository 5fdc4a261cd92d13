//! Read access to inodes, names and contents, under the volume's lock held exclusively or shared.
//!
//! The exclusive holder reads what is not cached from the drive. A [`Glance`] holds the lock shared
//! and must not fill caches: on a miss it fails, and the caller retries with the volume locked
//! exclusively. So does an [`Own`], which changes one inode or a few whose nodes are cached. Code
//! that only reads is written once, over [`See`]. (Linux walks paths the same way: under RCU first,
//! with references if that fails.)

use std::ops::{Deref, Range};

use cores::PerCoreReadGuard;
use drive::{BLOCK_SIZE, Block};
use smallvec::SmallVec;
use vfs::inode::OwnedShards;
use vfs::{Errno, FileKind, Timespec, file};

use crate::F2fs;
use crate::dir::index::NameIndexes;
use crate::error::{Error, Result};
use crate::inode::change::Tables;
use crate::inode::mapping::Mapping;
use crate::inode::node_cache::CachedNode;
use crate::inode::shards::{Inodes, Shard};
use crate::mount::engine::Engine;
use crate::ondisk::inode::{Advise, Inline, InodeLayout, RawInode, RawInodeBlock};
use crate::ondisk::{BlockAddr, NULL_ADDR, Nid};

/// Read access to a volume, under the exclusive or the shared lock.
pub(crate) trait See: Sized {
    /// Why an access failed.
    type Error: From<Error>;

    /// The volume itself.
    fn engine(&self) -> &Engine;

    /// The shard with what is cached of inode `ino`.
    fn shard(&mut self, ino: Nid) -> Result<&Shard, Self::Error>;

    /// Inode `ino`; `ENOENT` if no inode has that number.
    fn view(&mut self, ino: Nid) -> Result<InodeView<'_>, Self::Error>;

    /// Node `nid`, which must be the one at `node_offset` of inode `ino`.
    fn node_at(&mut self, nid: Nid, ino: Nid, node_offset: u32)
    -> Result<&CachedNode, Self::Error>;

    /// The bytes of a node of inode `ino`.
    fn block_of(&mut self, ino: Nid, nid: Nid) -> Result<&[u8; BLOCK_SIZE], Self::Error>;

    /// Page `index` of an inode; `None` for a hole. Perhaps reads ahead, but not to page `end`.
    fn page(&mut self, ino: Nid, index: u64, end: u64) -> Result<Option<&Block>, Self::Error>;

    /// The first page in `range` of a directory that is no hole.
    fn next_page(&mut self, dir: Nid, range: Range<u64>) -> Result<Option<u64>, Self::Error>;

    /// The index of directory `dir`, which is large enough for one, if it is complete.
    fn index_of(&mut self, dir: Nid) -> Result<Option<&NameIndexes>, Self::Error>;

    /// Time of the last overwrite of `ino`, if its inode does not hold it yet.
    fn overwritten(&mut self, ino: Nid) -> Result<Option<Timespec>, Self::Error>;

    /// What an encrypted symbolic link reads as without its key; `None` for other inodes.
    fn encrypted_target(&mut self, ino: Nid) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// An inode in memory: its fields by name, and how its slots are used.
#[derive(Clone, Copy)]
pub(crate) struct InodeView<'a>(&'a CachedNode);

impl Deref for InodeView<'_> {
    type Target = RawInode;
    fn deref(&self) -> &RawInode {
        &RawInodeBlock::of(&self.0.block).i
    }
}

impl<'a> InodeView<'a> {
    /// How its slots are used.
    pub(crate) fn layout(self) -> InodeLayout {
        self.0.layout
    }

    /// The whole node block.
    pub(crate) fn block(self) -> &'a [u8; BLOCK_SIZE] {
        &self.0.block
    }

    /// Whether it has anything in the places where attributes are kept.
    pub(crate) fn may_have_xattrs(self) -> bool {
        let range = self.layout().xattr_range();
        let is_used = self.block()[range].iter().take(4).any(|&byte| byte != 0);
        self.inline().contains(Inline::XATTR) && is_used || self.xattr_nid.get() != 0
    }

    /// The addresses in it, holes left out.
    pub(crate) fn block_addrs(self) -> SmallVec<[BlockAddr; 16]> {
        if self.inline().contains(Inline::DATA) {
            return SmallVec::new();
        }
        let (words, _) = self.block()[self.layout().addr_range()].as_chunks::<4>();
        words
            .iter()
            .map(|word| BlockAddr::from_le_bytes(*word))
            .filter(|a| *a != NULL_ADDR)
            .collect()
    }

    /// Type of file; checked when the inode was read.
    pub(crate) fn file_kind(self) -> FileKind {
        self.kind().unwrap_or(FileKind::Regular)
    }
}

impl See for Engine {
    type Error = Error;

    fn engine(&self) -> &Engine {
        self
    }

    fn shard(&mut self, ino: Nid) -> Result<&Shard> {
        Ok(self.inodes.of(ino))
    }

    fn view(&mut self, ino: Nid) -> Result<InodeView<'_>> {
        self.inode_node(ino).map(InodeView)
    }

    fn node_at(&mut self, nid: Nid, ino: Nid, node_offset: u32) -> Result<&CachedNode> {
        Engine::node_at(self, nid, ino, node_offset)
    }

    fn block_of(&mut self, ino: Nid, nid: Nid) -> Result<&[u8; BLOCK_SIZE]> {
        Ok(&self.node(ino, nid)?.block)
    }

    fn page(&mut self, ino: Nid, index: u64, end: u64) -> Result<Option<&Block>> {
        file::page(self, ino, index, end)
    }

    fn next_page(&mut self, dir: Nid, range: Range<u64>) -> Result<Option<u64>> {
        self.next_allocated(dir, range, true)
    }

    fn index_of(&mut self, dir: Nid) -> Result<Option<&NameIndexes>> {
        let answers = self.learn_names(dir)?;
        Ok(answers.then(|| &self.inodes.of(dir).names))
    }

    fn overwritten(&mut self, _: Nid) -> Result<Option<Timespec>> {
        // Locking a shard exclusively puts it into the inode.
        Ok(None)
    }

    fn encrypted_target(&mut self, ino: Nid) -> Result<Option<Vec<u8>>> {
        Engine::encrypted_target(self, ino)
    }
}

/// Longer holes in a directory need the exclusive path, which skips them in one step.
const HOLES_AT_MOST: usize = 64;

/// A volume under the shared lock: only what is cached.
pub(crate) struct Glance<'a, S = Passing<'a>> {
    pub(super) engine: &'a Engine,
    pub(super) sight: S,
}

/// The shards of inodes that a [`Glance`] may access.
pub(crate) trait Sight<'a> {
    /// The shard of inode `ino`; `None` if it is not one of them.
    fn shard(&mut self, engine: &'a Engine, ino: Nid) -> Option<&Shard>;
}

/// Any shard, locked shared, one at a time.
#[derive(Default)]
pub(crate) struct Passing<'a> {
    number: usize,
    shard: Option<PerCoreReadGuard<'a, Shard>>,
}

impl<'a> Sight<'a> for Passing<'a> {
    fn shard(&mut self, engine: &'a Engine, ino: Nid) -> Option<&Shard> {
        let number = engine.inodes.index(ino);
        if self.number != number {
            self.shard = None;
            self.number = number;
        }
        Some(self.shard.get_or_insert_with(|| engine.inodes.look(ino)))
    }
}

/// The shards of one inode or of a few, locked exclusively.
pub(crate) struct Owned<'a> {
    shards: OwnedShards<'a, Shard>,
    /// The logs and their tables, while they stay locked across several allocations.
    pub(super) tables: Option<Tables<'a>>,
}

impl<'a> Owned<'a> {
    /// Locks the shards of `inos` in the order of their numbers.
    #[inline]
    fn new<const N: usize>(inodes: &'a Inodes, inos: [Nid; N]) -> Option<Self> {
        Some(Self { shards: inodes.own(inos)?, tables: None })
    }

    /// The shard of inode `ino`, mutable; `None` if it is not one of them.
    #[inline]
    pub(super) fn shard_mut(&mut self, ino: Nid) -> Option<&mut Shard> {
        self.shards.get_mut(ino.into())
    }
}

impl<'a> Sight<'a> for Owned<'a> {
    #[inline]
    fn shard(&mut self, _: &'a Engine, ino: Nid) -> Option<&Shard> {
        self.shards.get(ino.into())
    }
}

impl<'a, S: Sight<'a>> Glance<'a, S> {
    /// The volume itself.
    pub(crate) fn volume(&self) -> &'a Engine {
        self.engine
    }
}

/// One inode or a few, to be changed concurrently with changes of other inodes.
///
/// Until it knows that all it needs is cached it changes nothing, or one page at a time, since the
/// caller retries with the volume locked exclusively otherwise.
pub(crate) type Own<'a> = Glance<'a, Owned<'a>>;

/// Why a [`Glance`] failed.
pub(crate) enum Unseen {
    /// Something is not cached.
    Absent,
    /// The operation fails.
    Failed(Error),
}

impl From<Unseen> for Error {
    fn from(unseen: Unseen) -> Self {
        match unseen {
            // Neither the exclusive path nor a step that has found all it needs cached fails with
            // this.
            Unseen::Absent => Errno::IO.into(),
            Unseen::Failed(error) => error,
        }
    }
}

impl From<Error> for Unseen {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Unseen {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl<'a, S: Sight<'a>> See for Glance<'a, S> {
    type Error = Unseen;

    fn engine(&self) -> &Engine {
        self.engine
    }

    fn shard(&mut self, ino: Nid) -> Result<&Shard, Unseen> {
        self.sight.shard(self.engine, ino).ok_or(Unseen::Absent)
    }

    fn view(&mut self, ino: Nid) -> Result<InodeView<'_>, Unseen> {
        let node = self.shard(ino)?.nodes.get(ino).ok_or(Unseen::Absent)?;
        // No inode has any other number: the exclusive retry fails with `ENOENT`.
        if node.is_inode_of(ino) { Ok(InodeView(node)) } else { Err(Unseen::Absent) }
    }

    fn node_at(&mut self, nid: Nid, ino: Nid, node_offset: u32) -> Result<&CachedNode, Unseen> {
        // Any other node is corruption, which the exclusive retry reports.
        let node = self.shard(ino)?.nodes.get(nid).filter(|node| node.is_at(ino, node_offset));
        node.ok_or(Unseen::Absent)
    }

    fn block_of(&mut self, ino: Nid, nid: Nid) -> Result<&[u8; BLOCK_SIZE], Unseen> {
        Ok(&self.shard(ino)?.nodes.get(nid).ok_or(Unseen::Absent)?.block)
    }

    fn page(&mut self, ino: Nid, index: u64, _end: u64) -> Result<Option<&Block>, Unseen> {
        if self.shard(ino)?.pages.peek(ino.into(), index).is_none() {
            let is_hole = self.addr_of(ino, index)? == NULL_ADDR;
            return if is_hole { Ok(None) } else { Err(Unseen::Absent) };
        }
        Ok(self.shard(ino)?.pages.touch(ino.into(), index))
    }

    fn next_page(&mut self, dir: Nid, range: Range<u64>) -> Result<Option<u64>, Unseen> {
        for index in range.clone().take(HOLES_AT_MOST) {
            if self.page(dir, index, range.end)?.is_some() {
                return Ok(Some(index));
            }
        }
        let left = range.end.saturating_sub(range.start) > HOLES_AT_MOST as u64;
        if left { Err(Unseen::Absent) } else { Ok(None) }
    }

    fn index_of(&mut self, dir: Nid) -> Result<Option<&NameIndexes>, Unseen> {
        let names = &self.shard(dir)?.names;
        let answers = names.answers(dir).ok_or(Unseen::Absent)?;
        Ok(answers.then_some(names))
    }

    fn overwritten(&mut self, ino: Nid) -> Result<Option<Timespec>, Unseen> {
        Ok(self.shard(ino)?.overwritten().and_then(|overwrites| overwrites.last(ino.into())))
    }

    fn encrypted_target(&mut self, ino: Nid) -> Result<Option<Vec<u8>>, Unseen> {
        let inode = self.view(ino)?;
        let sealed = inode.file_kind() == FileKind::Symlink;
        let sealed = sealed && inode.advise().contains(Advise::ENCRYPT);
        if sealed { Err(Unseen::Absent) } else { Ok(None) }
    }
}

impl F2fs {
    /// Runs `look` under the shared lock; `None` on a cache miss.
    pub(crate) fn glance<T>(
        &self,
        look: impl FnOnce(&mut Glance<'_>) -> Result<T, Unseen>,
    ) -> Result<Option<T>> {
        let _span = cores::span(cores::Stage::Syscall);
        self.glance_within(look)
    }

    /// As [`F2fs::glance`], for a caller that has begun its stage.
    pub(crate) fn glance_within<T>(
        &self,
        look: impl FnOnce(&mut Glance<'_>) -> Result<T, Unseen>,
    ) -> Result<Option<T>> {
        let volume = self.look();
        cores::charge(cores::Stage::Inode);
        volume.check_usable()?;
        let sight = Passing::default();
        match look(&mut Glance { engine: &volume, sight }) {
            Ok(seen) => Ok(Some(seen)),
            Err(Unseen::Absent) => Ok(None),
            Err(Unseen::Failed(error)) => Err(error),
        }
    }

    /// Changes inodes `inos` in memory, concurrently with changes of other inodes; `None` if the
    /// change needs the exclusive lock.
    pub(crate) fn own<T, const N: usize>(
        &self,
        inos: [Nid; N],
        change: impl FnOnce(&mut Own<'_>) -> Result<T, Unseen>,
    ) -> Result<Option<T>> {
        let _span = cores::span(cores::Stage::Syscall);
        self.own_within(inos, change)
    }

    /// As [`F2fs::own`], for a caller that has begun its stage.
    pub(crate) fn own_within<T, const N: usize>(
        &self,
        inos: [Nid; N],
        change: impl FnOnce(&mut Own<'_>) -> Result<T, Unseen>,
    ) -> Result<Option<T>> {
        Block::stock();
        let Some(volume) = self.join() else { return Ok(None) };
        volume.check_writable()?;
        let Some(sight) = Owned::new(&volume.inodes, inos) else { return Ok(None) };
        // Built in place: moving it after the charge costs a memcpy.
        let mut own = Own { engine: &volume, sight };
        cores::charge(cores::Stage::Inode);
        // Errors are dropped: the exclusive retry reports them precisely.
        Ok(change(&mut own).ok())
    }

    /// Puts into memory what the drive has of inode `ino`. Possible on a volume that nobody may
    /// change, and while a checkpoint is written; `None` if it takes more than the inode.
    pub(crate) fn own_cache<T>(
        &self,
        ino: Nid,
        fill: impl FnOnce(&mut Own<'_>) -> Result<T, Unseen>,
    ) -> Option<T> {
        let volume = self.look();
        let sight = Owned::new(&volume.inodes, [ino])?;
        cores::charge(cores::Stage::Inode);
        fill(&mut Own { engine: &volume, sight }).ok()
    }

    /// Changes what has locks of its own within an inode, under the shared lock of its shard;
    /// `None` if the change needs an exclusive lock. The caller has begun its stage.
    pub(crate) fn share<T>(
        &self,
        change: impl FnOnce(&mut Glance<'_>) -> Result<T, Unseen>,
    ) -> Result<Option<T>> {
        Block::stock();
        let Some(volume) = self.join() else { return Ok(None) };
        volume.check_writable()?;
        let mut glance = Glance { engine: &volume, sight: Passing::default() };
        // An error is reported by the exclusive retry.
        let changed = change(&mut glance).ok();
        if changed.is_some() {
            cores::charge(cores::Stage::Inode);
        }
        Ok(changed)
    }
}
