//! Spans: one mechanism that measures the stages on the real machine and charges them on the
//! virtual one.
//!
//! On a virtual machine, a trace covers the whole machine. On the real one, it covers the thread
//! that started it and every thread spawned from it, before or since: all threads with a common
//! ancestor share one recorder. There, an untraced span costs one read of a flag.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{Nanos, Stage, current_core, lockstat, now, sim};

/// How many recorders of the real machine are on in this process.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static RECORDER: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
}

/// One span of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub stage: Stage,
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// The core on which it ended.
    pub core: usize,
}

/// What the spans of one stage add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many spans.
    pub count: u64,
    /// Their time in all, including waits and spans within them.
    pub time: Nanos,
}

/// The spans of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    totals: [Total; Stage::COUNT],
    /// Every span, in the order in which they ended; empty unless a timeline was asked for.
    pub timeline: Vec<Event>,
}

impl Trace {
    const EMPTY: Trace =
        Trace { totals: [Total { count: 0, time: 0 }; Stage::COUNT], timeline: Vec::new() };

    /// The count and time of one stage.
    pub fn total(&self, stage: Stage) -> Total {
        self.totals[stage as usize]
    }

    /// Every stage that occurred, with its total.
    pub fn totals(&self) -> impl Iterator<Item = (Stage, Total)> + '_ {
        let all = Stage::ALL.iter().map(|&stage| (stage, self.total(stage)));
        all.filter(|(_, total)| total.count > 0)
    }

    fn add(&mut self, event: Event, timeline: bool) {
        let total = &mut self.totals[event.stage as usize];
        total.count += 1;
        total.time += event.end.saturating_sub(event.start);
        if timeline {
            self.timeline.push(event);
        }
    }
}

/// Where threads with a common ancestor leave their spans.
pub(crate) struct Recorder {
    on: AtomicBool,
    timeline: AtomicBool,
    trace: Mutex<Trace>,
    /// The lock profile of the same threads.
    pub(crate) locks: lockstat::Profile,
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Recorder {
            on: AtomicBool::new(false),
            timeline: AtomicBool::new(false),
            trace: Mutex::new(Trace::EMPTY),
            locks: lockstat::Profile::new(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self, timeline: bool) {
        *self.trace.lock() = Trace::EMPTY;
        self.timeline.store(timeline, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn finish(&self) -> Trace {
        self.on.store(false, Ordering::Relaxed);
        std::mem::replace(&mut self.trace.lock(), Trace::EMPTY)
    }

    pub(crate) fn record(&self, event: Event) {
        self.trace.lock().add(event, self.timeline.load(Ordering::Relaxed));
    }
}

/// The recorder that a new thread shares with the one that spawns it.
pub(crate) fn inherit() -> Arc<Recorder> {
    let new = || Arc::new(Recorder::new());
    RECORDER.with_borrow_mut(|slot| slot.get_or_insert_with(new).clone())
}

/// What `ask` says of the calling thread's recorder; false if there is none. The pointer is not
/// cloned, because its count is one cache line that all threads of the family would fight for.
pub(crate) fn of_own(ask: impl FnOnce(&Recorder) -> bool) -> bool {
    let borrowed = |slot: &RefCell<Option<_>>| slot.borrow().as_deref().is_some_and(ask);
    // A thread that is about to end may have none any more.
    RECORDER.try_with(borrowed).unwrap_or(false)
}

/// Makes `recorder` the calling thread's.
pub(crate) fn adopt(recorder: Arc<Recorder>) {
    RECORDER.set(Some(recorder));
}

/// Starts recording totals, and forgets what was recorded before.
pub fn start() {
    begin(false);
}

/// As [`start`], and also keeps every span for a timeline.
pub fn start_timeline() {
    begin(true);
}

fn begin(timeline: bool) {
    if let Some(machine) = sim::current() {
        return machine.recorder.start(timeline);
    }
    let recorder = inherit();
    if !recorder.is_on() {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
    recorder.start(timeline);
}

/// Stops recording and returns what was recorded; an empty trace if none was started.
pub fn finish() -> Trace {
    if let Some(machine) = sim::current() {
        return machine.recorder.finish();
    }
    let recorder = inherit();
    if recorder.is_on() {
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
    }
    recorder.finish()
}

/// A stage in progress; it ends when this is dropped.
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    start: Option<(Stage, Nanos)>,
}

/// Begins a stage: charges its cost on a virtual machine, measures it if a trace is running.
#[inline]
pub fn span(stage: Stage) -> Span {
    #[cold]
    #[inline(never)]
    fn start(stage: Stage) -> Option<(Stage, Nanos)> {
        let Some(machine) = sim::current() else {
            return of_own(Recorder::is_on).then(|| (stage, now()));
        };
        let start = machine.recorder.is_on().then(|| (stage, machine.now()));
        machine.spend(machine.profile.cost(stage));
        start
    }
    let is_watched = sim::is_any() || ACTIVE.load(Ordering::Relaxed) != 0;
    Span { start: if is_watched { start(stage) } else { None } }
}

/// As [`span`], for a stage too short to be measured by looking at a clock twice: a virtual machine
/// charges and counts it, and the real one does nothing.
#[inline]
pub fn charge(stage: Stage) {
    #[cold]
    #[inline(never)]
    fn charge(stage: Stage) {
        if sim::current().is_some() {
            drop(span(stage));
        }
    }
    if sim::is_any() {
        charge(stage);
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn end(stage: Stage, start: Nanos) {
            let event = Event { stage, start, end: now(), core: current_core() };
            match sim::current() {
                Some(machine) => machine.recorder.record(event),
                None => inherit().record(event),
            }
        }
        if let Some((stage, start)) = self.start {
            end(stage, start);
        }
    }
}
