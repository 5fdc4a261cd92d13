//! Overlapping calls, and which version of a value may then be the newest.
//!
//! A call has an instant at which it began and one at which it returned. One comes before another
//! for certain only if it had returned when the other began; of two that overlap either may have
//! been first. An fsync promises what had *returned* when it was *called*: one of those versions
//! that can be the last in some order must be there, or a later one. What had not returned by then
//! may be there or not.
//!
//! With a single thread each call returns before the next begins, and all this reduces to: the
//! newest version.

use std::collections::{BTreeMap, BTreeSet};

use drive::BLOCK_SIZE;

/// A call, by the number of the event in the log that began it, from 1.
pub type Call = usize;

/// Before all calls.
const NEVER: Call = 0;

/// When calls returned.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    overlap: bool,
    /// Calls that took time, and when they returned, if they have.
    ends: BTreeMap<Call, Option<usize>>,
}

impl Calls {
    /// From here on a call returns when the log says so. Before, each returned when it was logged.
    pub(super) fn begin_overlap(&mut self) {
        self.overlap = true;
    }

    /// Whether calls may overlap.
    pub fn overlap(&self) -> bool {
        self.overlap
    }

    pub(super) fn begin(&mut self, call: Call) {
        if self.overlap {
            self.ends.insert(call, None);
        }
    }

    pub(super) fn end(&mut self, call: Call, at: usize) {
        if let Some(end) = self.ends.get_mut(&call) {
            *end = Some(at);
        }
    }

    /// When it returned; later than everything as long as it has not.
    fn returned(&self, call: Call) -> usize {
        self.ends.get(&call).map_or(call, |end| end.unwrap_or(usize::MAX))
    }

    /// Whether `call` had returned before `instant`: a position in the log, or when a call began.
    pub fn is_before(&self, call: Call, instant: usize) -> bool {
        self.returned(call) < instant
    }
}

/// One version of a value.
#[derive(Clone, Debug)]
struct Version<T> {
    value: T,
    call: Call,
    /// A completed fsync promised it, or another version that may have been the last by then.
    settled: bool,
}

/// A value of which several versions may have survived.
#[derive(Clone, Debug)]
pub struct Versions<T> {
    /// In the order in which their calls began: at least one. The first is apart so that a value
    /// of one version costs no allocation.
    first: Version<T>,
    rest: Vec<Version<T>>,
}

impl<T: Clone + PartialEq> Versions<T> {
    pub(super) fn new(value: T) -> Self {
        Self { first: Version { value, call: NEVER, settled: true }, rest: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &Version<T>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The newest version: of those that overlap, the one that began last.
    pub fn current(&self) -> &T {
        &self.newest().value
    }

    fn newest(&self) -> &Version<T> {
        self.rest.last().unwrap_or(&self.first)
    }

    /// What a completed fsync promised; if several may have been the last then, the first of them.
    pub fn durable(&self) -> &T {
        &self.all().find(|v| v.settled).unwrap_or(&self.first).value
    }

    /// The versions of which one must be there unless a later one is.
    pub fn promised(&self) -> impl Iterator<Item = &T> {
        self.all().filter(|v| v.settled).map(|v| &v.value)
    }

    /// Whether there are versions that no fsync promised.
    pub fn is_open(&self) -> bool {
        self.all().any(|v| !v.settled)
    }

    /// All versions that may be found.
    pub fn allowed(&self) -> impl Iterator<Item = &T> {
        self.all().map(|v| &v.value)
    }

    /// Whether `value` is one of them.
    pub fn allows(&self, value: &T) -> bool {
        self.allowed().any(|v| v == value)
    }

    /// Whether what `is` finds is one that was promised, and whether it is the newest; `None` if
    /// there is nothing newer than what was promised.
    pub fn sides(&self, is: impl Fn(&T) -> bool) -> Option<(bool, bool)> {
        let is_old = || is(self.durable()) || self.promised().any(&is);
        self.is_open().then(|| (is_old(), is(self.current())))
    }

    /// Whether every version that no fsync promised had returned before `instant`.
    pub fn had_returned(&self, calls: &Calls, instant: usize) -> bool {
        self.all().all(|v| v.settled || calls.is_before(v.call, instant))
    }

    /// When the first call began whose version no fsync promised.
    pub fn open_since(&self) -> Option<Call> {
        self.all().find(|v| !v.settled).map(|v| v.call)
    }

    /// Whether the newest version is certain, and had returned before `instant`.
    pub(super) fn is_certain(&self, calls: &Calls, instant: usize) -> bool {
        let newest = self.newest().call;
        let mut others = self.all().take(self.rest.len());
        calls.is_before(newest, instant)
            && others.all(|v| v.call == newest || calls.is_before(v.call, newest))
    }

    pub(super) fn push(&mut self, value: T, call: Call) {
        let at = self.rest.iter().rposition(|v| v.call <= call).map_or(0, |last| last + 1);
        let version = Version { value, call, settled: false };
        if at == 0 && call < self.first.call {
            self.rest.insert(0, std::mem::replace(&mut self.first, version));
        } else {
            self.rest.insert(at, version);
        }
    }

    /// Removes the version of a call that failed.
    pub(super) fn withdraw(&mut self, call: Call) {
        self.rest.retain(|v| v.call != call);
        if self.first.call == call && !self.rest.is_empty() {
            self.first = self.rest.remove(0);
        }
    }

    /// An fsync called at `called` has returned. Calls `gone` with the versions that it ruled out
    /// for good.
    pub(super) fn settle(&mut self, calls: &Calls, called: usize, gone: &mut dyn FnMut(&T)) {
        if self.rest.is_empty() {
            // A single version leaves nothing to decide.
            self.first.settled |= calls.is_before(self.first.call, called);
            return;
        }
        let returned = |v: &Version<T>| calls.is_before(v.call, called);
        let Some(last) = self.all().filter(|v| returned(v)).map(|v| v.call).max() else { return };
        let mut kept: Vec<Version<T>> = Vec::new();
        let rest = std::mem::take(&mut self.rest);
        for mut version in std::iter::once(self.first.clone()).chain(rest) {
            if calls.is_before(version.call, last) {
                gone(&version.value);
                continue;
            }
            // If one call sets a value twice, the later one counts.
            if kept.last().is_some_and(|v| v.call == version.call) {
                kept.pop();
            }
            version.settled |= returned(&version);
            kept.push(version);
        }
        self.first = kept.remove(0);
        self.rest = kept;
    }
}

/// What a call does to the size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A truncation.
    To(u64),
    /// A write, which leaves a larger file as it is.
    Reach {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        end: u64,
    },
}

/// The size of a file in bytes.
#[derive(Clone, Debug)]
pub struct Size {
    steps: Vec<Version<Change>>,
    now: u64,
    /// All sizes that calls set.
    ever: BTreeSet<u64>,
}

const BLOCK: u64 = BLOCK_SIZE as u64;

impl Size {
    pub(super) fn zero() -> Self {
        let empty = Version { value: Change::To(0), call: NEVER, settled: true };
        Self { steps: vec![empty], now: 0, ever: BTreeSet::from([0]) }
    }

    /// The size after all calls, in the order in which they began.
    pub fn current(&self) -> u64 {
        self.now
    }

    /// Whether there were changes that no fsync promised.
    pub fn is_open(&self) -> bool {
        self.steps.iter().any(|step| !step.settled)
    }

    /// As [`Versions::had_returned`].
    pub fn had_returned(&self, calls: &Calls, instant: usize) -> bool {
        self.steps.iter().all(|step| step.settled || calls.is_before(step.call, instant))
    }

    /// As [`Versions::open_since`].
    pub fn open_since(&self) -> Option<Call> {
        self.steps.iter().find(|step| !step.settled).map(|step| step.call)
    }

    /// The largest size that any call sets.
    pub fn largest(&self) -> u64 {
        self.ever.last().copied().unwrap_or(0)
    }

    pub(super) fn truncate(&mut self, size: u64, call: Call) {
        self.now = size;
        self.ever.insert(size);
        self.steps.push(Version { value: Change::To(size), call, settled: false });
    }

    pub(super) fn reach(&mut self, from: u64, end: u64, call: Call, calls: &Calls) {
        // Within the file it changes nothing, unless a truncation is under way.
        if end > self.now || calls.overlap() {
            self.now = self.now.max(end);
            self.ever.insert(end);
            self.steps.push(Version { value: Change::Reach { from, end }, call, settled: false });
        }
    }

    /// The size after the truncation `at` and all promised writes that came after it for certain.
    fn after(&self, at: &Version<Change>, calls: &Calls) -> u64 {
        let Change::To(size) = at.value else { return u64::MAX };
        let later = |step: &&Version<Change>| step.settled && calls.is_before(at.call, step.call);
        let reached = self.steps.iter().filter(later).filter_map(|step| match step.value {
            Change::Reach { end, .. } => Some(end),
            Change::To(_) => None,
        });
        reached.fold(size, u64::max)
    }

    /// Smallest and largest size that may be found.
    pub fn range(&self, calls: &Calls) -> (u64, u64) {
        let low = self.steps.iter().map(|step| self.after(step, calls)).min();
        let high = self.steps.iter().map(|step| match step.value {
            Change::To(size) | Change::Reach { end: size, .. } => size,
        });
        (low.unwrap_or(0), high.max().unwrap_or(0))
    }

    /// Whether it may be found: one that the calls leave in some order, with unpromised calls done
    /// or not, or one that a write passes, because it goes page by page.
    pub fn allows(&self, size: u64, calls: &Calls) -> bool {
        let (low, high) = self.range(calls);
        let leaves = |step: &Version<Change>| match step.value {
            Change::To(_) => self.after(step, calls) == size,
            Change::Reach { from, end } => {
                size == end || (from + 1..end).contains(&size) && size.is_multiple_of(BLOCK)
            }
        };
        (low..=high).contains(&size) && self.steps.iter().any(leaves)
    }

    /// Whether it is the end of a block that the file may end in.
    pub fn ends_with_block(&self, size: u64) -> bool {
        self.steps.iter().any(|step| match step.value {
            Change::To(end) | Change::Reach { end, .. } => end.next_multiple_of(BLOCK) == size,
        })
    }

    /// Whether the file once had this size, or passed it.
    pub fn was_once(&self, size: u64) -> bool {
        self.ever.contains(&size) || size.is_multiple_of(BLOCK) && size <= self.largest()
    }

    /// The smallest size that a completed fsync promised.
    pub fn durable(&self, calls: &Calls) -> u64 {
        let promised = self.steps.iter().filter(|step| step.settled);
        promised.map(|step| self.after(step, calls)).min().unwrap_or(0)
    }

    /// As [`Versions::settle`].
    pub(super) fn settle(&mut self, calls: &Calls, called: usize) {
        let returned = |step: &Version<Change>| calls.is_before(step.call, called);
        let truncated = |step: &&Version<Change>| matches!(step.value, Change::To(_));
        let last = self.steps.iter().filter(truncated).filter(|s| returned(s)).map(|s| s.call);
        let last = last.max().unwrap_or(NEVER);
        self.steps.retain(|step| !calls.is_before(step.call, last));
        self.steps.iter_mut().for_each(|step| step.settled |= returned(step));
        // A promised write is irrelevant if a later one goes further.
        let mut reached = 0;
        let mut tells = vec![true; self.steps.len()];
        for (step, tells) in self.steps.iter().zip(&mut tells).rev() {
            if let (Change::Reach { end, .. }, true) = (step.value, step.settled) {
                *tells = end > reached;
                reached = reached.max(end);
            }
        }
        let mut tells = tells.into_iter();
        self.steps.retain(|_| tells.next().unwrap_or(true));
        self.collapse(calls);
    }

    /// One truncation and the promised writes after it determine a size.
    fn collapse(&mut self, calls: &Calls) {
        let Some((base, writes)) = self.steps.split_first() else { return };
        let after = |step: &Version<Change>| {
            matches!(step.value, Change::Reach { .. }) && calls.is_before(base.call, step.call)
        };
        if self.steps.iter().all(|step| step.settled) && writes.iter().all(after) {
            let size = self.after(base, calls);
            // A call comes after all of them if it comes after the last one to return.
            let call = self.steps.iter().map(|s| s.call).max_by_key(|call| calls.returned(*call));
            let call = call.unwrap_or(NEVER);
            self.steps = vec![Version { value: Change::To(size), call, settled: true }];
        }
    }
}
