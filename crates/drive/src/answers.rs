//! Completions of drives that answer at once: kept only for callers that used
//! [`Drive::submit`](crate::Drive::submit).

use std::collections::VecDeque;

use cores::Mutex;

use crate::Completion;

/// Completions of one hardware queue that were not taken yet.
pub(crate) struct Answers(Mutex<VecDeque<Completion>>);

impl Answers {
    pub(crate) fn named(name: &'static str) -> Self {
        Self(Mutex::named(name, VecDeque::new()))
    }

    pub(crate) fn put(&self, completion: Completion) {
        self.0.lock().push_back(completion);
    }

    /// Takes the first completion, or that of `cid`.
    pub(crate) fn take(&self, cid: Option<u16>) -> Option<Completion> {
        let mut done = self.0.lock();
        let at = done.iter().position(|completion| cid.is_none_or(|cid| completion.cid == cid))?;
        done.remove(at)
    }
}
