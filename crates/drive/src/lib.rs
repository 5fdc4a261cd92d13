//! Block drives: real, in memory, or emulated down to the NAND write pointer.
//!
//! ```
//! use drive::{Block, Command, Drive, Output};
//!
//! let drive = drive::ram(1024);
//! let data = [Block::from_prefix(b"hello")].into_iter().collect();
//! drive.submit(0, 1, Command::Write { lba: 9, data, fua: false });
//! drive.submit(0, 2, Command::Read { lba: 9, blocks: 1 });
//! assert!(drive.wait_for(0, 1).is_some_and(|done| done.result.is_ok()));
//! let Some(Ok(Output::Data(blocks))) = drive.wait_for(0, 2).map(|done| done.result) else {
//!     panic!("the drive has no data");
//! };
//! assert!(blocks[0].bytes().starts_with(b"hello"));
//! ```

mod answers;
pub mod blkzone;
mod block;
mod closed_form;
mod command;
mod concat;
mod fault;
mod frame;
pub mod image;
#[cfg(target_os = "linux")]
pub mod linux;
mod media;
mod memory;
mod overlay;
mod patience;
pub mod pm;
mod profile;
mod ssd;
mod trace;
pub mod undo;
mod watch;
mod zone;

pub use block::{BLOCK_SIZE, Block, Blocks, Lba};
pub use command::{Command, Completion, Output, Status};
pub use concat::{Concat, ConcatError};
pub use fault::{Fault, FaultOn, ReadOnly};
pub use media::{FileMedia, Media, OverMedia, RamMedia};
pub use memory::Memory;
pub use overlay::overlay;
pub use profile::{Profile, ProfileError, Spec};
pub use ssd::{
    AfterCut, CutPoint, DriveState, Event, EventKind, Moment, Observer, Ssd, Stats, Timing, ram,
};
pub use trace::Trace;
pub use zone::{Zone, ZoneAction, ZoneGeometry, ZoneKind, ZoneState};

/// What a drive says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Model name, or the profile's.
    pub model: String,
    /// Size in 4 KiB blocks.
    pub blocks: u64,
    /// Hardware queues; commands name one of `0..queues`.
    pub queues: u16,
    /// Commands in flight per hardware queue; identifiers are `0..queue_depth`.
    pub queue_depth: u16,
    /// Longest transfer of one command, in blocks.
    pub max_transfer: u32,
    /// Whether completed writes may be lost with the power until a flush.
    pub volatile_cache: bool,
    /// Whether it can force a single write to stable media ([`Command::Write`]'s `fua`). The block
    /// layer makes up for it by a flush where it cannot.
    pub fua: bool,
    /// A power cut never splits a piece of this many bytes: all of it is written or none. At most a
    /// block.
    pub atomic_write: u32,
    /// Whether [`Command::Discard`] is worth sending.
    pub discard: bool,
    /// Whether a discarded range reads as zeroes afterwards.
    pub discard_zeroes: bool,
    /// It refuses every write.
    pub read_only: bool,
    /// Zones, if the namespace is zoned.
    pub zones: Option<ZoneGeometry>,
    /// Blocks of each drive that a [`Concat`] joins, in order; empty for a single drive.
    pub joined: Vec<u64>,
    /// What the persistent memory behind it is, if there is one.
    pub pm: Option<pm::PmInfo>,
}

/// A block drive. Submission and completion are two steps, because this project is about what a
/// caller need *not* wait for.
///
/// A command identifier is free again once its completion has been taken. Commands of one queue
/// start in the order in which they were submitted; they finish in any order.
pub trait Drive: Send + Sync {
    /// Size, queues, zones.
    fn identify(&self) -> &Identify;

    /// The persistent memory that its blocks are, for callers that access it by load and store.
    /// `None` for drives that put a layer in between.
    fn pm(&self) -> Option<std::sync::Arc<dyn pm::Pm>> {
        None
    }

    /// Submits `command` on hardware queue `queue` under identifier `cid`. Never blocks. A wrong
    /// command completes with the status that a real drive would give.
    fn submit(&self, queue: u16, cid: u16, command: Command);

    /// As [`Drive::submit`], but a drive that has the answer when this returns may return it at
    /// once. Then there is no completion to take for that command.
    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        self.submit(queue, cid, command);
        None
    }

    /// Whether [`Drive::issue`] always returns the answer.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Takes one completion of `queue` if there is one now.
    fn poll(&self, queue: u16) -> Option<Completion>;

    /// Takes one completion of `queue`, sleeping on the current machine's clock until there is one.
    /// `None` if nothing is in flight there.
    fn wait(&self, queue: u16) -> Option<Completion>;

    /// As [`Drive::wait`], but for the command `cid`: returns its completion, or `None` if it is
    /// not in flight (any more). A drive that cannot tell may return that of another command in the
    /// queue, so the caller must check [`Completion::cid`].
    fn wait_for(&self, queue: u16, _cid: u16) -> Option<Completion> {
        self.wait(queue)
    }
}

impl<D: Drive + ?Sized> Drive for std::sync::Arc<D> {
    fn identify(&self) -> &Identify {
        (**self).identify()
    }
    fn pm(&self) -> Option<std::sync::Arc<dyn pm::Pm>> {
        (**self).pm()
    }
    fn submit(&self, queue: u16, cid: u16, command: Command) {
        (**self).submit(queue, cid, command);
    }
    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        (**self).issue(queue, cid, command)
    }
    fn answers_at_once(&self) -> bool {
        (**self).answers_at_once()
    }
    fn poll(&self, queue: u16) -> Option<Completion> {
        (**self).poll(queue)
    }
    fn wait(&self, queue: u16) -> Option<Completion> {
        (**self).wait(queue)
    }
    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        (**self).wait_for(queue, cid)
    }
}
