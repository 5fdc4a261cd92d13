//! The mount option `range_lock`.

use crate::mount::options::MountOptions;

/// `range_lock=`: what an overwrite of cached pages locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// The inode, as Linux does.
    Inode,
    /// The pages of its range: several cores overwrite one file (hybridF2FS).
    Page,
}

impl MountOptions {
    /// Whether overwrites lock pages, and not the inode.
    pub(crate) fn locks_pages(&self) -> bool {
        self.range_lock.map_or(self.hybrid, |lock| lock == RangeLock::Page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_locks_ranges_unless_told_otherwise() {
        let locks_pages = |list: &str| list.parse::<MountOptions>().unwrap().locks_pages();
        assert!(!locks_pages("") && locks_pages("hybrid") && locks_pages("range_lock=page"));
        assert!(!locks_pages("hybrid,range_lock=inode") && !locks_pages("range_lock=inode,hybrid"));
        let shown = "range_lock=page".parse::<MountOptions>().unwrap().to_string();
        assert!(shown.contains(",range_lock=page"), "{shown}");
    }
}
