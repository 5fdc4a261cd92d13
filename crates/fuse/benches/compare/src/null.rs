//! What all three serve: a root directory in which every number is the name of a file, which takes
//! all that is written to it and keeps nothing.

use std::cell::RefCell;

/// Inode number of the root directory.
pub(crate) const ROOT: u64 = 1;
/// Size of every file.
pub(crate) const FILE_SIZE: u64 = 64 << 20;
/// The longest write that comes in one request.
pub(crate) const MAX_WRITE: usize = 1 << 20;
/// How long the kernel may keep what it is told, in seconds.
pub(crate) const VALID_SECS: u64 = 1 << 20;
/// Threads of each server: as many as ours has on two CPUs.
pub(crate) const THREADS: usize = 4;

/// The inode `name` stands for, the number that it is.
pub(crate) fn inode_of(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name).ok()?.parse().ok().filter(|ino| *ino > ROOT)
}

/// Has a thread copy a write to where a file system would have its page cache.
pub(crate) fn keep(len: usize, copy: impl FnOnce(&mut [u8])) {
    thread_local!(static PAGES: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_WRITE]));
    PAGES.with_borrow_mut(|pages| copy(&mut pages[..len]));
}
