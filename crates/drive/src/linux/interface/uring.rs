//! `io_uring`: entries in shared memory, handed over and waited for in one system call, or, with a
//! kernel thread that looks for them, in none.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};

use super::buffers::Buffers;
use super::{Interface, Setup, Way, whole};

/// Milliseconds without work after which the kernel's thread sleeps: never during a measurement.
const IDLE_MS: u32 = 10_000;

/// How a ring works.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// File and buffers are registered, so the kernel need not look them up for each transfer.
    pub(super) registered: bool,
    /// The kernel polls the device for completions.
    pub(super) iopoll: bool,
    /// A thread of the kernel submits, and the caller looks for completions without sleeping.
    pub(super) sqpoll: bool,
}

pub(super) struct Uring {
    ring: IoUring,
    file: Arc<File>,
    buffers: Buffers,
    options: Options,
    way: Way,
    in_flight: usize,
    calls: u64,
}

impl Uring {
    pub(super) fn new(file: Arc<File>, setup: &Setup, options: Options) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        if options.iopoll {
            builder.setup_iopoll();
        }
        if options.sqpoll {
            builder.setup_sqpoll(IDLE_MS);
        }
        let ring = builder.build(setup.depth.into())?;
        let buffers = Buffers::new(setup, setup.depth)?;
        if options.registered {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
            // SAFETY: the buffers stay mapped until nothing is in flight.
            unsafe { ring.submitter().register_buffers(&[buffers.all()])? };
        }
        Ok(Self { ring, file, buffers, options, way: setup.way, in_flight: 0, calls: 0 })
    }

    fn entry(&self, slot: u16, at: u64) -> Entry {
        let (buffer, bytes) = (self.buffers.at(slot), self.buffers.block() as u32);
        let (fd, fixed) = (types::Fd(self.file.as_raw_fd()), types::Fixed(0));
        let entry = match (self.way, self.options.registered) {
            (Way::Read, false) => opcode::Read::new(fd, buffer, bytes).offset(at).build(),
            (Way::Write, false) => opcode::Write::new(fd, buffer, bytes).offset(at).build(),
            (Way::Read, true) => opcode::ReadFixed::new(fixed, buffer, bytes, 0).offset(at).build(),
            (Way::Write, true) => {
                opcode::WriteFixed::new(fixed, buffer, bytes, 0).offset(at).build()
            }
        };
        entry.user_data(slot.into())
    }

    /// Hands over what was begun, and without a kernel thread sleeps until something is done.
    fn enter(&mut self) -> io::Result<()> {
        // While the kernel's thread runs, completions are polled for without a call. Asleep, it is
        // woken once and waited for: it may get no CPU time for long, and keeps asking until then.
        let entered = if self.options.sqpoll && !self.ring.submission().need_wakeup() {
            self.ring.submit()
        } else {
            self.calls += 1;
            self.ring.submit_and_wait(1)
        };
        match entered {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            entered => entered.map(drop),
        }
    }

    /// Takes what is done; an error if a transfer failed.
    fn reap(&mut self, done: &mut Vec<u16>) -> io::Result<()> {
        let mut all = Ok(());
        for entry in self.ring.completion() {
            all = all.and(whole(entry.result().into(), self.buffers.block()));
            self.in_flight -= 1;
            done.push(entry.user_data() as u16);
        }
        all
    }
}

impl Interface for Uring {
    fn start(&mut self, slot: u16, at: u64) -> io::Result<()> {
        let entry = self.entry(slot, at);
        // SAFETY: the buffer stays mapped until nothing is in flight, and nobody else uses it
        // meanwhile.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<u16>) -> io::Result<()> {
        let before = done.len();
        while done.len() == before && self.in_flight > 0 {
            self.enter()?;
            self.reap(done)?;
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.calls)
    }
}

impl Drop for Uring {
    /// Waits for what is in flight, because the kernel still writes to its buffers.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let before = self.in_flight;
            if self.wait(&mut Vec::new()).is_err() && self.in_flight == before {
                return self.buffers.abandon();
            }
        }
    }
}
