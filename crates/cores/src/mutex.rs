//! Mutual exclusion on either machine.

use std::ops::{Deref, DerefMut};

/// A lock that serves its waiters in the order they came (virtual) or roughly so (real).
///
/// It does not poison: a thread that panics lets go and the next one finds the value as it is.
pub struct Mutex<T: ?Sized> {
    name: Option<&'static str>,
    inner: parking_lot::Mutex<T>,
}

/// The right to the value of a [`Mutex`], given back on drop.
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) inner: parking_lot::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Mutex { name: None, inner: parking_lot::Mutex::new(value) }
    }

    /// As [`Mutex::new`], with the name deadlock reports call it by.
    pub const fn named(name: &'static str, value: T) -> Self {
        Mutex { name: Some(name), inner: parking_lot::Mutex::new(value) }
    }

    /// The value, at the end of the mutex.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the value is free and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: self.inner.lock() }
    }

    /// Takes the value if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { inner: self.inner.try_lock()? })
    }

    /// The value, which needs no lock as nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The name given at the start, if any.
    pub fn name(&self) -> Option<&'static str> {
        self.name
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
