//! The unit of transfer: one 4 KiB block, shared and copied on write.
//!
//! A block travels from the page cache through the queue into the drive's buffer and onto the
//! emulated flash as one reference-counted page. Whoever changes it while somebody else still
//! holds it gets a copy, so a page in flight is stable without a lock or a wait.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

/// Bytes in a block. F2FS, and every emulated namespace here, uses 4 KiB logical blocks.
pub const BLOCK_SIZE: usize = 4096;

/// Address of a 4 KiB block on a drive.
pub type Lba = u64;

/// The blocks of one command, in address order. Inline up to four: the fsync path's sizes.
pub type Blocks = SmallVec<[Block; 4]>;

/// One 4 KiB page, cheap to clone, copied when changed while shared.
#[derive(Clone, PartialEq, Eq)]
pub struct Block(Arc<[u8; BLOCK_SIZE]>);

impl Block {
    /// The block of zeroes, shared by everybody.
    pub fn zeroed() -> Self {
        static ZERO: OnceLock<Block> = OnceLock::new();
        ZERO.get_or_init(|| Self(Arc::new([0; BLOCK_SIZE]))).clone()
    }

    /// A block holding `bytes`.
    pub fn new(bytes: [u8; BLOCK_SIZE]) -> Self {
        Self(Arc::new(bytes))
    }

    /// A block that begins with `bytes` and is zero behind them. Longer input is cut off.
    pub fn from_prefix(bytes: &[u8]) -> Self {
        let mut page = [0; BLOCK_SIZE];
        let n = bytes.len().min(BLOCK_SIZE);
        page[..n].copy_from_slice(&bytes[..n]);
        Self::new(page)
    }

    /// The bytes, to read.
    pub fn bytes(&self) -> &[u8; BLOCK_SIZE] {
        &self.0
    }

    /// The bytes, to change; copies first if anyone else holds this block.
    pub fn make_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        Arc::make_mut(&mut self.0)
    }

    /// Whether both are the same page in memory, and so equal without looking.
    pub fn same_page(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::ops::Deref for Block {
    type Target = [u8; BLOCK_SIZE];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:02x?}…)", &self.0[..8])
    }
}
