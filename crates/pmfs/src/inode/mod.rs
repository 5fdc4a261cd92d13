//! Inodes in memory: open counts, locks, and free numbers.

pub(crate) mod lock;
pub(crate) mod node;
pub(crate) mod numbers;
pub(crate) mod table;
pub(crate) mod xattr;
