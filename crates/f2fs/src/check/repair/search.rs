//! Looks for blocks to which nothing points: first among those that SIT calls valid, then among
//! all.
//!
//! A node's footer says what it is and after which checkpoint it was written, so the newest block
//! of a number can be told: by that checkpoint's version, and within one version by the order of
//! the log, which the `next_blkaddr` in every footer gives.

use std::collections::BTreeMap;

use drive::Block;

use crate::check::{Checker, Hints, NodeHint, Search};
use crate::error::Result;
use crate::ondisk::inode::{Inline, RawInodeBlock};
use crate::ondisk::node::{NodeKind, RawNodeFooter};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, NAME_MAX, NULL_ADDR, Nid, SegNo};

/// The most blocks remembered of each kind, so that a SIT of all ones cannot exhaust memory.
const MAX_HINTS: usize = 1 << 20;
/// Blocks read at once.
const READ_AHEAD: u32 = 128;

/// A node block that may be the newest of its number.
#[derive(Clone, Copy)]
struct Candidate {
    ino: Nid,
    addr: BlockAddr,
    offset: u32,
    version: u32,
    fsynced: bool,
    /// Change time of an inode, which decides last which of two is newer.
    ctime: u64,
}

/// What a search has found so far.
#[derive(Default)]
struct Found {
    nodes: BTreeMap<Nid, Candidate>,
    /// For each segment, the one in which the log went on.
    next_segment: BTreeMap<SegNo, SegNo>,
    /// Blocks with the same number and version in different segments, compared at the end.
    ties: Vec<(Nid, Candidate)>,
}

/// Finds blocks that SIT calls valid and the walk did not reach.
pub(super) fn strays(checker: &mut Checker) -> Hints {
    let mut found = Found::default();
    let mut hints = Hints { depth: Search::Strays, ..Hints::default() };
    for segno in 0..checker.volume.sb.segment_count_main {
        let start = checker.volume.sb.seg_start(segno);
        for offset in 0..BLOCKS_PER_SEGMENT as usize {
            let addr = start + offset as u32;
            if !checker.is_stray(segno, offset) || hints.data.len() >= MAX_HINTS {
                continue;
            }
            if let Some(summary) = checker.data_summary_of(addr) {
                hints.data.insert((summary.nid.get(), summary.ofs_in_node.get()), addr);
            } else if let Ok(block) = checker.volume.read(addr) {
                found.consider(&checker.volume.sb, addr, &block);
            }
        }
    }
    found.into_hints(checker, hints)
}

/// Finds every block of the main area that the walk did not reach. `known` are the hints so far.
pub(super) fn everything(checker: &mut Checker, known: Hints) -> Result<Hints> {
    let mut found = Found::default();
    let (mut addr, end) = (checker.volume.sb.main_blkaddr, checker.volume.sb.main_end());
    while addr < end {
        let run = READ_AHEAD.min(end - addr);
        match checker.volume.queue.read_blocks(addr.into(), run) {
            Ok(blocks) => {
                for (at, block) in (addr..).zip(&blocks) {
                    if !checker.is_reached(at) {
                        found.consider(&checker.volume.sb, at, block);
                    }
                }
            }
            Err(_) => {
                for at in addr..addr + run {
                    if let Ok(block) = checker.volume.read(at) {
                        found.consider(&checker.volume.sb, at, &block);
                    }
                }
            }
        }
        addr += run;
    }
    let version = found.newest_version();
    let hints = Hints { depth: Search::Everything, data: known.data, version, ..Hints::default() };
    Ok(found.into_hints(checker, hints))
}

impl Found {
    fn consider(&mut self, sb: &Superblock, addr: BlockAddr, block: &Block) {
        let footer = RawNodeFooter::of(block);
        if !is_node(sb, addr, block) || self.nodes.len() >= MAX_HINTS * 4 {
            return;
        }
        if let (Some(this), Some(next)) =
            (sb.segno_of(addr), sb.segno_of(footer.next_blkaddr.get()))
            && this != next
        {
            self.next_segment.insert(this, next);
        }
        let inode = footer.is_inode().then(|| RawInodeBlock::of(block).i.ctime.get());
        let new = Candidate {
            ino: footer.ino.get(),
            addr,
            offset: footer.node_offset(),
            version: footer.cp_ver.get() as u32,
            fsynced: footer.is_fsync(),
            ctime: inode.unwrap_or(0),
        };
        let nid = footer.nid.get();
        let Some(old) = self.nodes.get_mut(&nid) else {
            self.nodes.insert(nid, new);
            return;
        };
        let newer = new.version.wrapping_sub(old.version).cast_signed();
        if newer > 0 || newer == 0 && sb.segno_of(old.addr) == sb.segno_of(addr) {
            *old = new;
        } else if newer == 0 {
            self.ties.push((nid, new));
        }
    }

    /// Whether the log came to segment `later` after `earlier`.
    fn goes_on(&self, earlier: Option<SegNo>, later: Option<SegNo>) -> bool {
        let mut at = earlier;
        for _ in 0..=self.next_segment.len() {
            at = at.and_then(|segno| self.next_segment.get(&segno).copied());
            if at.is_none() || at == later {
                break;
            }
        }
        at.is_some() && at == later
    }

    /// The newest checkpoint after which any node was written.
    fn newest_version(&self) -> u32 {
        let newer = |a: u32, b: u32| if a.wrapping_sub(b).cast_signed() > 0 { a } else { b };
        self.nodes.values().map(|node| node.version).reduce(newer).unwrap_or(0)
    }

    fn into_hints(mut self, checker: &Checker, mut hints: Hints) -> Hints {
        let sb = &checker.volume.sb;
        for (nid, new) in std::mem::take(&mut self.ties) {
            let Some(old) = self.nodes.get(&nid).copied() else { continue };
            let (from, to) = (sb.segno_of(old.addr), sb.segno_of(new.addr));
            let newer = new.version == old.version
                && (self.goes_on(from, to)
                    || !self.goes_on(to, from) && (new.ctime, new.addr) > (old.ctime, old.addr));
            if newer {
                self.nodes.insert(nid, new);
            }
        }
        let newest = self.newest_version();
        for (nid, Candidate { ino, addr, offset, version, fsynced, .. }) in self.nodes {
            if fsynced && version == newest {
                hints.fsynced.insert(nid);
            }
            hints.nodes.insert(nid, NodeHint { ino, addr });
            hints.places.insert((ino, offset), nid);
        }
        hints
    }
}

/// Whether a block can be a node: every field of its footer is possible and, for an inode, so is
/// the inode.
fn is_node(sb: &Superblock, addr: BlockAddr, block: &Block) -> bool {
    let footer = RawNodeFooter::of(block);
    let (nid, ino) = (footer.nid.get(), footer.ino.get());
    let next = footer.next_blkaddr.get();
    if !sb.is_node_id(nid)
        || !sb.is_node_id(ino)
        || footer.is_inode() != (footer.node_offset() == 0)
        || NodeKind::of(footer.node_offset()).is_none()
        || next != NULL_ADDR && (!sb.in_main(next) || next == addr)
    {
        return false;
    }
    if !footer.is_inode() {
        return true;
    }
    let raw = RawInodeBlock::of(block);
    let possible = raw.i.kind().is_some()
        && raw.i.namelen.get() as usize <= NAME_MAX
        && raw.i.inline().bits() & !Inline::all().bits() == 0;
    possible && (!raw.has_checksum(sb) || raw.check(sb, ino, addr).is_ok())
}
