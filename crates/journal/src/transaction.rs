//! The states of a transaction, each a type that only the state before makes:
//! [`Running`] → [`Closing`] → [`Logged`] → [`Committed`].

use std::collections::BTreeMap;
use std::sync::Arc;

use cores::{Condvar, Mutex, Nanos, Rank};
use drive::{Block, Lba};

use crate::buffer::Buffer;
use crate::chain::{Frontier, Marks};
use crate::error::{Error, Result};
use crate::ondisk::header::Tid;

/// A transaction of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Id {
    /// The area that logs it.
    pub area: u16,
    /// Its number there.
    pub tid: Tid,
}

/// The order in which transactions of all areas were closed. Images of a block are in this order:
/// who takes a block from a closed transaction is closed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A transaction that handles add to.
pub(crate) struct Running<K> {
    /// Its number.
    pub(crate) tid: Tid,
    /// When it began.
    pub(crate) since: Nanos,
    /// Whom it names. Threads of other areas add themselves.
    pub(crate) marks: Marks,
    /// The transaction before it and its stamp, once there is one: that may still be collecting its
    /// images.
    pub(crate) closed: Option<(Tid, Stamp)>,
    /// Buffers it has come to own; some may have been forgotten since.
    pub(crate) buffers: Vec<Arc<Buffer<K>>>,
    /// Blocks whose older images do not count any more.
    pub(crate) revoked: BTreeMap<Lba, Arc<Buffer<K>>>,
    /// Data that must be on the drive before it is committed.
    pub(crate) ordered: Vec<Arc<Pending>>,
}

impl<K> Running<K> {
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            since: cores::now(),
            marks: Marks::default(),
            closed: None,
            buffers: Vec::new(),
            revoked: BTreeMap::new(),
            ordered: Vec::new(),
        }
    }

    /// Without marks too: others may wait for the transaction's commit block.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
            && self.revoked.is_empty()
            && self.ordered.is_empty()
            && self.marks.named.is_empty()
    }

    /// Closes it, and begins the next one.
    pub(crate) fn take(&mut self, stamp: Stamp) -> Self {
        let next = Self { closed: Some((self.tid, stamp)), ..Self::new(self.tid.next()) };
        std::mem::replace(self, next)
    }
}

/// A transaction that nothing is added to any more: what it will log.
pub(crate) struct Closing<K> {
    pub(crate) id: Id,
    pub(crate) stamp: Stamp,
    pub(crate) named: Frontier,
    pub(crate) images: Vec<(Arc<Buffer<K>>, Block)>,
    pub(crate) revoked: BTreeMap<Lba, Arc<Buffer<K>>>,
    pub(crate) ordered: Vec<Arc<Pending>>,
}

/// A transaction all of which is in the log, but for its commit block.
pub(crate) struct Logged<K> {
    pub(crate) closed: Closing<K>,
    /// Where it begins in the log.
    pub(crate) start: u32,
    /// Blocks of the log it takes, with its commit block.
    pub(crate) blocks: u32,
    /// The log's block for its commit block.
    pub(crate) commit_at: u32,
}

/// A transaction whose commit block is durable, and whose images are not home.
pub(crate) struct Committed<K> {
    pub(crate) id: Id,
    pub(crate) stamp: Stamp,
    pub(crate) named: Frontier,
    pub(crate) start: u32,
    pub(crate) blocks: u32,
    pub(crate) buffers: Arc<[Arc<Buffer<K>>]>,
    pub(crate) revoked: Vec<Arc<Buffer<K>>>,
    /// Recovery would bring it back: those that it names are valid too.
    pub(crate) valid: bool,
}

impl<K> Closing<K> {
    /// Where it has been written in place, or its commit block at the end of `blocks` of the log
    /// from `start` is durable.
    pub(crate) fn committed(self, start: u32, blocks: u32) -> Committed<K> {
        let Self { id, stamp, named, images, revoked, .. } = self;
        let buffers = images.into_iter().map(|(buffer, _)| buffer).collect();
        let revoked = revoked.into_values().collect();
        Committed { id, stamp, named, start, blocks, buffers, revoked, valid: false }
    }
}

/// Transaction `stamp` is valid, so its images may go home. Older ones of the same blocks, and of
/// those that were revoked, need not any more.
pub(crate) fn validate<K>(stamp: Stamp, buffers: &[Arc<Buffer<K>>], revoked: &[Arc<Buffer<K>>]) {
    for buffer in buffers {
        let mut state = buffer.lock();
        state.images.retain(|image| image.stamp >= stamp);
        for image in state.images.iter_mut().filter(|image| image.stamp == stamp) {
            image.valid = true;
        }
    }
    for buffer in revoked {
        buffer.lock().images.retain(|image| image.stamp >= stamp);
    }
}

/// Data on its way to the drive, for which the commit of a transaction waits.
pub(crate) struct Pending {
    /// How it ended, once it has. Taken alone.
    done: Mutex<Option<Result<()>>>,
    ended: Condvar,
}

impl Pending {
    /// Waits for the end.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut done = self.done.lock();
        loop {
            match &*done {
                Some(written) => return written.clone(),
                None => self.ended.wait(&mut done),
            }
        }
    }

    fn end(&self, written: Result<()>) {
        *self.done.lock() = Some(written);
        self.ended.notify_all();
    }
}

/// The promise to say when data that a transaction depends on is on the drive
/// ([`crate::Handle::order`]). If it is dropped without a word, the commit fails.
#[must_use = "the commit of its transaction waits for the end"]
pub struct Ordered(Arc<Pending>);

impl Ordered {
    pub(crate) fn new() -> Self {
        let done = Mutex::ranked(Rank::Turns, "ordered data", None);
        Self(Arc::new(Pending { done, ended: Condvar::new() }))
    }

    pub(crate) fn pending(&self) -> Arc<Pending> {
        self.0.clone()
    }

    /// The drive has answered for all of the data.
    pub fn end(self, written: Result<()>) {
        self.0.end(written);
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        if self.0.done.lock().is_none() {
            self.0.end(Err(Error::Aborted));
        }
    }
}
