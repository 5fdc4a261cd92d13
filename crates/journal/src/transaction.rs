//! The states of a transaction, each a type that only the state before makes:
//! [`Running`] → [`Closing`] → [`Logged`] → [`Committed`].

use std::collections::BTreeMap;
use std::sync::Arc;

use cores::{Condvar, Mutex, Rank};
use drive::{Block, Lba};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::ondisk::header::Tid;

/// A transaction of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The area that logs it.
    pub area: u16,
    /// Its number there.
    pub tid: Tid,
}

/// The order in which transactions of all areas were closed; images of a block are in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A transaction that handles add to.
pub(crate) struct Running<K> {
    /// Buffers it has come to own; some may have been forgotten since.
    pub(crate) buffers: Vec<Arc<Buffer<K>>>,
    /// Blocks whose older images do not count any more.
    pub(crate) revoked: BTreeMap<Lba, Arc<Buffer<K>>>,
    /// Data that must be on the drive before it is committed.
    pub(crate) ordered: Vec<Arc<Pending>>,
}

impl<K> Default for Running<K> {
    fn default() -> Self {
        Self { buffers: Vec::new(), revoked: BTreeMap::new(), ordered: Vec::new() }
    }
}

impl<K> Running<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revoked.is_empty() && self.ordered.is_empty()
    }
}

/// A transaction that nothing is added to any more: what it will log.
pub(crate) struct Closing<K> {
    pub(crate) id: Id,
    pub(crate) stamp: Stamp,
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

/// A transaction that recovery would bring back, and whose images are not home.
pub(crate) struct Committed<K> {
    pub(crate) id: Id,
    pub(crate) stamp: Stamp,
    pub(crate) start: u32,
    pub(crate) blocks: u32,
    pub(crate) buffers: Vec<Arc<Buffer<K>>>,
}

impl<K> Logged<K> {
    /// To be called once the commit block is durable. Now the images may go home; older ones of the
    /// same blocks, and of those that were revoked, need not any more.
    pub(crate) fn committed(self) -> (Committed<K>, Vec<Arc<Buffer<K>>>) {
        let Self { closed: Closing { id, stamp, images, revoked, .. }, start, blocks, .. } = self;
        for (buffer, _) in &images {
            let mut state = buffer.lock();
            state.images.retain(|image| image.stamp >= stamp);
            for image in state.images.iter_mut().filter(|image| image.stamp == stamp) {
                image.committed = true;
            }
        }
        let revoked: Vec<_> = revoked.into_values().collect();
        for buffer in &revoked {
            buffer.lock().images.retain(|image| image.stamp >= stamp);
        }
        let buffers = images.into_iter().map(|(buffer, _)| buffer).collect();
        (Committed { id, stamp, start, blocks, buffers }, revoked)
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
