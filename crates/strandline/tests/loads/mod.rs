//! Work on a mounted volume that ends when the volume fails, and knows what was promised to it:
//! each load keeps, outside of the volume, a log of what an fsync covered.

pub(crate) mod records;
pub(crate) mod sqlite;
pub(crate) mod tree;

use std::path::Path;

/// A load that has ended.
pub(crate) trait Load {
    /// How many promises it was given.
    fn promises(&self) -> u64;

    /// What of them is not kept in `dir`, in words.
    fn broken(&self, dir: &Path) -> Vec<String>;
}
