//! Checkpoints: images go home, and the log's blocks are free again
//! (`jbd2_log_do_checkpoint`, `jbd2_update_log_tail`).
//!
//! Order: the newest committed image of each block is written home; a flush makes them stable; the
//! superblock with the new tail is forced; only then the log's blocks may be written again. A cut
//! before the superblock leaves a log that brings back the same. A block with a newer committed
//! image is left to that one's transaction, which is behind the new tail.

use std::sync::Arc;

use cores::Stage;
use drive::{Block, Lba};
use queue::WriteSet;

use crate::area::{Area, Turns};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::transaction::{Committed, Id, Stamp};
use crate::{Client, Journal};

/// An image on its way home.
struct Homing<K> {
    buffer: Arc<Buffer<K>>,
    stamp: Stamp,
    block: Block,
}

impl<C: Client> Journal<C> {
    /// Makes room in the log, or waits until somebody has. The caller has no handle.
    pub(crate) fn make_room(&self, area: &Area<C::Kind>) -> Result<()> {
        if area.log.lock().committed.is_empty() {
            let tid = *area.gate.read();
            return self.commit(Id { area: area.index, tid });
        }
        self.checkpoint(area, false)
    }

    /// Writes home what the oldest transactions have logged, or all of them; or waits until
    /// somebody else has.
    fn checkpoint(&self, area: &Area<C::Kind>, all: bool) -> Result<()> {
        if !area.begin_homing()? {
            return Ok(());
        }
        let _span = cores::span(Stage::Checkpoint);
        let done = self.write_home(area, all);
        area.end_homing(done.as_ref().err());
        done
    }

    fn write_home(&self, area: &Area<C::Kind>, all: bool) -> Result<()> {
        let (count, last, buffers) = area.oldest(all);
        if count == 0 {
            return Ok(());
        }
        let homing = homing(buffers, last);
        let early = self.options.inject.contains(Inject::EARLY_TAIL);
        let written = if early {
            self.move_tail(area, count).and_then(|()| self.write(&homing))
        } else {
            self.write(&homing)
                .and_then(|()| self.flush())
                .and_then(|()| self.move_tail(area, count))
        };
        for Homing { buffer, stamp, .. } in homing {
            let mut state = buffer.lock();
            state.homing = false;
            if written.is_ok() {
                state.images.retain(|image| image.stamp > stamp);
            }
        }
        if written.is_ok() {
            area.log.lock().drop_oldest(count);
        }
        written
    }

    fn write(&self, homing: &[Homing<C::Kind>]) -> Result<()> {
        let mut set = WriteSet::default();
        for Homing { buffer, block, .. } in homing {
            set.push(&self.io, buffer.lba, block.clone());
        }
        set.submit(&self.io);
        Ok(set.wait(self.io.queue())?)
    }

    /// The log begins behind its `count` oldest transactions. Durable when this returns.
    fn move_tail(&self, area: &Area<C::Kind>, count: usize) -> Result<()> {
        let Some(ring) = &area.ring else { return Ok(()) };
        let superblock = {
            let mut log = area.log.lock();
            let (start, tid) = log.tail_behind(count);
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

    /// Commits everything, brings it home and closes the log in good order, for unmount: there is
    /// nothing to recover, and the next mount goes on with the next number, since blocks of this
    /// one's are still in the log. The caller has no handle and opens none any more.
    pub fn close(&self) -> Result<()> {
        self.commit_all()?;
        for area in &self.areas {
            while !area.log.lock().committed.is_empty() {
                self.checkpoint(area, true)?;
            }
            let Some(ring) = &area.ring else { continue };
            let closed = {
                let mut log = area.log.lock();
                let next = log.next;
                log.superblock.as_mut().map(|superblock| {
                    superblock.set_tail(None, next);
                    Block::from_prefix(&superblock.emit())
                })
            };
            closed.map_or(Ok(()), |block| self.force(ring.lba(0), block))?;
        }
        Ok(())
    }
}

/// Those of `buffers` whose newest committed image is not newer than `last`, with that image, in
/// the order of their addresses.
fn homing<K>(buffers: Vec<Arc<Buffer<K>>>, last: Stamp) -> Vec<Homing<K>> {
    let mut homing = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let mut state = buffer.lock();
        // A buffer may be in several of the transactions.
        let newest = state.newest_committed().filter(|image| !state.homing && image.stamp <= last);
        let Some((stamp, block)) = newest.map(|image| (image.stamp, image.block.clone())) else {
            continue;
        };
        state.homing = true;
        drop(state);
        homing.push(Homing { buffer, stamp, block });
    }
    homing.sort_by_key(|homing| homing.buffer.lba);
    homing
}

impl<K> Committed<K> {
    /// Where nothing is logged: its blocks have been written in place.
    pub(crate) fn went_home(self) {
        for buffer in self.buffers {
            buffer.lock().images.retain(|image| image.stamp > self.stamp);
        }
    }
}

impl<K> Area<K> {
    /// The oldest transactions, all or so many that a quarter of the log gets free: how many, the
    /// last one's stamp, and their buffers.
    fn oldest(&self, all: bool) -> (usize, Stamp, Vec<Arc<Buffer<K>>>) {
        let log = self.log.lock();
        let (mut blocks, mut count, mut last) = (0, 0, Stamp::default());
        let mut buffers = Vec::new();
        for transaction in &log.committed {
            if !all && blocks >= log.max {
                break;
            }
            blocks += transaction.blocks;
            count += 1;
            last = transaction.stamp;
            buffers.extend(transaction.buffers.iter().cloned());
        }
        (count, last, buffers)
    }

    /// Takes the turn to write home; false after somebody else's turn.
    fn begin_homing(&self) -> Result<bool> {
        let mut turns = self.turns.lock();
        if turns.failed.is_some() {
            return Err(Error::Aborted);
        }
        if std::mem::replace(&mut turns.homing, true) {
            drop(turns);
            self.wait_while(|turns| turns.homing);
            return Ok(false);
        }
        Ok(true)
    }

    /// A home write that failed leaves the tail where it was, and stops the journal.
    fn end_homing(&self, failed: Option<&Error>) {
        let mut turns = self.turns.lock();
        turns.homing = false;
        if let Some(error) = failed {
            turns.failed = Some(error.clone());
        }
        drop(turns);
        self.ended.notify_all();
    }

    pub(crate) fn wait_while(&self, is_so: impl Fn(&Turns) -> bool) {
        let mut turns = self.turns.lock();
        while is_so(&turns) {
            self.ended.wait(&mut turns);
        }
    }
}
