//! In which group a new inode goes (`find_group_orlov`, `find_group_other`), simplified: a file
//! into the group of its directory, a directory of the root where there is room, any other one into
//! the group of its parent; or, with `alloc=percore`, into a group of the calling core.
//!
//! Where that is full, files of different directories go on in different groups, so that threads
//! which make them do not meet.

use crate::alloc::groups::Groups;
use crate::mount::want::Step;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{Group, Ino};

/// The number of a free inode that a plan has taken from the allocator. Dropped, it goes back.
pub(crate) struct Number<'v> {
    groups: &'v Groups,
    sb: &'v Superblock,
    ino: Ino,
    /// Its block of the table was in use when it was taken.
    has_block: bool,
}

impl Number<'_> {
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// The number, of an inode that is made now, and whether its block of the table is in use for
    /// sure.
    pub(crate) fn into_used(self) -> (Ino, bool) {
        let number = std::mem::ManuallyDrop::new(self);
        (number.ino, number.has_block)
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.groups.give_back_inode(self.sb, self.ino);
    }
}

impl Groups {
    /// Takes an inode, in group `first` if there is one; else near there, or with `spread`, which
    /// is the directory, in groups that its number says. `None` if no inode is free.
    pub(crate) fn take_inode<'v>(
        &'v self,
        sb: &'v Superblock,
        first: Group,
        spread: Option<Ino>,
    ) -> Step<Option<Number<'v>>> {
        let count = self.count();
        let in_order = (0..count).map(|distance| (first + distance) % count);
        // Directories that meet in a group part again when it is full: most steps differ.
        let hashed = spread.into_iter().flat_map(|dir| {
            let (dir, count) = (u64::from(dir), u64::from(count));
            let (begin, step) = (u64::from(first) + dir, (dir % count) | 1);
            (0..count).map(move |n| ((begin + n * step) % count) as Group)
        });
        for group in std::iter::once(first).chain(hashed).chain(in_order) {
            if let Some((ino, has_block)) = self.take_inode_in(sb, group)? {
                return Ok(Some(Number { groups: self, sb, ino, has_block }));
            }
        }
        Ok(None)
    }

    /// The first group of the calling core's share.
    pub(crate) fn of_core(&self) -> Group {
        let cores = cores::core_count().max(1) as u64;
        (cores::slot() as u64 % cores * u64::from(self.count()) / cores) as Group
    }

    /// Where most inodes and blocks are free.
    pub(crate) fn emptiest(&self) -> Group {
        let free = |group: &Group| {
            let desc = self.lock(*group).desc;
            (desc.free_inodes(), desc.free_clusters())
        };
        // Directories spread; on a large volume it is enough to look at some groups.
        let step = self.count().div_ceil(256);
        (0..self.count()).step_by(step as usize).rev().max_by_key(free).unwrap_or(0)
    }
}
