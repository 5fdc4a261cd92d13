//! The one loop of an operation that changes a volume: it is planned, which changes nothing, and
//! applied, which cannot fail.
//!
//! [`run`] takes a permit to change the volume (a share of its gate, a journal's handle with room
//! in the log), locks the shards of the inodes, and plans. A plan reads only what is cached. If it
//! lacks something, it says what: another inode's shard, more room in the permit, or whatever
//! [`Volume::fetch`] can bring into memory. Then everything is released, including what the plan
//! has reserved, since that is owned by values that it drops. What was missing is fetched without
//! any lock, and the plan begins again. So no thread waits for a drive, for room in a log or for a
//! second lock out of order while it holds one, and one thread takes the same path as many.
//!
//! Another inode's shard that is not locked is taken at once, and the plan begins again with the
//! locks it has. This is how new inodes are made: their number is known only in the plan. Threads
//! that make some in one directory would otherwise all plan for the same number, and all but one
//! would fail.
//!
//! Invariant: from the moment a plan succeeds until it is applied, the locks under which it was
//! made are held, so nothing that it has read can have changed.

use smallvec::SmallVec;

use crate::inode::{OwnedShards, Shards};
use crate::{Errno, Ino, VolumeError};

/// How often a plan may lack something. Each time it has got further, or a cache that is far too
/// small has dropped what was fetched; the operation then fails with `EIO` instead of looping.
const TRIES_MAX: u32 = 1 << 16;

/// A volume whose inodes are in shards.
pub trait Volume {
    /// What is cached of the inodes that share a lock.
    type Shard;
    /// The right to change the volume. Taken before any lock of an inode, and dropped after them.
    type Permit<'a>
    where
        Self: 'a;
    /// What [`Volume::fetch`] can bring into memory.
    type Want;
    /// What can go wrong.
    type Error: From<Errno>;

    /// All shards.
    fn shards(&self) -> &Shards<Self::Shard>;

    /// Waits until the volume may be changed, and until there is `room` in the log, in blocks.
    fn enter(&self, room: u32) -> Result<Self::Permit<'_>, Self::Error>;

    /// Brings something into memory. The caller holds no lock.
    fn fetch(&self, want: Self::Want) -> Result<(), Self::Error>;
}

/// Why a plan stops before its end.
#[derive(Debug)]
pub enum Stop<W, E> {
    /// It needs the shard of this inode as well.
    Inode(Ino),
    /// It needs a permit with this much room.
    Room(u32),
    /// It needs this in memory.
    Want(W),
    /// The operation fails.
    Failed(E),
}

impl<W, E: From<Errno>> From<Errno> for Stop<W, E> {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl<W> From<VolumeError> for Stop<W, VolumeError> {
    fn from(error: VolumeError) -> Self {
        Self::Failed(error)
    }
}

/// Result of a step of a plan.
pub type Planned<T, V> = Result<T, Stop<<V as Volume>::Want, <V as Volume>::Error>>;

/// What an operation holds while it is planned and applied.
pub struct Work<'a, V: Volume> {
    /// The volume.
    pub volume: &'a V,
    /// The right to change it, with at least the room that the plan asked for.
    pub permit: V::Permit<'a>,
    /// The inodes' shards. A plan only reads them.
    pub shards: OwnedShards<'a, V::Shard>,
}

impl<V: Volume> Work<'_, V> {
    /// The shard of inode `ino`, or the wish for it.
    pub fn shard(&self, ino: Ino) -> Planned<&V::Shard, V> {
        self.shards.get(ino).ok_or(Stop::Inode(ino))
    }

    /// As [`Work::shard`], to be changed.
    pub fn shard_mut(&mut self, ino: Ino) -> Planned<&mut V::Shard, V> {
        self.shards.get_mut(ino).ok_or(Stop::Inode(ino))
    }
}

/// Plans an operation on `inos` until `plan` lacks nothing, and applies it. `room` is what most
/// plans of this operation need in the log.
///
/// # Errors
///
/// Those of `plan`, [`Volume::enter`] and [`Volume::fetch`]; nothing has changed then. `EIO` if the
/// plan never gets what it needs.
pub fn run<'v, V: Volume, P, T>(
    volume: &'v V,
    inos: &[Ino],
    mut room: u32,
    mut plan: impl FnMut(&mut Work<'v, V>) -> Planned<P, V>,
    apply: impl FnOnce(P, &mut Work<'v, V>) -> T,
) -> Result<T, V::Error> {
    let mut inos: SmallVec<[Ino; 4]> = inos.into();
    for _ in 0..TRIES_MAX {
        let permit = volume.enter(room)?;
        let shards = volume.shards().own_list(&inos).ok_or(Errno::INVAL)?;
        let mut work = Work { volume, permit, shards };
        let stop = loop {
            match plan(&mut work) {
                Ok(planned) => return Ok(apply(planned, &mut work)),
                Err(Stop::Inode(ino)) if volume.shards().try_own(&mut work.shards, ino) => {}
                Err(stop) => break stop,
            }
        };
        // The shards first: a thread that waits for them may hold a permit.
        drop(work.shards);
        drop(work.permit);
        match stop {
            Stop::Inode(ino) => inos.push(ino),
            Stop::Room(needed) => room = needed.max(room + 1),
            Stop::Want(want) => volume.fetch(want)?,
            Stop::Failed(error) => return Err(error),
        }
    }
    Err(Errno::IO.into())
}

/// Reads what is cached of inode `ino`, under its shard's shared lock, until `read` lacks nothing.
///
/// # Errors
///
/// Those of `read` and [`Volume::fetch`]. A wish for another inode or for room is `EIO`: a reader
/// has one inode.
pub fn look<V: Volume, T>(
    volume: &V,
    ino: Ino,
    mut read: impl FnMut(&V::Shard) -> Planned<T, V>,
) -> Result<T, V::Error> {
    for _ in 0..TRIES_MAX {
        let stop = match read(&volume.shards().look(ino)) {
            Ok(seen) => return Ok(seen),
            Err(stop) => stop,
        };
        match stop {
            Stop::Want(want) => volume.fetch(want)?,
            Stop::Failed(error) => return Err(error),
            Stop::Inode(_) | Stop::Room(_) => break,
        }
    }
    Err(Errno::IO.into())
}

#[cfg(test)]
mod tests;
