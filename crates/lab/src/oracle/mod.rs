//! The oracle: outside the file systems, it knows for each instant of a run what must, what may
//! and what must not be on the drive.
//!
//! A run appends [`Event`]s to a log. A cut remembers how long the log was. To judge the cut, a
//! [`Model`] is moved along the log to that position and [`verify()`] compares the recovered volume
//! with it. So a snapshot is one number, and a judge that takes cuts in order replays each event
//! once.

mod attributes;
mod contents;
mod event;
mod model;
mod object;
mod order;
#[cfg(test)]
mod tests;
mod torn;
mod verdict;
mod verify;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cores::Mutex;

pub use contents::Memo;
pub use event::{Event, Meta, ObjId, Place, ROOT, Times, Transactions};
pub use model::Model;
pub use object::{BlockVersions, Object, XattrValue};
pub use order::{Call, Calls, Size, Versions};
pub use verdict::{Damage, Verdict};
pub use verify::verify;
pub use vfs::kind::Promise;

/// The log of one run, and the model at its end.
pub struct Oracle {
    state: Mutex<State>,
    position: AtomicUsize,
    overlaps: AtomicBool,
}

#[derive(Default)]
struct State {
    log: Vec<Event>,
    model: Model,
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

impl Oracle {
    /// An oracle that has seen an empty volume.
    pub fn new() -> Self {
        let state = Mutex::instrument("oracle", State::default());
        Self { state, position: AtomicUsize::new(0), overlaps: AtomicBool::new(false) }
    }

    /// Logs a call that is about to be made.
    pub fn record(&self, event: Event) -> Call {
        self.record_with(|_| event)
    }

    /// Logs an event made for the model as it is at this very moment.
    pub fn record_with(&self, event: impl FnOnce(&Model) -> Event) -> Call {
        let mut state = self.state.lock();
        let event = event(&state.model);
        state.model.apply(&event);
        state.log.push(event);
        self.position.store(state.log.len(), Ordering::Release);
        state.log.len()
    }

    /// Logs that from here on calls overlap.
    pub fn begin_overlap(&self) {
        self.record(Event::Overlap);
        self.overlaps.store(true, Ordering::Release);
    }

    /// Whether calls overlap, so that their returns must be logged.
    pub fn overlaps(&self) -> bool {
        self.overlaps.load(Ordering::Acquire)
    }

    /// The snapshot of this instant. Takes no lock: drive observers call it from anywhere.
    pub fn position(&self) -> usize {
        self.position.load(Ordering::Acquire)
    }

    /// Looks at the model as it is now.
    pub fn with_model<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.state.lock().model)
    }

    /// The whole log, for judging cuts. The oracle starts over.
    pub fn take_log(&self) -> Vec<Event> {
        self.position.store(0, Ordering::Release);
        std::mem::take(&mut *self.state.lock()).log
    }
}
