//! The engine of a mounted volume: its parts, and how what an operation lacks comes into memory.
//!
//! There is no lock of the whole volume. In the order in which they are taken: the lock of renames
//! between directories; a handle of the journal, which is a share of its gate; shards of inodes;
//! the list of orphans; groups of blocks; the journal's buffers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use cores::{Line, Mutex, Rank};
use drive::Block;
use journal::{Id, LogSpace};
use vfs::inode::{HasTurns, Opens, Shards, Turn, Turns};
use vfs::kind::Witness;
use vfs::op::{self, Stop, Volume};
use vfs::upkeep::Upkeep;
use vfs::{Budget, Clock, Errno, Health, PageCache, file};

use crate::alloc::groups::{Bitmaps, Groups, fresh_block_bitmap, fresh_inode_bitmap};
use crate::alloc::room::Room;
use crate::blocks::{Blocks, Kind};
use crate::error::{Error, Result};
use crate::fsync::fast::Unsaid;
use crate::inode::cached::{Inode, Shard};
use crate::inode::names::{NameRoom, Names};
use crate::inode::orphan::Orphans;
use crate::inode::weed::inodes_each;
use crate::mount::inject::Inject;
use crate::mount::journal::{Client, Committed, Handle, Journal};
use crate::mount::options::{Alloc, DataMode, Linux, MountOptions, OnError};
use crate::mount::want::{Halt, Step, Want};
use crate::ondisk::checksum::compare;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FsBlock, Group, Ino, bitmap};

/// All state of a mounted volume.
pub(crate) struct Engine {
    pub(crate) sb: Superblock,
    pub(crate) io: Arc<queue::Io>,
    pub(crate) journal: Journal,
    pub(crate) committed: Arc<Committed>,
    /// Where fsyncs write fast commits.
    pub(crate) unsaid: Option<Unsaid>,
    pub(crate) inodes: Shards<Shard>,
    /// How many a shard may have.
    pub(crate) inodes_each: usize,
    /// How many pages there are, and may be.
    pub(crate) budget: Arc<Budget>,
    /// What the flusher is told.
    pub(crate) upkeep: Upkeep<()>,
    /// The shard where the next page is evicted.
    evict_at: Line,
    pub(crate) groups: Groups,
    pub(crate) room: Room,
    pub(crate) orphans: Mutex<Orphans>,
    /// While it is held, blocks of attributes that several inodes share stay as they are. Within
    /// the orphans.
    pub(crate) shares: Mutex<()>,
    pub(crate) opens: Opens,
    pub(crate) turns: Turns,
    /// While it is held, the way up from a directory stays as it is.
    pub(crate) renames: Mutex<()>,
    pub(crate) clock: Clock,
    /// `auto_da_alloc` and `discard`.
    pub(crate) auto_da_alloc: bool,
    /// What is made in a directory belongs to its group.
    pub(crate) grpid: bool,
    discard: bool,
    /// Records have checksums of their files' data.
    pub(crate) record_csum: bool,
    pub(crate) data: DataMode,
    pub(crate) inject: Inject,
    /// Whether the log may have contents of files.
    pub(crate) has_journalled_data: Line,
    on_error: OnError,
    pub(crate) linux: Option<Linux>,
    pub(crate) dioread_lock: bool,
    pub(crate) alloc: Alloc,
    /// Reports failures that no caller learns of. Set once, when the volume is served.
    pub(super) witness: OnceLock<Witness>,
    /// Operations that met corruption.
    pub(crate) corruptions: Line,
    /// Not 0 if the superblock is to say so at the next one: not while a log is replayed.
    pub(super) notes_corruption: Line,
    /// A [`Health`], by its place in `HEALTH`.
    health: Line,
    /// The generation of the next new inode.
    pub(crate) generations: Line,
    /// Blocks that a transaction has freed, by its number: not allocated again before it is
    /// committed. Locked alone.
    parked: Mutex<VecDeque<(Id, Range<FsBlock>)>>,
    /// The same for numbers of inodes, where fsyncs write records.
    parked_inodes: Mutex<VecDeque<(Id, Ino)>>,
    /// Of each area, the last transaction in which a directory got another path. Taken alone.
    pub(crate) moved_dirs: Mutex<Vec<Id>>,
    /// Not 0 if there is any.
    pub(crate) have_dirs_moved: Line,
}

/// Shards on a machine with few cores. The inodes of new files go through all of them, and now and
/// then meet that of a directory in which another thread makes files without a break.
const SHARDS_MIN: usize = 1024;
/// `EXT4_DEFM_BSDGROUPS`.
const BSD_GROUPS: u32 = 2;

const HEALTH: [Health; 4] = [Health::Sound, Health::Stopped, Health::Shutdown, Health::Gone];

impl Engine {
    /// A volume that has been recovered. `table` are the blocks with group descriptors, and
    /// `super_block` is the one with the superblock.
    pub(crate) fn new(
        sb: Superblock,
        io: Arc<queue::Io>,
        log: LogSpace,
        table: Vec<Block>,
        super_block: Block,
        (options, journal): (&MountOptions, journal::Options),
    ) -> Result<Self> {
        let mut groups = Groups::new(&sb, &table)?;
        let budget = usize::try_from(options.cache_bytes).unwrap_or(usize::MAX);
        let budget = Arc::new(Budget::new(budget));
        let (pages, names) = (budget.clone(), Arc::new(NameRoom::new(options.cache_bytes)));
        let shard = move || Shard::new(PageCache::sharing(&pages), Names::new(&names));
        let inodes = Shards::new(Rank::Inode, "ext4 inodes", SHARDS_MIN, shard);
        let clock = Clock::new(0, None);
        let generation = clock.now().nanos;
        let committed = Arc::new(Committed::before(log.superblock.sequence()));
        let client = Client { committed: committed.clone() };
        let record_csum = journal.record_csum;
        let journal = Journal::open(io.clone(), log, journal, client)?;
        groups.pin(&sb, &journal, table);
        Ok(Self {
            io,
            unsaid: journal.has_fast_commits().then(Unsaid::new),
            journal,
            committed,
            inodes_each: inodes_each(options.cache_bytes, inodes.count()),
            inodes,
            room: Room::new(groups.free_blocks(), sb.blocks, options.reserve(&sb)),
            orphans: Mutex::ranked(
                Rank::Orphans,
                "ext4 orphans",
                Orphans::new(super_block, sb.super_byte()),
            ),
            shares: Mutex::ranked(Rank::Orphans, "ext4 shared attributes", ()).keyed(1),
            opens: Opens::default(),
            turns: Turns::new("ext4 turns"),
            renames: Mutex::ranked(Rank::Rename, "ext4 renames", ()),
            clock,
            auto_da_alloc: options.auto_da_alloc,
            grpid: options.grpid.unwrap_or(sb.raw.default_mount_opts.get() & BSD_GROUPS != 0),
            discard: options.discard,
            record_csum,
            data: options.data.unwrap_or(DataMode::of(sb.raw.default_mount_opts.get())),
            inject: options.inject.1,
            has_journalled_data: Line::new(0),
            linux: options.linux,
            dioread_lock: options.dioread_lock,
            alloc: options.alloc,
            on_error: options.errors.unwrap_or(OnError::of(sb.raw.errors.get())),
            witness: OnceLock::new(),
            corruptions: Line::new(0),
            notes_corruption: Line::new(0),
            health: Line::new(0),
            generations: Line::new(generation.into()),
            parked: Mutex::ranked(Rank::Space, "ext4 freed blocks", VecDeque::new()),
            parked_inodes: Mutex::ranked(Rank::Space, "ext4 freed inodes", VecDeque::new()),
            moved_dirs: Mutex::ranked(Rank::Space, "ext4 moved directories", Vec::new()).keyed(3),
            have_dirs_moved: Line::new(0),
            budget,
            upkeep: Upkeep::new("ext4 upkeep", ()),
            evict_at: Line::new(0),
            groups,
            sb,
        })
    }

    /// Whether it still accepts requests.
    pub(crate) fn health(&self) -> Health {
        HEALTH[(self.health.load() as usize).min(HEALTH.len() - 1)]
    }

    /// From now on it is like this.
    pub(crate) fn set_health(&self, health: Health) {
        self.health.store(HEALTH.iter().position(|known| *known == health).unwrap_or(3) as u64);
    }

    /// Fails if the volume accepts no more requests.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.health() == Health::Gone { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Where inode `ino` is in its group's table: the block, and the byte in it.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<(FsBlock, usize)> {
        let place = self.sb.inode_place(ino)?;
        Ok(self.sb.inode_at(self.groups.inode_table(place.group), place.index))
    }

    /// Keeps blocks that transaction `id` has freed until it is committed.
    pub(crate) fn park(&self, id: Id, blocks: Range<FsBlock>) {
        self.parked.lock().push_back((id, blocks));
    }

    /// Whether a commit would free blocks.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.lock().is_empty()
    }

    /// Keeps the number of an inode that transaction `id` has freed until it is committed.
    pub(crate) fn park_inode(&self, id: Id, ino: Ino) {
        self.parked_inodes.lock().push_back((id, ino));
    }

    /// Whether a commit would free numbers of inodes.
    pub(crate) fn has_parked_inodes(&self) -> bool {
        !self.parked_inodes.lock().is_empty()
    }

    /// Commits the running transaction. What it has freed may be used again.
    pub(crate) fn commit(&self) -> Result<()> {
        let done = self.journal.commit_all().map_err(Error::from);
        self.heed(done)?;
        self.give_back_parked();
        Ok(())
    }

    /// Commits a transaction.
    pub(crate) fn commit_one(&self, id: Id) -> Result<()> {
        let done = self.journal.commit(id).map_err(Error::from);
        self.heed(done)?;
        self.give_back_parked();
        Ok(())
    }

    /// Blocks and inodes that committed transactions have freed may be used again.
    pub(crate) fn give_back_parked(&self) {
        let inodes: Vec<_> = {
            let mut parked = self.parked_inodes.lock();
            let open = parked.iter().position(|(id, _)| !self.committed.reaches(*id));
            let count = open.unwrap_or(parked.len());
            parked.drain(..count).collect()
        };
        inodes.into_iter().for_each(|(_, ino)| self.groups.give_back_inode(&self.sb, ino));
        for (_, blocks) in self.take_parked() {
            if self.discard {
                // While the blocks cannot be allocated. Only advice: an error is ignored.
                let _ = self.io.discard(blocks.clone());
            }
            self.groups.give_back(&self.sb, blocks);
        }
        self.weed_all();
    }

    /// Takes out the freed blocks whose transactions are committed.
    fn take_parked(&self) -> Vec<(Id, Range<FsBlock>)> {
        let mut parked = self.parked.lock();
        let mut free = Vec::new();
        parked.retain(|entry| {
            let is_free = self.committed.reaches(entry.0);
            if is_free {
                free.push(entry.clone());
            }
            !is_free
        });
        free
    }

    /// Takes notice of an error: a journal that was aborted ends writing (`ext4_abort`), and
    /// corruption does what `errors=` says (`ext4_handle_error`).
    pub(crate) fn heed<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            let is_corrupt = matches!(error, Error::Corrupt(_));
            if is_corrupt {
                self.corruptions.fetch_add(1);
                self.note_corruption();
            }
            self.report(error);
            let ends = match error {
                Error::Journal(_) => self.journal.check().is_err(),
                _ => is_corrupt && self.on_error != OnError::Continue,
            };
            if ends && self.health() == Health::Sound {
                self.set_health(Health::Stopped);
                if self.on_error == OnError::Panic {
                    eprintln!("ext4: {error}; mounted errors=panic, so this ends here");
                    std::process::abort();
                }
            }
        }
        done
    }

    /// Reports what is wrong with the volume or its drive.
    #[cold]
    pub(crate) fn report(&self, error: &Error) {
        let is_failure = matches!(error, Error::Corrupt(_) | Error::Journal(_) | Error::Io(_));
        if is_failure && let Some(witness) = self.witness.get() {
            witness(&error.to_string());
        }
    }

    /// Reads the volume with the shard of `ino` locked for readers.
    pub(crate) fn look<T>(&self, ino: vfs::Ino, read: impl FnMut(&Shard) -> Step<T>) -> Result<T> {
        self.heed(op::look(self, ino, read))
    }

    /// Bytes of an inode.
    pub(crate) fn inode_size(&self) -> usize {
        self.sb.inode_size as usize
    }

    fn fetch_block(&self, at: FsBlock, kind: Kind) -> Result<()> {
        if at != self.sb.super_block() {
            self.sb.check_blocks(at, 1, kind.pointer(), at)?;
        }
        self.journal.load(at, |block| kind.verify(&self.sb, self.sb.bytes(block), at))
    }

    /// Reads a metadata block of a kind that is checked by the caller.
    fn read_block(&self, at: FsBlock, kind: Kind) -> Result<Block> {
        loop {
            if let Some(block) = self.journal.peek(at) {
                return Ok(block);
            }
            self.fetch_block(at, kind)?;
        }
    }

    fn fetch_inode(&self, ino: Ino) -> Result<()> {
        let (at, byte) = self.inode_slot(ino)?;
        self.read_block(at, Kind::Table)?;
        let mut shard = self.inodes.own(ino.into());
        if shard.inodes.contains_key(&ino) {
            return Ok(());
        }
        // Under the shard's lock the inode does not change. If its block was evicted meanwhile, the
        // caller retries.
        let Some(block) = self.journal.peek(at) else { return Ok(()) };
        let bytes = &block[byte..byte + self.inode_size()];
        if bytes[..2] == [0, 0] {
            return Err(Errno::NOENT.into());
        }
        let inode = Inode::parse(&self.sb, ino, bytes, at)?;
        self.weed(&mut shard);
        shard.insert(ino, inode, None);
        Ok(())
    }

    fn fetch_group(&self, group: Group) -> Result<()> {
        let (desc, (fresh_blocks, fresh_inodes)) = {
            let state = self.groups.lock(group);
            (state.desc, state.is_fresh())
        };
        let blocks = if fresh_blocks {
            let descs = (0..self.groups.count()).map(|group| self.groups.lock(group).desc);
            fresh_block_bitmap(&self.sb, group, descs)
        } else {
            self.read_block(desc.block_bitmap(), Kind::Bitmap)?
        };
        let inodes = if fresh_inodes {
            fresh_inode_bitmap(&self.sb)
        } else {
            self.read_block(desc.inode_bitmap(), Kind::Bitmap)?
        };
        let mut state = self.groups.lock(group);
        if state.bitmaps.is_some() {
            // Another thread has read them, and may have changed them and the checksums since.
            return Ok(());
        }
        if !fresh_blocks {
            let (size, at) = (self.sb.clusters_per_group, desc.block_bitmap());
            self.check_bitmap(&blocks, size, state.desc.block_bitmap_csum(), at)?;
        }
        if !fresh_inodes {
            let (size, at) = (self.sb.inodes_per_group, desc.inode_bitmap());
            self.check_bitmap(&inodes, size, state.desc.inode_bitmap_csum(), at)?;
            let used = state.used_inodes(&self.sb);
            if let Some(index) = (used..size).find(|index| bitmap::test(&inodes[..], *index)) {
                let found = format!("inode {index} of group {group} in use");
                return Err(Error::corrupt("inode bitmap", at, found, format!("{used} used")));
            }
        }
        state.bitmaps = Some(Bitmaps::new(&self.journal, &desc, blocks, inodes));
        Ok(())
    }

    fn check_bitmap(&self, block: &Block, count: u32, stored: u32, at: FsBlock) -> Result<()> {
        let (found, right) = self.sb.bitmap_checksums(&block[..], count, stored);
        compare("bitmap checksum", at, found, right)
    }

    fn fetch_pages(&self, miss: file::Miss<vfs::Ino>) -> Result<()> {
        if self.sb.blocks_per_page() > 1 {
            return self.fetch_small(&miss);
        }
        let ino = miss.file as Ino;
        let count = |shard: &Shard| shard.inodes.get(&ino).map(|cached| cached.overwrites);
        let Some(before) = count(&self.inodes.look(miss.file)) else { return Ok(()) };
        let blocks = self.read_data(miss.blocks.clone())?;
        self.make_room();
        let mut shard = self.inodes.own(miss.file);
        if count(&shard) != Some(before) {
            return Ok(());
        }
        self.keep_pages(&mut shard, &miss, blocks, |map, index, lba| {
            // Blocks that became unwritten meanwhile read as zeroes.
            let found = map.find(index).ok().and_then(|found| found.written_at(index as u32));
            Ok(found == Some(lba))
        })
    }

    /// Evicts clean pages, if there are too many.
    pub(crate) fn make_room(&self) {
        let batch = self.budget.batch();
        if self.budget.room() >= batch {
            return;
        }
        let first = self.evict_at.load() as usize;
        for index in (first..self.inodes.count()).chain(0..first) {
            let excess = self.budget.excess(batch);
            if excess == 0 {
                return;
            }
            let Some(mut shard) = self.inodes.own_at(index) else { continue };
            self.evict_at.store(index as u64);
            while shard.pages.evict(self.budget.excess(batch)) && self.budget.excess(batch) > 0 {}
        }
    }
}

impl Blocks for Engine {
    type Stop = Halt;

    fn sb(&self) -> &Superblock {
        &self.sb
    }

    fn block(&self, at: FsBlock, kind: Kind) -> Step<Block> {
        self.journal.peek(at).ok_or(Stop::Want(Want::Block(at, kind)))
    }
}

impl Volume for Engine {
    type Shard = Shard;
    type Permit<'a> = Handle<'a>;
    type Want = Want;
    type Error = Error;

    fn shards(&self) -> &Shards<Shard> {
        &self.inodes
    }

    fn enter(&self, room: u32) -> Result<Handle<'_>> {
        match self.health() {
            Health::Sound => {}
            Health::Stopped => return Err(Error::ReadOnly),
            Health::Shutdown | Health::Gone => return Err(Errno::IO.into()),
        }
        self.heed(self.journal.start(room).map_err(Error::from))
    }

    fn fetch(&self, want: Want) -> Result<()> {
        match want {
            Want::Inode(ino) => self.fetch_inode(ino),
            Want::Block(at, kind) => self.fetch_block(at, kind),
            Want::Group(group) => self.fetch_group(group),
            Want::Table(group, index) => self.extend_table(group, index),
            Want::Pages(miss) => self.fetch_pages(miss),
            Want::Turn(ino) => {
                drop(Turn::take(self, ino.into()));
                Ok(())
            }
            // What this transaction has freed is not free before its end.
            Want::Commit if self.journal.options().is_single => Err(Error::NoSpace),
            Want::Commit => self.commit(),
        }
    }
}

impl HasTurns for Engine {
    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn end_of_last_turn(&self, _: vfs::Ino) {}
}
