//! In which group a new inode goes (`find_group_orlov`, `find_group_other`), simplified: a file
//! beside its directory, a directory of the root where there is room, any other one beside its
//! parent.

use crate::alloc::groups::Groups;
use crate::mount::want::Step;
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{Group, Ino, ROOT_INO};

impl Groups {
    /// Takes an inode for a new entry of directory `parent`. `None` if no inode is free.
    pub(crate) fn take_inode(
        &self,
        sb: &Superblock,
        parent: Ino,
        is_dir: bool,
    ) -> Step<Option<Ino>> {
        let home = sb.inode_place(parent)?.group;
        let first = if is_dir && parent == ROOT_INO { self.emptiest() } else { home };
        for distance in 0..self.count() {
            let group = (first + distance) % self.count();
            if let Some(ino) = self.take_inode_in(sb, group)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// Where most inodes and blocks are free.
    fn emptiest(&self) -> Group {
        let free = |group: &Group| {
            let desc = self.lock(*group).desc;
            (desc.free_inodes(), desc.free_clusters())
        };
        // Directories spread; on a large volume it is enough to look at some groups.
        let step = self.count().div_ceil(64);
        (0..self.count()).step_by(step as usize).rev().max_by_key(free).unwrap_or(0)
    }
}
