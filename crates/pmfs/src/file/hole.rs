//! Truncation and fallocate(2): what moves a file's end, frees pages, or gives it pages without
//! data.
//!
//! Each is one change of the map and of the attributes, so a cut leaves the file as before or after
//! the call. Bytes that are only zeroed, at the edges of a hole, may be old or zero by words.

use vfs::{Errno, FallocateMode, FileKind, Ino, Result, check_fallocate};

use super::write::zero_between;
use crate::commit::{Change, Done};
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{FILE_SIZE_MAX, RawInode};

impl Pmfs {
    /// Sets the size, as part of a change whose other attributes are in `raw` already.
    pub(crate) fn truncate(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        mut raw: RawInode,
        size: u64,
    ) -> Result<Done> {
        if size > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let old = raw.size.get();
        raw.size = size.into();
        let pages = size.div_ceil(BLOCK);
        if size > old {
            zero_between(inode, &mut change, old, size);
        } else if inode.map.within(pages, u64::MAX).next().is_some() {
            let kept = inode.map.within(0, pages).collect();
            return self.commit_map(inode, change, raw, kept);
        }
        self.commit_raw(inode, change, raw)
    }

    /// fallocate(2), with the checks in the order of Linux's generic layer.
    pub(crate) fn allocate_file(
        &self,
        ino: Ino,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        check_fallocate(mode, offset, len)?;
        let node = self.node(ino)?;
        let mut inode = node.lock.write();
        match inode.kind()? {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            FileKind::Fifo => return Err(Errno::SPIPE.into()),
            _ => return Err(Errno::NODEV.into()),
        }
        let end = offset.saturating_add(len);
        if end > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let mut raw = inode.raw;
        raw.touch_data();
        let _done = if mode.contains(FallocateMode::COLLAPSE_RANGE) {
            self.collapse(&mut inode, raw, offset, end)?
        } else if mode.contains(FallocateMode::INSERT_RANGE) {
            self.insert(&mut inode, raw, offset, len)?
        } else if mode.contains(FallocateMode::PUNCH_HOLE) {
            self.punch(&mut inode, raw, offset, end)?
        } else {
            if !mode.contains(FallocateMode::KEEP_SIZE) {
                raw.size = raw.size.get().max(end).into();
            }
            let zero = mode.contains(FallocateMode::ZERO_RANGE);
            self.preallocate(&mut inode, raw, (offset, end), zero)?
        };
        Ok(())
    }

    /// Blocks for all of the range. New ones are zeroed, old ones only with `zero`, and where they
    /// lay behind the end of the file.
    fn preallocate(
        &self,
        inode: &mut Inode,
        raw: RawInode,
        (start, end): (u64, u64),
        zero: bool,
    ) -> Result<Done> {
        let mut change = Change::new(&*self.pm);
        let pages = (start / BLOCK, end.div_ceil(BLOCK));
        let (mut new, mut taken) = self.zeroed_blocks(inode, &mut change, pages)?;
        zero_between(inode, &mut change, inode.raw.size.get(), raw.size.get());
        if zero {
            let (copies, blocks) = self.zero_visible(inode, &mut change, start, end)?;
            new.extend(copies);
            taken.extend(blocks);
        }
        let done = self.commit_extents(inode, change, raw, &new)?;
        taken.into_iter().for_each(|taken| drop(taken.keep()));
        Ok(done)
    }

    fn punch(&self, inode: &mut Inode, raw: RawInode, start: u64, end: u64) -> Result<Done> {
        let mut change = Change::new(&*self.pm);
        let (first, behind) = (start.div_ceil(BLOCK), end / BLOCK);
        let (head, tail) = (end.min(first * BLOCK), start.max(behind * BLOCK));
        let (mut copies, mut taken) = self.zero_visible(inode, &mut change, start, head)?;
        if tail >= head {
            let (more, blocks) = self.zero_visible(inode, &mut change, tail, end)?;
            copies.extend(more);
            taken.extend(blocks);
        }
        let is_hole = first >= behind || inode.map.within(first, behind).next().is_none();
        let done = if is_hole {
            self.commit_extents(inode, change, raw, &copies)?
        } else {
            let (before, after) = (inode.map.within(0, first), inode.map.within(behind, u64::MAX));
            let kept =
                without(before.chain(after), &copies).chain(copies.iter().copied()).collect();
            self.commit_map(inode, change, raw, kept)?
        };
        taken.into_iter().for_each(|taken| drop(taken.keep()));
        Ok(done)
    }

    fn collapse(&self, inode: &mut Inode, mut raw: RawInode, start: u64, end: u64) -> Result<Done> {
        let size = raw.size.get();
        if !start.is_multiple_of(BLOCK) || !end.is_multiple_of(BLOCK) || end >= size {
            return Err(Errno::INVAL.into());
        }
        raw.size = (size - (end - start)).into();
        let pages = (end - start) / BLOCK;
        let behind = inode.map.within(end / BLOCK, u64::MAX);
        let moved = behind.map(|extent| Extent { page: extent.page - pages, ..extent });
        let all = inode.map.within(0, start / BLOCK).chain(moved).collect();
        self.commit_map(inode, Change::new(&*self.pm), raw, all)
    }

    fn insert(&self, inode: &mut Inode, mut raw: RawInode, start: u64, len: u64) -> Result<Done> {
        let size = raw.size.get();
        if !start.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            return Err(Errno::INVAL.into());
        }
        if size + len > FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        if start >= size {
            return Err(Errno::INVAL.into());
        }
        raw.size = (size + len).into();
        let pages = len / BLOCK;
        // Blocks behind the end may be moved beyond the largest file; they are not needed.
        let last = FILE_SIZE_MAX / BLOCK - pages;
        let behind = inode.map.within(start / BLOCK, last);
        let moved = behind.map(|extent| Extent { page: extent.page + pages, ..extent });
        let all = inode.map.within(0, start / BLOCK).chain(moved).collect();
        self.commit_map(inode, Change::new(&*self.pm), raw, all)
    }
}

/// What is left of `extents` without the pages of `copies`, each of which is one page.
fn without<'c>(
    extents: impl Iterator<Item = Extent> + 'c,
    copies: &'c [Extent],
) -> impl Iterator<Item = Extent> + 'c {
    extents.flat_map(move |extent| {
        let mut left = vec![extent];
        for copy in copies {
            left = left.into_iter().flat_map(|part| around(part, copy.page)).collect();
        }
        left
    })
}

/// An extent but for one page.
fn around(extent: Extent, page: u64) -> impl Iterator<Item = Extent> {
    let Extent { page: first, block, len } = extent;
    let is_in = (first..extent.end()).contains(&page);
    let before = if is_in { page - first } else { len };
    let behind = if is_in { extent.end() - page - 1 } else { 0 };
    let parts = [
        Extent { page: first, block, len: before },
        Extent { page: page + 1, block: block + before + 1, len: behind },
    ];
    parts.into_iter().filter(|part| part.len > 0)
}
