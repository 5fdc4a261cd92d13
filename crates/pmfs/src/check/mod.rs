//! Checks everything that an unmounted volume says about itself. The medium stays as it is: records
//! that a cut left are repeated in memory first, since a mount would do so, too.

mod repair;
mod tree;

use std::sync::Arc;

use drive::pm::{Pm, PmOverlay};
use vfs::kind::{Checked, Finding, Result};
use vfs::{FileKind, Ino};

use crate::alloc::BlockRun;
use crate::commit::slots;
use crate::inode::node::Inode;
use crate::mount::format::load;
use crate::mount::is_clean;
use crate::offline::label;
use crate::ondisk::superblock::{Layout, RawSuperblock};
use crate::ondisk::{BLOCK, Corrupt};

pub(crate) use repair::repair;

/// The most findings that are reported.
const FINDINGS_MAX: usize = 1000;

/// What the check has found so far.
pub(crate) struct Check {
    pub(crate) pm: Arc<dyn Pm>,
    pub(crate) layout: Layout,
    pub(crate) findings: Vec<Finding>,
    /// Live inodes with a name, as far as they can be read.
    pub(crate) inodes: Vec<(Ino, Inode)>,
    /// Runs of blocks and whose they are.
    used: Vec<(BlockRun, Ino)>,
    orphans: u64,
}

/// For [`vfs::kind::Format::check`].
pub(crate) fn check(pm: Arc<dyn Pm>) -> Result<Checked> {
    let (raw, layout) = load(&*pm)?;
    let clean_unmount = is_clean(&*pm);
    let pm: Arc<dyn Pm> = PmOverlay::new(pm);
    let (findings, inodes, used) = Default::default();
    let mut check = Check { pm, layout, findings, inodes, used, orphans: 0 };
    check.superblocks(&raw);
    check.records(clean_unmount);
    check.inodes();
    if clean_unmount && check.orphans > 0 {
        check.find("volume", "inodes without a name", check.orphans, 0);
    }
    check.blocks();
    check.tree();
    let blocks: u64 = check.used.iter().map(|((_, len), _)| len).sum();
    let summary = format!("{} inodes, {blocks} blocks", check.inodes.len());
    check.findings.truncate(FINDINGS_MAX);
    Ok(Checked { findings: check.findings, clean_unmount, summary, rows: Vec::new() })
}

impl Check {
    pub(crate) fn find(
        &mut self,
        place: impl ToString,
        what: &'static str,
        found: impl ToString,
        allowed: impl ToString,
    ) {
        if self.findings.len() <= FINDINGS_MAX {
            self.findings.push(Finding::new(place.to_string(), what, found, allowed));
        }
    }

    fn corrupt(&mut self, corrupt: &Corrupt) {
        let Corrupt { structure, at, what, found, allowed } = *corrupt;
        self.find(format!("{structure} at {at:#x}"), what, format!("{found:#x}"), allowed);
    }

    /// The second superblock must be a copy of the first.
    fn superblocks(&mut self, raw: &RawSuperblock) {
        for at in label::others(&*self.pm, raw, &self.layout) {
            let name = if at == 0 { "superblock" } else { "second superblock" };
            self.find(name, "bytes", "others", "those of the other copy");
        }
    }

    fn records(&mut self, clean: bool) {
        match slots::left(&*self.pm, &self.layout) {
            Err(corrupt) => self.corrupt(&corrupt),
            Ok(left) if clean && !left.is_empty() => {
                self.find("journal", "records after a clean unmount", left.len(), 0);
            }
            Ok(left) => {
                slots::finish(&*self.pm, left);
            }
        }
    }

    fn inodes(&mut self) {
        let (mut blocks, data) = (0, self.layout.data());
        for ino in self.layout.inodes() {
            let Some(at) = self.layout.inode_at(ino) else { continue };
            if self.pm.load(at) as u32 == 0 {
                continue;
            }
            match Inode::load(&*self.pm, &self.layout, ino) {
                Ok(Some(inode)) if inode.raw.links.get() == 0 => self.orphans += 1,
                Ok(Some(inode)) => {
                    self.used.extend(inode.runs().map(|run| (run, ino)));
                    blocks += inode.runs().map(|run| run.1).sum::<u64>();
                    self.contents(ino, &inode);
                    self.inodes.push((ino, inode));
                }
                Ok(None) => {}
                Err(corrupt) => self.corrupt(&corrupt),
            }
            // Some have two owners, which is found below; all that share them need not be read.
            if blocks > data.end - data.start {
                return;
            }
        }
    }

    /// What contents of this kind must be like.
    fn contents(&mut self, ino: Ino, inode: &Inode) {
        let size = inode.raw.size.get();
        let place = format!("inode {ino}");
        match inode.raw.kind() {
            Some(FileKind::Directory)
                if inode.log.is_none()
                    && (inode.map.extents().map(|e| e.len).sum::<u64>() != size / BLOCK
                        || !size.is_multiple_of(BLOCK)) =>
            {
                self.find(place, "size of the directory", size, "that of its pages");
            }
            Some(FileKind::Symlink) if size == 0 || size >= vfs::path::PATH_MAX as u64 => {
                self.find(place, "size of the symbolic link", size, "1 to 4095");
            }
            _ => {}
        }
        if let Err(corrupt) = inode.xattrs_in(&*self.pm) {
            self.corrupt(&corrupt);
        }
    }

    /// No block has two owners.
    fn blocks(&mut self) {
        self.used.sort_unstable();
        let clashes: Vec<_> = self
            .used
            .windows(2)
            .filter(|pair| pair[0].0.0 + pair[0].0.1 > pair[1].0.0)
            .map(|pair| (pair[1].0.0, pair[0].1, pair[1].1))
            .collect();
        for (block, one, other) in clashes {
            self.find(format!("block {block}"), "owners", format!("{one} and {other}"), "one");
        }
    }
}
