//! What every file system keeps of an inode in use: whose turn it is, and who has it open.

mod opens;
mod turns;

pub use opens::Opens;
pub use turns::Turns;
