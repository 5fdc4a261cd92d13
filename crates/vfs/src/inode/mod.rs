//! What every file system keeps about an inode in use: what is cached of it, its turns of fsync and
//! write-back, and how often it is open.

mod opens;
mod shards;
mod turns;

pub use opens::Opens;
pub use shards::{OwnedShards, Shards, shard_of};
pub use turns::{HasTurns, Turn, Turns};
