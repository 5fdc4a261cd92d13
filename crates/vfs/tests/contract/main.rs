//! What the crate promises to file systems and to their users.

mod memfs;
mod names;
mod ops;
mod page_cache;
mod path;
