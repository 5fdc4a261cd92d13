//! Allocation of blocks and inodes.

pub(crate) mod groups;
pub(crate) mod inodes;
pub(crate) mod room;
mod runs;
mod system;
mod trim;
