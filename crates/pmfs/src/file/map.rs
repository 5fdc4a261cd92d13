//! Where an inode's pages are: extents in order, and for each the place that holds it on the
//! medium.
//!
//! Contents are added in two ways. A few extents go to empty places, as words of the change's
//! record ([`Map::add`]). Everything else writes a new list of map blocks, to which nothing points
//! yet, and the record switches to it ([`Map::rewrite`]); so however much a call changes, its
//! record stays short and the call is atomic.

use std::collections::BTreeMap;

use drive::pm::Pm;

use crate::alloc::{BlockRun, Taken};
use crate::commit::Change;
use crate::ondisk::extent::{Extent, INLINE, LENGTH_MAX, PER_BLOCK, PLACE, parse_map};
use crate::ondisk::inode::{EXTENTS_AT, RawInode};
use crate::ondisk::superblock::Layout;
use crate::ondisk::{BLOCK, Corrupt};

/// More new extents than this are not added one by one.
const ADDED_MAX: usize = 64;

/// How extents are added to a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into empty places.
    Places,
    /// Into empty places, some of them in a new map block.
    Block,
    /// By a new list of map blocks.
    Rewrite,
}

/// The extents of an inode.
#[derive(Default)]
pub(crate) struct Map {
    extents: BTreeMap<u64, Place>,
    /// Addresses of empty places.
    empty: Vec<u64>,
    /// Map blocks, the first one first.
    chain: Vec<u64>,
    blocks: u64,
}

#[derive(Clone, Copy)]
struct Place {
    block: u64,
    len: u64,
    at: u64,
}

impl Map {
    /// Reads the places of the inode at `inode_at` and of its map blocks.
    pub(crate) fn load(
        pm: &dyn Pm,
        layout: &Layout,
        inode_at: u64,
        first: u64,
    ) -> Result<Self, Corrupt> {
        let mut map = Self::default();
        map.load_places(pm, layout, inode_at + EXTENTS_AT, INLINE)?;
        map.check_blocks(layout, inode_at)?;
        let mut next = parse_map(inode_at, first, layout)?;
        while let Some(block) = next {
            // The list cannot be longer than there are blocks, so a circle ends here.
            if map.chain.len() as u64 > layout.blocks {
                let (structure, what, allowed) = ("map", "next block", "no circle");
                return Err(Corrupt { structure, at: inode_at, what, found: block, allowed });
            }
            map.chain.push(block);
            let at = block * BLOCK;
            map.load_places(pm, layout, at + PLACE, PER_BLOCK)?;
            map.check_blocks(layout, inode_at)?;
            next = parse_map(at, pm.load(at), layout)?;
        }
        map.blocks += map.chain.len() as u64;
        Ok(map)
    }

    /// Fails if pages share blocks: there are more than the volume has. So a walk
    /// over all of them ends, although it is not known yet that each has one owner.
    fn check_blocks(&self, layout: &Layout, at: u64) -> Result<(), Corrupt> {
        let data = layout.data();
        if self.blocks + self.chain.len() as u64 <= data.end - data.start {
            return Ok(());
        }
        let (structure, what, allowed) = ("map", "blocks", "no more than there are");
        Err(Corrupt { structure, at, what, found: self.blocks, allowed })
    }

    /// The places of a new inode, which has one extent at most.
    pub(crate) fn of_new(inode_at: u64, extent: Option<Extent>) -> Self {
        let mut map = Self::default();
        let first = inode_at + EXTENTS_AT;
        map.empty = (0..INLINE).rev().map(|n| first + n * PLACE).collect();
        if let Some(extent) = extent
            && let Some(at) = map.empty.pop()
        {
            map.put(extent, at);
        }
        map
    }

    /// The map that an inode with a log begins with: the extent that it was born with.
    pub(crate) fn born(extent: Option<Extent>) -> Self {
        let mut map = Self::default();
        if let Some(extent) = extent {
            map.put(extent, 0);
        }
        map
    }

    /// Gives pages the blocks of `new`, in memory only. Returns the blocks that they had.
    pub(crate) fn replace(&mut self, new: Extent) -> Vec<BlockRun> {
        let had = self.remove(new.page, new.end());
        let before = self.extents.range_mut(..new.page).next_back();
        match before {
            Some((page, place))
                if page + place.len == new.page
                    && place.block + place.len == new.block
                    && place.len + new.len <= LENGTH_MAX =>
            {
                place.len += new.len;
                self.blocks += new.len;
            }
            _ => self.put(new, 0),
        }
        had
    }

    /// As [`Map::replace`], without an answer what the pages had: most entries of a log
    /// replace what another put in the same place.
    pub(crate) fn overwrite(&mut self, new: Extent) {
        match self.extents.get_mut(&new.page) {
            Some(place) if place.len == new.len => place.block = new.block,
            _ => drop(self.replace(new)),
        }
    }

    /// Takes pages `first..end` their blocks, in memory only. Returns these.
    pub(crate) fn remove(&mut self, first: u64, end: u64) -> Vec<BlockRun> {
        let mut had = Vec::new();
        loop {
            let next = self.within(first, end).next();
            let Some(extent) = next else { return had };
            let start = self.extents.range(..=extent.page).next_back().map_or(0, |it| *it.0);
            let Some(whole) = self.extents.remove(&start) else { return had };
            self.blocks -= whole.len;
            if start < extent.page {
                let len = extent.page - start;
                self.put(Extent { page: start, block: whole.block, len }, 0);
            }
            let behind = start + whole.len - extent.end();
            if behind > 0 {
                let block = extent.block + extent.len;
                self.put(Extent { page: extent.end(), block, len: behind }, 0);
            }
            had.push((extent.block, extent.len));
        }
    }

    fn load_places(
        &mut self,
        pm: &dyn Pm,
        layout: &Layout,
        at: u64,
        count: u64,
    ) -> Result<(), Corrupt> {
        // Filled from the first on, so the first is the last in the list of empty ones.
        for at in (0..count).rev().map(|n| at + n * PLACE) {
            let words = [pm.load(at), pm.load(at + 8)];
            let Some(extent) = Extent::parse(at, words, layout)? else {
                self.empty.push(at);
                continue;
            };
            let overlaps = self.extents.range(..extent.end()).next_back();
            if overlaps.is_some_and(|(page, place)| page + place.len > extent.page) {
                let (structure, what, allowed) = ("extent", "page", "in one extent");
                return Err(Corrupt { structure, at, what, found: extent.page, allowed });
            }
            self.put(extent, at);
        }
        Ok(())
    }

    fn put(&mut self, extent: Extent, at: u64) {
        let Extent { page, block, len } = extent;
        if let Some(old) = self.extents.insert(page, Place { block, len, at }) {
            self.blocks -= old.len;
        }
        self.blocks += len;
    }

    /// Blocks of contents and of the map itself.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Every run of blocks that the inode has.
    pub(crate) fn runs(&self) -> impl Iterator<Item = BlockRun> {
        let chain = self.chain.iter().map(|&block| (block, 1));
        self.extents.values().map(|place| (place.block, place.len)).chain(chain)
    }

    /// The extents in order.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> {
        let extent = |(&page, place): (&u64, &Place)| extent(page, place);
        self.extents.iter().map(extent)
    }

    /// The extents that have pages of `first..end`, cut to it.
    pub(crate) fn within(&self, first: u64, end: u64) -> impl Iterator<Item = Extent> {
        let start = self.extents.range(..=first).next_back().map_or(first, |(page, _)| *page);
        let extents = self.extents.range(start..end.max(start));
        extents.map(|(&page, place)| extent(page, place)).filter_map(move |extent| {
            let (from, to) = (extent.page.max(first), extent.end().min(end));
            let block = extent.block + (from - extent.page.min(from));
            (from < to).then(|| Extent { page: from, block, len: to - from })
        })
    }

    /// The block of a page.
    pub(crate) fn block(&self, page: u64) -> Option<u64> {
        self.within(page, page + 1).next().map(|extent| extent.block)
    }

    /// The pages of `first..end` that have no block, as ranges.
    pub(crate) fn missing(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = first;
        for extent in self.within(first, end) {
            if at < extent.page {
                missing.push((at, extent.page));
            }
            at = extent.end();
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    /// Where to look for the block of `page`: behind that of the page before.
    pub(crate) fn goal(&self, page: u64) -> Option<u64> {
        let (_, place) = self.extents.range(..page).next_back()?;
        Some(place.block + place.len)
    }

    /// How `new` extents are best added.
    pub(crate) fn way(&self, change: &Change<'_>, new: usize) -> Way {
        // Each extent is a patch of one place; a map block and attributes come on top.
        let fits = change.fits(new as u64 + 8, new as u64 * PLACE + 256);
        if new > ADDED_MAX || !fits {
            Way::Rewrite
        } else if new > self.empty.len() {
            Way::Block
        } else {
            Way::Places
        }
    }

    /// Gives pages that have no blocks the blocks of `new`, by patches. `block` becomes a map block
    /// if [`Map::way`] asked for one.
    pub(crate) fn add(
        &mut self,
        change: &mut Change<'_>,
        inode: &mut RawInode,
        new: &[Extent],
        block: Option<u64>,
    ) {
        if let Some(block) = block {
            self.grow(change, inode, block);
        }
        for extent in new {
            if let Some((page, longer)) = self.longer(extent) {
                change.patch(longer.at, &self::extent(page, &longer).bytes());
                self.put(self::extent(page, &longer), longer.at);
            } else if let Some(at) = self.empty.pop() {
                change.patch(at, &extent.bytes());
                self.put(*extent, at);
            }
        }
    }

    /// The extent before `new`, if it can be made longer by it.
    fn longer(&self, new: &Extent) -> Option<(u64, Place)> {
        let (&page, place) = self.extents.range(..new.page).next_back()?;
        let follows = page + place.len == new.page && place.block + place.len == new.block;
        let len = place.len + new.len;
        (follows && len <= LENGTH_MAX).then_some((page, Place { len, ..*place }))
    }

    /// Puts an empty map block before the others.
    fn grow(&mut self, change: &mut Change<'_>, inode: &mut RawInode, block: u64) {
        let at = block * BLOCK;
        change.zero(at + 8, BLOCK - 8);
        change.store(at, &inode.map.get().to_le_bytes());
        inode.map = block.into();
        self.chain.insert(0, block);
        self.blocks += 1;
        let places = (0..PER_BLOCK).rev().map(|n| at + PLACE + n * PLACE);
        self.empty.splice(0..0, places);
    }

    /// Map blocks that [`Map::rewrite`] needs for so many extents.
    pub(crate) fn blocks_for(extents: usize) -> u64 {
        (extents as u64).saturating_sub(INLINE).div_ceil(PER_BLOCK)
    }

    /// Replaces all extents. Those of `new` need no order, but no page may be in two. `blocks` are
    /// for the map. Returns the map as it will be; the caller frees what is only in the old one.
    pub(crate) fn rewrite(
        change: &mut Change<'_>,
        (inode_at, inode): (u64, &mut RawInode),
        new: &[Extent],
        blocks: Taken<'_>,
    ) -> Self {
        let mut map = Self::default();
        let runs = blocks.keep();
        map.chain = runs.iter().flat_map(|&(start, len)| start..start + len).collect();
        map.blocks = map.chain.len() as u64;
        let (inline, rest) = new.split_at(new.len().min(INLINE as usize));
        let mut bytes = Vec::with_capacity((INLINE * PLACE) as usize);
        map.fill(&mut bytes, inode_at + EXTENTS_AT, INLINE, inline);
        change.patch(inode_at + EXTENTS_AT, &bytes);
        let nexts = map.chain.clone().into_iter().skip(1).map(Some).chain([None]);
        let chain = map.chain.clone().into_iter().zip(nexts);
        let mut parts = rest.chunks(PER_BLOCK as usize);
        for (block, next) in chain {
            let mut bytes = Vec::with_capacity(BLOCK as usize);
            bytes.extend_from_slice(&next.unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(&0u64.to_le_bytes());
            map.fill(&mut bytes, block * BLOCK + PLACE, PER_BLOCK, parts.next().unwrap_or(&[]));
            change.stream(block * BLOCK, &bytes);
        }
        inode.map = map.chain.first().copied().unwrap_or(0).into();
        map
    }

    /// Puts extents into the places from `at` on, and their bytes into `bytes`.
    fn fill(&mut self, bytes: &mut Vec<u8>, at: u64, places: u64, extents: &[Extent]) {
        for n in 0..places {
            let at = at + n * PLACE;
            match extents.get(n as usize) {
                Some(extent) => {
                    bytes.extend_from_slice(&extent.bytes());
                    self.put(*extent, at);
                }
                None => {
                    bytes.extend_from_slice(&[0; PLACE as usize]);
                    self.empty.insert(0, at);
                }
            }
        }
    }
}

/// The same extents in order, those joined that follow each other.
pub(crate) fn merged(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.page);
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match merged.last_mut() {
            Some(last)
                if last.end() == extent.page
                    && last.block + last.len == extent.block
                    && last.len + extent.len <= LENGTH_MAX =>
            {
                last.len += extent.len;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

fn extent(page: u64, place: &Place) -> Extent {
    Extent { page, block: place.block, len: place.len }
}
