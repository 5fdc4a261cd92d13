//! Inodes: in memory, their maps, their attributes, and how they end.

mod attr;
pub(crate) mod cached;
mod insert;
pub(crate) mod map;
pub(crate) mod orphan;
mod remove;
