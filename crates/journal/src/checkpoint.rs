//! Checkpoints: images go home, and the log's blocks are free again
//! (`jbd2_log_do_checkpoint`, `jbd2_update_log_tail`).
//!
//! Order: the newest valid image of each block is written home; a flush makes them stable; the
//! superblock or table with the new tails is forced; only then the log's blocks may be written
//! again. A cut before that write leaves a log that brings back the same. A block with a newer
//! valid image is left to that one's transaction, if that is behind the new tail.
//!
//! Where there are several areas, a tail passes a transaction T only together with, or after, every
//! older one that T names: otherwise recovery would bring an older image of a block over T's, which
//! is home. Newer ones that T names are valid and stay so. Hence no circle: the oldest of all can
//! always go.

use std::sync::Arc;

use cores::{Condvar, Mutex, Rank, Stage};
use drive::{Block, Lba};
use queue::WriteSet;

use crate::area::{Area, Log, Ring};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::inject::Inject;
use crate::ondisk::header::Tid;
use crate::ondisk::superblock::Incompat;
use crate::transaction::{Committed, Id, Stamp};
use crate::{Client, Journal};

/// Whether a thread writes images home.
pub(crate) struct Homing {
    /// Locked alone, or with nothing but the turn to commit.
    is_busy: Mutex<bool>,
    ended: Condvar,
}

/// An image on its way home.
struct Going<K> {
    buffer: Arc<Buffer<K>>,
    stamp: Stamp,
    block: Block,
}

/// How far a checkpoint goes: of each area, how many of its oldest transactions, and the last one's
/// number.
type Passing = Vec<Option<(usize, Tid)>>;

impl<C: Client> Journal<C> {
    /// Makes room in the log, or waits until another thread has. The caller has no handle.
    pub(crate) fn make_room(&self, area: &Area<C::Kind>) -> Result<()> {
        let oldest = area.log.lock().committed.front().map(|oldest| (oldest.id, oldest.valid));
        match oldest {
            None => {
                let tid = *area.gate.read();
                self.make_place(area.id(tid))
            }
            // It waits for transactions that may never be closed otherwise.
            Some((id, false)) => self.commit(id),
            Some((_, true)) => self.checkpoint(area, false),
        }
    }

    /// Writes home what the area's oldest transactions have logged, or all of its valid ones; or
    /// waits until another thread's checkpoint has ended.
    fn checkpoint(&self, area: &Area<C::Kind>, all: bool) -> Result<()> {
        area.check()?;
        if !self.homing.begin() {
            return Ok(());
        }
        let _span = cores::span(Stage::Checkpoint);
        let done = self.write_home(area, all);
        if let Err(error) = &done {
            // The tail stays where it is, and nothing can make room any more.
            self.abort(error);
        }
        self.homing.end();
        done
    }

    fn write_home(&self, area: &Area<C::Kind>, all: bool) -> Result<()> {
        let passing = self.passing(area, all);
        let homing = self.going(&passing);
        let early = self.options.inject.contains(Inject::EARLY_TAIL);
        let written = if early {
            self.move_tails(&passing).and_then(|()| self.write(&homing))
        } else {
            self.write(&homing).and_then(|()| self.flush()).and_then(|()| self.move_tails(&passing))
        };
        for Going { buffer, stamp, .. } in homing {
            let mut state = buffer.lock();
            state.homing = false;
            if written.is_ok() {
                state.images.retain(|image| image.stamp > stamp);
            }
        }
        if written.is_ok() {
            for (area, passed) in self.areas.iter().zip(&passing) {
                if let Some((count, _)) = *passed {
                    area.drop_oldest(count);
                }
            }
        }
        written
    }

    /// The oldest valid transactions of `area`, all or so many that a quarter of its log gets free,
    /// with all older ones that they name.
    fn passing(&self, area: &Area<C::Kind>, all: bool) -> Passing {
        let mut passing = vec![None; self.areas.len()];
        let mut work = vec![(area, area.oldest(all))];
        while let Some((area, upto)) = work.pop() {
            let log = area.log.lock();
            let (from, _) = passing[usize::from(area.index)].unwrap_or((0, Tid::default()));
            let new = log.committed.iter().enumerate().take(upto).skip(from);
            let mut named: Vec<(Id, Stamp)> = Vec::new();
            for (place, transaction) in new {
                let Committed { id, stamp, named: names, .. } = transaction;
                passing[usize::from(area.index)] = Some((place + 1, id.tid));
                named.extend(names.iter().map(|id| (id, *stamp)));
            }
            drop(log);
            if self.options.inject.contains(Inject::TAIL_AHEAD) {
                continue;
            }
            for (id, before) in named {
                let Some(other) = self.areas.get(usize::from(id.area)) else { continue };
                work.push((other, other.older(id.tid, before)));
            }
        }
        passing
    }

    /// The images that must be home before the tails pass: of each block the newest valid one,
    /// unless that stays in the log. In the order of their addresses.
    fn going(&self, passing: &Passing) -> Vec<Going<C::Kind>> {
        let mut going = Vec::new();
        for (area, passed) in self.areas.iter().zip(passing) {
            let Some((count, _)) = *passed else { continue };
            let lists: Vec<_> = {
                let log = area.log.lock();
                log.committed.iter().take(count).map(|one| one.buffers.clone()).collect()
            };
            for buffer in lists.iter().flat_map(|list| list.iter()) {
                let mut state = buffer.lock();
                // A buffer may be in several of the transactions.
                let newest = state.newest_valid().filter(|image| {
                    let passed = passing[usize::from(image.of.area)];
                    !state.homing && passed.is_some_and(|(_, last)| last.reaches(image.of.tid))
                });
                let Some((stamp, block)) = newest.map(|image| (image.stamp, image.block.clone()))
                else {
                    continue;
                };
                state.homing = true;
                drop(state);
                going.push(Going { buffer: buffer.clone(), stamp, block });
            }
        }
        going.sort_by_key(|going| going.buffer.lba);
        going
    }

    fn write(&self, homing: &[Going<C::Kind>]) -> Result<()> {
        let mut set = WriteSet::default();
        for Going { buffer, block, .. } in homing {
            set.push(&self.io, buffer.lba, block.clone());
        }
        set.submit(&self.io);
        Ok(set.wait(self.io.queue())?)
    }

    /// The logs begin behind these transactions. Durable when this returns.
    fn move_tails(&self, passing: &Passing) -> Result<()> {
        let passed = self.areas.iter().zip(passing);
        let moved = passed.filter_map(|(area, passed)| {
            let (count, _) = (*passed)?;
            Some((area, area.log.lock().tail_behind(count)))
        });
        let moved: Vec<_> = moved.collect();
        if let Some(tails) = &self.tails {
            let moved = moved.into_iter().map(|(area, tail)| (area.index, tail));
            return tails.advance(&self.io, moved);
        }
        let [(area, (start, tid))] = moved[..] else { return Ok(()) };
        let Some(ring) = &area.ring else { return Ok(()) };
        let superblock = {
            let mut log = area.log.lock();
            let Some(superblock) = &mut log.superblock else { return Ok(()) };
            superblock.set_tail(Some(start), tid);
            Block::from_prefix(&superblock.emit())
        };
        self.force(ring.lba(0), superblock)
    }

    fn force(&self, lba: Lba, block: Block) -> Result<()> {
        let mut set = WriteSet::default();
        set.push_forced(&self.io, lba, block);
        Ok(set.wait(self.io.queue())?)
    }

    /// Prevents a closed transaction from wrapping around the log's end, if an area for fast
    /// commits is behind it: there e2fsck up to 1.47 at least and kernels before 2dfba3bb40ad read
    /// on into the area. The log is emptied, and begins at its start again. The logs of several
    /// areas wrap: only we recover those, and where they begin the table says, not the superblock.
    pub(crate) fn keep_in_one_piece(&self, area: &Area<C::Kind>, ring: &Ring) -> Result<()> {
        let fits = |log: &Log<C::Kind>| log.head + log.closing < ring.end;
        let must_fit = self.tails.is_none() && ring.incompat.contains(Incompat::FAST_COMMIT);
        if !must_fit || fits(&area.log.lock()) {
            return Ok(());
        }
        while !area.log.lock().committed.is_empty() {
            self.checkpoint(area, true)?;
        }
        while !self.homing.begin() {}
        let superblock = {
            let mut log = area.log.lock();
            log.head = ring.first;
            let next = log.next;
            let open = log.superblock.as_mut().filter(|superblock| superblock.start().is_some());
            open.map(|superblock| {
                superblock.set_tail(Some(ring.first), next);
                Block::from_prefix(&superblock.emit())
            })
        };
        let done = superblock.map_or(Ok(()), |block| self.force(ring.lba(0), block));
        self.homing.end();
        done
    }

    /// Commits what handles have changed until now, and brings it home: recovery will not bring
    /// back anything of it (`jbd2_journal_flush`). The caller has no handle.
    pub fn bring_home(&self) -> Result<()> {
        let last: Vec<Tid> = self.areas.iter().map(|area| *area.gate.read()).collect();
        self.commit_all()?;
        for (area, last) in self.areas.iter().zip(last) {
            let is_in_log = |area: &Area<C::Kind>| {
                area.log.lock().committed.front().is_some_and(|oldest| last.reaches(oldest.id.tid))
            };
            while is_in_log(area) {
                self.checkpoint(area, true)?;
            }
        }
        Ok(())
    }

    /// Commits everything, brings it home and closes the log in good order, for unmount: there is
    /// nothing to recover, and the next mount goes on with the next number, since blocks of this
    /// one's are still in the log. The caller has no handle; from here on opening one fails
    /// ([`Error::Closed`](crate::Error::Closed)), or a commit could end in a log that says it is
    /// empty.
    pub fn close(&self) -> Result<()> {
        self.areas.iter().for_each(Area::close);
        self.bring_home()?;
        let next = self.areas.iter().map(|area| area.log.lock().next);
        let Some(next) = next.reduce(|last, next| if next.is_after(last) { next } else { last })
        else {
            return Ok(());
        };
        if let Some(tails) = &self.tails {
            return tails.end(&self.io, next);
        }
        let [Area { ring: Some(ring), log, .. }] = &*self.areas else { return Ok(()) };
        let closed = log.lock().superblock.as_mut().map(|superblock| {
            superblock.set_tail(None, next);
            superblock.drop_records();
            Block::from_prefix(&superblock.emit())
        });
        closed.map_or(Ok(()), |block| self.force(ring.lba(0), block))
    }
}

impl<K> Committed<K> {
    /// Where nothing is logged: its blocks have been written in place.
    pub(crate) fn went_home(self) {
        for buffer in &*self.buffers {
            buffer.lock().images.retain(|image| image.stamp > self.stamp);
        }
    }
}

impl<K> Area<K> {
    /// How many of the oldest transactions are valid, all or so many that a quarter of the log gets
    /// free.
    fn oldest(&self, all: bool) -> usize {
        let log = self.log.lock();
        let (mut blocks, mut count) = (0, 0);
        for transaction in log.committed.iter().take_while(|transaction| transaction.valid) {
            if !all && blocks >= self.max {
                break;
            }
            blocks += transaction.blocks;
            count += 1;
        }
        count
    }

    /// How many of the oldest transactions are not newer than `tid` and were closed before
    /// `before`.
    fn older(&self, tid: Tid, before: Stamp) -> usize {
        let log = self.log.lock();
        let is_older = |other: &&Committed<K>| tid.reaches(other.id.tid) && other.stamp < before;
        log.committed.iter().take_while(is_older).count()
    }
}

impl Default for Homing {
    fn default() -> Self {
        let is_busy = Mutex::ranked(Rank::Commit, "journal checkpoint", false).keyed(u64::MAX);
        Self { is_busy, ended: Condvar::new() }
    }
}

impl Homing {
    /// Begins a checkpoint; false after waiting for another thread's.
    fn begin(&self) -> bool {
        let mut is_busy = self.is_busy.lock();
        if std::mem::replace(&mut *is_busy, true) {
            while *is_busy {
                self.ended.wait(&mut is_busy);
            }
            return false;
        }
        true
    }

    fn end(&self) {
        *self.is_busy.lock() = false;
        self.ended.notify_all();
    }

    /// Waits for the end of the turn under way.
    pub(crate) fn wait(&self) {
        let mut is_busy = self.is_busy.lock();
        while *is_busy {
            self.ended.wait(&mut is_busy);
        }
    }
}
