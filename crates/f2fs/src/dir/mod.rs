//! Directories: their entries, how a name is looked up, and how inodes are made, linked, removed
//! and moved (`namei`).

mod beside;
pub(crate) mod casefold;
pub(crate) mod change;
mod convert;
pub(crate) mod entries;
pub(crate) mod index;
pub(crate) mod namei;
#[cfg(feature = "foreign")]
pub(crate) mod nokey;
#[cfg(not(feature = "foreign"))]
#[path = "nokey_left_out.rs"]
pub(crate) mod nokey;
pub(crate) mod rename;
pub(crate) mod wanted;
