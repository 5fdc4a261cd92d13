//! Buffers for transfers past the page cache: one mapping, page aligned, a part for each slot.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::Setup;

/// The buffers of one interface.
pub(super) struct Buffers {
    start: NonNull<u8>,
    block: usize,
    slots: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Buffers {}

impl Buffers {
    /// A buffer for each of `depth` slots, filled with bytes that do not compress.
    pub(super) fn new(setup: &Setup, depth: u16) -> io::Result<Self> {
        let (block, slots) = (setup.block, usize::from(depth));
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping overlaps nothing.
        let map = unsafe {
            mmap_anonymous(std::ptr::null_mut(), block * slots, access, MapFlags::PRIVATE)
        };
        let start = NonNull::new(map?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffers = Self { start, block, slots };
        let mut seed = cores::mix(setup.seed) ^ u64::from(setup.job);
        // All pages are touched: the first transfer is not to pay for that.
        for slot in 0..depth {
            for word in buffers.slot(slot).chunks_mut(8) {
                seed = cores::splitmix64(seed);
                word.copy_from_slice(&seed.to_le_bytes()[..word.len()]);
            }
        }
        Ok(buffers)
    }

    /// Bytes of one buffer.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Where the buffer of `slot` begins. It stays there.
    pub(super) fn at(&self, slot: u16) -> *mut u8 {
        assert!(usize::from(slot) < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: the slot lies within the mapping.
        unsafe { self.start.as_ptr().add(usize::from(slot) * self.block) }
    }

    /// The buffer of `slot`, which must not be in flight.
    pub(super) fn slot(&mut self, slot: u16) -> &mut [u8] {
        // SAFETY: the buffer lies within the mapping, no other reference to it is alive, and the
        // kernel has no transfer under way in it.
        unsafe { std::slice::from_raw_parts_mut(self.at(slot), self.block) }
    }

    /// All of them as the kernel wants to have them registered.
    pub(super) fn all(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.block * self.slots }
    }

    /// Never unmaps them, because the kernel may still write there.
    pub(super) fn abandon(&mut self) {
        self.slots = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.slots > 0 {
            // SAFETY: the mapping is this value's, and nothing is in flight any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.block * self.slots) };
        }
    }
}
