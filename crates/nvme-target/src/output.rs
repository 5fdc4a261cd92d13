//! What a connection has to send: small headers in one buffer, pages of the drive as they are, in
//! as few system calls as possible.
//!
//! Pages are not copied: an answer to a read holds the drive's own, and later writes to the drive
//! make new ones.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;

use drive::{BLOCK_SIZE, Block};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;

/// How many slices one system call sends; the kernel takes up to 1024.
const MAX_SLICES: usize = 256;
/// If the buffer of headers is longer than this, it is shortened.
const COMPACT_ABOVE: usize = 1 << 16;

enum Piece {
    /// A range of the buffer.
    Small { start: usize, end: usize },
    /// The first bytes of a page.
    Page { page: Block, len: usize },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Small { start, end } => end - start,
            Self::Page { len, .. } => *len,
        }
    }
}

/// Bytes to be sent, in order.
#[derive(Default)]
pub(crate) struct Output {
    small: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// How many bytes of the first piece have been sent.
    sent: usize,
    left: usize,
}

impl Output {
    /// Bytes not sent yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Adds a copy of `bytes`.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let start = self.small.len();
        self.small.extend_from_slice(bytes);
        self.left += bytes.len();
        let grown = self.small.len();
        match self.pieces.back_mut() {
            Some(Piece::Small { end, .. }) if *end == start => *end = grown,
            _ => self.pieces.push_back(Piece::Small { start, end: grown }),
        }
    }

    /// Adds the first `len` bytes of `page`.
    pub(crate) fn page(&mut self, page: Block, len: usize) {
        let len = len.min(BLOCK_SIZE);
        self.left += len;
        self.pieces.push_back(Piece::Page { page, len });
    }

    /// Sends what `socket` takes without waiting. True if anything was sent.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> Result<bool, Errno> {
        let before = self.left;
        while self.left > 0 {
            let mut slices: SmallVec<[IoSlice<'_>; MAX_SLICES]> = SmallVec::new();
            for (n, piece) in self.pieces.iter().take(MAX_SLICES).enumerate() {
                let skip = if n == 0 { self.sent } else { 0 };
                let bytes = match piece {
                    Piece::Small { start, end } => &self.small[*start..*end],
                    Piece::Page { page, len } => &page.bytes()[..*len],
                };
                slices.push(IoSlice::new(&bytes[skip..]));
            }
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&socket, &slices, &mut control, flags) {
                Ok(sent) => {
                    drop(slices);
                    self.gone(sent);
                    if sent < offered {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.left < before)
    }

    fn gone(&mut self, bytes: usize) {
        self.left -= bytes;
        self.sent += bytes;
        while let Some(first) = self.pieces.front().map(Piece::len) {
            if self.sent < first {
                break;
            }
            self.sent -= first;
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            self.small.clear();
        } else if self.small.len() > COMPACT_ABOVE {
            self.compact();
        }
    }

    /// Drops the part of the buffer that has been sent. If a host always asked for more, the buffer
    /// would keep growing.
    fn compact(&mut self) {
        let first = self.pieces.iter().find_map(|piece| match piece {
            Piece::Small { start, .. } => Some(*start),
            Piece::Page { .. } => None,
        });
        let gone = first.unwrap_or(self.small.len());
        self.small.drain(..gone);
        for piece in &mut self.pieces {
            if let Piece::Small { start, end } = piece {
                (*start, *end) = (*start - gone, *end - gone);
            }
        }
    }
}
