//! Contents of files: in pages, and their way to the drive.

mod data_journal;
mod direct;
mod fallocate;
mod map;
pub(crate) mod read_write;
pub(crate) mod seek;
mod small;
pub(crate) mod truncate;
pub(crate) mod write_back;
