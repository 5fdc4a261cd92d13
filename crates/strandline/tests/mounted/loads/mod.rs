//! Work on a mounted volume that ends when the volume fails, and knows what was promised to it:
//! each load keeps, outside of the volume, a log of what an fsync covered.

pub(crate) mod atomic;
pub(crate) mod records;
pub(crate) mod sqlite;
pub(crate) mod tree;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A load that has ended.
pub(crate) trait Load {
    /// What it is.
    fn name(&self) -> &'static str;

    /// How many promises it was given.
    fn promises(&self) -> u64;

    /// Which of them are not kept in `dir`, in words.
    fn broken(&self, dir: &Path) -> Vec<String>;
}

/// How many promises a load has been given so far, for threads that wait for the first.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<AtomicU64>);

impl Kept {
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// A way to a directory that stays in its file system: when a mount has been taken away, its path
/// leads to what lay below it. Holds while the file is open.
fn anchored(dir: &Path) -> io::Result<(File, PathBuf)> {
    let anchor = File::open(dir)?;
    let path = format!("/proc/self/fd/{}", anchor.as_raw_fd());
    Ok((anchor, path.into()))
}
