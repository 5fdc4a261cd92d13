//! Readers and writers on either machine.

use std::ops::{Deref, DerefMut};

use crate::rank::{Held, Place, Rank};
use crate::sim::lock::{Hold, Mode, VirtualLock};
use crate::sim::{self, WaitsFor};
use crate::{lockstat, patience};

/// A lock for one writer or any number of readers; a waiting writer holds off new readers.
///
/// Readers count themselves on one cache line, so they slow each other down, on a virtual machine
/// as on a real one.
pub struct RwLock<T: ?Sized> {
    name: Option<&'static str>,
    place: Place,
    sim: VirtualLock,
    inner: parking_lot::RwLock<T>,
}

/// A reader's right to the value of a [`RwLock`], given back on drop.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _hold: Hold<'a>,
    _held: Held,
}

/// The writer's right to the value of a [`RwLock`], given back on drop.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _hold: Hold<'a>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self::with(None, Place::NONE, VirtualLock::around::<T>(), value)
    }

    /// As [`RwLock::new`], with the name to use in reports.
    pub const fn named(name: &'static str, value: T) -> Self {
        Self::with(Some(name), Place::NONE, VirtualLock::around::<T>(), value)
    }

    /// As [`RwLock::named`], with a place in the order of locks.
    pub const fn ranked(rank: Rank, name: &'static str, value: T) -> Self {
        Self::with(Some(name), Place::new(rank), VirtualLock::around::<T>(), value)
    }

    const fn with(name: Option<&'static str>, place: Place, sim: VirtualLock, value: T) -> Self {
        RwLock { name, place, sim, inner: parking_lot::RwLock::new(value) }
    }

    /// The same with a key: of several locks of one rank, a thread takes those of higher keys
    /// later.
    pub fn keyed(self, key: u64) -> Self {
        RwLock { place: self.place.keyed(key), ..self }
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl RwLock<()> {
    /// A lock for data that lies beside it.
    pub(crate) const fn beside(name: &'static str) -> Self {
        Self::with(Some(name), Place::NONE, VirtualLock::new(), ())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has or awaits the value, and shares it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.place.check(self.name);
        let (try_read, read) = (|| self.inner.try_read(), || self.inner.read());
        let (inner, hold) = if sim::is_any() || lockstat::is_on() {
            self.watched(Mode::Shared, try_read, read)
        } else {
            (patience::take(try_read, read), Hold::REAL)
        };
        RwLockReadGuard { inner, _hold: hold, _held: self.held() }
    }

    /// Takes the value exclusively, once no thread has it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.place.check(self.name);
        let (try_write, write) = (|| self.inner.try_write(), || self.inner.write());
        let (inner, hold) = if sim::is_any() || lockstat::is_on() {
            self.watched(Mode::Exclusive, try_write, write)
        } else {
            (patience::take(try_write, write), Hold::REAL)
        };
        RwLockWriteGuard { inner, _hold: hold, _held: self.held() }
    }

    /// Shares the value if no writer has or awaits it now.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let mut hold = self.try_hold(Mode::Shared)?;
        let inner = self.inner.try_read()?;
        hold.watch(|| self.waits_for(Mode::Shared));
        Some(RwLockReadGuard { inner, _hold: hold, _held: self.held() })
    }

    /// Takes the value exclusively if no thread has it now.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let mut hold = self.try_hold(Mode::Exclusive)?;
        let inner = self.inner.try_write()?;
        hold.watch(|| self.waits_for(Mode::Exclusive));
        Some(RwLockWriteGuard { inner, _hold: hold, _held: self.held() })
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn held(&self) -> Held {
        self.place.held(self.name, &self.inner)
    }

    /// Takes it as a virtual machine or a lock profile has it.
    #[cold]
    #[inline(never)]
    fn watched<G>(
        &self,
        mode: Mode,
        try_take: impl Fn() -> Option<G>,
        take: impl FnOnce() -> G,
    ) -> (G, Hold<'_>) {
        if let Some(sim) = sim::current() {
            let hold = self.sim.acquire(sim, mode, self.waits_for(mode));
            return (patience::take(try_take, take), hold);
        }
        let mut hold = Hold::REAL;
        let take = || patience::take(&try_take, take);
        (lockstat::take(&mut hold, &self.waits_for(mode), &try_take, take), hold)
    }

    #[inline]
    fn waits_for(&self, mode: Mode) -> WaitsFor {
        let holds = std::any::type_name::<T>();
        let kind = match mode {
            Mode::Shared => "rwlock (to read)",
            Mode::Exclusive => "rwlock (to write)",
        };
        WaitsFor::Lock { kind, name: self.name, holds, id: self.sim.id() }
    }

    #[inline]
    fn try_hold(&self, mode: Mode) -> Option<Hold<'_>> {
        match sim::current() {
            Some(sim) => self.sim.try_acquire(sim, mode, &self.waits_for(mode)),
            None => Some(Hold::REAL),
        }
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

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
