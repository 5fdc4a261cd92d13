//! What is on a volume, structure by structure, for people who debug it: kernel field names, with
//! the values as they are, right or wrong.
//!
//! Nothing here trusts what it reads more than it must. A damaged structure is shown with its
//! errors, and whatever does not depend on it is still shown.

mod file;
mod node;
mod structures;
mod tables;

use std::sync::Arc;

use drive::{Block, Drive};
use queue::BlockQueue;

pub use vfs::record::{Record, Shape, Value};

use crate::check::view::View;
use crate::error::{Error, Result};
use crate::ondisk::superblock::{RawSuperblock, Superblock};
use crate::ondisk::{BlockAddr, MAGIC, Nid};

/// Takes one record. Returns false to stop.
pub type Emit<'a> = &'a mut dyn FnMut(Record) -> bool;

/// A volume to be shown.
pub struct Dump {
    /// Tables and checkpoint, or why there are none.
    volume: Result<View>,
    /// Reads what needs neither tables nor checkpoint.
    queue: BlockQueue,
    sb: Option<Superblock>,
}

impl Dump {
    /// Opens the volume on `drive`, whatever state it is in.
    pub fn new(drive: &Arc<dyn Drive>) -> Self {
        let queue = BlockQueue::new(Arc::clone(drive));
        let read = |addr: BlockAddr| -> Result<Block> { Ok(queue.read_block(addr.into())?) };
        // A caller that did not probe knows that this is F2FS. If only the magic number is gone,
        // the rest of the superblock counts.
        let read_as_f2fs = |addr: BlockAddr| {
            let mut raw = RawSuperblock::of(&*read(addr)?).clone();
            raw.magic.set(MAGIC);
            Ok(raw.to_block())
        };
        let found = Superblock::select(read)
            .or_else(|error| Superblock::select(read_as_f2fs).map_err(|_| error))
            .map(|(sb, _)| sb);
        let sb = found.as_ref().ok().cloned();
        let volume = found.and_then(|sb| {
            let mut volume = View::open(BlockQueue::new(Arc::clone(drive)), sb)?;
            volume.open_summaries = volume.read_summaries().unwrap_or_default();
            Ok(volume)
        });
        Self { volume, queue, sb }
    }

    /// Number of the root directory.
    pub fn root(&self) -> Nid {
        self.sb.as_ref().map_or(3, |sb| sb.root_ino)
    }

    fn read(&self, addr: BlockAddr) -> Result<Block> {
        let blocks = self.queue.identify().blocks;
        if u64::from(addr) >= blocks {
            return Err(Error::corrupt("block address", addr, addr, format!("0..{blocks}")));
        }
        Ok(self.queue.read_block(addr.into())?)
    }

    fn volume(&mut self) -> Result<&mut View> {
        match &mut self.volume {
            Ok(volume) => Ok(volume),
            Err(error) => Err(Error::usage(error.to_string())),
        }
    }
}
