//! Contents of files: in pages, and their way to the drive.

mod map;
pub(crate) mod read_write;
pub(crate) mod truncate;
pub(crate) mod write_back;
