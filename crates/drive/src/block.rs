//! The unit of transfer: one 4 KiB block, shared and copied on write.
//!
//! A block goes from the page cache through the queue into the drive's buffer and onto the emulated
//! flash as one reference-counted page. Changing it while it is shared makes a copy, so a page in
//! flight stays as it is without a lock or a wait.

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::frame::{self, Frame};

/// Bytes in a block. F2FS, and every emulated namespace here, uses 4 KiB logical blocks.
pub const BLOCK_SIZE: usize = 4096;

/// Address of a 4 KiB block on a drive.
pub type Lba = u64;

/// The blocks of one command, in address order. Inline up to four: the fsync path's sizes.
pub type Blocks = SmallVec<[Block; 4]>;

/// One 4 KiB page, cheap to clone, copied when changed while shared.
#[derive(Clone)]
pub struct Block(Frame);

impl Block {
    /// Reserves memory so that the calling thread can make some blocks without waiting for the
    /// kernel. For callers that are about to take a lock.
    pub fn stock() {
        frame::stock();
    }

    /// The block of zeroes; all share one frame.
    pub fn zeroed() -> Self {
        static ZERO: OnceLock<Block> = OnceLock::new();
        ZERO.get_or_init(|| Self(Frame::new(|bytes| bytes.fill(0)))).clone()
    }

    /// A block to read into. It holds whatever its last user left, so all of it must be written
    /// before it is read.
    pub fn unspecified() -> Self {
        Self(Frame::new(|_| ()))
    }

    /// A block holding a copy of `bytes`.
    pub fn copy_of(bytes: &[u8; BLOCK_SIZE]) -> Self {
        Self(Frame::new(|page| page.copy_from_slice(bytes)))
    }

    /// A block holding `bytes`.
    pub fn new(bytes: [u8; BLOCK_SIZE]) -> Self {
        Self::copy_of(&bytes)
    }

    /// A block that begins with `bytes` and is zero behind them. Longer input is cut off.
    pub fn from_prefix(bytes: &[u8]) -> Self {
        let (head, _) = bytes.split_at(bytes.len().min(BLOCK_SIZE));
        Self(Frame::new(|page| {
            page[..head.len()].copy_from_slice(head);
            page[head.len()..].fill(0);
        }))
    }

    /// The bytes, for reading.
    pub fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        self.0.get()
    }

    /// The bytes, for a change. Copies them first if anyone else holds this block.
    pub fn make_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        if self.0.get_mut().is_none() {
            self.0 = Frame::new(|page| page.copy_from_slice(self.0.get()));
        }
        self.0.get_mut().expect("alone, as it was or as it was just made")
    }

    /// Drops a block that was stored long ago. See [`Frame::retire`].
    pub(crate) fn retire(self) {
        self.0.retire();
    }

    /// Whether both are the same page in memory, and so equal without a comparison.
    pub fn same_page(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

impl std::ops::Deref for Block {
    type Target = [u8; BLOCK_SIZE];
    fn deref(&self) -> &Self::Target {
        self.0.get()
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.same_page(other) || self.bytes() == other.bytes()
    }
}

impl Eq for Block {}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:02x?}…)", &self.bytes()[..8])
    }
}
