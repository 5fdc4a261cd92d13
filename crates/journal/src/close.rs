//! Closing the running transaction, and writing it to the log.

use cores::Stage;
use drive::{Block, Lba};
use queue::{Io, WriteSet};

use crate::area::{Area, Ring};
use crate::buffer::{Buffer, State};
use crate::chain::Frontier;
use crate::inject::Inject;
use crate::ondisk::commit::{self, Link};
use crate::ondisk::descriptor::{Tag, needs_escape};
use crate::ondisk::header::Tid;
use crate::ondisk::revoke::{self, records_per_block};
use crate::transaction::{Closing, Id, Logged, Running, Stamp};
use crate::{Client, Journal};

impl<C: Client> Journal<C> {
    /// Closes the running transactions of `areas`, which the caller leads, in the order of areas.
    /// Waits for open handles; new ones go on at once. Those that have changed nothing stay.
    ///
    /// With `wanted`, closes nothing if they name others that are not wanted yet, adds these, and
    /// returns `None`. Who is named is final: marks are made under the locks that are held here,
    /// and a closed transaction takes none.
    pub(crate) fn close_running(
        &self,
        areas: &[&Area<C::Kind>],
        wanted: Option<&mut Frontier>,
    ) -> Option<Vec<Closing<C::Kind>>> {
        let mut gates: Vec<_> = areas.iter().map(|area| area.gate.write()).collect();
        let _span = cores::span(Stage::Journal);
        let mut closed: Vec<(usize, Stamp, Running<C::Kind>)> = Vec::with_capacity(areas.len());
        {
            let mut all: Vec<_> = areas.iter().map(|area| area.running.lock()).collect();
            if let Some(wanted) = wanted {
                let named = all.iter().flat_map(|running| running.marks.named.iter()).collect();
                if self.chain.want(wanted, &named) {
                    return None;
                }
            }
            for (place, running) in all.iter_mut().enumerate() {
                if !running.is_empty() {
                    let stamp = Stamp(self.stamps.fetch_add(1));
                    closed.push((place, stamp, running.take(stamp)));
                }
            }
        }
        for (place, ..) in &closed {
            let (area, gate) = (areas[*place], &mut gates[*place]);
            // No handle is open, so credits are those that were used.
            let mut log = area.log.lock();
            let used = area.credits.load();
            debug_assert!(used <= u32::MAX.into(), "{used:#x}: a handle is open");
            log.closing = area.cost(used as u32);
            area.credits.store(0);
            area.note_room(&log);
            **gate = gate.next();
        }
        drop(gates);
        let collect =
            |(place, stamp, running): (usize, Stamp, _)| self.collect(areas[place], stamp, running);
        Some(closed.into_iter().map(collect).collect())
    }

    /// Collects the images of a transaction that was just closed. Threads that change its buffers
    /// meanwhile freeze them.
    fn collect(
        &self,
        area: &Area<C::Kind>,
        stamp: Stamp,
        running: Running<C::Kind>,
    ) -> Closing<C::Kind> {
        let Running { tid, marks, buffers, mut revoked, ordered, .. } = running;
        let id = area.id(tid);
        let mut images = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            let mut state = buffer.lock();
            if state.owner == Some(id) {
                self.freeze_as(&buffer, &mut state, id, stamp);
            }
            // Otherwise it was freed since, or is here twice because it came back.
            let image = state.images.iter_mut().find(|image| image.stamp == stamp);
            let Some(image) = image.filter(|image| !image.collected) else { continue };
            image.collected = true;
            let block = image.block.clone();
            drop(state);
            images.push((buffer, block));
        }
        if self.options.inject.contains(Inject::SKIP_REVOKE) {
            revoked.clear();
        }
        Closing { id, stamp, named: marks.named, images, revoked, ordered }
    }

    /// The live block becomes the image of `owner`, which is being closed and has not come by yet.
    pub(crate) fn freeze(&self, buffer: &Buffer<C::Kind>, state: &mut State<C::Kind>, owner: Id) {
        let closed = self.areas[usize::from(owner.area)].running.lock().closed;
        let (tid, stamp) = closed.expect("an owner is running or was just closed");
        debug_assert!(tid == owner.tid, "{owner:?} is closed, and {tid} after it");
        self.freeze_as(buffer, state, owner, stamp);
    }

    fn freeze_as(
        &self,
        buffer: &Buffer<C::Kind>,
        state: &mut State<C::Kind>,
        of: Id,
        stamp: Stamp,
    ) {
        state.freeze(of, stamp, |kind, block| self.client.seal(kind, buffer.lba, block));
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
        let (format, size) = (self.ring.format, self.ring.size);
        for chunk in images.chunks(format.tags_per_block(size)) {
            let mut tags = Vec::with_capacity(chunk.len());
            let mut logged = Vec::with_capacity(chunk.len());
            for (home, image) in chunk {
                let mut image = (*image).clone();
                let escaped = needs_escape(&image[..]) && !inject.contains(Inject::SKIP_ESCAPE);
                if escaped {
                    image.make_mut()[..4].fill(0);
                }
                tags.push(Tag { home: *home, escaped, sum: format.sum(tid, &image[..size]) });
                logged.push(image);
            }
            let mut descriptor = Block::unspecified();
            format.emit(&mut descriptor.make_mut()[..size], tid, &tags);
            self.push(descriptor);
            logged.into_iter().for_each(|image| self.push(image));
        }
    }

    fn revokes(&mut self, tid: Tid, homes: &[u64]) {
        let Ring { incompat, seed, size, .. } = *self.ring;
        for chunk in homes.chunks(records_per_block(incompat, size)) {
            let mut block = Block::unspecified();
            revoke::emit(&mut block.make_mut()[..size], tid, chunk, incompat, seed);
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
    /// Submits the commit block, with a `link` where the log has areas.
    pub(crate) fn commit(
        &self,
        ring: &Ring,
        io: &Io,
        set: &mut WriteSet,
        link: Option<&Link>,
        forced: bool,
    ) {
        let mut block = Block::unspecified();
        let seed = ring.incompat.has_sums().then_some(ring.seed);
        let bytes = &mut block.make_mut()[..ring.size];
        commit::emit(bytes, self.closed.id.tid, cores::wall_clock(), link, seed);
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
        self.note_room(&log);
    }
}
