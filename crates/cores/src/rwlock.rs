//! Readers and writers on either machine.

use std::ops::{Deref, DerefMut};

/// A lock for one writer or any number of readers; a waiting writer holds off new readers.
pub struct RwLock<T: ?Sized> {
    name: Option<&'static str>,
    inner: parking_lot::RwLock<T>,
}

/// A reader's right to the value of a [`RwLock`], given back on drop.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
}

/// The writer's right to the value of a [`RwLock`], given back on drop.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        RwLock { name: None, inner: parking_lot::RwLock::new(value) }
    }

    /// As [`RwLock::new`], with the name deadlock reports call it by.
    pub const fn named(name: &'static str, value: T) -> Self {
        RwLock { name: Some(name), inner: parking_lot::RwLock::new(value) }
    }

    /// The value, at the end of the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has or awaits the value, and shares it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { inner: self.inner.read() }
    }

    /// Waits until nobody has the value and takes it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { inner: self.inner.write() }
    }

    /// Shares the value if no writer has or awaits it now.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(RwLockReadGuard { inner: self.inner.try_read()? })
    }

    /// Takes the value if nobody has it now.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(RwLockWriteGuard { inner: self.inner.try_write()? })
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
