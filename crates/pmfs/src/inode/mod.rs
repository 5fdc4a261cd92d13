//! Inodes in memory: who has one open, who works on one, which numbers are free.

pub(crate) mod lock;
pub(crate) mod node;
pub(crate) mod numbers;
pub(crate) mod table;
pub(crate) mod xattr;
