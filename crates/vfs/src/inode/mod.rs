//! What every file system keeps about an inode in use: what memory holds of it, who is at work on
//! it, and how often it is open.

mod opens;
mod shards;
mod turns;

pub use opens::Opens;
pub use shards::{OwnedShards, Shards, shard_of};
pub use turns::{HasTurns, Turn, Turns};
