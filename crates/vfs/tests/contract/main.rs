//! What the crate promises to file systems and to those who use them.

mod memfs;
mod names;
mod ops;
mod page_cache;
mod path;
