//! Orphans at mount: what an operation that a power cut ended had still to free
//! (`ext4_orphan_cleanup`).

use rustc_hash::FxHashSet;

use crate::dir::entries::block_count;
use crate::error::{Error, Result};
use crate::inode::map;
use crate::inode::orphan::Slot;
use crate::mount::engine::Engine;
use crate::ondisk::features::RoCompat;
use crate::ondisk::{Ino, orphan};

/// `EXT4_MAX_ORPHAN_FILE_BLOCKS`.
const ORPHAN_BLOCKS_MAX: u32 = 512;

impl Engine {
    /// Reads the list of orphans and frees what is in it. Returns how many there were.
    pub(super) fn clean_orphans(&self) -> Result<usize> {
        let mut list = self.read_orphans()?;
        for slot in self.read_orphan_file()? {
            self.orphans.lock().found(slot);
            list.push(slot.ino);
        }
        for ino in &list {
            let (links, size) = self.look(u64::from(*ino), |shard| {
                let inode = &shard.inode(*ino)?.inode;
                Ok((inode.links(), inode.size))
            })?;
            if links == 0 {
                self.evict(*ino)?;
            } else {
                self.complete_truncation(*ino, size)?;
            }
        }
        Ok(list.len())
    }

    /// Ends a truncation that a power cut interrupted. It is a change of now, as to the kernel
    /// (`ext4_truncate` sets the times, which the orphan cleanup calls).
    fn complete_truncation(&self, ino: Ino, size: u64) -> Result<()> {
        self.change(&[ino.into()], 2, |draft| {
            let now = draft.now;
            draft.inode_mut(ino)?.touch(now);
            Ok(())
        })?;
        self.finish_truncation(ino, size.div_ceil(self.sb.block_size.into()))
    }

    /// What the orphan file has (`ext4_init_orphan_info`, `ext4_orphan_cleanup`).
    fn read_orphan_file(&self) -> Result<Vec<Slot>> {
        let (mut slots, mut known) = (Vec::new(), FxHashSet::default());
        if !self.sb.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            return Ok(slots);
        }
        let file = self.sb.raw.orphan_file_inum.get();
        let (blocks, seed) = self.look(file.into(), |shard| {
            let inode = &shard.inode(file)?.inode;
            let mut blocks = Vec::new();
            for index in 0..block_count(&self.sb, inode).min(ORPHAN_BLOCKS_MAX) {
                let at = map::find(self, inode, index)?.at(index);
                let hole = || Error::corrupt("orphan file", u64::from(index), "a hole", "a block");
                blocks.push(at.ok_or_else(hole)?);
            }
            Ok((blocks, inode.seed))
        })?;
        for at in blocks {
            let block = self.io.read(at)?;
            if let Some(seed) = seed {
                orphan::verify(self.sb.bytes(&block), seed, at)?;
            }
            for (slot, ino) in orphan::inos(self.sb.bytes(&block), at)? {
                if ino < self.sb.first_ino || !known.insert(ino) {
                    return Err(Error::corrupt("orphan file", at, ino, "each orphan once"));
                }
                slots.push(Slot { ino, at, slot, seed });
            }
        }
        Ok(slots)
    }

    /// Reads the list of orphans.
    pub(super) fn read_orphans(&self) -> Result<Vec<Ino>> {
        let (mut list, mut known) = (Vec::new(), FxHashSet::default());
        let mut next = self.sb.raw.last_orphan.get();
        while next != 0 {
            if next < self.sb.first_ino || !known.insert(next) {
                return Err(Error::corrupt("inode.i_dtime", 0_u32, next, "the next orphan"));
            }
            list.push(next);
            next = self.look(next.into(), |shard| Ok(shard.inode(next)?.inode.raw.dtime.get()))?;
        }
        for ino in list.iter().rev() {
            self.orphans.lock().added(*ino);
        }
        Ok(list)
    }
}
