//! What is done to a volume that is not mounted.

pub(crate) mod label;
pub mod mkfs;
pub(crate) mod superblock;
