//! Recovery, as a step of types: an [`Image`] becomes [`Recovered`], and only that can be mounted.
//!
//! First the records that a cut left marked are repeated, or taken back. Then every inode is read,
//! with its log where there is one, to find what is free; inodes without a name, which were open
//! when the power went, are freed on the way. Nothing is trusted from before the cut, and a
//! recovery that is cut itself begins again: finishing a record or freeing an inode twice is the
//! same as once.

pub(crate) mod speed;

use std::sync::Arc;

use drive::pm::Pm;
use drive::pm::typed::{Obj, fence};
use vfs::FileKind;
use vfs::kind::{self, Recovery};

use crate::alloc::BlockRun;
use crate::commit;
use crate::inode::node::Inode;
use crate::inode::numbers::Numbers;
use crate::mount::{ROOT, format, is_clean};
use crate::ondisk::superblock::Layout;
use crate::ondisk::{BLOCK, Corrupt};

/// A volume as it was found.
pub(crate) struct Image {
    pm: Arc<dyn Pm>,
    layout: Layout,
}

/// A volume whose structures agree.
pub(crate) struct Recovered {
    pub(crate) pm: Arc<dyn Pm>,
    pub(crate) layout: Layout,
    /// Runs of blocks in use, in order.
    pub(crate) used: Vec<BlockRun>,
    /// Free inode numbers.
    pub(crate) numbers: Numbers,
    pub(crate) recovery: Recovery,
}

/// An inode without a name that is to be freed.
enum Orphan {}

impl Image {
    /// Reads the superblock.
    pub(crate) fn open(pm: Arc<dyn Pm>) -> kind::Result<Self> {
        let (_, layout) = format::load(&*pm)?;
        Ok(Self { pm, layout })
    }

    /// Repeats what was interrupted and finds what is free.
    pub(crate) fn recover(self) -> Result<Recovered, Corrupt> {
        let Self { pm, layout } = self;
        let mut recovery = Recovery { clean: is_clean(&*pm), ..Recovery::default() };
        recovery.scanned = layout.cores.into();
        recovery.replayed = commit::recover(&*pm, &layout)? as u64;
        let numbers = Numbers::new(layout.inodes(), layout.cores);
        let mut used = Vec::new();
        let mut orphans = Vec::new();
        let mut root_mode = 0;
        let (mut blocks, data) = (0, layout.data());
        for ino in layout.inodes() {
            let Some(at) = layout.inode_at(ino) else { continue };
            if pm.load(at) as u32 == 0 {
                continue;
            }
            let Some(inode) = Inode::load_bare(&*pm, &layout, at)? else { continue };
            if ino == ROOT {
                root_mode = inode.raw.mode.get();
            }
            if inode.raw.links.get() == 0 && ino != ROOT {
                orphans.push(at);
                continue;
            }
            numbers.remove(ino);
            used.extend(inode.runs());
            blocks += inode.runs().map(|run| run.1).sum::<u64>();
            // Some have two owners. Found here, before all that share them are read.
            if blocks > data.end - data.start {
                break;
            }
        }
        used.sort_unstable();
        check_disjoint(&used)?;
        check_root(&layout, root_mode)?;
        let free = |at| Obj::<Orphan>::settled(&*pm, at, 8).store(0, &[0; 8]).write_back();
        let freed: Vec<_> = orphans.into_iter().map(free).collect();
        recovery.orphans = fence(&*pm, freed).len() as u64;
        Ok(Recovered { pm: pm.clone(), layout, used, numbers, recovery })
    }
}

fn check_root(layout: &Layout, mode: u32) -> Result<(), Corrupt> {
    if FileKind::from_mode(mode) == Some(FileKind::Directory) {
        return Ok(());
    }
    let at = layout.inode_at(ROOT).unwrap_or(0);
    let (structure, what, found) = ("root inode", "mode", mode.into());
    Err(Corrupt { structure, at, what, found, allowed: "a directory" })
}

fn check_disjoint(used: &[BlockRun]) -> Result<(), Corrupt> {
    let clash = used.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    match clash {
        None => Ok(()),
        Some(pair) => Err(Corrupt {
            structure: "extent",
            at: pair[1].0 * BLOCK,
            what: "owners of the block",
            found: 2,
            allowed: "1",
        }),
    }
}
