//! The roll-forward chain: nodes of the WARM_NODE log written since the checkpoint, of which each
//! names the place of the next (`find_fsync_dnodes`).

use cores::Stage;
use drive::Block;
use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::alloc::zones::{NandEnds, Reach, WritePointers};
use crate::check::correct_inode;
use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::mount::options::Inject;
use crate::ondisk::data_sums::DataSums;
use crate::ondisk::inode::{Inline, RawInodeBlock};
use crate::ondisk::node::{NodeKind, RawDirectNode, RawNodeFooter};
use crate::ondisk::node_sums::{self, NodeSums};
use crate::ondisk::sit::LogType;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid};

/// Blocks read at once while the chain runs straight ahead.
const READ_AHEAD: u32 = 64;
/// Pointers compared at once.
const RUN: usize = 64;

/// One node of the chain.
pub(super) struct Link {
    pub(super) addr: BlockAddr,
    pub(super) block: Block,
}

impl Link {
    pub(super) fn footer(&self) -> &RawNodeFooter {
        RawNodeFooter::of(&self.block)
    }
}

/// How far an inode was fsynced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fsynced {
    /// Its last marked node.
    pub(super) last: BlockAddr,
    /// Its last inode block that carries the dentry mark.
    pub(super) last_dentry: Option<BlockAddr>,
}

/// What the first pass found.
#[derive(Default)]
pub(super) struct Chain {
    /// Fsynced inodes.
    pub(super) inodes: FxHashMap<Nid, Fsynced>,
    /// Inodes of which a node failed the check against the write pointers. Their later nodes are
    /// discarded too (thesis, Algorithm 1).
    pub(super) skipped: FxHashSet<Nid>,
}

impl Chain {
    /// The links to apply, in log order: what the last fsync of their inode made durable, with only
    /// the last version of each node. Earlier versions would leave no trace in the end, with two
    /// exceptions. A node needs the inode as it was when the node was written, because that says
    /// where in the file the node belongs; and a new file needs the inode block that names it. With
    /// `every`, the other versions are applied too.
    pub(super) fn that_count(&self, links: Vec<Link>, every: bool) -> Vec<Link> {
        let mut newer = FxHashSet::default();
        // Inodes whose last fsync was met, and whether a node needs them as they were.
        let mut met = FxHashMap::default();
        let mut count = Vec::new();
        for link in links.into_iter().rev() {
            let footer = link.footer();
            let (ino, is_inode) = (footer.ino.get(), footer.is_inode());
            let Some(fsynced) = self.inodes.get(&ino) else { continue };
            if fsynced.last == link.addr {
                met.insert(ino, false);
            }
            let Some(finds_inode) = met.get_mut(&ino) else { continue };
            let is_newest = newer.insert((ino, footer.node_offset()));
            let names = fsynced.last_dentry == Some(link.addr);
            if every || is_newest || names || is_inode && *finds_inode {
                *finds_inode = !is_inode;
                count.push(link);
            }
        }
        count.reverse();
        count
    }
}

impl Engine {
    /// Reads the chain from the log's head on, and finds where it ends. If a node were written
    /// there before the next checkpoint, it would become part of the chain.
    pub(super) fn read_chain(&mut self) -> Result<(Vec<Link>, BlockAddr)> {
        let one_by_one = self.options.inject.contains(Inject::RECOVER_NO_READ_AHEAD);
        let read_ahead = if one_by_one { 1 } else { READ_AHEAD };
        let mut links = Vec::new();
        let mut addr = self.logs.get_mut().next_addr(&self.sb, LogType::WarmNode);
        let mut ahead: Vec<(BlockAddr, Block)> = Vec::new();
        let mut seen = FxHashSet::default();
        while self.sb.in_main(addr) && self.is_written(addr) {
            if ahead.last().is_none_or(|(at, _)| *at != addr) {
                let left = BLOCKS_PER_SEGMENT - (addr - self.sb.main_blkaddr) % BLOCKS_PER_SEGMENT;
                let run = self.io.read_run(addr, left.min(read_ahead))?;
                ahead = (addr..).zip(run).collect();
                ahead.reverse();
            }
            let Some((_, block)) = ahead.pop() else { break };
            let _span = cores::span(Stage::Recover);
            let footer = *RawNodeFooter::of(&block);
            if !self.checkpoint.owns_node(footer.cp_ver.get()) {
                break;
            }
            let next = footer.next_blkaddr.get();
            seen.insert(addr);
            if seen.contains(&next) {
                let found = format!("{next:#x}, which came before");
                return Err(Error::corrupt("node_footer.next_blkaddr", addr, found, "an end"));
            }
            links.push(Link { addr, block });
            addr = next;
        }
        if self.checkpoint.sealed && self.is_of_others(&links) {
            (self.checkpoint.ours, self.checkpoint.sealed) = (false, false);
        }
        let whole = self.whole(&links);
        addr = links.get(whole).map_or(addr, |link| link.addr);
        links.truncate(whole);
        // If the power fails before recovery's checkpoint, the chain must still be here.
        let end = (!links.is_empty() && self.sb.in_main(addr)).then_some(addr);
        for addr in links.iter().map(|link| link.addr).chain(end) {
            self.segments.get_mut().keep_until_checkpoint(addr)?;
        }
        Ok((links, addr))
    }

    /// Whether Linux used the volume after our checkpoint. Linux writes its own checkpoint unless
    /// it finds nothing to recover, so the first mark of the chain decides. We mark only inodes
    /// here, and our inodes say where they were written, unless a cut has left the first sector
    /// old.
    fn is_of_others(&self, links: &[Link]) -> bool {
        let Some(first) = links.iter().find(|link| link.footer().is_fsync()) else { return false };
        let (addr, ino) = (first.addr, first.footer().ino.get());
        let inode = RawInodeBlock::of(&first.block);
        !first.footer().is_inode()
            || !node_sums::is_of(addr, &inode.i) && inode.check(&self.sb, ino, addr).is_ok()
    }

    /// How many links there are before the first fsync of which a node is torn or missing. Neither
    /// that fsync nor any later one returned, so the chain ends there.
    fn whole(&self, links: &[Link]) -> usize {
        if !self.checkpoint.sealed || self.options.inject.contains(Inject::BELIEVE_TORN) {
            return links.len();
        }
        let (mut whole, mut sums) = (0, NodeSums::default());
        for (link, count) in links.iter().zip(1..) {
            if !(link.footer().is_inode() && link.footer().is_fsync()) {
                sums.add(link.addr, &link.block);
            } else if std::mem::take(&mut sums).agree(link.addr, RawInodeBlock::of(&link.block)) {
                whole = count;
            } else {
                break;
            }
        }
        whole
    }

    /// How far the chain reaches and its nodes point, in each zone. This includes nodes that do not
    /// count, because the next recovery judges them again. `None` if there are no zones.
    pub(super) fn reach(&self, links: &[Link], end: BlockAddr) -> Result<Option<Reach>> {
        let Some(mut reach) = self.zones.as_ref().map(WritePointers::reach) else {
            return Ok(None);
        };
        if !links.is_empty() {
            reach.extend(&[end.into()]);
        }
        let mut before = FxHashMap::<Nid, &[U32]>::default();
        for link in links {
            reach.extend(&[link.addr.into()]);
            self.changed_runs(link, &mut before)?.for_each(|run| reach.extend(run));
        }
        Ok(Some(reach))
    }

    /// A block at or above its zone's write pointer was never written.
    fn is_written(&self, addr: BlockAddr) -> bool {
        self.zones.as_ref().is_none_or(|zones| zones.is_written(addr))
    }

    /// Whether nodes are compared with the write pointers and checksums: always, unless Linux may
    /// have written the chain.
    ///
    /// A volume that is now mounted without `oprw` may have lost its power under it. The check
    /// takes nothing away from what the other modes promise. Only one fsync of an inode runs at a
    /// time, and all of the inode's data in flight is its own; write-back and cleaning have waited
    /// for their data before the fsync puts its nodes together. So when it returns, the flush at
    /// its end has made durable everything to which its nodes and those of earlier fsyncs point,
    /// and no later cut finds any of it above a write pointer. `nobarrier` has no flush, and
    /// promises nothing on a drive that needs one. Zones are reset only after a checkpoint, which
    /// begins a new chain.
    ///
    /// Linux writes back pages even while an fsync of the same file is between its wait and its
    /// nodes. A node of an acknowledged fsync may then point to data that a cut loses, so Linux's
    /// chains are recovered as Linux does it.
    fn judges(&self) -> bool {
        self.options.wp_check
            && !self.options.inject.contains(Inject::SKIP_WP_CHECK)
            && self.checkpoint.ours
    }

    /// First pass: finds out which inodes to recover, and how far.
    pub(super) fn survey(&mut self, links: &mut [Link]) -> Result<Chain> {
        let judges = self.judges();
        let nand = self.zones.as_ref().filter(|_| judges).map(WritePointers::nand_ends);
        let mut chain = Chain::default();
        if self.repairing {
            links.iter_mut().for_each(|link| self.mend_link(link, &mut chain.skipped));
        }
        let (mut before, mut inline) = (FxHashMap::default(), FxHashMap::default());
        let false_marks = if judges { self.false_marks(links)? } else { FxHashSet::default() };
        for link in &*links {
            let footer = link.footer();
            let ino = footer.ino.get();
            if self.repairing && chain.skipped.contains(&ino) {
                continue;
            }
            if let Some(nand) = &nand
                && (chain.skipped.contains(&ino) || !self.is_whole(link, nand, &mut before)?)
            {
                chain.skipped.insert(ino);
                continue;
            }
            if !footer.is_fsync() || false_marks.contains(&link.addr) {
                continue;
            }
            let is_new_inode = footer.is_inode() && footer.is_dent();
            if !chain.inodes.contains_key(&ino) {
                if is_new_inode {
                    self.revive_inode(link)?;
                } else if self.nat.get_mut().get(&self.io, ino)?.is_free() {
                    // This node's inode comes later in the chain, or never.
                    continue;
                }
            }
            if footer.is_inode() {
                let inode = &RawInodeBlock::of(&link.block).i;
                inline.insert(ino, inode.inline().contains(Inline::DATA));
            } else if self.is_inline(ino, &mut inline)? {
                // The inode block that says the contents have moved out comes later in the chain.
                // Or the fsync never got that far, and the contents are still in the inode.
                continue;
            }
            let entry =
                chain.inodes.entry(ino).or_insert(Fsynced { last: link.addr, last_dentry: None });
            entry.last = link.addr;
            if is_new_inode {
                entry.last_dentry = Some(link.addr);
            }
        }
        Ok(chain)
    }

    /// Whether a file's contents are in its inode. Its last inode block in the chain decides, or
    /// else the checkpoint.
    fn is_inline(&mut self, ino: Nid, known: &mut FxHashMap<Nid, bool>) -> Result<bool> {
        if let Some(is_inline) = known.get(&ino) {
            return Ok(*is_inline);
        }
        let is_inline = self.has_inline_data(ino)?;
        known.insert(ino, is_inline);
        Ok(is_inline)
    }

    /// Inode blocks at the end of an fsync whose data does not match their checksums.
    ///
    /// Only the last fsync of an inode can be affected, because it began after the one before was
    /// durable. If its data was once there, it still is, whatever happened to the file afterwards:
    /// no block is used twice between two checkpoints.
    fn false_marks(&mut self, links: &[Link]) -> Result<FxHashSet<BlockAddr>> {
        let (mut seen, mut found) = (FxHashSet::default(), FxHashSet::default());
        let marked = links.iter().filter(|link| link.footer().is_fsync());
        // A damaged inode may claim more blocks than there are; its data then does not match.
        let mut left = self.sb.main_blocks();
        for link in marked.rev().filter(|link| link.footer().is_inode()) {
            if seen.insert(link.footer().ino.get()) && !self.has_its_data(link, &mut left)? {
                found.insert(link.addr);
            }
        }
        Ok(found)
    }

    /// Whether the data of a link matches its checksums. Blocks that match are kept until
    /// recovery's checkpoint, even if no node points to them any more, because the next recovery
    /// compares them again.
    fn has_its_data(&mut self, link: &Link, left: &mut u32) -> Result<bool> {
        let inode = &RawInodeBlock::of(&link.block).i;
        let (cp_ver, ino) = (link.footer().cp_ver.get(), link.footer().ino.get());
        for run in DataSums::load(inode, cp_ver).runs() {
            let _span = cores::span(Stage::RecoverCheck);
            let Some(rest) = left.checked_sub(run.blocks.into()) else { return Ok(false) };
            *left = rest;
            let end = run.start.checked_add(run.blocks.into());
            let is_within =
                self.sb.in_main(run.start) && end.is_some_and(|e| e <= self.sb.main_end());
            if !is_within {
                return Ok(false);
            }
            let contents = self.io.read_run(run.start, run.blocks.into())?;
            if !run.agrees(cp_ver, ino, &contents) {
                return Ok(false);
            }
            (run.start..)
                .take(run.blocks.into())
                .try_for_each(|addr| self.segments.get_mut().keep_until_checkpoint(addr))?;
        }
        Ok(true)
    }

    /// Corrects an inode with one wrong bit. One with more is left out, with all its nodes.
    fn mend_link(&self, link: &mut Link, skipped: &mut FxHashSet<Nid>) {
        let ino = link.footer().ino.get();
        if !link.footer().is_inode()
            || RawInodeBlock::of(&link.block).check(&self.sb, ino, link.addr).is_ok()
        {
            return;
        }
        match correct_inode(&link.block, &self.sb, ino, link.addr) {
            Some(block) => link.block = block,
            None => drop(skipped.insert(ino)),
        }
    }

    /// OPRW's check (thesis, Algorithm 1, lines 8–17): every block to which the node points lies
    /// below the write pointer of its zone. It only compares numbers in memory, mostly with
    /// `before`, the pointers of the node's previous version, which are known to be good.
    fn is_whole<'a>(
        &self,
        link: &'a Link,
        nand: &NandEnds,
        before: &mut FxHashMap<Nid, &'a [U32]>,
    ) -> Result<bool> {
        let _span = cores::span(Stage::RecoverCheck);
        Ok(self.changed_runs(link, before)?.all(|run| nand.hold(run)))
    }

    /// Runs of a node's data pointers that differ from those of its previous version in `before`,
    /// where it takes that one's place.
    fn changed_runs<'a>(
        &self,
        link: &'a Link,
        before: &mut FxHashMap<Nid, &'a [U32]>,
    ) -> Result<impl Iterator<Item = &'a [U32]> + use<'a>> {
        let pointers = self.pointers_in(link)?;
        let before = before.insert(link.footer().nid.get(), pointers).unwrap_or_default();
        let known = before.chunks(RUN).chain(std::iter::repeat(&[][..]));
        let runs = pointers.chunks(RUN).zip(known);
        let changed = runs.filter(|(run, known)| run.as_bytes() != known.as_bytes());
        Ok(changed.map(|(run, _)| run))
    }

    /// The data pointers of a node.
    fn pointers_in<'a>(&self, link: &'a Link) -> Result<&'a [U32]> {
        let footer = link.footer();
        Ok(match NodeKind::of(footer.node_offset()) {
            Some(NodeKind::Inode) => {
                let raw = RawInodeBlock::of(&link.block);
                if raw.i.inline().intersects(Inline::DATA | Inline::DENTRY) {
                    return Ok(&[]);
                }
                let layout = raw.check(&self.sb, footer.ino.get(), link.addr)?;
                let first = layout.slot(0);
                &raw.i.addr[first..first + layout.addrs() as usize]
            }
            Some(NodeKind::Direct) => &RawDirectNode::of(&link.block).addr,
            _ => &[],
        })
    }
}
