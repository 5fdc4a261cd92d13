//! Write-ahead journals on JBD2's format.
//!
//! [`ondisk`] is the format. [`recover`](mod@recover) writes home what a power cut left in a log,
//! the kernel's or ours; the rest writes logs.
//!
//! # How a file system uses it
//!
//! - It implements [`Client`]: what its blocks are, how they are completed, what may be used again.
//! - At mount it opens the log ([`Log::open`]), recovers it ([`recover()`]), and goes on with
//!   [`Journal::open`].
//! - An operation *starts* a [`Handle`] with as many credits as blocks it may change, before it
//!   takes its locks; it then changes blocks through the handle, and drops it. All its changes
//!   become durable together. [`Handle::id`] names the transaction, which the inode remembers.
//! - Blocks that must be in memory when nothing may fail are [pinned](Journal::pin) before.
//! - An fsync is [`Journal::fsync`] with that name; `sync` and the flusher call
//!   [`Journal::commit_all`].
//! - With a policy that has records ([`policy::IJOURNAL`], [`policy::GROUPED`],
//!   [`policy::ZGROUPED`]) or fast commits
//!   ([`policy::FAST`]) it is [`Journal::fsync_by_record`], and the file system says what these
//!   hold ([`Source`]).
//! - What an operation frees may be used again when [`Client::committed`] names its transaction.
//!   Blocks of metadata are also [forgotten](Handle::forget).
//! - Data that must be on the drive before the transaction is durable is announced by
//!   [`Handle::order`].
//! - Unmount calls [`Journal::close`]; without it a log is left to recover.
//!
//! An error while the journal writes stops it: from then on all of it answers
//! [`Error::Aborted`], and what is on the drive stays recoverable.
//!
//! ```
//! use std::sync::Arc;
//!
//! use drive::{Block, Lba};
//! use journal::{Client, Id, Journal, Log, LogSpace, Options, Strictness, Superblock, Volume};
//! use queue::{BlockQueue, Io};
//!
//! /// A file system without files.
//! struct Nothing;
//!
//! impl Client for Nothing {
//!     type Kind = ();
//!     fn seal(&self, _: (), _: Lba, _: &mut Block) {}
//!     fn committed(&self, _: Id) {}
//! }
//!
//! # fn main() -> journal::Result<()> {
//! let io = Arc::new(Io::new(Arc::new(BlockQueue::new(drive::ram(2000)))));
//! // The log has the blocks 0 to 1023.
//! let superblock = Superblock::new(4096, 1024, [7; 16]);
//! let space = LogSpace { superblock, blocks: Box::new(|block| Some(u64::from(block))) };
//! let journal = Journal::open(io.clone(), space, Options::default(), Nothing)?;
//!
//! let mut handle = journal.start(2)?;
//! handle.create(1500, (), Block::from_prefix(b"both"));
//! handle.change(1501, (), |bytes| bytes[..4].copy_from_slice(b"or !"))?;
//! let id = handle.id();
//! drop(handle);
//! journal.commit(id)?;
//!
//! // Now the power fails. The blocks are in the log, and nothing is at home.
//! assert_eq!(io.read(1501)?, Block::zeroed());
//! let log = Log::open(Volume::new(&io, 4096)?, &|block| Some(block.into()), 1024)?;
//! assert_eq!(journal::recover(log, Strictness::Strict)?.blocks, 2);
//! assert_eq!(io.read(1501)?, Block::from_prefix(b"or !"));
//! # Ok(())
//! # }
//! ```
//!
//! # Locks, outermost first
//!
//! - `turns` (an area's): who commits. `homing`: whether a checkpoint is under way. Neither is held
//!   during a commit or a checkpoint.
//! - `gate` (an area's): shared by handles, exclusive to close a transaction. Several are taken in
//!   the order of areas.
//! - a buffer, or a shard of the table of buffers.
//! - `log` (an area's): room, head, tail and the committed transactions.
//! - `running` (an area's): what the running transaction has. Several in the order of areas.
//! - the table of areas; the chain, which says what is valid.

#![forbid(unsafe_code)]

mod area;
mod batch;
mod buffer;
mod chain;
mod checkpoint;
mod close;
mod commit;
mod error;
mod handle;
mod inject;
mod journal;
mod lead;
pub mod ondisk;
pub mod policy;
mod records;
pub mod recover;
mod tails;
mod transaction;
mod volume;

pub use area::{LogBlocks, LogSpace};
pub use batch::BatchTime;
pub use error::{Error, Result};
pub use handle::{Handle, Pin};
pub use inject::Inject;
pub use journal::{Client, Journal, Options};
pub use ondisk::header::Tid;
pub use ondisk::record::{DataSum, Entry, Record};
pub use ondisk::superblock::Superblock;
pub use policy::Policy;
pub use records::{RecordStatus, Source};
pub use recover::{Replayed, Strictness, recover};
pub use transaction::{Id, Ordered, Stamp};
pub use volume::{Log, LogMap, Volume};
