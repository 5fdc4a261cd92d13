//! Writing: contents to their place, then one change of the inode.
//!
//! *What a cut leaves.* Contents go over the old ones, so of a write under way some words may be
//! new and some old, as in ext4's ordered mode; size, times and new pages are as before or after
//! the call. A page behind the old end may hold bytes that an interrupted write left there. They
//! are not visible, because the file ends before; a call that moves the end beyond them zeroes them
//! first, durably, since zeroes and data are fenced before the record's mark.

use cores::Stage;
use smallvec::SmallVec;
use vfs::{Errno, Ino, Result};

use crate::alloc::Taken;
use crate::commit::{Change, Done};
use crate::file::map::{Map, Way, merged};
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::{FILE_SIZE_MAX, RawInode};

impl Pmfs {
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let node = self.node(ino)?;
        if !data.is_empty()
            && let Some(is_shared) = node.is_shared
            && let Some((written, is_long)) = match is_shared {
                true => self.overwrite(&node.lock.read(), offset, data)?,
                false => self.overwrite(&node.lock.write(), offset, data)?,
            }
        {
            if is_long {
                self.clean_shared(ino)?;
            }
            return Ok(written);
        }
        let mut inode = node.lock.write();
        inode.check_file()?;
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::FBIG.into());
        }
        let room = usize::try_from(FILE_SIZE_MAX - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        cores::charge(Stage::MapBlock);
        match inode.log {
            None => self.write_inode(&mut inode, offset, data),
            Some(_) => self.write_copy(&mut inode, offset, data),
        }
    }

    /// Writes as much as there is space for.
    fn write_inode(&self, inode: &mut Inode, offset: u64, data: &[u8]) -> Result<usize> {
        let end = offset + data.len() as u64;
        let (new, taken, end) = self.blocks_for(inode, offset / BLOCK, end);
        if end <= offset {
            return Err(Errno::NOSPC.into());
        }
        let data = &data[..(end - offset) as usize];
        let mut change = Change::of_file(&*self.pm, end, data.len());
        zero_between(inode, &mut change, inode.raw.size.get(), offset);
        for extent in inode.map.within(offset / BLOCK, end.div_ceil(BLOCK)) {
            stream_part(&mut change, &extent, offset, data);
        }
        for extent in &new {
            stream_part(&mut change, extent, offset, data);
            // What the new pages have before and behind the data.
            let (first, behind) = (extent.page * BLOCK, extent.end() * BLOCK);
            let (from, to) = (offset.max(first) - first, end.min(behind) - first);
            change.zero(extent.block * BLOCK, from);
            change.zero(extent.block * BLOCK + to, behind - first - to);
        }
        let mut raw = inode.raw;
        raw.touch_data();
        raw.size = raw.size.get().max(end).into();
        let _done = self.commit_extents(inode, change, raw, &new)?;
        taken.into_iter().for_each(|taken| drop(taken.keep()));
        Ok(data.len())
    }

    /// Blocks for the pages from `first` on that have none, up to byte `end`; and where the write
    /// ends if there are too few.
    fn blocks_for(
        &self,
        inode: &Inode,
        first: u64,
        end: u64,
    ) -> (Vec<Extent>, Vec<Taken<'_>>, u64) {
        let (mut new, mut all) = (Vec::new(), Vec::new());
        for (first, behind) in inode.map.missing(first, end.div_ceil(BLOCK)) {
            let goal = new.last().map(|extent: &Extent| extent.block + extent.len);
            let goal = goal.or_else(|| inode.map.goal(first));
            let taken = self.space.take(behind - first, goal);
            let mut page = first;
            for &(block, len) in taken.runs() {
                new.push(Extent { page, block, len });
                page += len;
            }
            all.push(taken);
            if page < behind {
                return (new, all, end.min(page * BLOCK));
            }
        }
        (new, all, end)
    }

    /// Zeroed blocks for all pages of `first..behind` that have none.
    pub(crate) fn zeroed_blocks(
        &self,
        inode: &Inode,
        change: &mut Change<'_>,
        (first, behind): (u64, u64),
    ) -> Result<(Vec<Extent>, Vec<Taken<'_>>)> {
        let end = behind * BLOCK;
        let (new, taken, got) = self.blocks_for(inode, first, end);
        if got < end {
            return Err(Errno::NOSPC.into());
        }
        for extent in &new {
            change.zero(extent.block * BLOCK, extent.len * BLOCK);
        }
        Ok((new, taken))
    }

    /// Commits `raw` as the inode's attributes, with `new` extents for pages that had none. If it
    /// fails, nothing has changed.
    pub(crate) fn commit_extents(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        mut raw: RawInode,
        new: &[Extent],
    ) -> Result<Done> {
        if inode.log.is_some() {
            return self.commit_logged(inode, change, raw, new);
        }
        let block = match inode.map.way(&change, new.len()) {
            Way::Places => None,
            Way::Block => {
                let taken = self.space.take_run(1).ok_or(Errno::NOSPC)?;
                taken.keep().first().map(|run| run.0)
            }
            Way::Rewrite => {
                let all = inode.map.extents().chain(new.iter().copied()).collect();
                return self.commit_map(inode, change, raw, all);
            }
        };
        inode.map.add(&mut change, &mut raw, new, block);
        self.commit_raw(inode, change, raw)
    }

    /// Commits `raw` as the inode's attributes and `extents` as all that it has. Blocks that it had
    /// and has no more are freed.
    pub(crate) fn commit_map(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        mut raw: RawInode,
        extents: Vec<Extent>,
    ) -> Result<Done> {
        let extents = merged(extents);
        if inode.log.is_some() {
            return self.commit_log_map(inode, change, raw, &extents);
        }
        let want = Map::blocks_for(extents.len());
        let has: u64 = extents.iter().map(|extent| extent.len).sum();
        // What frees something may take the last blocks.
        let blocks = match has < inode.map.extents().map(|extent| extent.len).sum() {
            true => self.space.take_urgent(want),
            false => self.space.take(want, None),
        };
        if blocks.blocks() < want {
            return Err(Errno::NOSPC.into());
        }
        let map = Map::rewrite(&mut change, (inode.at, &mut raw), &extents, blocks);
        let done = self.commit_raw(inode, change, raw)?;
        let old = std::mem::replace(&mut inode.map, map);
        self.space.give_difference(old.runs().collect(), inode.map.runs().collect());
        Ok(done)
    }

    /// Commits `raw` as the inode's attributes. If it fails, which only a log without space does,
    /// nothing has changed.
    pub(crate) fn commit_raw(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        raw: RawInode,
    ) -> Result<Done> {
        if raw.mode.get() != 0 {
            self.reserve([&mut *inode], false)?;
        }
        inode.set_raw(&mut change, raw);
        Ok(self.commit(change, [inode]))
    }

    /// Makes `change` durable, with what the logs of these inodes have staged.
    pub(crate) fn commit<'i>(
        &self,
        mut change: Change<'_>,
        inodes: impl IntoIterator<Item = &'i mut Inode>,
    ) -> Done {
        let mut inodes: SmallVec<[_; 4]> = inodes.into_iter().collect();
        inodes.iter_mut().for_each(|inode| inode.flush(&mut change));
        let done = self.journal.commit(change);
        inodes.into_iter().for_each(|inode| self.clean(inode));
        done
    }
}

/// Stores the part of `data`, which belongs at byte `offset` of the file, that lies in `extent`.
fn stream_part(change: &mut Change<'_>, extent: &Extent, offset: u64, data: &[u8]) {
    let start = (extent.page * BLOCK).max(offset);
    let stop = (extent.end() * BLOCK).min(offset + data.len() as u64);
    let to = extent.block * BLOCK + (start - extent.page * BLOCK);
    change.stream(to, &data[(start - offset) as usize..(stop - offset) as usize]);
}

/// Zeroes what the bytes `from..to` of the file have in blocks.
pub(crate) fn zero_between(inode: &Inode, change: &mut Change<'_>, from: u64, to: u64) {
    if from >= to {
        return;
    }
    for extent in inode.map.within(from / BLOCK, to.div_ceil(BLOCK)) {
        let start = (extent.page * BLOCK).max(from);
        let stop = (extent.end() * BLOCK).min(to);
        change.zero(extent.block * BLOCK + (start - extent.page * BLOCK), stop - start);
    }
}
