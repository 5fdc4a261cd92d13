//! Inodes and the node trees below them: the cache of nodes, the way to a block's slot (`mapping`),
//! everything an inode has besides contents, and its end (`evict`).

pub(crate) mod acl;
pub(crate) mod attr;
pub(crate) mod change;
mod evict;
pub(crate) mod extents;
pub(crate) mod flags;
pub(crate) mod mapping;
pub(crate) mod node_cache;
pub(crate) mod node_write;
pub(crate) mod protected;
mod read_ahead;
pub(crate) mod see;
pub(crate) mod shards;
mod xattr;
