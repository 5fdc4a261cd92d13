//! Bytes that a host has sent and that have not been processed yet.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};
use smallvec::SmallVec;

use crate::transfer::{MAX_SLICES, Transfer};

/// Room for many commands, and several times for the longest capsule.
const ROOM: usize = 1 << 16;

pub(crate) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; ROOM].into(), start: 0, end: 0 }
    }

    /// The bytes that are there.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first `bytes`, which have been processed.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room after the bytes that are there.
    fn settle(&mut self) {
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Receives once; with `wait`, sleeps until there is something. Returns the number of bytes,
    /// which is 0 at the end.
    pub(crate) fn receive(&mut self, socket: impl AsFd, wait: bool) -> Result<usize, Errno> {
        self.settle();
        let (read, _) = recv(socket, &mut self.buffer[self.end..], flags(wait))?;
        self.end += read;
        Ok(read)
    }

    /// Receives once, without sleeping: up to `most` bytes for `transfer`, and what follows into
    /// the room here. The caller counts the bytes for the transfer.
    pub(crate) fn receive_for(
        &mut self,
        socket: impl AsFd,
        transfer: &mut Transfer,
        most: usize,
    ) -> Result<usize, Errno> {
        self.settle();
        let mut slices: SmallVec<[IoSliceMut<'_>; MAX_SLICES + 2]> =
            transfer.slices(most).collect();
        let data: usize = slices.iter().map(|slice| slice.len()).sum();
        if data == most {
            slices.push(IoSliceMut::new(&mut self.buffer[self.end..]));
        }
        let mut control = RecvAncillaryBuffer::default();
        let read = recvmsg(socket, &mut slices, &mut control, flags(false))?.bytes;
        drop(slices);
        self.end += read.saturating_sub(data);
        Ok(read)
    }
}

fn flags(wait: bool) -> RecvFlags {
    if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT }
}
