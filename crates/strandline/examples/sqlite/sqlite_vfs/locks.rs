//! What connections of one process share about a database: SQLite's five locking levels, and the
//! memory of the WAL index with its eight locks. There is no other process: a volume has one owner.
//!
//! Source: <https://www.sqlite.org/lockingv3.html>, <https://www.sqlite.org/walformat.html> section
//! 2.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cores::Mutex;
use rusqlite::ffi;

/// Slots of xShmLock.
const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// One database file, shared by all who have it open.
#[derive(Default)]
pub(crate) struct Shared {
    levels: Mutex<Levels>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Levels {
    /// How many hold SHARED or more.
    shared: u32,
    /// Who holds RESERVED.
    reserved: Option<u64>,
    /// Who holds PENDING or EXCLUSIVE: from then on no new connection gets SHARED.
    pending: Option<u64>,
}

#[derive(Default)]
struct Index {
    /// Atomics, since SQLite writes here from any thread. They stay where they are.
    regions: Vec<Arc<[AtomicU64]>>,
    users: u32,
    /// For each slot, how many share it, or that one has it alone.
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Slot {
    #[default]
    Free,
    Shared(u32),
    Exclusive,
}

/// What one open file holds in a [`Shared`].
pub(crate) struct Held {
    /// Tells holders apart.
    id: u64,
    level: i32,
    mapped: bool,
    slots: [Slot; SLOTS],
}

impl Held {
    /// Holds nothing yet; `id` is unique.
    pub(crate) fn nothing(id: u64) -> Self {
        Self { id, level: ffi::SQLITE_LOCK_NONE, mapped: false, slots: [Slot::Free; SLOTS] }
    }
}

impl Shared {
    /// xLock: rises to `level`; false if others are in the way.
    pub(crate) fn lock(&self, held: &mut Held, level: i32) -> bool {
        let mut levels = self.levels.lock();
        if level <= held.level {
            return true;
        }
        let others = |who: Option<u64>| who.is_some_and(|who| who != held.id);
        match level {
            ffi::SQLITE_LOCK_SHARED if levels.pending.is_some() => return false,
            ffi::SQLITE_LOCK_SHARED => levels.shared += 1,
            _ if others(levels.reserved) || others(levels.pending) => return false,
            ffi::SQLITE_LOCK_RESERVED => levels.reserved = Some(held.id),
            _ => {
                levels.pending = Some(held.id);
                if levels.shared > 1 {
                    held.level = ffi::SQLITE_LOCK_PENDING;
                    return false;
                }
            }
        }
        held.level = level;
        true
    }

    /// xUnlock: falls to SHARED or to nothing.
    pub(crate) fn unlock(&self, held: &mut Held, level: i32) {
        let mut levels = self.levels.lock();
        if level >= held.level {
            return;
        }
        levels.reserved.take_if(|who| *who == held.id);
        levels.pending.take_if(|who| *who == held.id);
        if level == ffi::SQLITE_LOCK_NONE {
            levels.shared -= 1;
        }
        held.level = level;
    }

    /// xCheckReservedLock.
    pub(crate) fn is_reserved(&self) -> bool {
        self.levels.lock().reserved.is_some()
    }

    /// xShmMap: region `number` of `size` bytes, made if `extend`. It stays until the last user
    /// has gone.
    pub(crate) fn map(
        &self,
        held: &mut Held,
        number: usize,
        size: usize,
        extend: bool,
    ) -> Option<Arc<[AtomicU64]>> {
        let mut index = self.index.lock();
        if !held.mapped {
            held.mapped = true;
            index.users += 1;
        }
        while extend && index.regions.len() <= number {
            index.regions.push((0..size.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        index.regions.get(number).cloned()
    }

    /// xShmLock on `count` slots from `first`: all of them, or false and none.
    pub(crate) fn lock_slots(
        &self,
        held: &mut Held,
        first: usize,
        count: usize,
        flags: i32,
    ) -> bool {
        let mut index = self.index.lock();
        let range = first..(first + count).min(SLOTS);
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            range.for_each(|at| release(&mut index.slots[at], &mut held.slots[at]));
            return true;
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let free = |at: usize| match (index.slots[at], held.slots[at]) {
            (Slot::Free, _) => true,
            (Slot::Shared(n), mine) if exclusive => n == 1 && mine != Slot::Free,
            (Slot::Shared(_), _) => true,
            (Slot::Exclusive, mine) => mine == Slot::Exclusive,
        };
        if !range.clone().all(free) {
            return false;
        }
        for at in range {
            if !exclusive && held.slots[at] != Slot::Free {
                continue;
            }
            index.slots[at] = match index.slots[at] {
                _ if exclusive => Slot::Exclusive,
                Slot::Shared(n) => Slot::Shared(n + 1),
                _ => Slot::Shared(1),
            };
            held.slots[at] = if exclusive { Slot::Exclusive } else { Slot::Shared(1) };
        }
        true
    }

    /// xShmUnmap.
    pub(crate) fn unmap(&self, held: &mut Held) {
        let mut index = self.index.lock();
        for at in 0..SLOTS {
            release(&mut index.slots[at], &mut held.slots[at]);
        }
        if std::mem::take(&mut held.mapped) {
            index.users -= 1;
        }
        if index.users == 0 {
            index.regions.clear();
        }
    }
}

fn release(slot: &mut Slot, held: &mut Slot) {
    *slot = match (*slot, std::mem::take(held)) {
        (now, Slot::Free) => now,
        (Slot::Shared(n), _) if n > 1 => Slot::Shared(n - 1),
        _ => Slot::Free,
    };
}
