//! Reads and writes at an offset, and holes, as the host's system offers them.

#[cfg(not(target_os = "linux"))]
pub(super) use anywhere::{next_data, punch, read, write};
#[cfg(target_os = "linux")]
pub(super) use linux::{next_data, punch, read, write};

/// One system call for many pieces.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
    use rustix::io::{Errno, preadv, pwritev};

    pub(in super::super) fn read(
        file: &File,
        to: &mut [IoSliceMut<'_>],
        at: u64,
    ) -> io::Result<usize> {
        Ok(preadv(file, to, at)?)
    }

    pub(in super::super) fn write(file: &File, from: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        Ok(pwritev(file, from, at)?)
    }

    /// Makes a hole; `Unsupported` if the file system has none.
    pub(in super::super) fn punch(file: &File, from: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(file, flags, from, len) {
            Err(Errno::OPNOTSUPP) => Err(ErrorKind::Unsupported.into()),
            made => Ok(made?),
        }
    }

    /// The first byte from `at` on that is in no hole, if there is one.
    pub(in super::super) fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
        match seek(file, SeekFrom::Data(at)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The same with the standard library, for macOS and Windows: piece by piece, and without holes.
#[cfg(not(target_os = "linux"))]
mod anywhere {
    use std::fs::File;
    use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
    #[cfg(unix)]
    use std::os::unix::fs::FileExt;
    #[cfg(windows)]
    use std::os::windows::fs::FileExt;

    pub(in super::super) fn read(
        file: &File,
        to: &mut [IoSliceMut<'_>],
        at: u64,
    ) -> io::Result<usize> {
        let Some(piece) = to.iter_mut().find(|piece| !piece.is_empty()) else { return Ok(0) };
        #[cfg(unix)]
        return file.read_at(piece, at);
        #[cfg(windows)]
        return file.seek_read(piece, at);
    }

    pub(in super::super) fn write(file: &File, from: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let Some(piece) = from.iter().find(|piece| !piece.is_empty()) else { return Ok(0) };
        #[cfg(unix)]
        return file.write_at(piece, at);
        #[cfg(windows)]
        return file.seek_write(piece, at);
    }

    pub(in super::super) fn punch(_: &File, _: u64, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn next_data(_: &File, at: u64) -> io::Result<Option<u64>> {
        Ok(Some(at))
    }
}
