//! Writing pages in memory, beside others who work on other inodes.
//!
//! Here are only writes that need nothing but the inode, its nodes and its pages: everything they
//! touch has a slot for its address. All other writes hold the volume.

use cores::Residence;
use drive::{BLOCK_SIZE, Block};
use smallvec::SmallVec;
use vfs::file::{self, Page, Write};
use vfs::{FileKind, WriteBack, pieces};

use crate::inode::change::Change;
use crate::inode::mapping::{Lookup, Mapping, Slot};
use crate::inode::see::{Own, See, Unseen};
use crate::ondisk::inode::{Advise, FileFlags, Inline, RawInodeBlock};
use crate::ondisk::{COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, Nid};

/// What a write changes.
#[derive(Default)]
struct Changes {
    /// How many blocks it makes dirty at most, its nodes included.
    dirty: u64,
    /// The pages that are holes as yet, and where their addresses go.
    holes: SmallVec<[(u64, Slot); 2]>,
}

impl Own<'_> {
    /// Writes to a file whose nodes are all there. Takes the write only if it can do all of it.
    pub(crate) fn overwrite(
        &mut self,
        ino: Nid,
        write: &mut Option<Write<'_>>,
    ) -> Result<WriteBack, Unseen> {
        let Some((offset, len)) = write.as_ref().map(|write| (write.offset(), write.data().len()))
        else {
            return Err(Unseen::Absent);
        };
        let end = offset.checked_add(len as u64).filter(|end| *end > offset);
        let end = end.ok_or(Unseen::Absent)?;
        self.check_plain(ino)?;
        let changes = self.foresee(ino, offset, len)?;
        self.pay(ino, changes.dirty)?;
        self.fill_holes(ino, &changes.holes)?;
        let pages = &mut self.shard_mut(ino)?.pages;
        let Some(write) = write.take() else { return Err(Unseen::Absent) };
        for (piece, page) in write.pages() {
            match page {
                Page::Whole(page) => pages.insert_dirty(ino.into(), piece.page, page),
                Page::Part(bytes) => {
                    if changes.holes.iter().any(|(index, _)| *index == piece.page) {
                        pages.insert_dirty(ino.into(), piece.page, Block::zeroed());
                    }
                    if let Some(page) = pages.dirty_mut(ino.into(), piece.page) {
                        page.make_mut()[piece.within].copy_from_slice(bytes);
                    }
                }
            }
            let bytes = piece.buffer.len();
            file::charge(pages, ino.into(), piece.page, bytes, Residence::write);
        }
        let now = self.engine().clock.now();
        RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i.wrote(end, now);
        Ok(self.engine().inodes.pages().write_back())
    }

    /// Leaves files with special rules to those who hold the volume.
    fn check_plain(&mut self, ino: Nid) -> Result<(), Unseen> {
        let is_atomic = self.engine().top_inode(ino) != ino;
        let inode = self.view(ino)?;
        let special = is_atomic
            || inode.file_kind() != FileKind::Regular
            || inode.file_flags().intersects(FileFlags::IMMUTABLE | FileFlags::SYNC)
            || inode.advise().intersects(Advise::ENCRYPT | Advise::VERITY)
            || inode.inline().intersects(Inline::DATA | Inline::COMPRESS_RELEASED)
            || inode.layout().cluster().is_some();
        if special { Err(Unseen::Absent) } else { Ok(()) }
    }

    /// What a write of `len` bytes to `offset` changes.
    fn foresee(&mut self, ino: Nid, offset: u64, len: usize) -> Result<Changes, Unseen> {
        let (mut changes, mut absent) = (Changes::default(), 0);
        for piece in pieces(offset, len) {
            let cache = &self.shard(ino)?.pages;
            if cache.is_dirty(ino.into(), piece.page) {
                continue;
            }
            let is_here = cache.peek(ino.into(), piece.page).is_some();
            absent += usize::from(!is_here);
            let Lookup::Slot(slot) = self.lookup_slot(ino, piece.page)? else {
                return Err(Unseen::Absent);
            };
            let is_whole = piece.within.len() == BLOCK_SIZE;
            match self.addr_in(slot)? {
                NULL_ADDR => changes.holes.push((piece.page, slot)),
                COMPRESS_ADDR => return Err(Unseen::Absent),
                _ if !is_here && !is_whole => return Err(Unseen::Absent),
                _ => {}
            }
            changes.dirty += 2;
        }
        let shard = self.shard(ino)?;
        if absent > shard.pages.budget().room() {
            return Err(Unseen::Absent);
        }
        changes.dirty += u64::from(!shard.nodes.is_dirty(ino, ino));
        Ok(changes)
    }

    /// Takes blocks for what was a hole.
    pub(crate) fn fill_holes(&mut self, ino: Nid, holes: &[(u64, Slot)]) -> Result<(), Unseen> {
        if holes.is_empty() {
            return Ok(());
        }
        self.take_blocks(ino, holes.len() as u64)?;
        for (_, slot) in holes {
            self.set_addr(ino, *slot, NEW_ADDR)?;
        }
        self.add_blocks(ino, holes.len() as i64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};
    use drive::Drive;
    use vfs::{Creator, Errno, FileSystem, Ino};

    use crate::F2fs;
    use crate::offline::mkfs::{MkfsOptions, format};

    /// A file of 16 blocks, the last eight of them not in memory.
    fn with_file() -> (Arc<F2fs>, Ino) {
        let drive: Arc<dyn Drive> = drive::ram(1 << 16);
        format(&drive, &MkfsOptions::default()).unwrap();
        let fs = Arc::new(F2fs::mount(drive, &"".parse().unwrap()).unwrap());
        let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        fs.write(ino, 0, &[1; 16 << 12]).unwrap();
        fs.fsync(ino, false).unwrap();
        let nid = u32::try_from(ino).unwrap();
        fs.lock().inodes.of(nid).pages.truncate(ino, 8);
        (fs, ino)
    }

    /// Whether the write is done while others look at the volume, so that nobody can hold it.
    fn is_done_beside(offset: u64, len: usize) -> bool {
        let profile = Profile::named("xeon-4116").unwrap();
        let run = move || {
            let (fs, ino) = with_file();
            let other = fs.clone();
            let look = fs.look();
            let data = vec![2; len];
            let write = move || other.write(ino, offset, &data).unwrap();
            assert_eq!(cores::spawn("write", Some(1), write).join(), len);
            drop(look);
        };
        Machine::simulated(&profile, 1).run(run).is_ok()
    }

    #[test]
    fn what_memory_has_or_needs_not_have_is_written_beside_others() {
        assert!(is_done_beside(0, 4096));
        assert!(is_done_beside(100, 5000), "two parts of pages in memory");
        assert!(is_done_beside(9 << 12, 4096), "a whole page that is not in memory");
        assert!(is_done_beside(16 << 12, 4096), "a block behind the end");
        assert!(is_done_beside((20 << 12) + 7, 10), "a part of a hole");
    }

    #[test]
    fn what_takes_more_is_left_to_those_who_hold_the_volume() {
        assert!(!is_done_beside((9 << 12) + 1, 10), "a part of a page that is not in memory");
        assert!(!is_done_beside(2000 << 12, 4096), "a block whose node is not there");
    }

    #[test]
    fn a_write_across_the_largest_size_is_short_and_one_beyond_it_fails() {
        let (fs, ino) = with_file();
        let most = fs.lock().max_size(u32::try_from(ino).unwrap()).unwrap();
        for _ in 0..2 {
            assert_eq!(fs.write(ino, most - 4096, &[3; 8192]).unwrap(), 4096);
        }
        for offset in [most, u64::MAX - 10] {
            assert_eq!(fs.write(ino, offset, &[3; 4096]).unwrap_err().errno(), Errno::FBIG);
        }
    }

    #[test]
    fn a_full_cache_has_room_for_those_who_cannot_evict() {
        let drive: Arc<dyn Drive> = drive::ram(1 << 16);
        format(&drive, &MkfsOptions::default()).unwrap();
        let fs = F2fs::mount(drive, &"cache=1m".parse().unwrap()).unwrap();
        let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        for page in 0..1000 {
            fs.write(ino, page << 12, &[1; 4096]).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        for page in 0..1000 {
            fs.read(ino, page << 12, &mut [0; 4096]).unwrap();
            assert!(fs.look().inodes.pages().pages() <= 256 + 64, "more than cache=1m");
        }
        fs.change().unwrap();
        assert!(fs.look().inodes.pages().room() > 0);
    }
}
