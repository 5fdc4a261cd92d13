//! Writing cached pages, concurrently with changes of other inodes.
//!
//! Only for writes that need nothing but the inode, its nodes and its pages: every page has a slot
//! for its address. All other writes lock the volume exclusively.
//!
//! Under `range_lock=page` one that changes neither the size nor an address, but only pages that
//! are cached, shares the inode's lock and locks its pages. All others lock the inode.

use cores::Residence;
use drive::{BLOCK_SIZE, Block};
use smallvec::SmallVec;
use vfs::file::{self, Page, Write};
use vfs::{FileKind, Overwrite, Overwrites, WriteBack, pieces};

use crate::F2fs;
use crate::error::Result;
use crate::inode::change::Change;
use crate::inode::mapping::{Lookup, Mapping, Slot};
use crate::inode::see::{Glance, Own, See, Sight, Unseen};
use crate::inode::shards::Shard;
use crate::mount::options::Inject;
use crate::ondisk::inode::{Advise, FileFlags, Inline, RawInodeBlock};
use crate::ondisk::{COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, Nid};

/// What a write changes.
#[derive(Default)]
struct Changes {
    /// How many blocks it makes dirty at most, nodes included.
    dirty: u64,
    /// How many pages are not cached.
    absent: usize,
    /// The pages that are still holes, and where their addresses go.
    holes: SmallVec<[(u64, Slot); 2]>,
}

impl F2fs {
    /// Writes under the inode's lock; `None` if the write needs the volume's lock exclusively.
    pub(crate) fn overwrite(
        &self,
        ino: Nid,
        write: &mut Option<Write<'_>>,
    ) -> Result<Option<WriteBack>> {
        let _span = cores::span(cores::Stage::Syscall);
        if self.options().locks_pages()
            && let Some(when) = self.share(|shared| shared.overwrite_pages(ino, write))?
        {
            return Ok(Some(when));
        }
        self.own_within([ino], |own| own.overwrite(ino, write))
    }
}

impl Glance<'_> {
    /// Overwrites cached pages of a file, concurrently with other overwrites of it. Takes the write
    /// only if it can do all of it.
    fn overwrite_pages(
        &mut self,
        ino: Nid,
        write: &mut Option<Write<'_>>,
    ) -> Result<WriteBack, Unseen> {
        if self.shard(ino)?.overwrites.is_none() {
            return Err(Unseen::Absent);
        }
        let (offset, end) = range_of(write)?;
        self.check_plain(ino)?;
        let changes = self.foresee(ino, offset, end)?;
        let has_all = changes.absent == 0 && changes.holes.is_empty();
        if !has_all || end > self.view(ino)?.size.get() {
            return Err(Unseen::Absent);
        }
        let volume = self.volume();
        let overwrite = Overwrite { ino: ino.into(), write, time: volume.clock.now() };
        let Shard { overwrites, pages, .. } = self.shard(ino)?;
        let overwrites = overwrites.as_ref().ok_or(Unseen::Absent)?;
        let is_done = overwrites.write(pages, overwrite, |purse| volume.pay(purse, changes.dirty));
        if is_done { Ok(volume.inodes.pages().write_back()) } else { Err(Unseen::Absent) }
    }
}

/// The byte range of a write that was not taken yet; never empty.
fn range_of(write: &Option<Write<'_>>) -> Result<(u64, u64), Unseen> {
    let write = write.as_ref().ok_or(Unseen::Absent)?;
    let end = write.offset().checked_add(write.data().len() as u64);
    let end = end.filter(|end| *end > write.offset()).ok_or(Unseen::Absent)?;
    Ok((write.offset(), end))
}

impl Own<'_> {
    /// Writes to a file whose nodes are all cached. Takes the write only if it can do all of it.
    fn overwrite(&mut self, ino: Nid, write: &mut Option<Write<'_>>) -> Result<WriteBack, Unseen> {
        let (offset, end) = range_of(write)?;
        self.check_plain(ino)?;
        let changes = self.foresee(ino, offset, end)?;
        if changes.absent > self.engine().inodes.pages().room() {
            return Err(Unseen::Absent);
        }
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
        self.lock_pages_from_now_on(ino)?;
        Ok(self.engine().inodes.pages().write_back())
    }
}

/// Range locks of files that have been written.
pub(crate) trait RangeLocks: Change {
    /// Makes page locks for this inode and the others of its shard, under `range_lock=page`.
    fn lock_pages_from_now_on(&mut self, ino: Nid) -> Result<(), Self::Error> {
        let options = &self.engine().options;
        if options.locks_pages() {
            let is_injected = options.inject.contains(Inject::NO_RANGE_LOCK);
            self.shard_mut(ino)?.overwrites.get_or_insert_with(|| {
                let none = Overwrites::new("f2fs range");
                Box::new(if is_injected { none.without_range_lock() } else { none })
            });
        }
        Ok(())
    }
}

impl<C: Change> RangeLocks for C {}

impl<'a, S: Sight<'a>> Glance<'a, S> {
    /// Fails for files with special rules, which need the exclusive path.
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

    /// What a write of bytes `offset..end` changes.
    fn foresee(&mut self, ino: Nid, offset: u64, end: u64) -> Result<Changes, Unseen> {
        let (mut changes, mut is_paid) = (Changes::default(), true);
        let is_dirty = self.shard(ino)?.nodes.is_dirty(ino, ino);
        for piece in pieces(offset, (end - offset) as usize) {
            let shard = self.shard(ino)?;
            let cache = &shard.pages;
            let is_page_dirty = cache.is_dirty(ino.into(), piece.page);
            if is_page_dirty && is_dirty {
                continue;
            }
            if shard.overwritten().is_some_and(|all| all.has(ino.into(), piece.page)) {
                continue;
            }
            is_paid = false;
            if is_page_dirty {
                continue;
            }
            let is_here = cache.peek(ino.into(), piece.page).is_some();
            changes.absent += usize::from(!is_here);
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
        // The write that overwrote all of these pages has paid for the inode, too.
        changes.dirty += u64::from(!is_paid && !is_dirty);
        Ok(changes)
    }
}

impl Own<'_> {
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
        with_file_under("", &formatted())
    }

    fn formatted() -> Arc<dyn Drive> {
        let drive: Arc<dyn Drive> = drive::ram(1 << 16);
        format(&drive, &MkfsOptions::default()).unwrap();
        drive
    }

    fn with_file_under(options: &str, drive: &Arc<dyn Drive>) -> (Arc<F2fs>, Ino) {
        let fs = Arc::new(F2fs::mount(drive.clone(), &options.parse().unwrap()).unwrap());
        let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
        fs.write(ino, 0, &[1; 16 << 12]).unwrap();
        fs.fsync(ino, false).unwrap();
        let nid = u32::try_from(ino).unwrap();
        fs.lock().inodes.of(nid).pages.truncate(ino, 8);
        (fs, ino)
    }

    /// Whether the write completes while another thread holds the volume's lock shared, so that it
    /// cannot be taken exclusively.
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

    /// Whether the write is done while another thread shares the inode's lock.
    fn is_done_sharing(options: &'static str, offset: u64, len: usize) -> bool {
        let profile = Profile::named("xeon-4116").unwrap();
        let run = move || {
            let (fs, ino) = with_file_under(options, &formatted());
            let other = fs.clone();
            let volume = fs.look();
            let shared = volume.inodes.look(u32::try_from(ino).unwrap());
            let data = vec![2; len];
            let write = move || other.write(ino, offset, &data).unwrap();
            assert_eq!(cores::spawn("write", Some(1), write).join(), len);
            drop(shared);
        };
        Machine::simulated(&profile, 1).run(run).is_ok()
    }

    #[test]
    fn only_overwrites_of_cached_pages_lock_pages() {
        assert!(is_done_sharing("range_lock=page", 0, 4096));
        assert!(is_done_sharing("range_lock=page", 100, 5000), "two parts of pages");
        assert!(!is_done_sharing("range_lock=inode", 0, 4096));
        assert!(!is_done_sharing("range_lock=page", 9 << 12, 4096), "a page that is not cached");
        assert!(!is_done_sharing("range_lock=page", 16 << 12, 4096), "a write that adds a block");
        assert!(!is_done_sharing("range_lock=page", 7 << 12, 8192), "one that is not cached");
    }

    #[test]
    fn overwrites_that_lock_pages_are_seen_at_once_and_kept() {
        let drive = formatted();
        let (fs, ino) = with_file_under("range_lock=page", &drive);
        let nid = u32::try_from(ino).unwrap();
        let is_pending =
            |fs: &F2fs| fs.look().inodes.look(nid).overwritten().is_some_and(|o| o.has(ino, 1));
        let time = |fs: &F2fs| {
            let mtime = fs.getattr(ino).unwrap().mtime;
            (mtime.secs, mtime.nanos)
        };
        let is_there = |fs: &F2fs| {
            let mut read = [0; 3 << 12];
            assert_eq!(fs.read(ino, 0, &mut read).unwrap(), read.len());
            let is_new = |at: &usize| (4000..9000).contains(at);
            read.iter().enumerate().all(|(at, byte)| *byte == if is_new(&at) { 7 } else { 1 })
        };
        let (before, dirty) = (time(&fs), fs.look().inodes.pages().dirty());
        fs.write(ino, 4000, &[7; 5000]).unwrap();
        assert!(is_pending(&fs) && is_there(&fs));
        assert_eq!(fs.look().inodes.pages().dirty(), dirty + 3);
        let written = time(&fs);
        assert!(written > before);
        fs.fsync(ino, false).unwrap();
        assert!(!is_pending(&fs) && is_there(&fs));
        assert_eq!((time(&fs), fs.look().inodes.pages().dirty()), (written, dirty));
        drop(fs);
        let fs = F2fs::mount(drive, &"".parse().unwrap()).unwrap();
        assert!(is_there(&fs));
        assert_eq!(time(&fs), written);
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
        let fs = F2fs::mount(formatted(), &"cache=1m".parse().unwrap()).unwrap();
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
