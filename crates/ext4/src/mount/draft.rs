//! A change of the volume while it is planned: inodes and blocks as they will be, blocks and inodes
//! taken for it, and what it frees.
//!
//! Everything an operation does goes into its draft, so ordinary code with errors on the way can
//! plan it: a draft that is dropped has changed nothing, and gives back what it took. Blocks that a
//! draft replaces as a whole belong to inodes whose shards the operation has locked (their map,
//! directory and attribute blocks). Blocks that operations change concurrently (bitmaps,
//! descriptors, tables of inodes) change in place when the draft is applied, under their own locks.

use std::ops::Range;

use cores::MutexGuard;
use drive::Block;
use journal::{Ordered, Pin};
use smallvec::SmallVec;
use vfs::inode::OwnedShards;
use vfs::op::{Stop, Work, run};
use vfs::{Errno, Timespec};

use crate::alloc::groups::by_group;
use crate::alloc::inodes::Number;
use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::fsync::eligible::Mark;
use crate::fsync::fast::Note;
use crate::inode::cached::{Cached, Inode, Shard};
use crate::inode::orphan::{Link, Orphans, Slot};
use crate::mount::engine::Engine;
use crate::mount::inject::Inject;
use crate::mount::want::{Halt, Step, Want};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Group, Ino, bitmap, orphan};

/// An operation's plan in the making.
pub(crate) struct Draft<'a, 'v> {
    shards: &'a OwnedShards<'v, Shard>,
    /// When the operation happens.
    pub(crate) now: Timespec,
    pub(crate) changes: Changes<'v>,
}

/// Blocks of metadata kept in memory.
pub(crate) type Pins = SmallVec<[(FsBlock, Pin<()>); 2]>;

/// What a plan comes to.
pub(crate) struct Changes<'v> {
    pub(crate) engine: &'v Engine,
    pub(crate) inodes: SmallVec<[(Ino, Inode); 4]>,
    /// Blocks as they will be; `None` for those that are metadata no longer.
    pub(super) blocks: SmallVec<[(FsBlock, Option<Block>); 4]>,
    pub(super) taken: SmallVec<[Range<FsBlock>; 2]>,
    /// Blocks that the caller took before this operation, and gives back if it fails.
    pub(crate) adopted: SmallVec<[Range<FsBlock>; 2]>,
    /// How many of the taken blocks had been set aside for the call.
    pub(crate) paid: u64,
    pub(super) freed: Vec<Range<FsBlock>>,
    /// Contents of files that are logged, by block.
    pub(crate) logged_data: Vec<(FsBlock, Block)>,
    /// Blocks with contents of files that the log has, and that are freed.
    pub(crate) revoked: Vec<FsBlock>,
    /// New inodes, and whether they are directories.
    pub(crate) made: SmallVec<[(Ino, bool); 1]>,
    /// The number of a new inode whose shard is not locked yet, for the next try.
    pub(crate) kept: Option<Number<'v>>,
    /// Inodes whose map changes.
    pub(super) mapped: SmallVec<[Ino; 2]>,
    /// Blocks of the inode table that new inodes bring into use, at most.
    pub(crate) table_blocks: u32,
    /// Brings a group's inode table into use up to the block of this inode of it.
    pub(crate) table: Option<(Group, u32)>,
    /// Freed inodes, and whether they were directories.
    pub(crate) unmade: SmallVec<[(Ino, bool); 1]>,
    /// Blocks of the inode table that will change, kept in memory.
    pub(crate) pins: Pins,
    /// The list of orphans, locked since it was first looked at.
    pub(super) orphans: Option<MutexGuard<'v, Orphans>>,
    /// Locked since a block of attributes was found to be shared.
    pub(crate) shares: Option<MutexGuard<'v, ()>>,
    /// A shared block of attributes that one inode less has.
    pub(crate) unshared: Option<(FsBlock, Pin<()>)>,
    pub(super) added_orphan: Option<Ino>,
    pub(super) removed_orphan: Option<Ino>,
    pub(super) pages: SmallVec<[Pages; 1]>,
    /// Directories in which a name no longer stands for what it did.
    pub(crate) lost_names: SmallVec<[Ino; 2]>,
    /// The new name of a directory, and in which it is: paths will go through it.
    pub(crate) new_dir: Option<(Ino, Box<[u8]>, Ino)>,
    /// What records must know of it.
    pub(crate) marks: SmallVec<[(Ino, Mark); 2]>,
    pub(crate) moves_dir: bool,
    /// The transaction must not be committed before the caller's data is on the drive.
    pub(super) is_ordered: bool,
    pub(crate) note: Note,
    pub(super) applied: bool,
}

/// What happens to pages when a plan is applied.
pub(crate) enum Pages {
    /// Those from this index on go, and with them promises of blocks. The rest of a page becomes
    /// zero, from a byte on.
    Truncate { ino: Ino, from: u64, zero: Option<(u64, usize)>, promised: u64 },
    /// These go, and with them promises of blocks.
    Dropped { ino: Ino, pages: Range<u64>, promised: u64 },
    /// Dirty pages whose blocks were freed need as many again.
    Unmapped { ino: Ino, promised: u64 },
    /// These have been written: they become clean unless they have changed since.
    Written { ino: Ino, pages: Vec<(u64, Block)>, promised: u64 },
}

impl Engine {
    /// Changes the volume: plans with `plan` under the shards of `inos`, and those that the plan
    /// asks for, and applies. `room` is the room in the log that most of these operations need.
    pub(crate) fn change<T>(
        &self,
        inos: &[vfs::Ino],
        room: u32,
        plan: impl FnMut(&mut Draft<'_, '_>) -> Step<T>,
    ) -> Result<T> {
        self.change_ordered(inos, room, plan).map(|(result, _)| result)
    }

    /// As [`Engine::change`], for a plan that may ask that data comes first ([`Draft::order`]).
    pub(crate) fn change_ordered<T>(
        &self,
        inos: &[vfs::Ino],
        room: u32,
        mut plan: impl FnMut(&mut Draft<'_, '_>) -> Step<T>,
    ) -> Result<(T, Option<Ordered>)> {
        Block::stock();
        let mut kept = None;
        let done = run(
            self,
            inos,
            room,
            |work| {
                let mut draft = Draft::new(work, self);
                draft.changes.kept = kept.take();
                let planned = plan(&mut draft);
                kept = draft.changes.kept.take();
                let result = planned?;
                let needed = draft.changes.room();
                if needed > work.permit.credits() {
                    return Err(Stop::Room(needed));
                }
                Ok((result, draft.changes))
            },
            |(result, changes), work| (result, changes.apply(work)),
        );
        self.heed(done)
    }
}

impl<'a, 'v> Draft<'a, 'v> {
    fn new(work: &'a Work<'v, Engine>, engine: &'v Engine) -> Self {
        let changes = Changes {
            engine,
            inodes: SmallVec::new(),
            blocks: SmallVec::new(),
            taken: SmallVec::new(),
            adopted: SmallVec::new(),
            paid: 0,
            freed: Vec::new(),
            logged_data: Vec::new(),
            revoked: Vec::new(),
            made: SmallVec::new(),
            table_blocks: 0,
            table: None,
            kept: None,
            mapped: SmallVec::new(),
            unmade: SmallVec::new(),
            pins: Pins::new(),
            orphans: None,
            shares: None,
            unshared: None,
            added_orphan: None,
            removed_orphan: None,
            pages: SmallVec::new(),
            lost_names: SmallVec::new(),
            new_dir: None,
            marks: SmallVec::new(),
            moves_dir: false,
            is_ordered: false,
            note: Note::default(),
            applied: false,
        };
        Self { shards: &work.shards, now: engine.clock.now(), changes }
    }

    /// The transaction is not committed before the caller's data is on the drive: it says so by
    /// what [`Engine::change_ordered`] returns, and waits for no room and no commit until then.
    pub(crate) fn order(&mut self) {
        self.changes.is_ordered = true;
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &'v Engine {
        self.changes.engine
    }

    /// The shard of inode `ino`, as it is before the change.
    pub(crate) fn shard(&self, ino: Ino) -> Step<&'a Shard> {
        self.shards.get(ino.into()).ok_or(Stop::Inode(ino.into()))
    }

    /// What memory has of inode `ino`, as it is before the change.
    pub(crate) fn cached(&self, ino: Ino) -> Step<&'a Cached> {
        self.shard(ino)?.inode(ino)
    }

    /// Inode `ino`, as it will be.
    pub(crate) fn inode(&self, ino: Ino) -> Step<&Inode> {
        match self.changes.inodes.iter().find(|(other, _)| *other == ino) {
            Some((_, inode)) => Ok(inode),
            None => Ok(&self.cached(ino)?.inode),
        }
    }

    /// Inode `ino`, to be changed.
    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Step<&mut Inode> {
        let place = match self.changes.inodes.iter().position(|(other, _)| *other == ino) {
            Some(place) => place,
            None => {
                let shard = self.shards.get(ino.into()).ok_or(Stop::Inode(ino.into()))?;
                let inode = shard.inode(ino)?.inode.clone();
                self.changes.pin(ino)?;
                self.changes.inodes.push((ino, inode));
                self.changes.inodes.len() - 1
            }
        };
        Ok(&mut self.changes.inodes[place].1)
    }

    /// The root of the extent tree of `ino` is this: its blocks are elsewhere, or others.
    pub(crate) fn put_root(&mut self, ino: Ino, root: [u8; 60]) -> Step<()> {
        self.note_mapped(ino);
        self.inode_mut(ino)?.raw.block = root;
        Ok(())
    }

    /// What an `fdatasync` of `ino` needs is part of this change.
    pub(crate) fn note_mapped(&mut self, ino: Ino) {
        if !self.changes.mapped.contains(&ino) {
            self.changes.mapped.push(ino);
        }
    }

    /// A metadata block, as it will be.
    pub(crate) fn block_of(&self, at: FsBlock, kind: Kind) -> Step<Block> {
        match self.changes.blocks.iter().find(|(other, _)| *other == at) {
            Some((_, Some(block))) => Ok(block.clone()),
            _ => self.volume().block(at, kind),
        }
    }

    /// From now on block `at`, of an inode whose shard this has, is this.
    pub(crate) fn put(&mut self, at: FsBlock, block: Block) {
        self.set(at, Some(block));
    }

    fn set(&mut self, at: FsBlock, block: Option<Block>) {
        let blocks = &mut self.changes.blocks;
        match blocks.iter_mut().find(|(other, _)| *other == at) {
            Some((_, old)) => *old = block,
            None => blocks.push((at, block)),
        }
    }

    /// Takes up to `most` adjacent blocks near `goal`.
    pub(crate) fn take_blocks(&mut self, goal: FsBlock, most: u32) -> Step<Range<FsBlock>> {
        let engine = self.volume();
        match engine.groups.take_blocks(&engine.sb, goal, most)? {
            Some(blocks) => {
                self.changes.taken.push(blocks.clone());
                Ok(blocks)
            }
            None if engine.has_parked() => Err(Stop::Want(Want::Commit)),
            None => Err(Error::NoSpace.into()),
        }
    }

    /// Fails unless there is a block that no dirty page waits for. What cannot fail for want of
    /// room later is checked before: names, attributes, preallocation.
    pub(crate) fn check_room(&self, blocks: u64) -> Step<()> {
        let engine = self.volume();
        if engine.room.left_for_caller() >= blocks { Ok(()) } else { Err(Error::NoSpace.into()) }
    }

    /// Takes a block for the map, the directory or the attributes of inode `ino`.
    pub(crate) fn new_meta_block(&mut self, ino: Ino) -> Step<FsBlock> {
        let goal = self.goal(ino)?;
        let at = self.take_blocks(goal, 1)?.start;
        self.count_blocks(ino, 1)?;
        Ok(at)
    }

    /// Where the blocks of `ino` should be, if nothing says more: in its own group.
    pub(crate) fn goal(&self, ino: Ino) -> Step<FsBlock> {
        let engine = self.volume();
        Ok(engine.sb.group_start(engine.sb.inode_place(ino)?.group))
    }

    /// Adds to the blocks that inode `ino` has.
    pub(crate) fn count_blocks(&mut self, ino: Ino, blocks: i64) -> Step<()> {
        let size = self.volume().sb.block_size;
        self.inode_mut(ino)?.add_blocks(blocks, size);
        Ok(())
    }

    /// Frees a metadata block of inode `ino`.
    pub(crate) fn free_meta_block(&mut self, ino: Ino, at: FsBlock) -> Step<()> {
        self.free_data(ino, at, 1)?;
        self.forget(at);
        Ok(())
    }

    /// Block `at` is metadata no longer.
    pub(crate) fn forget(&mut self, at: FsBlock) {
        self.set(at, None);
    }

    /// Frees blocks of inode `ino`.
    pub(crate) fn free_data(&mut self, ino: Ino, start: FsBlock, count: u32) -> Step<()> {
        let engine = self.volume();
        let blocks = start..start + u64::from(count);
        engine.sb.check_blocks(start, count.into(), "freed block", start)?;
        if engine.groups.system.meet(&blocks) {
            let found = format!("{count} blocks of the volume's own");
            return Err(Error::corrupt("freed block", start, found, "blocks of a file").into());
        }
        for (group, bits) in by_group(&engine.sb, blocks.clone()) {
            let state = engine.groups.lock(group);
            let bitmaps = state.bitmaps.as_ref().ok_or(Stop::Want(Want::Group(group)))?;
            if bitmaps.blocks.read(|map| bits.clone().any(|bit| !bitmap::test(map, bit))) {
                let error = Error::corrupt("block bitmap", start, "a free block", "one in use");
                return Err(error.into());
            }
        }
        self.changes.freed.push(blocks);
        self.count_blocks(ino, -i64::from(count))
    }

    /// The new inode `ino`.
    pub(crate) fn put_inode(&mut self, ino: Ino, inode: Inode) {
        self.changes.inodes.push((ino, inode));
    }

    /// Frees inode `ino`, which has nothing left.
    pub(crate) fn free_inode(&mut self, ino: Ino) -> Step<()> {
        let engine = self.volume();
        let is_dir = self.inode(ino)?.kind() == vfs::FileKind::Directory;
        let group = engine.sb.inode_place(ino)?.group;
        if engine.groups.lock(group).bitmaps.is_none() {
            return Err(Stop::Want(Want::Group(group)));
        }
        self.inode_mut(ino)?;
        self.changes.unmade.push((ino, is_dir));
        Ok(())
    }

    /// Puts inode `ino` in the list of orphans, unless it is there.
    pub(crate) fn add_orphan(&mut self, ino: Ino) -> Step<()> {
        let is_left_out = self.volume().inject.contains(Inject::DROP_ORPHAN);
        if is_left_out || self.orphans().contains(ino) {
            return Ok(());
        }
        self.inode_mut(ino)?;
        self.changes.added_orphan = Some(ino);
        Ok(())
    }

    /// Takes inode `ino` out of the list of orphans.
    pub(crate) fn remove_orphan(&mut self, ino: Ino) -> Step<()> {
        let slot = self.orphans().slot(ino);
        let link = self.orphans().link_to_remove(ino);
        if slot.is_none() && link.is_none() {
            return Ok(());
        }
        if let Some(Link::Next(before, _)) = link {
            self.changes.pin(before)?;
        }
        if let Some(Slot { at, slot, seed, .. }) = slot {
            // Only a mount finds any, before anybody else is there.
            let mut block = self.block_of(at, Kind::Table)?;
            let bytes = self.volume().sb.bytes_mut(&mut block);
            orphan::set_slot(bytes, slot, 0);
            if let Some(seed) = seed {
                orphan::seal(bytes, seed, at);
            }
            self.put(at, block);
        }
        self.inode_mut(ino)?;
        self.changes.removed_orphan = Some(ino);
        Ok(())
    }

    fn orphans(&mut self) -> &Orphans {
        let engine = self.changes.engine;
        self.changes.orphans.get_or_insert_with(|| engine.orphans.lock())
    }

    /// Pages change with it.
    pub(crate) fn change_pages(&mut self, pages: Pages) {
        self.changes.pages.push(pages);
    }
}

impl Changes<'_> {
    /// Frees these blocks, whose groups are cached.
    pub(crate) fn free(&mut self, blocks: Vec<Range<FsBlock>>) {
        self.freed.extend(blocks);
    }

    /// Keeps the block of the table that has inode `ino` in memory until this is applied.
    pub(crate) fn pin(&mut self, ino: Ino) -> Step<()> {
        let (at, _) = self.engine.inode_slot(ino)?;
        if !self.pins.iter().any(|(other, _)| *other == at) {
            let pin = self.engine.journal.pin_cached(at);
            self.pins.push((at, pin.ok_or(Stop::Want(Want::Block(at, Kind::Table)))?));
        }
        Ok(())
    }
}

impl Blocks for Draft<'_, '_> {
    type Stop = Halt;

    fn sb(&self) -> &Superblock {
        &self.changes.engine.sb
    }

    fn block(&self, at: FsBlock, kind: Kind) -> Step<Block> {
        self.block_of(at, kind)
    }
}

/// An inode number of this format; a larger number names no inode.
pub(crate) fn ino(number: vfs::Ino) -> Result<Ino> {
    Ino::try_from(number).map_err(|_| Error::Posix(Errno::NOENT))
}
