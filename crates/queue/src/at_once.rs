//! The way through the block layer to a drive that answers at once, as ramdisk-mq does.
//!
//! Nothing completes later, so a command needs no ticket at the hardware queue and takes no lock of
//! it. What cores share is what they share in the kernel: words of tags, the request that comes
//! with a tag, and for plugged commands the software queues and the bits that say which of them are
//! not empty. The thread that runs a hardware queue carries out all it finds, also commands of
//! other cores (`blk_mq_flush_busy_ctxs`).

use std::sync::atomic::{AtomicU64, Ordering};

use cores::Line;
use drive::{Command, Drive, Status};
use smallvec::SmallVec;

use crate::describe;
use crate::failures::Failures;
use crate::options::{Linux, QueueStats};
use crate::request::{Request, Shares};
use crate::slots::Answer;
use crate::soft::SoftQueue;
use crate::tags::TagSet;

/// Software queues whose bits share a line (`sbitmap_init_node(&hctx->ctx_map, .., ilog2(8), ..)`).
const BITS: usize = 8;

/// One hardware queue of such a drive.
pub(crate) struct AtOnce {
    queue: u16,
    tags: TagSet,
    /// The request of each tag in memory, which moves to the core that uses it; counts the uses.
    requests: Box<[Line]>,
    /// The line from which all read where the tags are. See [`Linux::V4`].
    counter: Option<Line>,
    /// Which software queues have requests (`ctx_map`).
    pending: Box<[Line]>,
    /// For statistics only, so that counting takes no time.
    merged: AtomicU64,
    tag_waits: AtomicU64,
}

impl AtOnce {
    /// Hardware queue `queue` with `cores` software queues.
    pub(crate) fn new(depth: u16, queue: u16, cores: usize, linux: Linux) -> Self {
        Self {
            queue,
            tags: TagSet::new(depth, queue, linux),
            requests: (0..depth).map(|_| Line::new(0)).collect(),
            counter: (linux == Linux::V4).then(|| Line::new(0)),
            pending: (0..cores.div_ceil(BITS)).map(|_| Line::new(0)).collect(),
            merged: AtomicU64::new(0),
            tag_waits: AtomicU64::new(0),
        }
    }

    /// A tag and its request, if there is one.
    pub(crate) fn try_tag(&self) -> Option<u16> {
        self.look_up();
        let tag = self.tags.get();
        if tag.is_none() {
            self.tag_waits.fetch_add(1, Ordering::Relaxed);
        }
        tag.inspect(|tag| self.use_request(*tag))
    }

    /// A tag and its request. If there is none, first does what `before_sleep` says.
    pub(crate) fn tag(&self, before_sleep: impl FnOnce()) -> u16 {
        self.try_tag().unwrap_or_else(|| {
            before_sleep();
            let tag = self.tags.get_or_sleep();
            self.use_request(tag);
            tag
        })
    }

    fn use_request(&self, tag: u16) {
        self.requests[usize::from(tag)].fetch_add(1);
        self.count();
    }

    /// Carries out a command.
    pub(crate) fn carry_out(
        &self,
        drive: &dyn Drive,
        failures: &Failures,
        tag: u16,
        command: Command,
    ) -> Answer {
        let what = describe(&command);
        let completion = drive.issue(self.queue, tag, command);
        let answer = completion.map_or(Err(Status::NotReady), |completion| completion.result);
        failures.note(what, &answer);
        answer
    }

    /// Ends the request with this tag.
    pub(crate) fn end(&self, tag: u16) {
        self.look_up();
        self.tags.put(tag);
    }

    /// Carries out what is in the software queues `soft`, which are those of this hardware queue.
    pub(crate) fn run<'a>(
        &self,
        drive: &dyn Drive,
        failures: &Failures,
        soft: impl Fn(usize) -> Option<&'a SoftQueue>,
    ) {
        let mut taken: SmallVec<[(&SoftQueue, Request); 4]> = SmallVec::new();
        for soft in self.busy().filter_map(soft) {
            soft.take_all(|request| taken.push((soft, request)));
        }
        if taken.is_empty() {
            return;
        }
        // `run` and `dispatched`
        self.count();
        for (soft, request) in taken {
            let Request { command, tag, parts, .. } = request;
            let tag = tag.unwrap_or(0);
            let mut shares = Shares::of(self.carry_out(drive, failures, tag, command));
            self.end(tag);
            for part in parts {
                soft.answer(part.slot, shares.next(part.blocks));
            }
        }
    }

    /// The software queue `index` has a request.
    pub(crate) fn note_pending(&self, index: usize) {
        let (word, bit) = (&self.pending[index / BITS], 1 << (index % BITS));
        if word.load() & bit == 0 {
            word.fetch_or(bit);
        }
    }

    pub(crate) fn note_merged(&self) {
        self.merged.fetch_add(1, Ordering::Relaxed);
    }

    /// What the queue has done so far.
    pub(crate) fn stats(&self) -> QueueStats {
        let sent = self.requests.iter().map(Line::load).sum();
        let merged = self.merged.load(Ordering::Relaxed);
        let tag_waits = self.tag_waits.load(Ordering::Relaxed);
        QueueStats { submitted: sent + merged, merged, sent, answered: sent, tag_waits }
    }

    /// The software queues that have requests. Each is taken off the list before it is looked into,
    /// so what comes later is noted anew.
    fn busy(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending.iter().enumerate().flat_map(|(at, word)| {
            let noted = word.load();
            let bits = (0..BITS).filter(move |bit| noted >> bit & 1 == 1);
            let taken = bits.filter(|bit| word.fetch_and(!(1 << bit)) >> bit & 1 == 1);
            taken.map(move |bit| at * BITS + bit)
        })
    }

    fn look_up(&self) {
        self.counter.as_ref().map(Line::load);
    }

    fn count(&self) {
        self.counter.as_ref().map(|counter| counter.fetch_add(1));
    }
}
