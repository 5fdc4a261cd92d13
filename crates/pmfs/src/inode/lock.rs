//! The lock of an inode: one word for all, or a line per core for files that many cores overwrite
//! at once.

use std::ops::{Deref, DerefMut};

use cores::{
    PerCoreReadGuard, PerCoreRwLock, PerCoreWriteGuard, Rank, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
use vfs::Ino;

use super::node::Inode;

/// Protects everything about an inode, in memory and on the medium, but what the locks of its
/// segments protect while it is shared.
#[expect(clippy::large_enum_variant, reason = "most are of one word, and lie in their node")]
pub(crate) enum InodeLock {
    One(RwLock<Inode>),
    PerCore(Box<PerCoreRwLock<Inode>>),
}

/// A share of an inode.
pub(crate) enum ReadGuard<'a> {
    One(RwLockReadGuard<'a, Inode>),
    PerCore(PerCoreReadGuard<'a, Inode>),
}

/// An inode for its holder alone.
pub(crate) enum WriteGuard<'a> {
    One(RwLockWriteGuard<'a, Inode>),
    PerCore(PerCoreWriteGuard<'a, Inode>),
}

impl InodeLock {
    pub(crate) fn new(ino: Ino, inode: Inode, per_core: bool) -> Self {
        if per_core {
            let lock = PerCoreRwLock::ranked(Rank::Inode, "pmfs shared inode", inode);
            Self::PerCore(Box::new(lock.keyed(ino)))
        } else {
            Self::One(RwLock::ranked(Rank::Inode, "pmfs inode", inode).keyed(ino))
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn read(&self) -> ReadGuard<'_> {
        match self {
            Self::One(lock) => ReadGuard::One(lock.read()),
            Self::PerCore(lock) => ReadGuard::PerCore(lock.read()),
        }
    }

    /// As [`InodeLock::write`], of a new inode that no other thread can reach, so without a wait.
    pub(crate) fn new_write(&self) -> Option<WriteGuard<'_>> {
        match self {
            Self::One(lock) => lock.try_write().map(WriteGuard::One),
            Self::PerCore(lock) => lock.try_write().map(WriteGuard::PerCore),
        }
    }

    /// The exclusive lock holder finds all of the inode in its own place.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn write(&self) -> WriteGuard<'_> {
        let mut guard = match self {
            Self::One(lock) => WriteGuard::One(lock.write()),
            Self::PerCore(lock) => WriteGuard::PerCore(lock.write()),
        };
        guard.settle();
        guard
    }
}

impl Deref for ReadGuard<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        match self {
            Self::One(guard) => guard,
            Self::PerCore(guard) => guard,
        }
    }
}

impl Deref for WriteGuard<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        match self {
            Self::One(guard) => guard,
            Self::PerCore(guard) => guard,
        }
    }
}

impl DerefMut for WriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut Inode {
        match self {
            Self::One(guard) => guard,
            Self::PerCore(guard) => guard,
        }
    }
}
