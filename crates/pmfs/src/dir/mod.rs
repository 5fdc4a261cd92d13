//! Directories: an index of names in memory, and everything that changes names.

pub(crate) mod index;
pub(crate) mod names;
pub(crate) mod rename;
