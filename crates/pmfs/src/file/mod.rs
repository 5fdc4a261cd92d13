//! Contents: where pages are, reading, writing, and everything that moves or frees them.

mod copy;
pub(crate) mod hole;
pub(crate) mod map;
pub(crate) mod read;
pub(crate) mod segments;
pub(crate) mod write;
