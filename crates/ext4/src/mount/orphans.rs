//! Orphans at mount: what an operation that a power cut ended had still to free
//! (`ext4_orphan_cleanup`). As in Linux, a corrupt orphan is no reason not to mount.

use rustc_hash::FxHashSet;
use vfs::{Errno, Health, op};

use crate::blocks::Kind;
use crate::dir::entries::block_count;
use crate::error::{Error, Result};
use crate::inode::map;
use crate::inode::orphan::Slot;
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::features::RoCompat;
use crate::ondisk::{Ino, orphan};

/// `EXT4_MAX_ORPHAN_FILE_BLOCKS`.
const ORPHAN_BLOCKS_MAX: u32 = 512;

impl Engine {
    /// Reads the orphans and frees what only they keep. Returns how many there were, and the first
    /// corruption met: a list ends there, and an orphan whose contents are corrupt stays one.
    pub(super) fn clean_orphans(&self) -> Result<(usize, Option<Error>)> {
        let (mut list, mut corrupt) = self.read_orphans()?;
        for slot in self.read_orphan_file()? {
            self.orphans.lock().found(slot);
            list.push(slot.ino);
        }
        for ino in &list {
            // With `errors=remount-ro`, corruption has made the volume read-only.
            if self.health() != Health::Sound {
                break;
            }
            corrupt = corrupt.or(match self.clean_orphan(*ino) {
                // It stays one, which the kernel and e2fsck can free.
                Err(Error::Unsupported { .. }) => None,
                done => corruption_in(done)?,
            });
        }
        Ok((list.len(), corrupt))
    }

    fn clean_orphan(&self, ino: Ino) -> Result<()> {
        let (links, size) = self.look(u64::from(ino), |shard| {
            let inode = &shard.inode(ino)?.inode;
            Ok((inode.links(), inode.size))
        })?;
        if links == 0 { self.evict(ino) } else { self.complete_truncation(ino, size) }
    }

    /// Ends a truncation that a power cut interrupted. It is a change of now, as to the kernel
    /// (`ext4_truncate` sets the times, which the orphan cleanup calls).
    fn complete_truncation(&self, ino: Ino, size: u64) -> Result<()> {
        self.change(&[ino.into()], 2, |draft| {
            draft.check_freeable(ino)?;
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
        // Without `errors=`: the mount fails if it is corrupt.
        let (blocks, seed) = op::look(self, file.into(), |shard| {
            let inode = &shard.inode(file)?.inode;
            let kind = Kind::Orphans(inode.seed);
            let count = block_count(&self.sb, inode).min(ORPHAN_BLOCKS_MAX);
            let blocks: Step<Vec<_>> =
                (0..count).map(|index| map::block(self, inode, index, kind)).collect();
            Ok((blocks?, inode.seed))
        })?;
        for (at, block) in blocks {
            for (slot, ino) in orphan::inos(self.sb.bytes(&block), at)? {
                if ino < self.sb.first_ino || !known.insert(ino) {
                    return Err(Error::corrupt("orphan file", at, ino, "each orphan once"));
                }
                slots.push(Slot { ino, at, slot, seed });
            }
        }
        Ok(slots)
    }

    /// Reads the list of orphans, up to what is corrupt in it.
    pub(super) fn read_orphans(&self) -> Result<(Vec<Ino>, Option<Error>)> {
        let (mut list, mut known) = (Vec::new(), FxHashSet::default());
        let inos = self.sb.first_ino..=self.sb.raw.inodes_count.get();
        let mut next = self.sb.raw.last_orphan.get();
        let mut corrupt = None;
        while next != 0 {
            let found = match inos.contains(&next) && known.insert(next) {
                true => self.next_orphan(next),
                false => self.heed(Err(bad_orphan(next))),
            };
            match found {
                Ok(behind) => {
                    list.push(next);
                    next = behind;
                }
                failed => {
                    corrupt = corruption_in(failed)?;
                    break;
                }
            }
        }
        let mut orphans = self.orphans.lock();
        if list.is_empty() && corrupt.is_some() {
            orphans.edit_superblock(|raw| raw.last_orphan = 0.into());
        }
        list.iter().rev().for_each(|ino| orphans.added(*ino));
        drop(orphans);
        Ok((list, corrupt))
    }

    /// The orphan behind `ino` in the list.
    fn next_orphan(&self, ino: Ino) -> Result<Ino> {
        let found = op::look(self, ino.into(), |shard| Ok(shard.inode(ino)?.inode.raw.dtime.get()));
        let is_free = matches!(found, Err(Error::Posix(Errno::NOENT)));
        self.heed(if is_free { Err(bad_orphan(ino)) } else { found })
    }
}

fn bad_orphan(ino: Ino) -> Error {
    Error::corrupt("list of orphans", 0_u32, format!("inode {ino}"), "inodes in use, each once")
}

/// The corruption that something has met; any other failure remains one.
fn corruption_in<T>(done: Result<T>) -> Result<Option<Error>> {
    match done {
        Ok(_) => Ok(None),
        Err(error @ Error::Corrupt(_)) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}
