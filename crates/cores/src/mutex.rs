//! Mutual exclusion on either machine.

use std::ops::{Deref, DerefMut};

use crate::lockstat;
use crate::sim::lock::{Hold, Mode, VirtualLock};
use crate::sim::{self, WaitsFor};

/// A lock that serves its waiters in the order they came (virtual) or roughly so (real).
///
/// It does not poison: if a thread panics, it lets go, and the next one finds the value as it is.
pub struct Mutex<T: ?Sized> {
    name: Option<&'static str>,
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
}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex { name: None, sim: VirtualLock::new(), inner: parking_lot::Mutex::new(value) }
    }

    /// As [`Mutex::new`], with the name to use in deadlock reports.
    pub const fn named(name: &'static str, value: T) -> Self {
        Mutex { name: Some(name), sim: VirtualLock::new(), inner: parking_lot::Mutex::new(value) }
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the value is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mut hold = match sim::current() {
            Some(sim) => self.sim.acquire(sim, Mode::Exclusive, self.waits_for()),
            None => Hold::REAL,
        };
        let inner = if lockstat::is_on() && hold.is_real() {
            let (try_lock, lock) = (|| self.inner.try_lock(), || self.inner.lock());
            lockstat::take(&mut hold, &self.waits_for(), try_lock, lock)
        } else {
            self.inner.lock()
        };
        MutexGuard { mutex: self, inner: Some(inner), hold }
    }

    #[inline]
    pub(crate) fn waits_for(&self) -> WaitsFor {
        let holds = std::any::type_name::<T>();
        WaitsFor::Lock { kind: "mutex", name: self.name, holds, id: self.sim.id() }
    }

    /// Takes the value if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let mut hold = match sim::current() {
            Some(sim) => self.sim.try_acquire(sim, Mode::Exclusive, &self.waits_for())?,
            None => Hold::REAL,
        };
        let inner = self.inner.try_lock()?;
        hold.watch(|| self.waits_for());
        Some(MutexGuard { mutex: self, inner: Some(inner), hold })
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
    }

    pub(crate) fn lock_again(&mut self) {
        let MutexGuard { inner, hold, .. } = self.mutex.lock();
        (self.inner, self.hold) = (inner, hold);
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
