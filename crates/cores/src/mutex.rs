//! Mutual exclusion on either machine.

use std::ops::{Deref, DerefMut};

use crate::rank::{Held, Place, Rank};
use crate::sim::lock::{Hold, Mode, VirtualLock};
use crate::sim::{self, WaitsFor};
use crate::{lockstat, patience};

/// A lock for one holder, fair in the long run.
///
/// On a virtual machine it changes hands as the kernel's does: a waiter spins while the holder is
/// on its core, and otherwise sleeps and is woken; a running thread passes sleeping waiters, but
/// not one that has woken in vain. Some cache lines of what it protects move with it.
///
/// It does not poison: if a thread panics, it lets go, and the next one finds the value as it is.
pub struct Mutex<T: ?Sized> {
    name: Option<&'static str>,
    place: Place,
    sim: VirtualLock,
    inner: parking_lot::Mutex<T>,
}

/// The right to the value of a [`Mutex`], given back on drop.
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) mutex: &'a Mutex<T>,
    /// `None` only while a [`Condvar`](crate::Condvar) waits with it. Dropped before `hold`, so
    /// that the value is free when the next virtual holder is woken.
    pub(crate) inner: Option<parking_lot::MutexGuard<'a, T>>,
    pub(crate) hold: Hold<'a>,
    pub(crate) held: Held,
}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self::with(None, Place::NONE, VirtualLock::around::<T>(), value)
    }

    /// As [`Mutex::new`], with the name to use in reports.
    pub const fn named(name: &'static str, value: T) -> Self {
        Self::with(Some(name), Place::NONE, VirtualLock::around::<T>(), value)
    }

    /// As [`Mutex::named`], with a place in the order of locks.
    pub const fn ranked(rank: Rank, name: &'static str, value: T) -> Self {
        Self::with(Some(name), Place::new(rank), VirtualLock::around::<T>(), value)
    }

    /// As [`Mutex::named`], for an instrument: what watches a run, or stands for hardware, and is
    /// no part of the machine. On a virtual machine it costs no time, nor does waking threads that
    /// wait with it for a condition, and no thread waits for it unless its holder lets time pass;
    /// no lock profile shows it.
    pub const fn instrument(name: &'static str, value: T) -> Self {
        Self::with(Some(name), Place::NONE, VirtualLock::free(), value)
    }

    const fn with(name: Option<&'static str>, place: Place, sim: VirtualLock, value: T) -> Self {
        Mutex { name, place, sim, inner: parking_lot::Mutex::new(value) }
    }

    /// The same with a key: of several locks of one rank, a thread takes those of higher keys
    /// later.
    pub fn keyed(self, key: u64) -> Self {
        Mutex { place: self.place.keyed(key), ..self }
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the value is free and takes it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.place.check(self.name);
        let (inner, hold) = if sim::is_any() || lockstat::is_on() {
            self.lock_watched()
        } else {
            (self.take(), Hold::REAL)
        };
        MutexGuard { mutex: self, inner: Some(inner), hold, held: self.held() }
    }

    /// As a virtual machine or a lock profile has it.
    #[cold]
    #[inline(never)]
    fn lock_watched(&self) -> (parking_lot::MutexGuard<'_, T>, Hold<'_>) {
        if let Some(sim) = sim::current() {
            let hold = self.sim.acquire(sim, Mode::Exclusive, self.waits_for());
            return (self.take(), hold);
        }
        let mut hold = Hold::REAL;
        let (try_lock, lock) = (|| self.inner.try_lock(), || self.take());
        (lockstat::take(&mut hold, &self.waits_for(), try_lock, lock), hold)
    }

    #[inline]
    fn take(&self) -> parking_lot::MutexGuard<'_, T> {
        patience::take(|| self.inner.try_lock(), || self.inner.lock())
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn held(&self) -> Held {
        self.place.held(self.name, &self.inner)
    }

    pub(crate) fn is_instrument(&self) -> bool {
        self.sim.is_free()
    }

    #[inline]
    pub(crate) fn waits_for(&self) -> WaitsFor {
        let holds = std::any::type_name::<T>();
        WaitsFor::Lock { kind: "mutex", name: self.name, holds, id: self.sim.id() }
    }

    /// Takes the value if it is free. Never waits, so it may go against the order of locks.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let mut hold = match sim::current() {
            Some(sim) => self.sim.try_acquire(sim, Mode::Exclusive, &self.waits_for())?,
            None => Hold::REAL,
        };
        let inner = self.inner.try_lock()?;
        hold.watch(|| self.waits_for());
        Some(MutexGuard { mutex: self, inner: Some(inner), hold, held: self.held() })
    }

    /// The value; `&mut self` proves that nobody else has it, so no lock is taken.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The name given at the start, if any.
    pub fn name(&self) -> Option<&'static str> {
        self.name
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Gives up the value until [`MutexGuard::lock_again`].
    pub(crate) fn unlock(&mut self) {
        self.inner = None;
        drop(std::mem::replace(&mut self.hold, Hold::REAL));
        self.held = Held::NONE;
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock_again(&mut self) {
        let MutexGuard { inner, hold, held, .. } = self.mutex.lock();
        (self.inner, self.hold, self.held) = (inner, hold, held);
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(value) => value,
            None => unreachable!("a waiting guard is borrowed"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(value) => value,
            None => unreachable!("a waiting guard is borrowed"),
        }
    }
}
