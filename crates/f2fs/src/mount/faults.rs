//! Faults that a user asks for: `inject_rate` and `inject_type` (`CONFIG_F2FS_FAULT_INJECTION`).
//!
//! With a rate of N, every Nth call that could fail does, counted over all types that are switched
//! on (`time_to_inject`). A call fails as it would for its own reasons, so nothing else needs to
//! know of this.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bitflags::bitflags;
use drive::Status;
use queue::Verb;

bitflags! {
    /// What can be made to fail (`enum fault_type`), by the bits of `inject_type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct FaultType: u32 {
        /// No number for a new node: `ENOSPC`.
        const ALLOC_NID = 0x20;
        /// No room in the list of orphans, so a last name cannot be removed: `ENOSPC`.
        const ORPHAN = 0x40;
        /// No free block: `ENOSPC`.
        const BLOCK = 0x80;
        /// No room for a name in any level of its directory: `ENOSPC`.
        const DIR_DEPTH = 0x100;
        /// An inode without a name cannot be freed; the next mount does it.
        const EVICT_INODE = 0x200;
        /// A file cannot be cut off: `EIO`.
        const TRUNCATE = 0x400;
        /// A read of the drive fails: `EIO`.
        const READ_IO = 0x800;
        /// The volume stops writing.
        const CHECKPOINT = 0x1000;
        /// The drive does not take a discard.
        const DISCARD = 0x2000;
        /// A write to the drive fails: the volume stops writing.
        const WRITE_IO = 0x4000;
    }
}

/// All types of Linux 6.1, also the others: 0x1 kmalloc, 0x2 kvmalloc, 0x4 page alloc, 0x8 page
/// get, 0x10 alloc bio (never fails any more), 0x8000 slab alloc, 0x10000 dquot initialize, 0x20000
/// lock op. Memory does not run out here, and locks are not tried.
pub(crate) const ALL_TYPES: u32 = 0x3_ffff;

/// Which calls fail.
#[derive(Default)]
pub(crate) struct Faults {
    rate: AtomicU64,
    types: AtomicU64,
    calls: AtomicU64,
}

impl Faults {
    /// Lets every call number `rate` of these `types` fail; none if it is 0.
    pub(crate) fn set(&self, rate: u64, types: u64) {
        self.rate.store(rate, Relaxed);
        self.types.store(types, Relaxed);
    }

    /// Whether this call fails.
    #[inline]
    pub(crate) fn fires(&self, fault: FaultType) -> bool {
        self.rate.load(Relaxed) != 0 && self.counts(fault)
    }

    #[cold]
    fn counts(&self, fault: FaultType) -> bool {
        let (rate, types) = (self.rate.load(Relaxed), self.types.load(Relaxed));
        let is_on = types & u64::from(fault.bits()) != 0;
        is_on && (self.calls.fetch_add(1, Relaxed) + 1).is_multiple_of(rate.max(1))
    }

    /// How a command of the drive fails, if it does.
    pub(crate) fn of_command(&self, verb: Verb) -> Option<Status> {
        let (fault, status) = match verb {
            Verb::Read => (FaultType::READ_IO, Status::UnrecoveredRead),
            Verb::Write | Verb::Append => (FaultType::WRITE_IO, Status::WriteFault),
            _ => return None,
        };
        self.fires(fault).then_some(status)
    }
}
