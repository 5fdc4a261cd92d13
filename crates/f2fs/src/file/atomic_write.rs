//! Atomic writes (`F2FS_IOC_START_ATOMIC_WRITE`, as Linux has them since 6.0): what is written to a
//! file between start and commit becomes part of it completely, or not at all.
//!
//! A nameless inode, the COW inode, lies over the file. It is a file like any other: writes go
//! there, its pages are cached, reserved, written back and cleaned as its own. A reader of the file
//! sees a page of the COW inode where it has one. The file itself does not change, so a checkpoint
//! in the meantime contains nothing of the write; and the COW inode is an orphan, freed after a
//! cut.
//!
//! What makes the commit one step: in one hold of the volume the COW inode's slots become the
//! file's, remaining dirty data is submitted and the nodes are captured. From there on it is an
//! fsync that marks its last node only ([`fsync::ATOMIC`] or [`fsync::STRICT`], whatever the
//! mount's own mode is), or the checkpoint that such an fsync may become.
//!
//! What can tear: a moved block's summary names the file from the commit on, and an interrupted
//! checkpoint may leave it so on the drive, although by the previous checkpoint the block belongs
//! to the COW inode. Recovery frees orphans before it asks any summary.
//!
//! The writes take the space for both versions and make the file's own nodes, so a commit needs no
//! more.

use drive::Block;
use vfs::{Creator, Errno, FileKind, Ino, file};

use crate::F2fs;
use crate::dir::namei::NewInode;
use crate::error::Result;
use crate::fsync::{self, Plan};
use crate::inode::change::Change;
use crate::inode::mapping::{Lookup, Mapping};
use crate::mount::engine::Engine;
use crate::mount::fs::nid;
use crate::mount::quota::Amount;
use crate::ondisk::inode::{Advise, Inline};
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BLOCK_SIZE, BlockAddr, NEW_ADDR, NULL_ADDR, Nid, is_data_addr};

/// One file's atomic write.
pub(crate) struct AtomicWrite {
    /// The COW inode.
    cow: Nid,
    /// The file was open when it began; it is dropped when the file is last closed.
    opened: bool,
}

impl F2fs {
    /// `F2FS_IOC_START_ATOMIC_WRITE`: from now on writes to the file wait for
    /// [`F2fs::commit_atomic_write`]. Its readers see them. They are dropped by
    /// [`F2fs::abort_atomic_write`], when the file is last closed, at unmount, and by a cut.
    /// Nothing happens if it has begun already.
    ///
    /// Until then the file can neither be truncated nor extended except by writing to it (`EBUSY`).
    ///
    /// # Errors
    ///
    /// `EINVAL` if this is not a regular file, or if it is compressed or pinned.
    pub fn start_atomic_write(&self, ino: Ino) -> Result<()> {
        let ino = nid(ino)?;
        let _turn = self.take_turn(ino);
        self.change()?.start_atomic(ino)
    }

    /// `F2FS_IOC_COMMIT_ATOMIC_WRITE`: when it returns, everything written since the start is
    /// durable; after an earlier cut, all of it is there or nothing. An fsync if nothing was
    /// started.
    ///
    /// # Errors
    ///
    /// Those of an fsync; `EAGAIN` if another thread ended the atomic write meanwhile.
    pub fn commit_atomic_write(&self, ino: Ino) -> Result<()> {
        let ino = nid(ino)?;
        let Some(cow) = self.settled().cow_inode(ino) else {
            return fsync::execute(self, ino, false);
        };
        // Holding the turn, no write of the COW inode is in flight that the commit would not wait
        // for.
        let _turn = self.take_turn(cow);
        fsync::execute_with(self, ino, |volume| volume.merge_atomic(ino, cow))
    }

    /// `F2FS_IOC_ABORT_ATOMIC_WRITE`: the file is as it was before the start.
    pub fn abort_atomic_write(&self, ino: Ino) -> Result<()> {
        let mut volume = self.settled();
        volume.check_usable()?;
        volume.abort_atomic(nid(ino)?)
    }
}

impl Engine {
    fn start_atomic(&mut self, ino: Nid) -> Result<()> {
        if self.kind_of(ino)? != FileKind::Regular {
            return Err(Errno::INVAL.into());
        }
        self.check_may_write(ino)?;
        self.check_unsealed(ino)?;
        if self.layout(ino)?.cluster().is_some() || self.is_pinned(ino)? {
            return Err(Errno::INVAL.into());
        }
        if self.atomic_writes.contains_key(&ino) {
            return Ok(());
        }
        if self.has_inline_data(ino)? {
            self.convert_inline_data(ino)?;
        }
        let opened = self.opens.is_open(ino.into());
        let cow = self.make_cow_inode(ino)?;
        self.atomic_writes.insert(ino, AtomicWrite { cow, opened });
        Ok(())
    }

    /// An empty orphan as long as `ino` (`f2fs_get_tmpfile`).
    fn make_cow_inode(&mut self, ino: Nid) -> Result<Nid> {
        let file = self.inode(ino)?;
        let creator = Creator { uid: file.uid.get(), gid: file.gid.get() };
        let parent = self.sb.root_ino;
        let kind = FileKind::Regular;
        let cow =
            self.new_inode(&NewInode { parent, name: b"", kind, perm: 0, rdev: 0, creator })?;
        let inode = self.inode_mut(cow)?;
        inode.set_inline(inode.inline() - Inline::DATA);
        inode.links.set(0);
        inode.size = file.size;
        self.orphans.insert(cow);
        self.opens.open_nameless(cow.into(), false);
        Ok(cow)
    }

    /// The COW inode of a file that is being written atomically.
    fn cow_inode(&self, ino: Nid) -> Option<Nid> {
        self.atomic_writes.get(&ino).map(|write| write.cow)
    }

    /// The inode that has the file's size and gets the writes.
    pub(crate) fn top_inode(&self, ino: Nid) -> Nid {
        self.cow_inode(ino).unwrap_or(ino)
    }

    /// The inode whose page `index` is what users see in the file.
    pub(crate) fn inode_of_page(&mut self, ino: Nid, index: u64) -> Result<Nid> {
        let Some(cow) = self.cow_inode(ino) else { return Ok(ino) };
        let has_it = self.inodes.of(cow).pages.peek(cow.into(), index).is_some()
            || is_data_addr(self.addr_of(cow, index)?);
        Ok(if has_it { cow } else { ino })
    }

    /// What page `index` of an inode is before its first write.
    pub(crate) fn page_below(&mut self, ino: Nid, index: u64) -> Result<Block> {
        let of_file = self.atomic_writes.iter().find(|(_, write)| write.cow == ino);
        let below = match of_file.map(|(file, _)| *file) {
            Some(base) => file::page(self, base, index, index + 1)?.cloned(),
            None => None,
        };
        Ok(below.unwrap_or_else(Block::zeroed))
    }

    /// The inode to which a write of this many bytes goes. Makes the nodes that the file will need
    /// for them.
    pub(crate) fn begin_write(&mut self, ino: Nid, offset: u64, len: usize) -> Result<Nid> {
        let Some(cow) = self.cow_inode(ino) else { return Ok(ino) };
        let end = offset.saturating_add(len as u64).min(self.max_size(ino)?);
        let mut index = offset / BLOCK_SIZE as u64;
        while index < end.div_ceil(BLOCK_SIZE as u64) {
            let slot = self.make_slot(ino, index)?;
            index += self.slots_from(ino, slot)?;
        }
        Ok(cow)
    }

    /// Fails with `EBUSY` while the file is being written atomically.
    pub(crate) fn check_not_atomic(&self, ino: Nid) -> Result<()> {
        if self.cow_inode(ino).is_some() { Err(Errno::BUSY.into()) } else { Ok(()) }
    }

    /// Makes everything written since the start part of the file. Returns the plan of the fsync
    /// that must follow in this hold of the volume.
    fn merge_atomic(&mut self, ino: Nid, cow: Nid) -> Result<&'static Plan> {
        if self.cow_inode(ino) != Some(cow) {
            return Err(Errno::AGAIN.into());
        }
        // Checksums of blocks written back belong to the COW inode, not to the file.
        let ordered_at_recovery =
            self.options.oprw && !self.inodes.of(cow).unjudged.contains_key(&cow);
        let written = self.written_pages(cow)?;
        self.prepare_take_over(ino, cow, &written)?;
        if let Err(error) = self.take_over(ino, cow, &written) {
            self.halt(&error);
            return Err(error);
        }
        self.atomic_writes.remove(&ino);
        self.opens.forget(cow.into());
        self.evict_orphan(cow);
        Ok(if ordered_at_recovery { &fsync::ATOMIC } else { &fsync::STRICT })
    }

    /// The pages of a COW inode that have been written to, and where they are.
    fn written_pages(&mut self, cow: Nid) -> Result<Vec<(u64, BlockAddr)>> {
        let end = self.raw_inode(cow)?.size.get().div_ceil(BLOCK_SIZE as u64);
        let (mut written, mut from) = (Vec::new(), 0);
        while let Some(first) = self.next_allocated(cow, from..end, true)? {
            let addrs = self.addrs_from(cow, first, usize::MAX)?;
            from = first + addrs.len() as u64;
            written.extend((first..end).zip(addrs).filter(|(_, addr)| *addr != NULL_ADDR));
        }
        // A reservation for a write that failed.
        let pages = &self.inodes.of(cow).pages;
        written.retain(|(index, addr)| *addr != NEW_ADDR || pages.is_dirty(cow.into(), *index));
        Ok(written)
    }

    /// Makes and reads all nodes that [`Engine::take_over`] changes. Changed nodes stay in memory,
    /// so it reads nothing: a failed read cannot end it half way.
    fn prepare_take_over(
        &mut self,
        ino: Nid,
        cow: Nid,
        written: &[(u64, BlockAddr)],
    ) -> Result<()> {
        self.node_mut(ino, ino)?;
        self.node_mut(cow, cow)?;
        for &(index, addr) in written {
            if let Lookup::Slot(from) = self.lookup_slot(cow, index)? {
                self.node_mut(cow, from.nid)?;
                let to = self.make_slot(ino, index)?;
                self.node_mut(ino, to.nid)?;
            }
            if is_data_addr(addr) {
                self.load_summary(addr)?;
            }
        }
        Ok(())
    }

    /// Moves pages from the COW inode to the file. A slot is moved as it is, with its block or
    /// reservation; the file's old block there is given up, so that nothing is overwritten in
    /// place.
    fn take_over(&mut self, ino: Nid, cow: Nid, written: &[(u64, BlockAddr)]) -> Result<()> {
        for &(index, addr) in written {
            let Lookup::Slot(from) = self.lookup_slot(cow, index)? else { continue };
            let to = self.make_slot(ino, index)?;
            self.free_slot(ino, to)?;
            self.set_addr(cow, from, NULL_ADDR)?;
            self.add_blocks(cow, -1)?;
            self.set_addr(ino, to, addr)?;
            self.add_blocks(ino, 1)?;
            if let (Some(cow), Some(ino)) = (self.counted_for(cow)?, self.counted_for(ino)?) {
                self.quotas.transfer(cow, ino, Amount::blocks(1), self.quota_time(), false)?;
            }
            if is_data_addr(addr) {
                let version = self.nat.get_mut().get(&self.io, to.nid)?.version;
                self.set_summary(addr, RawSummary::data(to.nid, version, to.ofs_in_node))?;
            }
            let pages = &mut self.inodes.of(cow).pages;
            let dirty = pages.is_dirty(cow.into(), index);
            let page = pages.remove(cow.into(), index);
            let pages = &mut self.inodes.of(ino).pages;
            match page {
                Some(page) if dirty => pages.insert_dirty(ino.into(), index, page),
                Some(page) => pages.insert_clean(ino.into(), index, page),
                None => pages.drop_range(ino.into(), index..index + 1),
            }
        }
        if written.is_empty() {
            return Ok(());
        }
        let from = self.inode(cow)?;
        let now = self.clock.now();
        let to = self.inode_mut(ino)?;
        to.size = from.size;
        (to.mtime, to.mtime_nsec) = (from.mtime, from.mtime_nsec);
        to.set_ctime(now);
        Ok(())
    }

    /// Drops what was written since the start, if there was one.
    pub(crate) fn abort_atomic(&mut self, ino: Nid) -> Result<()> {
        let Some(AtomicWrite { cow, .. }) = self.atomic_writes.remove(&ino) else { return Ok(()) };
        self.opens.forget(cow.into());
        if self.check_writable().is_err() {
            self.inodes.of(cow).pages.forget(cow.into());
            return Ok(());
        }
        self.evict_orphan(cow);
        // The nodes that were made for the commit.
        let inode = self.raw_inode(ino)?;
        let end = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        if inode.advise().contains(Advise::KEEP_SIZE) {
            return Ok(());
        }
        self.truncate_blocks(ino, end)
    }

    /// Drops everything not committed, before the volume is unmounted. Fails with the first error;
    /// what is left then, fsck finds.
    pub(crate) fn abort_all_atomic(&mut self) -> Result<()> {
        let mut inos: Vec<Nid> = self.atomic_writes.keys().copied().collect();
        inos.sort_unstable();
        let mut aborted = Ok(());
        for ino in inos {
            aborted = aborted.and(self.abort_atomic(ino));
        }
        if aborted.is_err() {
            self.note_corruption();
        }
        aborted
    }

    /// Whether the last handle of the file was closed with an atomic write not committed.
    pub(crate) fn is_left_atomic(&self, ino: Nid) -> bool {
        self.atomic_writes.get(&ino).is_some_and(|write| write.opened)
    }
}
