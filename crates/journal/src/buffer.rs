//! Metadata blocks in memory (`struct journal_head`).
//!
//! A buffer has a *live* block, which handles read and change; at most one running transaction that
//! owns it; and *images*, the live block as transactions closed it, until they are home. Blocks are
//! copied on write, so an image costs a copy only if the live block changes again, and no thread
//! waits for one that is being written to the log.
//!
//! Invariant: every user of a buffer holds a reference. The lists of transactions do, until their
//! images are home, and so does a [pin](crate::Journal::pin). A buffer that only the cache refers
//! to is therefore the same as at home, and may be evicted.

use std::sync::Arc;

use cores::{Mutex, MutexGuard, Rank};
use drive::{Block, Lba};
use queue::Io;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use vfs::inode::shard_of;

use crate::chain::Frontier;
use crate::error::Result;
use crate::transaction::{Id, Stamp};

const SHARDS: usize = 256;
/// Buffers of a shard beyond which it drops unused ones: 64 MiB in all.
const CACHED_PER_SHARD: usize = 64;

/// A block of metadata.
pub(crate) struct Buffer<K> {
    pub(crate) lba: Lba,
    /// Protects all that the buffer says. Held while its block is read.
    state: Mutex<State<K>>,
}

/// What a buffer says.
pub(crate) struct State<K> {
    /// What handles see; `None` if it has to be read, or was freed.
    pub(crate) live: Option<Block>,
    /// What it is, for `Client::seal`.
    pub(crate) kind: Option<K>,
    /// The running transaction that will log it.
    pub(crate) owner: Option<Id>,
    /// Running transactions of other areas that are its partners, as far as they have come by: one
    /// that comes again takes no lock but the buffer's.
    pub(crate) joined: Frontier,
    /// As transactions closed it whose images are not home, in the order of stamps.
    pub(crate) images: SmallVec<[Image; 2]>,
    /// A checkpoint has an image on its way home.
    pub(crate) homing: bool,
}

/// A buffer as a transaction closed it.
pub(crate) struct Image {
    /// Whose it is.
    pub(crate) of: Id,
    pub(crate) stamp: Stamp,
    pub(crate) block: Block,
    /// Its transaction has it among what it will log.
    pub(crate) collected: bool,
    /// Its transaction is valid, so it may go home.
    pub(crate) valid: bool,
}

impl<K> Buffer<K> {
    fn new(lba: Lba) -> Self {
        let state = State {
            live: None,
            kind: None,
            owner: None,
            joined: Frontier::default(),
            images: SmallVec::new(),
            homing: false,
        };
        Self { lba, state: Mutex::ranked(Rank::Node, "journal buffer", state) }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// The buffer with its live block, which is read if memory does not have it.
    pub(crate) fn loaded(&self, io: &Io) -> Result<MutexGuard<'_, State<K>>> {
        let mut state = self.lock();
        if state.live.is_none() {
            state.live = Some(io.read(self.lba)?);
        }
        Ok(state)
    }
}

impl<K> State<K> {
    /// The newest image that may go home.
    pub(crate) fn newest_valid(&self) -> Option<&Image> {
        self.images.iter().rev().find(|image| image.valid)
    }

    /// No running transaction will log it.
    pub(crate) fn disown(&mut self) {
        (self.owner, self.joined) = (None, Frontier::default());
    }

    /// The transaction of the newest image, if that is of another area.
    pub(crate) fn newest_of_others(&self, area: u16) -> Option<Id> {
        self.images.last().map(|image| image.of).filter(|of| of.area != area)
    }

    /// The live block becomes the image of `of`, which owns the buffer and is being closed, once
    /// `seal` has completed it.
    pub(crate) fn freeze(&mut self, of: Id, stamp: Stamp, seal: impl FnOnce(K, &mut Block))
    where
        K: Copy,
    {
        self.disown();
        let (Some(live), Some(kind)) = (&mut self.live, self.kind) else { return };
        seal(kind, live);
        let block = live.clone();
        self.images.push(Image { of, stamp, block, collected: false, valid: false });
    }
}

/// The buffers of a journal, in shards by block.
pub(crate) struct Buffers<K> {
    shards: Box<[Mutex<Shard<K>>]>,
}

struct Shard<K> {
    buffers: FxHashMap<Lba, Arc<Buffer<K>>>,
    /// Look for some to evict at this many.
    weed_at: usize,
}

impl<K> Buffers<K> {
    pub(crate) fn new() -> Self {
        let shard = |key| {
            let shard = Shard { buffers: FxHashMap::default(), weed_at: CACHED_PER_SHARD };
            // Which buffers are cached. Never locked together with a buffer.
            Mutex::ranked(Rank::Node, "journal buffers", shard).keyed(key)
        };
        Self { shards: (0..SHARDS as u64).map(shard).collect() }
    }

    /// The buffer of `lba`, which may not be loaded.
    pub(crate) fn get(&self, lba: Lba) -> Arc<Buffer<K>> {
        let mut shard = self.shards[shard_of(lba, SHARDS)].lock();
        if let Some(buffer) = shard.buffers.get(&lba) {
            return buffer.clone();
        }
        shard.weed();
        let buffer = Arc::new(Buffer::new(lba));
        shard.buffers.insert(lba, buffer.clone());
        buffer
    }

    /// The buffer of `lba`, if there is one.
    pub(crate) fn find(&self, lba: Lba) -> Option<Arc<Buffer<K>>> {
        self.shards[shard_of(lba, SHARDS)].lock().buffers.get(&lba).cloned()
    }

    /// How many buffers are there.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().buffers.len()).sum()
    }
}

impl<K> Shard<K> {
    /// Evicts what only the cache refers to, once that may be much.
    fn weed(&mut self) {
        if self.buffers.len() >= self.weed_at {
            self.buffers.retain(|_, buffer| Arc::strong_count(buffer) > 1);
            self.weed_at = CACHED_PER_SHARD.max(2 * self.buffers.len());
        }
    }
}
