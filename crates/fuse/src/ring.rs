//! Requests and replies over `io_uring`, one ring per CPU (Linux 6.14, `fs/fuse/dev_uring.c`).
//!
//! A request goes into an entry of the ring that belongs to the CPU on which it was made. A thread
//! that stays on that CPU answers it: the thread that asks goes to sleep and the one that answers
//! runs next. No other CPU has to be woken, which would cost more than everything else. A reply and
//! the wait for the next request are one system call. `/dev/fuse` stays open beside the rings, for
//! interrupts and FORGET.
//!
//! The safety argument: an entry's memory is boxed and never moves while its ring exists. Kernel
//! and server own it in turns: the kernel from the submission of a command until its completion,
//! the server from then until the next submission. The kernel copies only inside a system call of
//! the ring's own thread, so nothing is written once that has ended.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};

use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, types};
use libc::iovec;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    InHeader, URING_CMD_COMMIT_AND_FETCH, URING_CMD_REGISTER, UringCmdReq, UringReqHeader,
};
use crate::server::Front;
use crate::wire::{Device, MAX_WRITE, Reply, Request};

/// How many requests the kernel may have in one ring at a time.
const DEPTH: usize = 8;
/// The offset of `len` in `struct io_uring_sqe`.
const SQE_LEN_OFFSET: usize = 24;
/// The most bytes in the reply to a request with a payload: an extended attribute.
const SIDE: usize = 64 << 10;

/// An entry. One request at a time arrives in it, and its reply leaves from it.
struct Entry {
    header: Box<UringReqHeader>,
    payload: Box<[u8]>,
    /// Both, as the kernel is told where they are.
    memory: Box<[iovec; 2]>,
}

/// How many rings the kernel requires: one for every CPU that there may ever be.
pub(crate) fn count() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = list.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<usize>().ok());
    last.map_or_else(cores::core_count, |last| last + 1)
}

/// Serves the ring of `cpu` until the file system is unmounted, and calls `answered` when answers
/// are on their way. To be called on that CPU.
pub(crate) fn serve(
    cpu: usize,
    device: &Device,
    server: &Front,
    answered: impl Fn(),
) -> Result<(), Errno> {
    // A refusal has a cause: locked memory, or a filter. The kernel keeps using `/dev/fuse` until
    // every CPU has a ring.
    let Ok(mut ring) = Ring::new(cpu, device) else { return Ok(()) };
    let mut side = vec![0; SIDE];
    while ring.entries_left > 0 {
        ring.wait().map_err(|error| errno(&error))?;
        while let Some(entry) = ring.next() {
            ring.entries[entry].answer(server, &mut side)?;
            ring.push(entry, URING_CMD_COMMIT_AND_FETCH);
        }
        if server.has_panicked() {
            // Perhaps no further request comes with which the answers would be submitted.
            let _ = ring.uring.submit();
        }
        answered();
    }
    Ok(())
}

/// A signal, or a kernel short of memory for a moment.
fn is_passing(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock | ResourceBusy)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Entry {
    fn new() -> Self {
        let mut header = Box::new(UringReqHeader::default());
        let mut payload = vec![0; MAX_WRITE].into_boxed_slice();
        let memory = Box::new(
            [header.as_mut_bytes(), &mut payload]
                .map(|bytes| iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }),
        );
        Self { header, payload, memory }
    }

    /// Answers the request in it. A reply that would overwrite its own request is made in `side`.
    fn answer(&mut self, server: &Front, side: &mut [u8]) -> Result<(), Errno> {
        let header = &mut *self.header;
        let (asked, _) =
            InHeader::read_from_prefix(header.in_out.as_bytes()).map_err(|_| Errno::IO)?;
        let op_in = header.op_in;
        let sent = self.payload.get_mut(..header.payload_sz as usize).ok_or(Errno::IO)?;
        let (told, len) = if sent.is_empty() {
            let request = Request::parts(asked, op_in.as_bytes(), &[]);
            let mut reply = Reply::new(&mut self.payload);
            (server.answer(&request, &mut reply), reply.filled().len())
        } else {
            let request = Request::parts(asked, op_in.as_bytes(), sent);
            let mut reply = Reply::new(side);
            let told = server.answer(&request, &mut reply);
            let filled = reply.filled();
            self.payload[..filled.len()].copy_from_slice(filled);
            (told, filled.len())
        };
        let told = told.ok_or(Errno::IO)?;
        header.in_out.as_mut_bytes()[..size_of_val(&told)].copy_from_slice(told.as_bytes());
        header.payload_sz = len as u32;
        Ok(())
    }
}

struct Ring<'a> {
    uring: IoUring<Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Entries on which the kernel has not given up.
    entries_left: usize,
    queue: u16,
    device: &'a Device,
}

impl<'a> Ring<'a> {
    fn new(cpu: usize, device: &'a Device) -> io::Result<Self> {
        let queue = u16::try_from(cpu).map_err(|_| ErrorKind::InvalidInput)?;
        let mut builder = IoUring::builder();
        let uring = builder.setup_single_issuer().setup_defer_taskrun().build(DEPTH as u32)?;
        let entries = (0..DEPTH).map(|_| Entry::new()).collect();
        let mut ring = Self { uring, entries, entries_left: DEPTH, queue, device };
        for at in 0..DEPTH {
            ring.push(at, URING_CMD_REGISTER);
        }
        Ok(ring)
    }

    /// Queues a command for an entry, which belongs to the kernel from the next system call on.
    fn push(&mut self, at: usize, subcommand: u32) {
        let Entry { header, memory, .. } = &self.entries[at];
        let request =
            UringCmdReq { commit_id: header.commit_id, qid: self.queue, ..UringCmdReq::default() };
        let mut command = [0; 80];
        command[..size_of_val(&request)].copy_from_slice(request.as_bytes());
        let mut entry = UringCmd80::new(types::Fd(self.device.as_fd().as_raw_fd()), subcommand)
            .cmd(command)
            .addr(Some(memory.as_ptr().expose_provenance() as u64))
            .build()
            .user_data(at as u64);
        // SAFETY: an `Entry128` is a `struct io_uring_sqe` of 128 bytes, all of them integers; the
        // crate has no other way to its `len`.
        unsafe {
            let len = std::ptr::from_mut(&mut entry).byte_add(SQE_LEN_OFFSET).cast::<u32>();
            len.write(memory.len() as u32);
        }
        // SAFETY: the memory stays where it is as long as the ring does, and is the kernel's until
        // the command completes.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("one command for each entry at a time, and room for all of them");
    }

    /// Submits what is queued and sleeps until there is a request.
    fn wait(&self) -> io::Result<()> {
        match self.uring.submit_and_wait(1) {
            Err(error) if is_passing(&error) => Ok(()),
            waited => waited.map(drop),
        }
    }

    /// An entry with a request.
    fn next(&mut self) -> Option<usize> {
        loop {
            let done = self.uring.completion().next()?;
            if done.result() >= 0 {
                return Some(done.user_data() as usize);
            }
            // ENOTCONN: unmounted.
            self.entries_left -= 1;
        }
    }
}
