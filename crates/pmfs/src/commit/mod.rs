//! What one call changes on the medium, put together before any of it counts.
//!
//! A [`Change`] has two parts. What is *stored* goes to its place at once: contents of files, and
//! structures to which nothing durable points yet. What is *patched* are words that are in use:
//! they are only noted, and the design makes all of them count together: [`inplace`] by a redo
//! record, [`lite`] by one word or an undo record. Nothing of a change that is dropped can be seen.

mod inplace;
mod lite;
pub(crate) mod slots;

use std::sync::Arc;

use cores::Stage;
use drive::pm::Pm;
use drive::pm::typed::{Durable, Flying, Group, Obj, stream, stream_cached};
use zerocopy::IntoBytes;

use crate::ondisk::inode::RawInode;
use crate::ondisk::record::{PATCHES_MAX, RawPatch};
use crate::ondisk::superblock::{Design, Layout};
use crate::ondisk::{BLOCK, Corrupt};
use slots::Slots;

/// How changes become durable.
pub(crate) struct Journal {
    slots: Slots,
    design: Design,
}

/// Shows that a change is durable, and its record cleared.
#[must_use = "a call returns when its change is durable"]
pub(crate) struct Done(());

impl From<Obj<'_, slots::Cleared, Durable>> for Done {
    fn from(_: Obj<'_, slots::Cleared, Durable>) -> Self {
        Self(())
    }
}

impl From<Obj<'_, lite::Committed, Durable>> for Done {
    fn from(_: Obj<'_, lite::Committed, Durable>) -> Self {
        Self(())
    }
}

impl Journal {
    pub(crate) fn new(pm: &Arc<dyn Pm>, layout: &Layout) -> Self {
        Self { slots: Slots::new(pm, layout), design: layout.design }
    }

    /// Makes `change` durable, all of it or nothing.
    pub(crate) fn commit(&self, change: Change<'_>) -> Done {
        cores::charge(Stage::NodeUpdate);
        match self.design {
            Design::Inplace => inplace::commit(&self.slots, change),
            Design::Nova => lite::commit(&self.slots, change),
        }
    }
}

/// Finishes what a cut interrupted: repeats it or takes it back, as the design has it. Returns how
/// many calls that concerned.
pub(crate) fn recover(pm: &dyn Pm, layout: &Layout) -> Result<usize, Corrupt> {
    Ok(slots::finish(pm, slots::left(pm, layout)?))
}

/// Contents, or structures that nothing points to yet.
pub(crate) enum Data {}

/// What a call is about to change.
#[must_use = "nothing has changed yet"]
pub(crate) struct Change<'pm> {
    pm: &'pm dyn Pm,
    stored: Group<'pm, Data, Flying>,
    /// As in a record: patches with their heads.
    patches: Vec<u8>,
    /// What is stored stays in the cache.
    is_cached: bool,
}

/// Contents of a file up to this offset stay in the cache, if they are durable there: as much as
/// the second-level caches of today's server processors hold. More would only empty it, and so
/// would a call that brings as much, since its source is in the cache, too. The offset decides and
/// not the size, so that a page goes the same way while its file grows: streams to lines that the
/// cache has changed reach two thirds of what others do.
const CACHED_MAX: u64 = 2 << 20;
/// Room for the patches of most calls, so that it grows once.
const PATCHES_ROOM: usize = 256;

static ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];

impl<'pm> Change<'pm> {
    pub(crate) fn new(pm: &'pm dyn Pm) -> Self {
        Self { pm, stored: Group::new(), patches: Vec::new(), is_cached: false }
    }

    /// One that stores `len` bytes of contents of a file that end at this offset.
    pub(crate) fn of_file(pm: &'pm dyn Pm, end: u64, len: usize) -> Self {
        let has_room = (len as u64) < CACHED_MAX;
        Self { is_cached: end <= CACHED_MAX && has_room, ..Self::new(pm) }
    }

    /// Stores bytes past the cache: contents, whole blocks.
    pub(crate) fn stream(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.stored.add(match self.is_cached {
            true => stream_cached(self.pm, at, bytes),
            false => stream(self.pm, at, bytes),
        });
    }

    /// Stores a few bytes through the cache.
    pub(crate) fn store(&mut self, at: u64, bytes: &[u8]) {
        let place = Obj::settled(self.pm, at, bytes.len() as u64);
        self.stored.add(place.store(0, bytes).write_back());
    }

    /// Stores zeroes. The pieces meet between blocks: a word that two of them shared would be
    /// stored twice, and a cut could leave it half zeroed.
    pub(crate) fn zero(&mut self, at: u64, len: u64) {
        let (mut at, end) = (at, at + len);
        while at < end {
            let stop = end.min((at / BLOCK + 1) * BLOCK);
            self.stream(at, &ZEROES[..(stop - at) as usize]);
            at = stop;
        }
    }

    /// Notes that the words at `at` become `bytes`.
    pub(crate) fn patch(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(at.is_multiple_of(8) && bytes.len().is_multiple_of(8));
        let head = RawPatch { at: at.into(), len: (bytes.len() as u64).into() };
        if self.patches.is_empty() {
            self.patches.reserve(PATCHES_ROOM);
        }
        self.patches.extend_from_slice(head.as_bytes());
        self.patches.extend_from_slice(bytes);
    }

    /// Notes what is different in an inode, word by word.
    pub(crate) fn inode(&mut self, at: u64, old: &RawInode, new: &RawInode) {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let differs = |word: usize| old[word * 8..word * 8 + 8] != new[word * 8..word * 8 + 8];
        let words = old.len() / 8;
        let mut word = 0;
        while word < words {
            let start = word;
            while word < words && differs(word) {
                word += 1;
            }
            if start < word {
                self.patch(at + start as u64 * 8, &new[start * 8..word * 8]);
            }
            word += 1;
        }
    }

    /// Whether `bytes` more bytes in as many as `patches` patches still fit into the record.
    pub(crate) fn fits(&self, patches: u64, bytes: u64) -> bool {
        let heads = patches * size_of::<RawPatch>() as u64;
        self.patches.len() as u64 + heads + bytes <= PATCHES_MAX
    }
}
