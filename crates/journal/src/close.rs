//! Closing the running transaction, and writing it to the log.

use cores::Stage;
use drive::{BLOCK_SIZE, Block, Lba};
use queue::{Io, WriteSet};

use crate::area::{Area, Ring};
use crate::buffer::Image;
use crate::inject::Inject;
use crate::ondisk::commit;
use crate::ondisk::descriptor::{Tag, needs_escape};
use crate::ondisk::header::Tid;
use crate::ondisk::revoke::{self, records_per_block};
use crate::transaction::{Closing, Id, Logged, Stamp};
use crate::{Client, Journal};

impl<C: Client> Journal<C> {
    /// Closes the area's running transaction; `None` if it has changed nothing. Waits for open
    /// handles; new ones wait for one pass over the transaction's buffers. The caller leads.
    pub(crate) fn close_running(&self, area: &Area<C::Kind>) -> Option<Closing<C::Kind>> {
        let mut gate = area.gate.write();
        let _span = cores::span(Stage::Journal);
        let running = {
            let mut running = area.running.lock();
            if running.is_empty() {
                return None;
            }
            std::mem::take(&mut *running)
        };
        let id = Id { area: area.index, tid: *gate };
        let stamp = Stamp(self.stamps.fetch_add(1));
        let mut images = Vec::with_capacity(running.buffers.len());
        for buffer in running.buffers {
            let mut guard = buffer.lock();
            let state = &mut *guard;
            // Otherwise it was freed since, or is here twice because it came back.
            let is_owned = state.owner.take_if(|owner| *owner == id).is_some();
            let (Some(live), Some(kind), true) = (&mut state.live, state.kind, is_owned) else {
                continue;
            };
            self.client.seal(kind, buffer.lba, live);
            let block = live.clone();
            state.images.push(Image { stamp, block: block.clone(), committed: false });
            drop(guard);
            images.push((buffer, block));
        }
        let mut revoked = running.revoked;
        if self.options.inject.contains(Inject::SKIP_REVOKE) {
            revoked.clear();
        }
        let mut log = area.log.lock();
        log.closing = area.cost(log.reserved);
        log.reserved = 0;
        *gate = gate.next();
        Some(Closing { id, stamp, images, revoked, ordered: running.ordered })
    }
}

/// Where the blocks of a transaction go, one after another.
struct Appender<'a> {
    ring: &'a Ring,
    io: &'a Io,
    set: &'a mut WriteSet,
    head: u32,
    blocks: u32,
}

impl Appender<'_> {
    fn push(&mut self, block: Block) {
        self.set.push(self.io, self.ring.lba(self.head), block);
        self.head = self.ring.next(self.head);
        self.blocks += 1;
    }

    fn images(&mut self, tid: Tid, images: &[(Lba, &Block)], inject: Inject) {
        let format = self.ring.format;
        for chunk in images.chunks(format.tags_per_block(BLOCK_SIZE)) {
            let mut tags = Vec::with_capacity(chunk.len());
            let mut logged = Vec::with_capacity(chunk.len());
            for (home, image) in chunk {
                let mut image = (*image).clone();
                let escaped = needs_escape(&image[..]) && !inject.contains(Inject::SKIP_ESCAPE);
                if escaped {
                    image.make_mut()[..4].fill(0);
                }
                tags.push(Tag { home: *home, escaped, sum: format.sum(tid, &image[..]) });
                logged.push(image);
            }
            let mut descriptor = Block::unspecified();
            format.emit(descriptor.make_mut(), tid, &tags);
            self.push(descriptor);
            logged.into_iter().for_each(|image| self.push(image));
        }
    }

    fn revokes(&mut self, tid: Tid, homes: &[u64]) {
        let (incompat, seed) = (self.ring.incompat, self.ring.seed);
        for chunk in homes.chunks(records_per_block(incompat, BLOCK_SIZE)) {
            let mut block = Block::unspecified();
            revoke::emit(block.make_mut(), tid, chunk, incompat, seed);
            self.push(block);
        }
    }
}

impl<K> Closing<K> {
    /// Submits everything but the commit block. If the log was closed in good order, its superblock
    /// goes ahead, which says that it is open: without, recovery would not look.
    pub(crate) fn log(
        self,
        area: &Area<K>,
        ring: &Ring,
        io: &Io,
        set: &mut WriteSet,
        inject: Inject,
    ) -> Logged<K> {
        let _span = cores::span(Stage::Journal);
        let tid = self.id.tid;
        let (start, opened) = area.begin_logging(tid);
        if let Some(superblock) = opened {
            set.push(io, ring.lba(0), superblock);
        }
        let mut to = Appender { ring, io, set, head: start, blocks: 0 };
        let revoked: Vec<u64> = self.revoked.keys().copied().collect();
        to.revokes(tid, &revoked);
        let images: Vec<_> =
            self.images.iter().map(|(buffer, block)| (buffer.lba, block)).collect();
        to.images(tid, &images, inject);
        let (commit_at, blocks) = (to.head, to.blocks + 1);
        set.submit(io);
        area.end_logging(ring.next(commit_at), blocks);
        Logged { closed: self, start, blocks, commit_at }
    }
}

impl<K> Logged<K> {
    /// Submits the commit block.
    pub(crate) fn commit(&self, ring: &Ring, io: &Io, set: &mut WriteSet, forced: bool) {
        let mut block = Block::unspecified();
        let seed = ring.incompat.has_sums().then_some(ring.seed);
        commit::emit(block.make_mut(), self.closed.id.tid, cores::wall_clock(), seed);
        let lba = ring.lba(self.commit_at);
        if forced {
            set.push_forced(io, lba, block);
        } else {
            set.push(io, lba, block);
            set.submit(io);
        }
    }
}

impl<K> Area<K> {
    /// Where the transaction begins in the log; and the block to write first, if the log is closed.
    fn begin_logging(&self, tid: Tid) -> (u32, Option<Block>) {
        let mut log = self.log.lock();
        let start = log.head;
        log.logging = Some(start);
        let closed = log.superblock.as_mut().filter(|superblock| superblock.start().is_none());
        let opened = closed.map(|superblock| {
            superblock.set_tail(Some(start), tid);
            Block::from_prefix(&superblock.emit())
        });
        (start, opened)
    }

    fn end_logging(&self, head: u32, blocks: u32) {
        let mut log = self.log.lock();
        debug_assert!(blocks <= log.closing && blocks <= log.free, "the log has no room");
        log.head = head;
        log.free -= blocks;
        log.closing = 0;
    }
}
