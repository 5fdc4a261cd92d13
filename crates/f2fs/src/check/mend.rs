//! What a repair has to change, collected while the check walks. The check decides once what every
//! structure should be, says so in its findings, and notes it here.
//!
//! Nothing here writes. Nodes and directory blocks are kept as they should be. What follows from
//! the tree (SIT, SSA, counts) is not kept, but taken from the bitmaps of the walk.

use std::collections::{BTreeMap, BTreeSet};

use drive::Block;
use vfs::FileKind;

use super::{Checker, Finding, Place};
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::nat::NatEntry;
use crate::ondisk::quota::{QuotaFile, QuotaType};
use crate::ondisk::summary::RawSummary;
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// What a search among unreferenced blocks has found. A second walk uses it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// Intact node blocks, the newest of each number.
    pub nodes: BTreeMap<Nid, NodeHint>,
    /// Data blocks, by the node and slot that their summary names.
    pub data: BTreeMap<(Nid, u16), BlockAddr>,
    /// Nodes, by their inode and their offset in its tree.
    pub places: BTreeMap<(Nid, u32), Nid>,
    /// Nodes that an fsync wrote after the newest checkpoint that any node names.
    pub fsynced: BTreeSet<Nid>,
    /// That checkpoint's version.
    pub version: u32,
    /// How much of the volume was searched.
    pub depth: Search,
}

/// How far a search for lost blocks went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Search {
    /// Not at all.
    #[default]
    None,
    /// Blocks that SIT calls valid and the walk did not reach.
    Strays,
    /// Every block of the main area.
    Everything,
}

/// A node block found without the NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeHint {
    /// Inode it belongs to.
    pub ino: Nid,
    /// Where it is.
    pub addr: BlockAddr,
}

/// A name to be added to a directory once it is consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewName {
    pub dir: Nid,
    pub name: Vec<u8>,
    pub ino: Nid,
    pub kind: FileKind,
}

/// A block that also belongs to another file and has to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub ino: Nid,
    pub index: u64,
    pub from: BlockAddr,
}

/// Everything that must change.
#[derive(Default)]
pub(crate) struct Mend {
    pub hints: Hints,
    /// A search of this depth would find blocks that are missing.
    pub wanted: Search,
    /// Nodes as they should be, with their inode.
    pub nodes: BTreeMap<Nid, (Nid, Block)>,
    /// Directory blocks as they should be, by directory and index.
    pub dirs: BTreeMap<(Nid, u64), Block>,
    /// Nodes whose NAT entry must change.
    pub nats: BTreeSet<Nid>,
    /// Summaries that are wrong, as they should be.
    pub summaries: BTreeMap<BlockAddr, RawSummary>,
    /// Names in the wrong place, or missing.
    pub names: Vec<NewName>,
    /// Inodes without a name, which go to `lost+found`.
    pub lost: Vec<Nid>,
    /// Blocks that two files claim.
    pub copies: Vec<Copy>,
    /// Orphans that are sound.
    pub orphans: BTreeSet<Nid>,
    /// Sound nodes to which nothing leads. Their NAT entries are freed.
    pub freed: Vec<Nid>,
    /// Quota files as they should be, before roll-forward.
    pub quotas: Vec<(QuotaType, QuotaFile)>,
}

impl Mend {
    pub(crate) fn new(hints: Hints) -> Self {
        Self { hints, ..Self::default() }
    }
}

impl Checker {
    /// Whether this check prepares a repair.
    pub(super) fn mending(&self) -> bool {
        self.mend.is_some()
    }

    /// Notes that a search of `depth` could find missing blocks.
    pub(super) fn want(&mut self, depth: Search) {
        if let Some(mend) = &mut self.mend {
            mend.wanted = mend.wanted.max(depth);
        }
    }

    /// Whether a search of `depth` has been made.
    pub(super) fn searched(&self, depth: Search) -> bool {
        self.mend.as_ref().is_some_and(|mend| mend.hints.depth >= depth)
    }

    /// Sets what node `nid` should be.
    pub(super) fn put_node(&mut self, nid: Nid, ino: Nid, block: Block) {
        if let Some(mend) = &mut self.mend {
            mend.nodes.insert(nid, (ino, block));
        }
    }

    /// What node `nid` should be, if it changes.
    pub(super) fn changed_node(&self, nid: Nid) -> Option<Block> {
        self.mend.as_ref()?.nodes.get(&nid).map(|(_, block)| block.clone())
    }

    /// Sets what the NAT should say about `nid`.
    pub(super) fn set_nat(&mut self, nid: Nid, entry: NatEntry) {
        if let Some(mend) = &mut self.mend {
            mend.nats.insert(nid);
            self.volume.set_nat(nid, entry);
        }
    }

    /// Changes inode `ino`, which the walk has accepted.
    pub(super) fn edit_inode(&mut self, ino: Nid, edit: impl FnOnce(&mut RawInodeBlock)) {
        if !self.mending() {
            return;
        }
        let block = self.changed_node(ino).or_else(|| {
            let nat = self.volume.nat(ino).ok()?;
            self.volume.read(nat.addr).ok()
        });
        if let Some(mut block) = block {
            edit(RawInodeBlock::of_mut(block.make_mut()));
            self.put_node(ino, ino, block);
        }
    }

    /// The place of node `nid`, which may be an inode.
    pub(super) fn node_place(nid: Nid, ino: Nid) -> Place {
        if nid == ino { Place::Inode { ino } } else { Place::Node { nid } }
    }

    /// Adds the findings made while a structure was mended.
    pub(super) fn add_all(&mut self, findings: Vec<Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }
}

/// What a search for lost blocks asks.
impl Checker {
    /// Whether SIT calls a block valid that the walk did not reach.
    pub(crate) fn is_stray(&self, segno: SegNo, offset: usize) -> bool {
        let index = segno as usize * BLOCKS_PER_SEGMENT as usize + offset;
        self.sit_valid(segno, offset) && !bits::msb::test(&self.blocks_reached, index)
    }

    /// What the summaries say about a block in a segment of data.
    pub(crate) fn data_summary_of(&mut self, addr: BlockAddr) -> Option<RawSummary> {
        self.summary_of(addr, false)
    }
}
