//! Our own fsck: everything a volume says about itself, compared with what can be reached.
//!
//! The volume is checked as of its newest checkpoint; it is for the mount to replay what an fsync
//! left behind. Nothing is written. The walk starts at the root directory, the orphans and the
//! quota files, and claims every block that it reaches. At the end, the claimed blocks must be
//! those that NAT, SIT and checkpoint count.
//!
//! Memory: three bitmaps (node numbers twice, blocks of the main area), the SIT's maps, two small
//! block caches, a list of directories still to visit, and files with several links. No image can
//! make it loop: a node is entered only once, and recursion is never deeper than a node tree, which
//! is three.

mod anew;
mod dentry;
mod dir;
mod inode;
mod mend;
mod mend_inode;
mod nat_walk;
mod node;
mod place;
mod quota;
pub mod repair;
mod segments;
mod state;
mod syndrome;
mod unreached;
pub(crate) mod view;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;

pub(crate) use mend::{Hints, Mend, NewName, NodeHint, Search};
pub(crate) use mend_inode::correct_inode;
pub use place::{Finding, Place, Remedy};
pub use state::{VolumeState, state};

use self::quota::Counted;
use crate::error::Result;
use crate::mount::devices::check_complete;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags, Selected};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::orphan::RawOrphanBlock;
use crate::ondisk::superblock::{COPIES, Superblock};
use crate::ondisk::{Nid, bits};
pub(crate) use view::View;

/// How to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// How many findings are kept; the rest are only counted.
    pub max_findings: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { max_findings: 1000 }
    }
}

/// What a check saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How many more findings there were than are kept.
    pub omitted: u64,
    /// The checkpoint was written at unmount.
    pub clean_unmount: bool,
    /// Version of the checkpoint.
    pub checkpoint_version: u64,
    /// Directories.
    pub dirs: u64,
    /// Everything else with a name.
    pub files: u64,
    /// Files with several links.
    pub linked_files: u64,
    /// Inodes without a name that the next mount removes.
    pub orphans: u64,
    /// Inodes.
    pub inodes: u64,
    /// Nodes, including inodes.
    pub nodes: u64,
    /// Blocks in use or reserved, including nodes.
    pub blocks: u64,
    /// Segments without a valid block.
    pub free_segments: u32,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks the volume on `drive`. An error means that there is no volume, or none that this crate
/// understands; everything else is a finding.
///
/// ```
/// use f2fs::prelude::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let drive: Arc<dyn Drive> = drive::ram(1 << 15);
/// mkfs::format(&drive, &MkfsOptions::default())?;
/// let report = check(&drive, &CheckOptions::default())?;
/// assert!(report.is_clean() && report.clean_unmount, "{:?}", report.findings);
/// # Ok(())
/// # }
/// ```
pub fn check(drive: &Arc<dyn Drive>, options: &CheckOptions) -> Result<CheckReport> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let mut early = Vec::new();
    let sb = check_superblocks(&queue, &mut early)?;
    check_complete(&sb, queue.identify())?;
    let volume = View::open(queue, sb)?;
    check_packs(&volume, &mut early);
    let mut checker = Checker::new(volume, options);
    early.into_iter().for_each(|finding| checker.add(finding));
    checker.run();
    Ok(checker.report)
}

/// Checks that the checkpoint is the newest one. If only the header of a newer one is damaged,
/// every mount ignores that one.
fn check_packs(volume: &View, findings: &mut Vec<Finding>) {
    let newest = Checkpoint::select_any(&volume.sb, |addr| volume.read(addr));
    if let Ok(Selected { checkpoint, pack }) = newest
        && checkpoint.version != volume.cp.version
    {
        let found = format!("damaged, of version {:#x} by its tail", checkpoint.version);
        let place = Place::Checkpoint { pack };
        findings.push(Finding::new(place, "header", found, "as the tail"));
    }
}

/// Checks that both copies are sound and equal.
fn check_superblocks(queue: &BlockQueue, findings: &mut Vec<Finding>) -> Result<Superblock> {
    let read = |addr: u32| Ok(queue.read_block(addr.into())?);
    let (sb, used) = Superblock::select(read)?;
    for copy in COPIES.into_iter().filter(|&copy| copy != used) {
        let place = Place::Superblock { copy };
        match read(copy).and_then(|block| Superblock::parse(&block, copy)) {
            Ok(other) if other != sb => {
                findings.push(Finding::new(place, "geometry", "another", "as in the other copy"));
            }
            Ok(_) => {}
            Err(error) => findings.push(place.finding(error)),
        }
    }
    Ok(sb)
}

/// Links of a file that claims more than one.
struct Links {
    claimed: u32,
    seen: u32,
}

/// A check under way.
pub(crate) struct Checker {
    pub(crate) volume: View,
    pub(crate) report: CheckReport,
    /// What a repair has to change, if one is being prepared.
    pub(crate) mend: Option<Mend>,
    max_findings: usize,
    /// Node numbers to which the NAT gives an address, least significant bit first.
    nids_used: Vec<u8>,
    /// Node numbers that the walk reached.
    nids_reached: Vec<u8>,
    /// Blocks of the main area that the walk reached, most significant bit first as in SIT maps.
    pub(crate) blocks_reached: Vec<u8>,
    links: BTreeMap<Nid, Links>,
    /// What owners, groups and projects use.
    quota: Counted,
    /// Directories that were named but not yet read, and the directory that names each.
    pending: Vec<(Nid, Option<Nid>)>,
}

impl Checker {
    pub(crate) fn new(volume: View, options: &CheckOptions) -> Self {
        let nid_bytes = (volume.sb.max_nid() as usize).div_ceil(8);
        let block_bytes = volume.sb.main_blocks() as usize / 8;
        let report = CheckReport {
            findings: Vec::new(),
            omitted: 0,
            clean_unmount: volume.cp.flags.contains(CpFlags::UMOUNT),
            checkpoint_version: volume.cp.version,
            dirs: 0,
            files: 0,
            linked_files: 0,
            orphans: 0,
            inodes: 0,
            nodes: 0,
            blocks: 0,
            free_segments: 0,
        };
        Self {
            volume,
            report,
            mend: None,
            max_findings: options.max_findings,
            nids_used: vec![0; nid_bytes],
            nids_reached: vec![0; nid_bytes],
            blocks_reached: vec![0; block_bytes],
            links: BTreeMap::new(),
            quota: Counted::default(),
            pending: Vec::new(),
        }
    }

    /// Walks the whole volume.
    pub(crate) fn run(&mut self) {
        if self.volume.has_sit {
            self.load_sit();
            self.load_summaries();
            self.scan_nat();
        } else {
            self.use_found_nodes();
        }
        self.walk_tree();
        self.walk_quota_files();
        self.walk_orphans();
        self.check_unreached_nids();
        self.check_links();
        self.check_quotas();
        self.check_segments();
        if self.volume.has_sit {
            self.check_cursegs();
            self.check_counts();
            self.check_zones();
        }
    }

    /// Without a checkpoint, a search of all blocks takes the place of the NAT.
    fn use_found_nodes(&mut self) {
        let Some(mend) = &self.mend else { return };
        let found: Vec<_> = mend.hints.nodes.iter().map(|(nid, hint)| (*nid, *hint)).collect();
        for (nid, NodeHint { ino, addr }) in found {
            bits::lsb::set(&mut self.nids_used, nid as usize);
            self.set_nat(nid, NatEntry { version: 0, ino, addr });
        }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        if self.report.findings.len() < self.max_findings {
            self.report.findings.push(finding);
        } else {
            self.report.omitted += 1;
        }
    }

    /// Adds to the last finding what a repair does about it.
    fn remedy(&mut self, remedy: Remedy) {
        if self.report.omitted == 0
            && let Some(last) = self.report.findings.last_mut()
        {
            last.remedy = remedy;
        }
    }

    fn find(
        &mut self,
        place: Place,
        what: &'static str,
        found: impl ToString,
        allowed: impl ToString,
    ) {
        self.add(Finding::new(place, what, found, allowed));
    }

    /// The value, or else a finding.
    fn keep<T>(&mut self, place: impl FnOnce() -> Place, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(place().finding(error))).ok()
    }

    fn walk_tree(&mut self) {
        let root = self.volume.sb.root_ino;
        bits::lsb::set(&mut self.nids_reached, root as usize);
        if self.mending() {
            self.mend_root();
        }
        self.pending.push((root, Some(root)));
        self.walk_pending();
    }

    /// Visits the directories that were named and not yet read.
    fn walk_pending(&mut self) {
        while let Some((dir, parent)) = self.pending.pop() {
            self.visit_directory(dir, parent);
        }
    }

    /// Quota files have no name.
    fn walk_quota_files(&mut self) {
        for ino in self.volume.sb.quota_inos.into_iter().filter(|&ino| ino != 0) {
            if self.mending() {
                self.mend_quota_inode(ino);
            }
            self.visit_unnamed(ino, 1, "quota inode");
        }
    }

    /// Orphans have no name and no link, but still all their blocks.
    fn walk_orphans(&mut self) {
        let start = self.volume.sb.cp_pack(self.volume.pack);
        for block in self.volume.cp.orphan_blocks(&self.volume.sb) {
            let at = start + block;
            let place = || Place::Block { addr: at.into() };
            let read = self.volume.read(at);
            let Some(block) = self.keep(place, read) else { continue };
            let inos = RawOrphanBlock::of(&block).inos(at).map(Iterator::collect::<Vec<_>>);
            for ino in self.keep(place, inos).unwrap_or_default() {
                self.report.orphans += 1;
                let kept = self.visit_unnamed(ino, 0, "orphan inode");
                if let Some(mend) = self.mend.as_mut().filter(|_| kept) {
                    mend.orphans.insert(ino);
                }
            }
        }
    }

    fn check_links(&mut self) {
        self.report.linked_files = self.links.len() as u64;
        for (ino, links) in std::mem::take(&mut self.links) {
            if links.claimed != links.seen {
                self.find(Place::Inode { ino }, "i_links", links.claimed, links.seen);
                self.edit_inode(ino, |inode| inode.i.links.set(links.seen));
            }
        }
    }

    fn check_counts(&mut self) {
        let (report, cp) = (&self.report, &self.volume.cp);
        let counts = [
            ("valid_block_count", cp.valid_block_count, report.blocks),
            ("valid_node_count", cp.valid_node_count.into(), report.nodes),
            ("valid_inode_count", cp.valid_inode_count.into(), report.inodes),
            ("free_segment_count", cp.free_segment_count.into(), report.free_segments.into()),
        ];
        for (what, found, counted) in counts {
            if found != counted {
                self.find(Place::Checkpoint { pack: self.volume.pack }, what, found, counted);
            }
        }
    }
}
