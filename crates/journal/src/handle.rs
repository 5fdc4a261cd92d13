//! Handles: operations of a file system in the running transaction (`handle_t`).

use std::sync::Arc;

use cores::PerCoreReadGuard;
use drive::{Block, Lba};

use crate::area::{Area, Room};
use crate::buffer::{Buffer, State};
use crate::chain::Frontier;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::ondisk::header::Tid;
use crate::transaction::{Id, Ordered};
use crate::{Client, Journal};

/// A block kept in memory, so that changing it needs no read.
pub struct Pin<K>(pub(crate) Arc<Buffer<K>>);

impl<K> Pin<K> {
    /// Reads the block as it is now. `f` runs under the buffer's lock and must not use the journal.
    pub fn read<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        let state = self.0.lock();
        f(state.live.as_ref().map_or(&[], |live| &live[..]))
    }
}

/// An operation under way: what it changes becomes durable together.
///
/// It is open until it is dropped, and its transaction is not committed before that. So its
/// owner must not wait for a commit, for log room, or for another thread that might.
pub struct Handle<'j, C: Client> {
    journal: &'j Journal<C>,
    area: &'j Area<C::Kind>,
    /// The running transaction; `None` only within [`Handle::restart`].
    gate: Option<PerCoreReadGuard<'j, Tid>>,
    tid: Tid,
    /// Blocks it may still add to the transaction.
    credits: u32,
    /// For [`Inject::LATE_MARK`].
    late: Vec<u16>,
}

/// How a handle meets a buffer that it is about to change.
enum Met {
    /// Its transaction has it already, or a partner of that.
    Stays,
    /// The newest image is of this transaction of another area, if it is of another.
    After(Option<Id>),
}

impl<C: Client> Journal<C> {
    /// Begins an operation that changes or frees up to `credits` blocks. Waits until the log has
    /// room for them, so the caller must hold no lock that a commit or a checkpoint may want.
    pub fn start(&self, credits: u32) -> Result<Handle<'_, C>> {
        let area = self.area();
        let (gate, tid) = self.enter(area, credits)?;
        Ok(Handle { journal: self, area, gate: Some(gate), tid, credits, late: Vec::new() })
    }

    fn enter<'j>(
        &'j self,
        area: &'j Area<C::Kind>,
        credits: u32,
    ) -> Result<(PerCoreReadGuard<'j, Tid>, Tid)> {
        cores::may_sleep();
        loop {
            let gate = area.gate.read();
            area.check_open()?;
            match area.join(credits)? {
                Room::Enough => {
                    let tid = *gate;
                    return Ok((gate, tid));
                }
                _ if self.options.is_single => {
                    let wanted = credits.saturating_add(area.credits.load() as u32);
                    return Err(Error::TooLarge { wanted, max: area.max });
                }
                Room::FullTransaction => {
                    let tid = *gate;
                    drop(gate);
                    self.make_place(area.id(tid))?;
                }
                Room::FullLog => {
                    drop(gate);
                    self.make_room(area)?;
                }
            }
        }
    }
}

impl<C: Client> Handle<'_, C> {
    /// The transaction, which must be committed to make this operation durable.
    pub fn id(&self) -> Id {
        self.area.id(self.tid)
    }

    /// The block at `lba` as it is now.
    pub fn get(&self, lba: Lba) -> Result<Block> {
        self.journal.get(lba)
    }

    /// Changes the block at `lba`, which is read if memory does not have it. `f` runs under the
    /// buffer's lock and must not use the journal. The transaction logs the block as it is when the
    /// transaction is closed.
    pub fn change<T>(
        &mut self,
        lba: Lba,
        kind: C::Kind,
        f: impl FnOnce(&mut [u8; drive::BLOCK_SIZE]) -> T,
    ) -> Result<T> {
        let pin = self.journal.pin(lba)?;
        Ok(self.change_pinned(&pin, kind, f))
    }

    /// As [`Handle::change`], for a block that is pinned: cannot fail.
    pub fn change_pinned<T>(
        &mut self,
        pin: &Pin<C::Kind>,
        kind: C::Kind,
        f: impl FnOnce(&mut [u8; drive::BLOCK_SIZE]) -> T,
    ) -> T {
        let mut state = pin.0.lock();
        self.own(&pin.0, &mut state, kind);
        // Only its user frees a pinned block, and then starts from zeroes.
        f(state.live.get_or_insert_with(Block::zeroed).make_mut())
    }

    /// The block at `lba` is now `block`, whatever it was: for blocks just allocated. Cannot fail.
    pub fn create(&mut self, lba: Lba, kind: C::Kind, block: Block) {
        let buffer = self.journal.buffers.get(lba);
        let mut state = buffer.lock();
        self.own(&buffer, &mut state, kind);
        state.live = Some(block);
    }

    /// The block at `lba` is freed: it is not logged any more, and recovery must not bring back
    /// older images of it (a *revoke*). It may be used again in this transaction, and by others
    /// once [`Client::committed`] has named this transaction. Cannot fail.
    pub fn forget(&mut self, lba: Lba) {
        let buffer = self.journal.buffers.get(lba);
        let mut state = buffer.lock();
        self.meet(&buffer, &mut state);
        state.live = None;
        state.disown();
        let has_images = !state.images.is_empty();
        let mut running = self.area.running.lock();
        // The revoke must stay in the log as long as they do, also if a running partner has taken
        // the block from them since.
        if let Some(of) = state.newest_of_others(self.area.index) {
            running.marks.named.add(of);
        }
        if has_images && running.revoked.insert(lba, buffer.clone()).is_none() {
            drop((running, state));
            self.spend();
        }
    }

    /// The transaction is not committed before the data is on the drive that the caller is about to
    /// submit, and of which it says so by the answer. Between this and that the caller must not
    /// wait for room in the log or for a commit.
    pub fn order(&mut self) -> Ordered {
        let ordered = Ordered::new();
        self.area.running.lock().ordered.push(ordered.pending());
        ordered
    }

    /// Takes `credits` more without waiting; false if there is no room. Then
    /// [`Handle::restart`] is left.
    pub fn extend(&mut self, credits: u32) -> bool {
        let has_room = matches!(self.area.reserve(credits), Ok(Room::Enough));
        self.credits += if has_room { credits } else { 0 };
        has_room
    }

    /// Ends this operation and begins another one with `credits`. What has been changed so far may
    /// become durable without what follows, so it must be consistent by itself; the caller must
    /// hold no locks, as for [`Journal::start`].
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.leave();
        let (gate, tid) = self.journal.enter(self.area, credits)?;
        (self.gate, self.tid, self.credits) = (Some(gate), tid, credits);
        Ok(())
    }

    /// Blocks it may still change.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// The transaction will log the buffer, unless a running one that it now depends on does.
    fn own(&mut self, buffer: &Arc<Buffer<C::Kind>>, state: &mut State<C::Kind>, kind: C::Kind) {
        let met = self.meet(buffer, state);
        state.kind = Some(kind);
        let Met::After(of) = met else { return };
        state.owner = Some(self.id());
        let mut running = self.area.running.lock();
        if let Some(of) = of {
            running.marks.named.add(of);
        }
        running.buffers.push(buffer.clone());
        // Logged again in the same transaction, its new image counts.
        let cancelled = running.revoked.remove(&buffer.lba).is_some();
        drop(running);
        if !cancelled {
            self.spend();
        }
    }

    /// Before the buffer changes: whose changes does it have?
    fn meet(&mut self, buffer: &Arc<Buffer<C::Kind>>, state: &mut State<C::Kind>) -> Met {
        let id = self.id();
        if let Some(owner) = state.owner {
            if owner == id || state.joined.has(id) {
                return Met::Stays;
            }
            if owner.area != id.area && self.join(owner) {
                state.joined.add(id);
                return Met::Stays;
            }
            self.journal.freeze(buffer, state, owner);
        }
        Met::After(state.newest_of_others(id.area))
    }

    /// This transaction and `owner` name one another, at least by way of partners they have in
    /// common. False if that one is closed by now.
    fn join(&mut self, owner: Id) -> bool {
        let ours = {
            let running = self.area.running.lock();
            if running.marks.partners.has(owner) {
                return true;
            }
            running.marks.partners.clone()
        };
        let id = self.id();
        let mut running = self.journal.areas[usize::from(owner.area)].running.lock();
        if running.tid != owner.tid {
            return false;
        }
        let theirs = running.marks.partners.clone();
        if self.journal.options.inject.contains(Inject::LATE_MARK) {
            self.late.push(owner.area);
        } else {
            running.marks.add_partner(id, &ours);
        }
        drop(running);
        self.area.running.lock().marks.add_partner(owner, &theirs);
        true
    }

    fn spend(&mut self) {
        debug_assert!(self.credits > 0, "more blocks than credits");
        match self.credits.checked_sub(1) {
            Some(left) => self.credits = left,
            // The log has room for more than what is promised, unless a transaction is all of it.
            None => drop(self.area.credits.fetch_add(1)),
        }
    }

    fn leave(&mut self) {
        for area in std::mem::take(&mut self.late) {
            let id = self.id();
            let mut running = self.journal.areas[usize::from(area)].running.lock();
            running.marks.add_partner(id, &Frontier::default());
        }
        // What is left of the promise goes back before the transaction can be closed.
        self.area.part(std::mem::take(&mut self.credits));
        self.gate = None;
    }
}

impl<C: Client> Drop for Handle<'_, C> {
    fn drop(&mut self) {
        if self.gate.is_some() {
            self.leave();
        }
    }
}
