//! Contents of files: reading and writing them in memory, writing them back, and everything that
//! changes where they are.

pub(crate) mod atomic_write;
mod compress;
mod defrag;
mod direct;
mod fallocate;
mod inline;
mod map;
mod move_range;
mod overwrite;
mod pages;
pub(crate) mod read_write;
mod reading;
mod truncate;
pub(crate) mod writeback;
