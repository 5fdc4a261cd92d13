//! Several files or devices mapped one behind the other, as one range of addresses.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Stores reach the file.
    Shared,
    /// Stores stay in this process.
    Private,
}

/// Size of a large page of most processors.
pub(super) const LARGE_PAGE: usize = 2 << 20;

/// A range of addresses, into which files are mapped. Unmapped when dropped.
pub(super) struct Mapping {
    /// What was reserved.
    reserved: (NonNull<u8>, usize),
    /// The part in use, which begins where a large page may.
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range of addresses; all access goes through assembly, for which races are defined.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Addresses for `len` bytes, with nothing there yet.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let all = len.checked_add(LARGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel chooses addresses that nobody uses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), all, ProtFlags::empty(), flags) }?;
        let at: NonNull<u8> = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ahead = at.as_ptr().addr().next_multiple_of(LARGE_PAGE) - at.as_ptr().addr();
        // SAFETY: `ahead` is less than what was reserved in addition.
        let base = unsafe { at.add(ahead) };
        Ok(Self { reserved: (at, all), base, len })
    }

    /// Maps the first `len` bytes of `file` at offset `at`. True if what is written back in the
    /// mapping is durable (`MAP_SYNC`).
    pub(super) fn map(&self, at: usize, len: usize, file: &File, share: Share) -> io::Result<bool> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "outside the reservation");
        let map = |flags| {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the range lies inside this reservation, in which nothing else is.
            unsafe {
                let to = self.base.as_ptr().add(at).cast();
                mmap(to, len, prot, flags | MapFlags::FIXED, file, 0).map(drop)
            }
        };
        if share == Share::Private {
            map(MapFlags::PRIVATE | MapFlags::NORESERVE)?;
            return Ok(false);
        }
        match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(()) => Ok(true),
            // Not on DAX, or a kernel that does not know the flags.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {
                map(MapFlags::SHARED)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The byte at offset `at`. Panics unless `len` bytes from there on are inside.
    #[inline]
    pub(super) fn at(&self, at: u64, len: u64) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len as u64), "{at:#x} + {len:#x} is outside");
        // SAFETY: inside the range, as just checked.
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    /// Makes large pages of what is there, as far as the kernel has them (`MADV_COLLAPSE`, Linux
    /// 6.1, which needs no permission in sysfs or from the mount). False if it stopped before the
    /// end.
    pub(super) fn collapse(&self) -> bool {
        // SAFETY: the whole range is mapped; its contents stay as they are.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_COLLAPSE) == 0 }
    }

    /// Writes everything to the files' own media.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the whole range is mapped; its contents stay as they are.
        unsafe { msync(self.base.as_ptr().cast(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the range any more. Unmapping a whole mapping does not fail.
        let _ = unsafe { munmap(self.reserved.0.as_ptr().cast(), self.reserved.1) };
    }
}
