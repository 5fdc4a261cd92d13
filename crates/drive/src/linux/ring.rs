//! One hardware queue over one `io_uring`.
//!
//! A command identifier is a slot. The slot owns the buffers from the submission until the
//! completion has been reaped, so the kernel never reads or writes memory that has another owner.
//! Invariants:
//!
//! - the submission queue is filled, and the completion queue emptied, under the lock only;
//! - of all waiting threads one, the reaper, sleeps in the kernel, without the lock. While there is
//!   a reaper no other thread empties the completion queue, so the completion that it sleeps for
//!   cannot be taken away. The others sleep on the condition and are woken when it has reaped;
//! - a ring that the kernel no longer serves answers everything with `NotReady`, and keeps the
//!   buffers of what was in flight for ever.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use cores::{Condvar, Mutex, MutexGuard};
use io_uring::{EnterFlags, IoUring, opcode, types};
use smallvec::SmallVec;

use super::device::Device;
use super::errno::Way;
use crate::{BLOCK_SIZE, Block, Blocks, Completion, Lba, Output, Status};

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// How often a command is sent again after the kernel cancelled it, for example because the thread
/// that had submitted it ended.
const MAX_RETRIES: u8 = 16;

/// What is left for the ring once the device has checked a command.
#[derive(Debug)]
pub(super) enum Transfer {
    /// Of so many blocks.
    Read {
        lba: Lba,
        blocks: u32,
    },
    Write {
        lba: Lba,
        data: Blocks,
        fua: bool,
    },
    Flush,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Read,
    Write { fua: bool },
    Flush,
}

/// A command in flight.
struct Slot {
    op: Opcode,
    lba: Lba,
    data: Blocks,
    iovecs: SmallVec<[libc::iovec; 4]>,
    retries: u8,
}

// SAFETY: the pointers in `iovecs` lead to the frames of `data`, which move with it.
unsafe impl Send for Slot {}

#[derive(Default)]
struct State {
    slots: Vec<Option<Slot>>,
    in_flight: usize,
    done: VecDeque<Completion>,
    /// A thread sleeps in the kernel.
    reaper: bool,
    sleepers: usize,
    broken: bool,
}

pub(super) struct Ring {
    uring: IoUring,
    device: Arc<Device>,
    state: Mutex<State>,
    reaped: Condvar,
}

impl Ring {
    /// A ring over `device`. An error if the kernel, or a filter in front of it, refuses.
    pub(super) fn new(device: Arc<Device>) -> io::Result<Self> {
        let depth = device.identify.queue_depth;
        let uring = IoUring::new(u32::from(depth))?;
        let slots = (0..depth).map(|_| None).collect();
        let state = State { slots, ..State::default() };
        Ok(Self { uring, device, state: Mutex::named("ring", state), reaped: Condvar::new() })
    }

    /// Sends a transfer. Its completion, if it is there already.
    pub(super) fn send(&self, cid: u16, transfer: Transfer) -> Option<Completion> {
        let mut state = self.state.lock();
        if state.broken || state.slots.get(usize::from(cid)).is_none_or(Option::is_some) {
            let status = if state.broken { Status::NotReady } else { Status::InvalidField };
            return Some(Completion { cid, result: Err(status) });
        }
        state.slots[usize::from(cid)] = Some(Slot::new(transfer));
        state.in_flight += 1;
        self.push(&mut state, cid);
        if !state.reaper {
            self.reap(&mut state);
        }
        state.take(Some(cid))
    }

    /// Files an answer that needed no ring.
    pub(super) fn file(&self, completion: Completion) {
        self.state.lock().done.push_back(completion);
    }

    pub(super) fn poll(&self) -> Option<Completion> {
        let mut state = self.state.lock();
        // The reaper wakes up for this by itself.
        if !state.reaper {
            self.reap(&mut state);
        }
        state.take(None)
    }

    /// Sleeps until the command `wanted`, or any command, is done. `None` if it is not in flight.
    pub(super) fn wait(&self, wanted: Option<u16>) -> Option<Completion> {
        let mut state = self.state.lock();
        loop {
            if !state.reaper {
                self.reap(&mut state);
            }
            if let Some(completion) = state.take(wanted) {
                return Some(completion);
            }
            if !state.has_in_flight(wanted) {
                return None;
            }
            if state.reaper {
                state.sleepers += 1;
                self.reaped.wait(&mut state);
                state.sleepers -= 1;
            } else {
                state = self.sleep(state);
            }
        }
    }

    /// Sleeps in the kernel until something completes, as the reaper.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.reaper = true;
        drop(state);
        let slept = self.enter(1);
        let mut state = self.state.lock();
        state.reaper = false;
        if let Err(error) = slept
            && !is_passing(&error)
        {
            state.give_up();
        }
        self.reap(&mut state);
        if state.sleepers > 0 {
            self.reaped.notify_all();
        }
        state
    }

    fn enter(&self, wanted: u32) -> io::Result<usize> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted, and no argument passed.
        unsafe { self.uring.submitter().enter::<libc::sigset_t>(0, wanted, flags, None) }
    }

    /// Hands slot `cid` to the kernel.
    fn push(&self, state: &mut State, cid: u16) {
        let Some(Some(slot)) = state.slots.get_mut(usize::from(cid)) else { return };
        let entry = slot.entry(&self.device).user_data(u64::from(cid));
        {
            // SAFETY: the lock is held, so this is the only submission queue there is.
            let mut queue = unsafe { self.uring.submission_shared() };
            // SAFETY: the slot keeps iovecs and blocks where they are until the completion is
            // reaped.
            if unsafe { queue.push(&entry) }.is_err() {
                // As long as the identifiers: full only if the kernel has stopped taking entries.
                drop(queue);
                return state.give_up();
            }
        }
        while let Err(error) = self.uring.submit() {
            if !is_passing(&error) {
                return state.give_up();
            }
            // The kernel is short of memory or of room for completions. Both pass.
            let _ = self.enter(0);
            cores::yield_now();
        }
    }

    /// Files what the kernel has completed.
    fn reap(&self, state: &mut State) {
        let mut again: SmallVec<[u16; 4]> = SmallVec::new();
        // SAFETY: the lock is held and no reaper is in the kernel, so this is the only completion
        // queue there is.
        for entry in unsafe { self.uring.completion_shared() } {
            let Ok(cid) = u16::try_from(entry.user_data()) else { continue };
            let Some(place) = state.slots.get_mut(usize::from(cid)) else { continue };
            let Some(mut slot) = place.take() else { continue };
            if slot.was_passed_over(entry.result()) {
                *place = Some(slot);
                again.push(cid);
                continue;
            }
            let result = slot.finish(entry.result(), &self.device);
            state.in_flight -= 1;
            state.done.push_back(Completion { cid, result });
        }
        for cid in again {
            self.push(state, cid);
        }
    }
}

impl Drop for Ring {
    /// Waits for what is in flight, because the kernel still writes to its buffers.
    fn drop(&mut self) {
        while self.wait(None).is_some() {}
    }
}

impl State {
    fn take(&mut self, wanted: Option<u16>) -> Option<Completion> {
        match wanted {
            None => self.done.pop_front(),
            Some(cid) => {
                let at = self.done.iter().position(|done| done.cid == cid)?;
                self.done.remove(at)
            }
        }
    }

    fn has_in_flight(&self, wanted: Option<u16>) -> bool {
        match wanted {
            None => self.in_flight > 0,
            Some(cid) => self.slots.get(usize::from(cid)).is_some_and(Option::is_some),
        }
    }

    /// The kernel no longer serves this ring.
    fn give_up(&mut self) {
        self.broken = true;
        self.in_flight = 0;
        for (cid, place) in (0..).zip(&mut self.slots) {
            if let Some(slot) = place.take() {
                // The kernel may still read or write this memory, so it is leaked.
                std::mem::forget(slot);
                self.done.push_back(Completion { cid, result: Err(Status::NotReady) });
            }
        }
    }
}

impl Slot {
    fn new(transfer: Transfer) -> Self {
        let (op, lba, data) = match transfer {
            Transfer::Read { lba, blocks } => {
                (Opcode::Read, lba, (0..blocks).map(|_| Block::unspecified()).collect())
            }
            Transfer::Write { lba, data, fua } => (Opcode::Write { fua }, lba, data),
            Transfer::Flush => (Opcode::Flush, 0, Blocks::new()),
        };
        Self { op, lba, data, iovecs: SmallVec::new(), retries: 0 }
    }

    /// The ring entry. It points into this slot, which must stay where it is.
    fn entry(&mut self, device: &Device) -> io_uring::squeue::Entry {
        let fd = types::Fd(device.fd().as_raw_fd());
        let iovec = |start: *mut u8| libc::iovec { iov_base: start.cast(), iov_len: BLOCK_SIZE };
        self.iovecs = match self.op {
            Opcode::Read => {
                self.data.iter_mut().map(|b| iovec(b.make_mut().as_mut_ptr())).collect()
            }
            _ => self.data.iter().map(|b| iovec(b.bytes().as_ptr().cast_mut())).collect(),
        };
        let (iovecs, count) = (self.iovecs.as_ptr(), self.iovecs.len() as u32);
        let byte = self.lba * BLOCK_BYTES;
        match self.op {
            Opcode::Read => opcode::Readv::new(fd, iovecs, count).offset(byte).build(),
            Opcode::Write { fua } => {
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, iovecs, count).offset(byte).rw_flags(flags).build()
            }
            Opcode::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }

    /// Whether the kernel left the command undone without any fault of the device, so that sending
    /// it again makes sense.
    fn was_passed_over(&mut self, result: i32) -> bool {
        let passed = matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN);
        self.retries += u8::from(passed);
        passed && self.retries <= MAX_RETRIES
    }

    fn finish(self, result: i32, device: &Device) -> Result<Output, Status> {
        let way = if self.op == Opcode::Read { Way::Read } else { Way::Write };
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            return Err(device.failure(&error, way, self.lba, self.data.len() as u64));
        }
        // A short transfer: the device has become shorter, or failed halfway.
        let whole = self.op == Opcode::Flush || result as usize == self.data.len() * BLOCK_SIZE;
        match (self.op, whole) {
            (Opcode::Read, true) => Ok(Output::Data(self.data)),
            (Opcode::Read, false) => Err(Status::UnrecoveredRead),
            (_, true) => Ok(Output::Done),
            (_, false) => Err(Status::WriteFault),
        }
    }
}

/// Errors of `io_uring_enter` that pass.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
