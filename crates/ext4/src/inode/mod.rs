//! Inodes: in memory, their maps, their attributes, and how they end.

pub(crate) mod acl;
mod attr;
pub(crate) mod cached;
pub(crate) mod flags;
mod insert;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod orphan;
mod remove;
pub(crate) mod symlink;
pub(crate) mod table;
pub(crate) mod weed;
pub(crate) mod xattr;
