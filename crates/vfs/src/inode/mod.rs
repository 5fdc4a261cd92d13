//! What every file system keeps about an inode in use: who is at work on it, and how often it is
//! open.

mod opens;
mod turns;

pub use opens::Opens;
pub use turns::Turns;
