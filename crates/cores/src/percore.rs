//! A readers-writer lock whose readers do not contend, and whose writer checks all of them.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::rank::{Held, Place, Rank};
use crate::{
    Condvar, Line, Mutex, Nanos, RwLock, RwLockReadGuard, RwLockWriteGuard, core_count, now, sim,
};

/// A lock for one writer or any number of readers, which each count themselves on a cache line of
/// their core. So readers on many cores do not slow each other down, as those of [`RwLock`] do.
///
/// While the short way is open, a reader only counts itself in and out. A writer takes the lock
/// proper, closes the short way and waits until no reader is left on it; from then on all threads
/// use the lock proper, until several readers have come in a row and the short way has been closed
/// for long enough. So writers, and readers that alternate with them, pay nothing for the counts.
/// The method is BRAVO (Dice and Kogan, ATC'19); Linux's `percpu_rw_semaphore` serves the same end.
///
/// A reader must not wait for what only a writer can give.
pub struct PerCoreRwLock<T: ?Sized> {
    /// Of the whole: `lock` has none.
    place: Place,
    lock: RwLock<()>,
    short: ShortWay,
    value: UnsafeCell<T>,
}

// SAFETY: as for `std::sync::RwLock`: the exclusive holder may move the value out.
unsafe impl<T: ?Sized + Send> Send for PerCoreRwLock<T> {}
// SAFETY: as for `std::sync::RwLock`: readers share the value, a writer has it exclusively.
unsafe impl<T: ?Sized + Send + Sync> Sync for PerCoreRwLock<T> {}

/// A reader's right to the value of a [`PerCoreRwLock`], given back on drop.
pub struct PerCoreReadGuard<'a, T: ?Sized> {
    /// Not a reference to the value: one must not outlive the right to it, even unused.
    of: &'a PerCoreRwLock<T>,
    _way: Way<'a>,
    _held: Held,
}

/// The writer's right to the value of a [`PerCoreRwLock`], given back on drop.
pub struct PerCoreWriteGuard<'a, T: ?Sized> {
    of: &'a PerCoreRwLock<T>,
    _guard: RwLockWriteGuard<'a, ()>,
    _held: Held,
}

/// How a reader came in.
enum Way<'a> {
    Short { _visit: Visit<'a> },
    Lock { _guard: RwLockReadGuard<'a, ()> },
}

impl<T> PerCoreRwLock<T> {
    /// A free lock around `value`, with the name reports call it by.
    pub fn named(name: &'static str, value: T) -> Self {
        Self::with(name, Place::NONE, value)
    }

    /// As [`PerCoreRwLock::named`], with a place in the order of locks.
    pub fn ranked(rank: Rank, name: &'static str, value: T) -> Self {
        Self::with(name, Place::new(rank), value)
    }

    fn with(name: &'static str, place: Place, value: T) -> Self {
        let lock = RwLock::beside(name);
        Self { place, lock, short: ShortWay::new(), value: UnsafeCell::new(value) }
    }

    /// The same with a key: of several locks of one rank, a thread takes those of higher keys
    /// later.
    pub fn keyed(self, key: u64) -> Self {
        Self { place: self.place.keyed(key), ..self }
    }
}

impl<T: ?Sized> PerCoreRwLock<T> {
    /// Shares the value, once no writer has it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> PerCoreReadGuard<'_, T> {
        self.place.check(self.lock.name());
        let way = match self.short.enter() {
            Some(visit) => Way::Short { _visit: visit },
            None => self.by_lock(self.lock.read()),
        };
        PerCoreReadGuard { of: self, _way: way, _held: self.held() }
    }

    /// Shares the value unless a writer has or awaits it now.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self) -> Option<PerCoreReadGuard<'_, T>> {
        let way = match self.short.enter() {
            Some(visit) => Way::Short { _visit: visit },
            None => self.by_lock(self.lock.try_read()?),
        };
        Some(PerCoreReadGuard { of: self, _way: way, _held: self.held() })
    }

    /// The way of a reader that has the lock proper.
    #[cold]
    fn by_lock<'a>(&'a self, guard: RwLockReadGuard<'a, ()>) -> Way<'a> {
        self.short.open();
        Way::Lock { _guard: guard }
    }

    /// Takes the value exclusively, once no thread has it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> PerCoreWriteGuard<'_, T> {
        self.place.check(self.lock.name());
        let guard = self.lock.write();
        self.short.close();
        PerCoreWriteGuard { of: self, _guard: guard, _held: self.held() }
    }

    /// Takes the value exclusively if no thread has it now, and the short way is closed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self) -> Option<PerCoreWriteGuard<'_, T>> {
        if self.short.state.load_free() != CLOSED {
            return None;
        }
        let guard = self.lock.try_write()?;
        self.short.close();
        Some(PerCoreWriteGuard { of: self, _guard: guard, _held: self.held() })
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn held(&self) -> Held {
        self.place.held(self.lock.name(), &self.lock)
    }

    /// How many readers there have been so far. One that found the short way just closed counts
    /// twice.
    pub fn readers(&self) -> u64 {
        let short = self.short.counts().iter().map(|count| count.entered.load());
        short.fold(self.short.by_lock.load(Ordering::Relaxed), u64::wrapping_add)
    }

    /// The value; `&mut self` proves that nobody else has it, so no lock is taken.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Readers use the lock proper.
const CLOSED: u64 = 0;
/// Readers may take the short way.
const OPEN: u64 = 1;
/// A writer has closed the short way, and waits for those still on it.
const DRAINING: u64 = 2;

/// The short way is closed for this many times as long as it took to close it, so that waits of
/// writers for it are at most a tenth of the time (BRAVO's `N`).
const CLOSED_FOR: Nanos = 9;

/// So many readers must come by the lock with no writer in between before the short way opens.
const IN_A_ROW: u64 = 8;

/// How often a writer looks whether the readers of a core have left before it sleeps.
const LOOKS: usize = 64;

/// Where readers need no lock. Only a holder of the lock proper opens or closes it.
struct ShortWay {
    /// [`OPEN`], [`DRAINING`] or [`CLOSED`].
    state: Line,
    /// Before then it is not opened again.
    closed_until: AtomicU64,
    /// Readers that took the lock proper, and how many of them before its last writer.
    by_lock: AtomicU64,
    before_writer: AtomicU64,
    /// Made when the way is first opened: most of the many locks of a machine with many cores never
    /// have so many readers. Invariant: there are counts unless `state` has always been [`CLOSED`].
    counts: OnceLock<Box<[Count]>>,
    /// A writer sleeps here until the readers have left. Innermost: nothing is taken within.
    sleep: Mutex<()>,
    left: Condvar,
}

/// A number for per-core structures: on a virtual machine the calling thread's core, on the real
/// one a number that the thread keeps, because asking for the core costs more than it saves.
/// Threads on the real machine never share one.
#[inline]
pub fn slot() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    match sim::current() {
        Some(machine) => machine.current_core(),
        None => SLOT.try_with(|slot| *slot).unwrap_or(0),
    }
}

/// The readers who came in at one place. Aligned so that the processor, which fetches lines in
/// pairs, does not fetch a neighbour's.
#[derive(Default)]
#[repr(align(128))]
struct Count {
    entered: Line,
    left: Line,
}

/// A reader on the short way.
struct Visit<'a> {
    way: &'a ShortWay,
    count: &'a Count,
}

impl ShortWay {
    fn new() -> Self {
        Self {
            state: Line::new(CLOSED),
            closed_until: AtomicU64::new(0),
            by_lock: AtomicU64::new(0),
            before_writer: AtomicU64::new(0),
            counts: OnceLock::new(),
            sleep: Mutex::named("readers left", ()),
            left: Condvar::new(),
        }
    }

    /// One for each core; none before the way was first opened.
    #[inline]
    fn counts(&self) -> &[Count] {
        self.counts.get().map_or(&[], |counts| counts)
    }

    /// Lets a reader in, if it is open. The reader counts itself before it looks, and a writer
    /// closes the way before it reads the counts, so one of them sees the other.
    #[inline]
    fn enter(&self) -> Option<Visit<'_>> {
        if self.state.load_free() != OPEN {
            return None;
        }
        let counts = self.counts();
        let count = counts.get(slot() % counts.len().max(1))?;
        count.entered.fetch_add(1);
        let visit = Visit { way: self, count };
        (self.state.load() == OPEN).then_some(visit)
    }

    /// For a reader that has the lock: opens the way if it has been closed long enough, for enough
    /// readers.
    fn open(&self) {
        let readers = self.by_lock.fetch_add(1, Ordering::Relaxed) + 1;
        let in_a_row = readers.wrapping_sub(self.before_writer.load(Ordering::Relaxed));
        if self.state.load_free() == CLOSED
            && in_a_row >= IN_A_ROW
            && now() >= self.closed_until.load(Ordering::Relaxed)
        {
            self.counts.get_or_init(|| (0..core_count()).map(|_| Count::default()).collect());
            self.state.store(OPEN);
        }
    }

    /// For the writer: closes the way.
    #[inline]
    fn close(&self) {
        self.before_writer.store(self.by_lock.load(Ordering::Relaxed), Ordering::Relaxed);
        if self.state.load_free() != CLOSED {
            self.drain();
        }
    }

    #[cold]
    fn drain(&self) {
        let start = now();
        self.state.store(DRAINING);
        for count in self.counts() {
            if (0..LOOKS).any(|_| count.is_empty()) {
                continue;
            }
            let mut held = self.sleep.lock();
            while !count.is_empty() {
                self.left.wait(&mut held);
            }
        }
        self.state.store(CLOSED);
        let end = now();
        let closed_for = CLOSED_FOR.saturating_mul(end.saturating_sub(start));
        self.closed_until.store(end.saturating_add(closed_for), Ordering::Relaxed);
    }
}

impl Count {
    /// Whether all readers that entered have left. Neither number falls and `left` is read first,
    /// so if they are equal there was no reader when `entered` was read.
    fn is_empty(&self) -> bool {
        std::hint::spin_loop();
        let left = self.left.load();
        self.entered.load() == left
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.count.left.fetch_add(1);
        if self.way.state.load() == DRAINING {
            let _held = self.way.sleep.lock();
            self.way.left.notify_all();
        }
    }
}

impl<T: ?Sized> Deref for PerCoreReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: before it touches the value, a writer has kept out readers that take the lock,
        // and has closed the short way and waited for those on it.
        unsafe { &*self.of.value.get() }
    }
}

impl<T: ?Sized> Deref for PerCoreWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock keeps out other writers and the readers that take it, and nobody is on
        // the short way.
        unsafe { &*self.of.value.get() }
    }
}

impl<T: ?Sized> DerefMut for PerCoreWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` is the only way to the value meanwhile.
        unsafe { &mut *self.of.value.get() }
    }
}
