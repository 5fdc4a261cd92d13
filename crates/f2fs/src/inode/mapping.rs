//! From a block of a file to the slot that holds its address, through the node tree
//! (`f2fs_get_dnode_of_data`).

use std::ops::Range;

use crate::error::{Error, Result};
use crate::inode::change::Change;
use crate::inode::see::See;
use crate::mount::engine::Engine;
use crate::ondisk::inode::ADDR_OFFSET;
use crate::ondisk::node::{NodePath, RawIndirectNode};
use crate::ondisk::summary::{RawSummary, RawSummaryBlock, TYPE_DATA};
use crate::ondisk::{
    ADDRS_PER_BLOCK, BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, Nid, is_data_addr,
};
use drive::Lba;
use vfs::Errno;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// How many addresses are compared at once.
const RUN: usize = 64;

/// Where one block address is kept: in the inode or in a direct node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Inode whose block it is.
    ino: Nid,
    /// Node that holds it.
    pub(crate) nid: Nid,
    /// Number of the slot, as summaries count it.
    pub(crate) ofs_in_node: u16,
    pub(super) byte: usize,
}

impl Slot {
    /// The addresses in this slot and the next ones, `count` in all, in `block`, its node.
    pub(crate) fn addrs_in(self, block: &[u8; BLOCK_SIZE], count: usize) -> Vec<BlockAddr> {
        self.stored_in(block).iter().take(count).map(|addr| addr.get()).collect()
    }

    /// All addresses in `block`, its node, from this slot on.
    fn stored_in(self, block: &[u8; BLOCK_SIZE]) -> &[U32] {
        let bytes = block.get(self.byte..).unwrap_or_default();
        <[U32]>::ref_from_prefix_with_elems(bytes, bytes.len() / 4).map_or(&[], |(addrs, _)| addrs)
    }

    /// The slot `n` further on in the same node.
    pub(crate) fn behind(self, n: u64) -> Self {
        Self { ofs_in_node: self.ofs_in_node + n as u16, byte: self.byte + 4 * n as usize, ..self }
    }
}

/// A block that is not where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Which block of the file.
    pub(crate) index: u64,
    /// Where it is.
    pub(crate) found: BlockAddr,
    /// Where it should be.
    pub(crate) wanted: BlockAddr,
}

/// The answer of a look-up in the node tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The slot is there.
    Slot(Slot),
    /// A node on the way is missing.
    Hole {
        /// First block beyond what the missing node would cover.
        next: u64,
    },
}

/// Looking up the addresses of blocks.
pub(crate) trait Mapping: See {
    fn path(&mut self, ino: Nid, index: u64) -> Result<NodePath, Self::Error> {
        cores::charge(cores::Stage::MapBlock);
        let addrs = self.view(ino)?.layout().addr_counts();
        Ok(NodePath::of(index, addrs).ok_or(Error::Posix(Errno::FBIG))?)
    }

    /// The slot of block `index`, if its nodes exist.
    fn lookup_slot(&mut self, ino: Nid, index: u64) -> Result<Lookup, Self::Error> {
        let path = self.path(ino, index)?;
        let mut nid = ino;
        for depth in 0..path.level {
            let child = self.child(ino, nid, &path, depth)?;
            if child == 0 {
                return Ok(Lookup::Hole { next: self.end_of_gap(ino, index, &path, depth)? });
            }
            nid = child;
        }
        self.slot_in(ino, nid, &path).map(Lookup::Slot)
    }

    /// Number of the next node below `nid`, which is `depth` steps below the inode.
    fn child(
        &mut self,
        ino: Nid,
        nid: Nid,
        path: &NodePath,
        depth: usize,
    ) -> Result<Nid, Self::Error> {
        let slot = usize::from(path.slots[depth]);
        let child = if depth == 0 {
            self.view(ino)?.nid[slot].get()
        } else {
            let node = self.node_at(nid, ino, path.node_offsets[depth])?;
            RawIndirectNode::of(&node.block).nid[slot].get()
        };
        if child != 0 && !self.engine().sb.is_node_id(child) {
            let allowed = format!("0, 3..{}", self.engine().sb.max_nid());
            return Err(Error::corrupt("node pointer", nid, child, allowed).into());
        }
        Ok(child)
    }

    fn slot_in(&mut self, ino: Nid, nid: Nid, path: &NodePath) -> Result<Slot, Self::Error> {
        let slot = path.addr_slot();
        let byte = if path.level == 0 {
            ADDR_OFFSET + 4 * self.view(ino)?.layout().slot(slot)
        } else {
            self.node_at(nid, ino, path.dnode_offset())?;
            4 * slot
        };
        Ok(Slot { ino, nid, ofs_in_node: slot as u16, byte })
    }

    /// First block beyond what the missing node at `depth + 1` would cover.
    fn end_of_gap(
        &mut self,
        ino: Nid,
        index: u64,
        path: &NodePath,
        depth: usize,
    ) -> Result<u64, Self::Error> {
        let addrs = self.view(ino)?.layout().addr_counts();
        let covered = addrs.coverage((path.level - depth) as u32);
        // A node's first block is where all slots below it are 0.
        let mut within = u64::from(path.slots[path.level]);
        for (up, slot) in path.slots[depth + 1..path.level].iter().rev().enumerate() {
            within += u64::from(*slot) * addrs.coverage(up as u32 + 1);
        }
        debug_assert!(index >= u64::from(addrs.inode));
        Ok(index - within + covered)
    }

    /// The address in a slot: that of a block, `NEW_ADDR`, `NULL_ADDR`, or `COMPRESS_ADDR`, which
    /// is right only where a cluster of a compressed file begins.
    fn addr_in(&mut self, slot: Slot) -> Result<BlockAddr, Self::Error> {
        let block = self.block_of(slot.ino, slot.nid)?;
        let bytes = block.get(slot.byte..slot.byte + 4).and_then(|b| b.first_chunk::<4>());
        let addr = bytes.map_or(NULL_ADDR, |b| BlockAddr::from_le_bytes(*b));
        if is_data_addr(addr) && !self.engine().sb.in_main(addr) {
            let allowed =
                format!("{:#x}..{:#x}", self.engine().sb.main_blkaddr, self.engine().sb.main_end());
            return Err(Error::corrupt("node.addr", slot.nid, format!("{addr:#x}"), allowed).into());
        }
        Ok(addr)
    }

    /// Address of block `index`; `NULL_ADDR` where there is a hole.
    fn addr_of(&mut self, ino: Nid, index: u64) -> Result<BlockAddr, Self::Error> {
        match self.lookup_slot(ino, index)? {
            Lookup::Slot(slot) => self.addr_in(slot),
            Lookup::Hole { .. } => Ok(NULL_ADDR),
        }
    }

    /// Slots of the same node from `slot` on, itself included.
    fn slots_from(&mut self, ino: Nid, slot: Slot) -> Result<u64, Self::Error> {
        let addrs = self.view(ino)?.layout().addr_counts();
        let all = if slot.nid == ino { addrs.inode } else { addrs.node };
        Ok(u64::from(all).saturating_sub(slot.ofs_in_node.into()).max(1))
    }

    /// Where block `index` is on the drive, with those of the next `most - 1` that follow it there
    /// and are known by the same extent or node; `None` if it is in no place of its own.
    fn run_from(
        &mut self,
        ino: Nid,
        index: u64,
        most: u64,
    ) -> Result<Option<Range<Lba>>, Self::Error> {
        if self.engine().options.extent_cache
            && let Some((addr, len)) = self.shard(ino)?.extents.look_up(ino, index)
        {
            return Ok(Some(addr.into()..Lba::from(addr) + len.min(most)));
        }
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else { return Ok(None) };
        let addr = self.addr_in(slot)?;
        if !is_data_addr(addr) {
            return Ok(None);
        }
        let first = Lba::from(addr);
        let most = self.slots_from(ino, slot)?.min(most);
        let mut len = 1;
        while len < most && Lba::from(self.addr_in(slot.behind(len))?) == first + len {
            len += 1;
        }
        Ok(Some(first..first + len))
    }
}

impl<S: See> Mapping for S {}

impl Engine {
    /// The largest size that the file can have (`max_file_blocks`).
    pub(crate) fn max_size(&mut self, ino: Nid) -> Result<u64> {
        Ok(self.layout(ino)?.addr_counts().max_blocks() * BLOCK_SIZE as u64)
    }

    /// The slot of block `index`. Makes the nodes on the way that do not exist.
    pub(crate) fn make_slot(&mut self, ino: Nid, index: u64) -> Result<Slot> {
        let path = self.path(ino, index)?;
        let mut nid = ino;
        for depth in 0..path.level {
            let mut child = self.child(ino, nid, &path, depth)?;
            if child == 0 {
                child = self.new_node(ino, path.node_offsets[depth + 1])?;
                self.set_child(ino, nid, usize::from(path.slots[depth]), child)?;
            }
            nid = child;
        }
        self.slot_in(ino, nid, &path)
    }

    /// Points slot `slot` of the inode's `i_nid` or of an indirect node to `child`.
    pub(crate) fn set_child(&mut self, ino: Nid, nid: Nid, slot: usize, child: Nid) -> Result<()> {
        if nid == ino {
            self.inode_mut(ino)?.nid[slot].set(child);
        } else {
            RawIndirectNode::of_mut(self.node_mut(ino, nid)?).nid[slot].set(child);
        }
        Ok(())
    }

    /// Records in the summary to whom block `addr` belongs.
    pub(crate) fn set_summary(&mut self, addr: BlockAddr, summary: RawSummary) -> Result<()> {
        let Some((segno, offset)) = self.sb.locate(addr) else {
            let allowed = format!("{:#x}..{:#x}", self.sb.main_blkaddr, self.sb.main_end());
            return Err(Error::corrupt("node.addr", addr, format!("{addr:#x}"), allowed));
        };
        if let Some(current) = self.logs.get_mut().summary_of(segno) {
            current.entries[offset] = summary;
        } else {
            let block = self.io.meta_mut(self.sb.ssa_block(segno))?;
            let stored = RawSummaryBlock::of_mut(block.make_mut());
            stored.entries[offset] = summary;
            stored.as_mut_bytes()[BLOCK_SIZE - 5] = TYPE_DATA;
        }
        Ok(())
    }

    /// Reads what [`Engine::set_summary`] changes for the block at `addr`.
    pub(crate) fn load_summary(&mut self, addr: BlockAddr) -> Result<()> {
        match self.sb.locate(addr) {
            Some((segno, _)) if self.logs.get_mut().summary_of(segno).is_none() => {
                self.io.meta_mut(self.sb.ssa_block(segno)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Addresses of blocks from `index` on, as many of `most` as one node holds.
    pub(crate) fn addrs_from(
        &mut self,
        ino: Nid,
        index: u64,
        most: usize,
    ) -> Result<Vec<BlockAddr>> {
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else {
            return Ok(vec![NULL_ADDR; most]);
        };
        let run = self.slots_from(ino, slot)?.min(most as u64);
        Ok(slot.addrs_in(&self.node(ino, slot.nid)?.block, run as usize))
    }

    /// Blocks from `first` on, as many as one node holds, that are not where they should be.
    pub(crate) fn differing(
        &mut self,
        ino: Nid,
        first: u64,
        wanted: &[U32],
    ) -> Result<Vec<Difference>> {
        const HOLES: &[U32] = &[U32::ZERO; ADDRS_PER_BLOCK as usize];
        let found = match self.lookup_slot(ino, first)? {
            Lookup::Hole { .. } => HOLES,
            Lookup::Slot(slot) => {
                let run = self.slots_from(ino, slot)? as usize;
                let stored = slot.stored_in(&self.node(ino, slot.nid)?.block);
                stored.get(..run).unwrap_or(stored)
            }
        };
        let mut differing = Vec::new();
        let runs = (first..).step_by(RUN).zip(found.chunks(RUN).zip(wanted.chunks(RUN)));
        for (start, (found, wanted)) in runs.filter(|(_, (a, b))| a.as_bytes() != b.as_bytes()) {
            let blocks = (start..).zip(found.iter().zip(wanted)).filter(|(_, (a, b))| a != b);
            differing.extend(blocks.map(|(index, (found, wanted))| Difference {
                index,
                found: found.get(),
                wanted: wanted.get(),
            }));
        }
        Ok(differing)
    }

    /// First block in `range` that is allocated (`want`) or not.
    pub(crate) fn next_allocated(
        &mut self,
        ino: Nid,
        range: Range<u64>,
        want: bool,
    ) -> Result<Option<u64>> {
        let mut index = range.start;
        while index < range.end {
            match self.lookup_slot(ino, index)? {
                Lookup::Slot(slot) => {
                    let run = self.slots_from(ino, slot)?.min(range.end - index);
                    let mut addrs = slot.addrs_in(&self.node(ino, slot.nid)?.block, run as usize);
                    self.fill_clusters(ino, index, &mut addrs)?;
                    let found = addrs.iter().position(|addr| (*addr != NULL_ADDR) == want);
                    if let Some(i) = found.map(|i| i as u64) {
                        self.addr_in(slot.behind(i))?;
                        return Ok(Some(index + i));
                    }
                    index += run;
                }
                Lookup::Hole { .. } if !want => return Ok(Some(index)),
                Lookup::Hole { next } => index = next,
            }
        }
        Ok(None)
    }

    /// Reserves block `index` for data. It is counted now, so that writing it back cannot run out
    /// of space. Returns whether it was a hole.
    pub(crate) fn reserve_block(&mut self, ino: Nid, index: u64) -> Result<bool> {
        self.expand_cluster(ino, index)?;
        let slot = self.make_slot(ino, index)?;
        if self.addr_in(slot)? != NULL_ADDR {
            return Ok(false);
        }
        self.take_blocks(ino, 1)?;
        self.set_addr(ino, slot, NEW_ADDR)?;
        self.add_blocks(ino, 1)?;
        Ok(true)
    }

    /// Reserves the blocks of `range`, a node's worth at a time. Returns the page up to which they
    /// are reserved; [`Engine::reserve_block`] handles the next one and reports what is wrong with
    /// it.
    pub(crate) fn reserve_blocks(&mut self, ino: Nid, range: Range<u64>) -> Result<u64> {
        let mut index = range.start;
        if self.layout(ino)?.cluster().is_some() {
            return Ok(index);
        }
        while index < range.end {
            let Ok(slot) = self.make_slot(ino, index) else { break };
            let run = self.slots_from(ino, slot)?.min(range.end - index) as usize;
            let addrs = slot.addrs_in(&self.node(ino, slot.nid)?.block, run);
            let unsound = |addr: &BlockAddr| is_data_addr(*addr) && !self.sb.in_main(*addr);
            let holes = addrs.iter().filter(|addr| **addr == NULL_ADDR).count();
            if addrs.iter().any(unsound) || self.take_blocks(ino, holes as u64).is_err() {
                break;
            }
            if holes > 0 {
                self.set_addr(ino, slot, addrs[0])?;
                let (words, _) = self.node_mut(ino, slot.nid)?[slot.byte..].as_chunks_mut::<4>();
                let reserved = words.iter_mut().zip(&addrs).filter(|(_, addr)| **addr == NULL_ADDR);
                reserved.for_each(|(word, _)| *word = NEW_ADDR.to_le_bytes());
                self.add_blocks(ino, holes as i64)?;
            }
            index += run as u64;
        }
        Ok(index)
    }

    /// Frees the block in `slot`, if there is one.
    pub(crate) fn free_slot(&mut self, ino: Nid, slot: Slot) -> Result<()> {
        let addr = self.addr_in(slot)?;
        if addr == NULL_ADDR {
            return Ok(());
        }
        if is_data_addr(addr) {
            self.logs.get_mut().invalidate(self.segments.get_mut(), addr)?;
        }
        let counted = addr != COMPRESS_ADDR || self.forget_cluster(ino, slot)?;
        self.set_addr(ino, slot, NULL_ADDR)?;
        if counted {
            self.space.give_block();
            self.give_quota(ino, 1)?;
            self.add_blocks(ino, -1)?;
        }
        Ok(())
    }

    /// Frees all blocks in `range`. The nodes stay.
    pub(crate) fn free_range(&mut self, ino: Nid, range: Range<u64>) -> Result<()> {
        self.expand_cut_clusters(ino, &range)?;
        let mut index = range.start;
        while index < range.end {
            match self.lookup_slot(ino, index)? {
                Lookup::Slot(slot) => {
                    let run = self.slots_from(ino, slot)?.min(range.end - index);
                    let addrs = slot.addrs_in(&self.node(ino, slot.nid)?.block, run as usize);
                    for (i, _) in (0..).zip(addrs).filter(|(_, addr)| *addr != NULL_ADDR) {
                        self.free_slot(ino, slot.behind(i))?;
                    }
                    index += run;
                }
                Lookup::Hole { next } => index = next,
            }
        }
        Ok(())
    }
}
