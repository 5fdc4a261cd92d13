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

/// A range of addresses, into which files are mapped. Unmapped when dropped.
pub(super) struct Mapping {
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
        // SAFETY: the kernel chooses addresses that nobody uses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        let base = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
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
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
