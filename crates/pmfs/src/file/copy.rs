//! Writing in designs with logs: whole pages to new blocks, then entries that say where they are
//! (NOVA, FAST 2016, section 4.5).
//!
//! *What a cut leaves.* All of the call or nothing: old pages stay as they are until the log's tail
//! has made the new ones count, durably, and are free only then. Pages that the call covers in part
//! are copied. Zeroes behind the old end of a file are stored in place at once, because those bytes
//! are not visible before the tail moves the end.

use vfs::{Errno, Result};
use zerocopy::IntoBytes;

use super::write::zero_between;
use crate::alloc::{BlockRun, Taken};
use crate::commit::{Change, Done};
use crate::inode::node::Inode;
use crate::log::written;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::RawInode;
use crate::ondisk::log::Entry;

/// Lines for the entries of a call besides those of its extents.
const EXTRA: u64 = 8;

impl Pmfs {
    /// Writes as much as there is space for.
    pub(super) fn write_copy(&self, inode: &mut Inode, offset: u64, data: &[u8]) -> Result<usize> {
        let first = offset / BLOCK;
        let want = (offset + data.len() as u64).div_ceil(BLOCK) - first;
        let taken = self.space.take(want, None);
        let end = (offset + data.len() as u64).min((first + taken.blocks()) * BLOCK);
        if end <= offset {
            return Err(Errno::NOSPC.into());
        }
        let data = &data[..(end - offset) as usize];
        let mut change = Change::of_file(&*self.pm, end, data.len());
        zero_between(inode, &mut change, inode.raw.size.get(), offset);
        let new: Vec<_> = extents(first, taken.runs()).collect();
        let read = |page: u64, to: &mut [u8]| self.read_inode(inode, page * BLOCK, to);
        new.iter().for_each(|extent| stream_pages(&mut change, extent, (offset, data), &read));
        let mut raw = inode.raw;
        raw.touch_data();
        raw.size = raw.size.get().max(end).into();
        let _done = self.commit_logged(inode, change, raw, &new)?;
        taken.keep();
        Ok(data.len())
    }

    /// Zeroes bytes that may be visible: in place, or in a copy of each page where data is copied
    /// on write. The copies are the new blocks of their pages.
    pub(super) fn zero_visible(
        &self,
        inode: &Inode,
        change: &mut Change<'_>,
        from: u64,
        to: u64,
    ) -> Result<(Vec<Extent>, Vec<Taken<'_>>)> {
        let (mut copies, mut all) = (Vec::new(), Vec::new());
        if from >= to {
            return Ok((copies, all));
        }
        if inode.log.is_none() {
            zero_between(inode, change, from, to);
            return Ok((copies, all));
        }
        for extent in inode.map.within(from / BLOCK, to.div_ceil(BLOCK)) {
            for page in extent.page..extent.end() {
                let taken = self.space.take_run(1).ok_or(Errno::NOSPC)?;
                let &[(block, _)] = taken.runs() else { return Err(Errno::NOSPC.into()) };
                let mut bytes = [0; BLOCK as usize];
                self.pm.read((extent.block + page - extent.page) * BLOCK, &mut bytes);
                let (start, stop) = (from.max(page * BLOCK), to.min((page + 1) * BLOCK));
                bytes[(start - page * BLOCK) as usize..(stop - page * BLOCK) as usize].fill(0);
                change.stream(block * BLOCK, &bytes);
                copies.push(Extent { page, block, len: 1 });
                all.push(taken);
            }
        }
        Ok((copies, all))
    }

    /// Commits `raw` as the inode's attributes, and the blocks of `new` as those of their pages. If
    /// it fails, nothing has changed.
    pub(super) fn commit_logged(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        raw: RawInode,
        new: &[Extent],
    ) -> Result<Done> {
        let Some(log) = &mut inode.log else { return Err(Errno::INVAL.into()) };
        log.reserve(&self.space, new.len() as u64 + EXTRA, false)?;
        new.iter().for_each(|extent| log.stage(&written(&raw, *extent)));
        if new.is_empty() || !is_plain_write(&inode.raw, &raw) {
            inode.set_raw(&mut change, raw);
        }
        inode.raw = raw;
        let had: Vec<_> = new.iter().flat_map(|extent| inode.map.replace(*extent)).collect();
        let done = self.commit(change, [&mut *inode]);
        had.into_iter().for_each(|(start, len)| self.space.give(start, len));
        Ok(done)
    }

    /// Commits `raw` as the inode's attributes and `extents`, which are in order, as all that it
    /// has. Blocks that it had and has no more are freed.
    pub(super) fn commit_log_map(
        &self,
        inode: &mut Inode,
        mut change: Change<'_>,
        raw: RawInode,
        extents: &[Extent],
    ) -> Result<Done> {
        let old: Vec<Extent> = inode.map.extents().collect();
        let same = old.iter().zip(extents).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[same..], &extents[same..]);
        let pairs = old.iter().rev().zip(new.iter().rev());
        let tail = pairs.take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
        let Some(log) = &mut inode.log else { return Err(Errno::INVAL.into()) };
        let blocks = |extents: &[Extent]| extents.iter().map(|extent| extent.len).sum::<u64>();
        log.reserve(&self.space, new.len() as u64 + EXTRA, blocks(new) < blocks(old))?;
        if let (Some(first), Some(last)) = (old.first(), old.last()) {
            log.stage(&Entry::Hole { page: first.page, pages: last.end() - first.page });
        }
        new.iter().for_each(|extent| log.stage(&written(&raw, *extent)));
        inode.set_raw(&mut change, raw);
        let had: Vec<BlockRun> = old.iter().map(|extent| (extent.block, extent.len)).collect();
        if let (Some(first), Some(last)) = (old.first().copied(), old.last().copied()) {
            inode.map.remove(first.page, last.end());
        }
        new.iter().for_each(|extent| drop(inode.map.replace(*extent)));
        let done = self.commit(change, [&mut *inode]);
        let has = new.iter().map(|extent| (extent.block, extent.len)).collect();
        self.space.give_difference(had, has);
        Ok(done)
    }
}

/// Stores the pages of `extent`: the data, which belongs at this byte of the file, and around it
/// what `read` says that the page has.
pub(super) fn stream_pages(
    change: &mut Change<'_>,
    extent: &Extent,
    (offset, data): (u64, &[u8]),
    read: &impl Fn(u64, &mut [u8]) -> usize,
) {
    let end = offset + data.len() as u64;
    let (whole, behind) = (offset.div_ceil(BLOCK), end / BLOCK);
    let place = |page: u64| (extent.block + page - extent.page) * BLOCK;
    let (from, to) = (extent.page.max(whole), extent.end().min(behind));
    if from < to {
        let part = (from * BLOCK - offset) as usize..(to * BLOCK - offset) as usize;
        change.stream(place(from), &data[part]);
    }
    let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
    let edges = [first, last].into_iter().take(1 + usize::from(first < last));
    for page in edges.filter(|page| !(whole..behind).contains(page)) {
        if !(extent.page..extent.end()).contains(&page) {
            continue;
        }
        let mut bytes = [0; BLOCK as usize];
        read(page, &mut bytes);
        let (start, stop) = (offset.max(page * BLOCK), end.min((page + 1) * BLOCK));
        bytes[(start % BLOCK) as usize..][..(stop - start) as usize]
            .copy_from_slice(&data[(start - offset) as usize..(stop - offset) as usize]);
        change.stream(place(page), &bytes);
    }
}

/// Runs of blocks as extents of the pages from `first` on.
pub(super) fn extents(first: u64, runs: &[BlockRun]) -> impl Iterator<Item = Extent> {
    runs.iter().scan(first, |page, &(block, len)| {
        *page += len;
        Some(Extent { page: *page - len, block, len })
    })
}

/// Whether nothing but size and times is different, which entries about data say, too.
fn is_plain_write(old: &RawInode, new: &RawInode) -> bool {
    let as_new = RawInode {
        size: new.size,
        mtime: new.mtime,
        mtime_nanos: new.mtime_nanos,
        ctime: new.ctime,
        ctime_nanos: new.ctime_nanos,
        ..*old
    };
    as_new.as_bytes() == new.as_bytes()
}
