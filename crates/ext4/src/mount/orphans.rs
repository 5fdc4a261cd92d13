//! Orphans at mount: what an operation that a power cut ended had still to free
//! (`ext4_orphan_cleanup`).

use vfs::op::look;

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::ondisk::Ino;

impl Engine {
    /// Reads the list of orphans and frees what is in it. Returns how many there were.
    pub(super) fn clean_orphans(&self) -> Result<usize> {
        let list = self.read_orphans()?;
        for ino in &list {
            let (links, size) = look(self, u64::from(*ino), |shard| {
                let inode = &shard.inode(*ino)?.inode;
                Ok((inode.links(), inode.size))
            })?;
            if links == 0 {
                self.evict(*ino)?;
            } else {
                self.finish_truncation(*ino, size.div_ceil(drive::BLOCK_SIZE as u64))?;
            }
        }
        Ok(list.len())
    }

    /// Reads the list of orphans.
    pub(super) fn read_orphans(&self) -> Result<Vec<Ino>> {
        let mut list = Vec::new();
        let mut next = self.sb.raw.last_orphan.get();
        while next != 0 {
            let is_free = next < self.sb.first_ino || list.len() > self.sb.groups as usize * 65_536;
            if is_free || list.contains(&next) {
                return Err(Error::corrupt("inode.i_dtime", 0_u32, next, "the next orphan"));
            }
            list.push(next);
            next = look(self, next.into(), |shard| Ok(shard.inode(next)?.inode.raw.dtime.get()))?;
        }
        for ino in list.iter().rev() {
            self.orphans.lock().added(*ino);
        }
        Ok(list)
    }
}
