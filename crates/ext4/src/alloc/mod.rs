//! Blocks and inodes: which are free, and who gets which.

pub(crate) mod groups;
pub(crate) mod inodes;
pub(crate) mod room;
mod runs;
