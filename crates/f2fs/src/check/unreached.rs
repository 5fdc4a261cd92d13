//! Node numbers in use that the walk did not reach: one finding for each. When mending, the inodes
//! among them are walked too and noted for `lost+found`; everything else is freed.

use drive::Block;
use vfs::FileKind;

use super::dentry::Entry;
use super::dir::Reading;
use super::{Checker, NewName, Place, Remedy};
use crate::ondisk::inode::{RawInode, RawInodeBlock};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::{NULL_ADDR, Nid, bits};

/// An inode that nothing names.
struct Lost {
    ino: Nid,
    kind: FileKind,
    /// The directory it was in.
    parent: Nid,
    /// Its name there, if it belongs there.
    name: Option<Vec<u8>>,
}

impl Checker {
    /// Checks that the walk reached every node number in use.
    pub(super) fn check_unreached_nids(&mut self) {
        for nid in self.unreached() {
            self.find(Place::Nat { nid }, "use", "unreachable", "reachable, or free");
            self.remedy(Remedy::Reconnected);
        }
        if self.mending() {
            self.mend_unreached();
        }
    }

    fn unreached(&self) -> Vec<Nid> {
        let words = self.nids_used.iter().zip(&self.nids_reached);
        let bytes = words.enumerate().filter(|(_, (used, reached))| **used & !**reached != 0);
        bytes
            .flat_map(|(at, (used, reached))| {
                let left = used & !reached;
                (0..8).filter(move |bit| left & 1 << bit != 0).map(move |bit| at as Nid * 8 + bit)
            })
            .collect()
    }

    fn mend_unreached(&mut self) {
        let lost: Vec<Lost> =
            self.unreached().into_iter().filter_map(|nid| self.lost_inode(nid)).collect();
        // A directory is visited before what is in it, so that its files stay there.
        let dirs = || lost.iter().filter(|inode| inode.kind == FileKind::Directory);
        let is_lost_dir = |ino: Nid| {
            lost.binary_search_by_key(&ino, |l| l.ino)
                .is_ok_and(|at| lost[at].kind == FileKind::Directory && lost[at].parent != ino)
        };
        for inode in dirs().filter(|inode| !is_lost_dir(inode.parent)).chain(dirs()) {
            self.visit_lost(inode);
        }
        for inode in lost.iter().filter(|inode| inode.kind != FileKind::Directory) {
            self.visit_lost(inode);
        }
        for nid in self.unreached() {
            let nat = self.volume.nat(nid).unwrap_or_default();
            let version = nat.version.wrapping_add(1);
            self.set_nat(nid, NatEntry { version, ino: 0, addr: NULL_ADDR });
            if let Some(mend) = &mut self.mend {
                mend.freed.push(nid);
            }
        }
    }

    /// The inode `nid`, if it is an inode and still has a link.
    fn lost_inode(&mut self, nid: Nid) -> Option<Lost> {
        let nat = self.volume.nat(nid).ok()?;
        let block = self.probe(nat.addr, nid, nid, 0).ok()?;
        let i = &RawInodeBlock::of(&block).i;
        if self.is_reached(nat.addr) || i.links.get() == 0 {
            return None;
        }
        let name = self.fsynced_name(nid, &block);
        if name.is_none() && !self.may_revive(nid, i.pino.get()) {
            return None;
        }
        Some(Lost { ino: nid, kind: i.kind()?, parent: i.pino.get(), name })
    }

    /// Used without checkpoint and chain: the name of a file that was fsynced after its directory
    /// was last written.
    fn fsynced_name(&mut self, ino: Nid, block: &Block) -> Option<Vec<u8>> {
        if self.volume.has_sit || !self.mend.as_ref()?.hints.fsynced.contains(&ino) {
            return None;
        }
        let i = &RawInodeBlock::of(block).i;
        let parent = i.pino.get();
        let named = i.kind() != Some(FileKind::Directory)
            && RawNodeFooter::of(block).is_dent()
            && vfs::check_name(i.name()).is_ok()
            && self.is_reached_node(parent);
        let (_, dir) = named.then(|| self.locate_node(parent, parent, 0)).flatten()?;
        let dir = &RawInodeBlock::of(&dir).i;
        let age = |i: &RawInode| (i.ctime.get(), i.ctime_nsec.get());
        (dir.kind() == Some(FileKind::Directory) && age(dir) < age(i)).then(|| i.name().to_vec())
    }

    /// Without a NAT, a node block may belong to a deleted file: its directory does not name it, or
    /// was itself deleted. Such a file is left alone.
    fn may_revive(&mut self, ino: Nid, parent: Nid) -> bool {
        if self.volume.has_sit {
            return true;
        }
        let (mut ino, mut parent) = (ino, parent);
        for _ in 0..crate::ondisk::inode::MAX_DIR_DEPTH {
            if parent == ino || self.is_reached_node(parent) {
                return false;
            }
            let Ok(nat) = self.volume.nat(parent) else { return true };
            let Ok(block) = self.probe(nat.addr, parent, parent, 0) else { return true };
            (ino, parent) = (parent, RawInodeBlock::of(&block).i.pino.get());
        }
        false
    }

    fn visit_lost(&mut self, lost: &Lost) {
        let ino = lost.ino;
        if bits::lsb::set(&mut self.nids_reached, ino as usize) {
            return;
        }
        let (kind, dir) = (lost.kind, lost.parent);
        if let Some(mend) = &mut self.mend {
            match lost.name.clone() {
                Some(name) => mend.names.push(NewName { dir, name, ino, kind }),
                None => mend.lost.push(ino),
            }
        }
        if lost.kind == FileKind::Directory {
            self.pending.push((ino, None));
            return self.walk_pending();
        }
        let mut entry = Entry { slot: 0, name: ino.to_string().into(), hash: 0, ino, kind };
        let dir = Reading::new(self.volume.sb.root_ino);
        if !self.visit_file(&dir, &mut entry) {
            bits::lsb::clear(&mut self.nids_reached, ino as usize);
            if let Some(mend) = &mut self.mend {
                mend.lost.retain(|other| *other != ino);
                mend.names.retain(|name| name.ino != ino);
            }
        }
    }
}
