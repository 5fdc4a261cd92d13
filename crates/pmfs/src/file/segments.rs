//! Overwrites of one file by several cores at once (pNOVA's segment range lock, MASCOTS 2020): the
//! inode is shared, and each segment of the file has a lock of its own.
//!
//! Only bytes that the file has, in pages that have blocks, are overwritten this way; everything
//! else locks the inode exclusively. New addresses are kept apart from the inode's map, by segment,
//! until the inode is locked exclusively and they are moved into it ([`Inode::settle`]). A segment
//! also keeps the version of its last overwrite, so that overwrites share no cache line.

use cores::Stage;
use vfs::{Errno, Ino, Ranges, Result, Timespec};

use super::map::Map;
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::inode::now;
use crate::ondisk::log::Entry;

/// Pages of a segment: 256 KiB.
pub(crate) const SEGMENT: u64 = 64;

/// A file's segments.
pub(crate) struct Segments {
    /// What was overwritten in each, from before a page is read or its entry is appended until the
    /// entry is durable and the old page free.
    all: Ranges<Segment>,
    /// Overwrites share the inode (`range_lock=segment`); if not, each has it alone.
    pub(crate) is_shared: bool,
}

#[derive(Default)]
struct Segment {
    /// Where overwritten pages are now.
    map: Map,
    /// Of the last overwrite.
    version: u64,
    time: Option<Timespec>,
}

impl Segments {
    pub(crate) fn new(size: u64, is_shared: bool) -> Self {
        Self { all: Ranges::new("pmfs segment", count(size)), is_shared }
    }
}

/// Segments of a file of this many bytes.
fn count(size: u64) -> usize {
    size.div_ceil(BLOCK * SEGMENT) as usize
}

/// The numbers of the segments that have pages `first..behind`.
fn numbers(first: u64, behind: u64) -> std::ops::Range<usize> {
    (first / SEGMENT) as usize..behind.div_ceil(SEGMENT) as usize
}

/// Where pages `first..behind` are: in the inode's map, but for those that were overwritten.
fn merged<'s>(
    map: &Map,
    segments: impl Iterator<Item = &'s Segment>,
    (first, behind): (u64, u64),
) -> Map {
    let mut merged = Map::default();
    map.within(first, behind).for_each(|extent| drop(merged.replace(extent)));
    for extent in segments.flat_map(|segment| segment.map.within(first, behind)) {
        merged.replace(extent);
    }
    merged
}

impl Inode {
    /// Puts what was overwritten into the map. Blocks that were there are free already.
    pub(crate) fn settle(&mut self) {
        let Some(segments) = &mut self.segments else { return };
        if let Some(all) = segments.all.settle() {
            let mut time = (self.raw.mtime.get(), self.raw.mtime_nanos.get());
            let mut version = 0;
            for segment in all {
                version = version.max(segment.version);
                let of = segment.time.take().map_or(time, |time| (time.secs, time.nanos));
                time = time.max(of);
                let map = std::mem::take(&mut segment.map);
                map.extents().for_each(|extent| drop(self.map.replace(extent)));
            }
            let time = Timespec { secs: time.0, nanos: time.1 };
            self.raw.set_mtime(time);
            self.raw.set_ctime(time);
            if let Some(log) = &mut self.log {
                log.version = log.version.max(version);
            }
        }
        segments.all.fit(count(self.raw.size.get()));
    }

    /// When it was overwritten last, if it was since it was settled.
    pub(crate) fn overwritten(&self) -> Option<Timespec> {
        let segments = self.segments.as_ref()?;
        if !segments.all.is_changed() {
            return None;
        }
        let times = segments.all.each().filter_map(|segment| segment.time);
        times.max_by_key(|time| (time.secs, time.nanos))
    }
}

impl Pmfs {
    /// Overwrites bytes of a file that others overwrite as well. `None` if that takes the inode
    /// alone. True beside the count if the log has become long.
    pub(super) fn overwrite(
        &self,
        inode: &Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<(usize, bool)>> {
        inode.check_file()?;
        cores::charge(Stage::MapBlock);
        let end = offset.saturating_add(data.len() as u64);
        let (first, behind) = (offset / BLOCK, end.div_ceil(BLOCK));
        let is_there = end <= inode.raw.size.get() && inode.map.missing(first, behind).is_empty();
        let Some(segments) = inode.segments.as_ref().filter(|_| is_there) else { return Ok(None) };
        let Some(mut held) = segments.all.write(numbers(first, behind)) else { return Ok(None) };
        let taken = self.space.take(behind - first, None);
        if taken.blocks() < behind - first {
            return Ok(None);
        }
        let old = merged(&inode.map, held.iter().map(|held| &**held), (first, behind));
        let new: Vec<Extent> = super::copy::extents(first, taken.runs()).collect();
        let new: Vec<Extent> = new.into_iter().flat_map(split).collect();
        let mut change = Change::of_file(&*self.pm, end, data.len());
        let size = inode.raw.size.get();
        let read = |page: u64, to: &mut [u8]| self.copy_out(&old, size, page * BLOCK, to);
        new.iter().for_each(|to| super::copy::stream_pages(&mut change, to, (offset, data), &read));
        let floor = inode.log.as_ref().ok_or(Errno::INVAL)?.version;
        let version = held.iter().map(|held| held.version).fold(floor, u64::max) + 1;
        let time = now();
        let mtime = (time.secs, time.nanos);
        let entries: Vec<Entry> =
            new.iter().map(|&extent| Entry::Write { extent, size, mtime }).collect();
        let is_long = self.append_shared(inode, change, version, &entries)?;
        taken.keep();
        for extent in new {
            let segment = &mut held[(extent.page / SEGMENT - first / SEGMENT) as usize];
            segment.map.replace(extent);
            (segment.version, segment.time) = (version, Some(time));
        }
        segments.all.note_change();
        old.runs().for_each(|(start, len)| self.space.give(start, len));
        Ok(Some((data.len(), is_long)))
    }

    /// Reads contents of an inode that others may be overwriting.
    pub(super) fn read_shared(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> usize {
        let size = inode.raw.size.get();
        let end = size.min(offset.saturating_add(buf.len() as u64));
        let (first, behind) = (offset / BLOCK, end.div_ceil(BLOCK));
        let segments = inode.segments.as_ref();
        let held = segments.map(|segments| segments.all.read(numbers(first, behind)));
        let held = held.unwrap_or_default();
        let map = merged(&inode.map, held.iter().map(|held| &**held), (first, behind));
        self.copy_out(&map, size, offset, buf)
    }

    /// Cleans the log of a file that was shared.
    pub(super) fn clean_shared(&self, ino: Ino) -> Result<()> {
        self.clean(&mut self.node(ino)?.lock.write());
        Ok(())
    }
}

/// The parts of an extent in each segment.
fn split(extent: Extent) -> impl Iterator<Item = Extent> {
    let Extent { page, block, .. } = extent;
    let (first, last) = (page / SEGMENT, extent.end().div_ceil(SEGMENT));
    (first..last).map(move |segment| {
        let from = page.max(segment * SEGMENT);
        let to = extent.end().min((segment + 1) * SEGMENT);
        Extent { page: from, block: block + from - page, len: to - from }
    })
}
