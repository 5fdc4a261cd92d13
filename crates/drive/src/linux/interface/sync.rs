//! One transfer at a time, done when the system call returns: `pread`, and `preadv2` with flags.
//!
//! `RWF_HIPRI` asked the kernel to poll for the completion (Linux 4.6); since Linux 5.19 direct
//! transfers of one system call ignore it (commit 9650b453a3d4).

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use rustix::io::{ReadWriteFlags, pread, preadv2, pwrite, pwritev2};

use super::super::device::retry;
use super::buffers::Buffers;
use super::{Interface, Setup, Way, whole};

pub(super) struct Sync {
    file: Arc<File>,
    buffers: Buffers,
    way: Way,
    /// Of `preadv2`; none means `pread`.
    flags: Option<ReadWriteFlags>,
    done: Option<u16>,
    calls: u64,
}

impl Sync {
    /// `pread` and `pwrite`.
    pub(super) fn plain(file: Arc<File>, setup: &Setup) -> io::Result<Self> {
        let buffers = Buffers::new(setup, 1)?;
        Ok(Self { file, buffers, way: setup.way, flags: None, done: None, calls: 0 })
    }

    /// `preadv2` and `pwritev2`.
    pub(super) fn vectored(
        file: Arc<File>,
        setup: &Setup,
        flags: ReadWriteFlags,
    ) -> io::Result<Self> {
        Ok(Self { flags: Some(flags), ..Self::plain(file, setup)? })
    }
}

impl Interface for Sync {
    fn start(&mut self, slot: u16, at: u64) -> io::Result<()> {
        let (file, flags, way) = (&self.file, self.flags, self.way);
        let buffer = self.buffers.slot(slot);
        let wanted = buffer.len();
        let calls = &mut self.calls;
        let moved = retry(|| {
            *calls += 1;
            match (way, flags) {
                (Way::Read, None) => pread(file, &mut *buffer, at),
                (Way::Write, None) => pwrite(file, buffer, at),
                (Way::Read, Some(flags)) => {
                    preadv2(file, &mut [IoSliceMut::new(buffer)], at, flags)
                }
                (Way::Write, Some(flags)) => pwritev2(file, &[IoSlice::new(buffer)], at, flags),
            }
        })?;
        whole(moved as i64, wanted)?;
        self.done = Some(slot);
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<u16>) -> io::Result<()> {
        done.extend(self.done.take());
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.calls)
    }
}
