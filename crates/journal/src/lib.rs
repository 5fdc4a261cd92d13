//! Write-ahead journals on JBD2's format.
//!
//! [`ondisk`] is the format. [`recover`](mod@recover) brings home what a power cut left in a log,
//! whoever wrote it:
//!
//! ```
//! use journal::{Log, LogMap, Result, Strictness, Volume, recover};
//!
//! /// `map` is the journal inode's: the file system's block of each block of the log.
//! fn mount(io: &queue::Io, map: LogMap<'_>, file_blocks: u32) -> Result<()> {
//!     let volume = Volume::new(io, 4096)?;
//!     let log = Log::open(volume, map, file_blocks)?;
//!     let done = recover(log, Strictness::Strict)?;
//!     println!("{} blocks of {} transactions", done.blocks, done.transactions);
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]

mod error;
pub mod ondisk;
pub mod recover;
mod volume;

pub use error::{Error, Result};
pub use ondisk::header::Tid;
pub use ondisk::superblock::Superblock;
pub use recover::{Replayed, Strictness, recover};
pub use volume::{Log, LogMap, Volume};
