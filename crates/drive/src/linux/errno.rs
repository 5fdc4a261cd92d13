//! From the kernel's errno to the status a drive gives (`blk_errors` in block/blk-core.c).

use std::io;

use crate::Status;

/// The direction of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Towards the host.
    Read,
    /// Towards the device, including flushes.
    Write,
}

/// The status for `errno`.
pub(super) fn status(errno: i32, way: Way) -> Status {
    match errno {
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN | libc::ETIMEDOUT => {
            Status::NotReady
        }
        libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADE => Status::WriteProtected,
        libc::EINVAL | libc::EFBIG => Status::InvalidField,
        // Of a file in a full file system, or of a thin device whose pool is full.
        libc::ENOSPC | libc::EDQUOT if way == Way::Write => Status::CapacityExceeded,
        libc::EOPNOTSUPP | libc::ENOTTY => Status::InvalidOpcode,
        libc::EOVERFLOW => Status::TooManyActiveZones,
        libc::ETOOMANYREFS => Status::TooManyOpenZones,
        _ if way == Way::Read => Status::UnrecoveredRead,
        _ => Status::WriteFault,
    }
}

/// The status for an error of the standard library.
pub(super) fn status_of(error: &io::Error, way: Way) -> Status {
    status(error.raw_os_error().unwrap_or(libc::EIO), way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_errors_are_the_medium_s() {
        assert_eq!(status(libc::EIO, Way::Read), Status::UnrecoveredRead);
        assert_eq!(status(libc::ENODATA, Way::Read), Status::UnrecoveredRead);
        assert_eq!(status(libc::ENOSPC, Way::Write), Status::CapacityExceeded);
        assert_eq!(status(libc::EOVERFLOW, Way::Write), Status::TooManyActiveZones);
        assert_eq!(status(libc::ENODEV, Way::Write), Status::NotReady);
        let no_errno = io::Error::other("no number");
        assert_eq!(status_of(&no_errno, Way::Write), Status::WriteFault);
    }
}
