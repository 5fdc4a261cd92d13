//! Linux's own asynchronous I/O, `io_submit` and `io_getevents`, called libaio after its library.
//! The system calls are made without the library; what they take is in `linux/aio_abi.h`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::buffers::Buffers;
use super::{Interface, Setup, Way, whole};

/// `IOCB_CMD_PREAD` and `IOCB_CMD_PWRITE`.
const READ: u16 = 0;
const WRITE: u16 = 1;
/// The fewest events to wait for.
const ONE: libc::c_long = 1;

/// `struct iocb`. The fields that the byte order of a machine exchanges are both zero.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    result2: i64,
}

/// An `aio_context_t`.
struct Context(libc::c_ulong);

impl Drop for Context {
    /// Returns when nothing is in flight any more.
    fn drop(&mut self) {
        // SAFETY: the context is alive until here.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

pub(super) struct Aio {
    // Ahead of the buffers, so that it is dropped before them.
    context: Context,
    file: Arc<File>,
    buffers: Buffers,
    opcode: u16,
    blocks: Box<[ControlBlock]>,
    /// Slots begun and not handed over.
    begun: Vec<u16>,
    events: Box<[Event]>,
    in_flight: usize,
    calls: u64,
}

impl Aio {
    pub(super) fn new(file: Arc<File>, setup: &Setup) -> io::Result<Self> {
        let depth = usize::from(setup.depth);
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel stores the context in the variable.
        let made = unsafe {
            libc::syscall(libc::SYS_io_setup, libc::c_ulong::from(setup.depth), &raw mut context)
        };
        checked(made)?;
        Ok(Self {
            context: Context(context),
            buffers: Buffers::new(setup, setup.depth)?,
            file,
            opcode: if setup.way == Way::Read { READ } else { WRITE },
            blocks: vec![ControlBlock::default(); depth].into(),
            begun: Vec::with_capacity(depth),
            events: vec![Event::default(); depth].into(),
            in_flight: 0,
            calls: 0,
        })
    }

    /// Hands over all that was begun, in as few calls as the kernel allows.
    fn submit(&mut self) -> io::Result<()> {
        while !self.begun.is_empty() {
            let pointers: smallvec::SmallVec<[*const ControlBlock; 128]> =
                self.begun.iter().map(|&slot| &raw const self.blocks[usize::from(slot)]).collect();
            self.calls += 1;
            // SAFETY: the control blocks are read before the call returns. The buffers they name
            // stay mapped until the context is destroyed, and nobody else uses them meanwhile.
            let taken = unsafe {
                let (count, list) = (pointers.len() as libc::c_long, pointers.as_ptr());
                libc::syscall(libc::SYS_io_submit, self.context.0, count, list)
            };
            match checked(taken) {
                Ok(taken) => {
                    self.begun.drain(..taken.min(self.begun.len()));
                    self.in_flight += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of something that a completion gives back.
                Err(error) if would_block(&error) && self.in_flight > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Interface for Aio {
    fn start(&mut self, slot: u16, at: u64) -> io::Result<()> {
        self.blocks[usize::from(slot)] = ControlBlock {
            data: slot.into(),
            opcode: self.opcode,
            fd: self.file.as_raw_fd() as u32,
            buffer: self.buffers.at(slot) as u64,
            bytes: self.buffers.block() as u64,
            offset: at as i64,
            ..ControlBlock::default()
        };
        self.begun.push(slot);
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<u16>) -> io::Result<()> {
        self.submit()?;
        let count = loop {
            self.calls += 1;
            // SAFETY: there is room for so many events, and no time limit is given.
            let count = unsafe {
                let (most, events) = (self.events.len() as libc::c_long, self.events.as_mut_ptr());
                let none = std::ptr::null::<libc::timespec>();
                libc::syscall(libc::SYS_io_getevents, self.context.0, ONE, most, events, none)
            };
            match checked(count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => break count?,
            }
        };
        self.in_flight -= count.min(self.in_flight);
        let mut all = Ok(());
        for event in &self.events[..count] {
            all = all.and(whole(event.result, self.buffers.block()));
            done.push(event.data as u16);
        }
        all
    }

    fn calls(&self) -> Option<u64> {
        Some(self.calls)
    }
}

/// What a system call returned, or its error.
fn checked(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
