//! Directories: entries in blocks, and what makes, moves and removes names.

pub(crate) mod entries;
pub(crate) mod htree;
mod index;
pub(crate) mod list;
pub(crate) mod namei;
pub(crate) mod rename;
