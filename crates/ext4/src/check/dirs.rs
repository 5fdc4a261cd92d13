//! Directories: their records, what they lead to, and the counts of links.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;
use vfs::FileKind;

use super::Checker;
use crate::dir::entries::{block_count, dir_block};
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::ondisk::dirent::{Dirent, Dirents};
use crate::ondisk::features::Incompat;
use crate::ondisk::inode::Flags;
use crate::ondisk::{FsBlock, Ino, LINK_MAX, ROOT_INO};

/// One directory while its records are read.
struct Listing {
    /// Its number and that of the directory above.
    ino: Ino,
    parent: Ino,
    names: FxHashSet<Box<[u8]>>,
    /// Directories that it names.
    below: Vec<Ino>,
}

impl Checker {
    /// Walks from the root, so that every directory is met once, from above.
    pub(super) fn dirs(&mut self) -> Result<()> {
        match self.inodes.get_mut(&ROOT_INO) {
            Some(root) if root.kind == FileKind::Directory => root.reached = true,
            _ => {
                self.find("inode 2", "root directory", "none", "a directory");
                return Ok(());
            }
        }
        let mut waiting = VecDeque::from([(ROOT_INO, ROOT_INO)]);
        while let Some((ino, parent)) = waiting.pop_front() {
            for below in self.dir(ino, parent)? {
                waiting.push_back((below, ino));
            }
        }
        let lost = self.inodes.iter().filter(|(ino, seen)| {
            seen.kind == FileKind::Directory && !seen.reached && !self.orphans.contains(ino)
        });
        let mut lost: Vec<Ino> = lost.map(|(ino, _)| *ino).collect();
        lost.sort_unstable();
        for ino in lost {
            self.find(format!("inode {ino}"), "directory", "not reached from the root", "a name");
        }
        Ok(())
    }

    /// Checks one directory. Returns the directories that it names first.
    fn dir(&mut self, ino: Ino, parent: Ino) -> Result<Vec<Ino>> {
        let place = format!("inode {ino}");
        let read = self.reader.inode_uncached(ino);
        let Some(dir) = self.sound(&*place, read)? else { return Ok(Vec::new()) };
        let mut listing = Listing { ino, parent, names: FxHashSet::default(), below: Vec::new() };
        if dir.flags().contains(Flags::INLINE_DATA) {
            let records = self.reader.inline_records(&dir);
            let Some((found, areas)) = self.sound(&*place, records)? else {
                return Ok(Vec::new());
            };
            self.dots(&mut listing, ino, found);
            for area in areas {
                self.records(&dir, area, dir.at, &mut listing)?;
            }
            return Ok(listing.below);
        }
        for block in 0..block_count(&self.reader.sb, &dir) {
            let read = dir_block(&self.reader, &dir, block);
            if let Some((at, block)) = self.sound(&*place, read)? {
                let bytes = &block[..self.reader.sb.block_size as usize];
                self.records(&dir, bytes, at, &mut listing)?;
            }
        }
        for dot in [&b"."[..], b".."] {
            if !listing.names.contains(dot) {
                let name = String::from_utf8_lossy(dot).into_owned();
                self.find(&*place, "directory", format!("no '{name}'"), "both dots");
            }
        }
        let checked = self.tree(&dir);
        self.sound(&*place, checked)?;
        Ok(listing.below)
    }

    fn records(
        &mut self,
        dir: &Inode,
        bytes: &[u8],
        at: FsBlock,
        listing: &mut Listing,
    ) -> Result<()> {
        for dirent in Dirents::new(bytes, at) {
            let place = format!("inode {}", dir.ino);
            let Some(dirent) = self.sound(&*place, dirent)? else { break };
            if dirent.ino == 0 {
                continue;
            }
            if !dir.flags().contains(Flags::ENCRYPT) {
                let named = dirent.check_name(at);
                self.sound(&*place, named)?;
            }
            if !listing.names.insert(dirent.name.into()) {
                let name = String::from_utf8_lossy(dirent.name);
                self.find(&*place, "dirent.name", format!("'{name}' twice"), "once");
            }
            let checked = self.record(&dirent, at, listing);
            self.sound(&*place, checked)?;
        }
        Ok(())
    }

    /// Checks what a record names, and counts it.
    fn record(&mut self, dirent: &Dirent<'_>, at: FsBlock, listing: &mut Listing) -> Result<()> {
        let wrong =
            |field, found: String, allowed: &str| Err(Error::corrupt(field, at, found, allowed));
        let name = || String::from_utf8_lossy(dirent.name).into_owned();
        match dirent.name {
            b"." => return self.dot(dirent.ino, listing.ino, at),
            b".." => return self.dot(dirent.ino, listing.parent, at),
            _ => {}
        }
        let has_types = self.reader.sb.incompat.contains(Incompat::FILETYPE);
        let Some(seen) = self.inodes.get_mut(&dirent.ino) else {
            let found = format!("{} as '{}'", dirent.ino, name());
            return wrong("dirent.inode", found, "an inode in use");
        };
        seen.named += 1;
        if has_types && FileKind::from_dirent_type(dirent.file_type) != Some(seen.kind) {
            let (found, allowed) = (dirent.file_type, format!("{:?}", seen.kind));
            return wrong("dirent.file_type", format!("{found} of '{}'", name()), &allowed);
        }
        if seen.kind != FileKind::Directory {
            return Ok(());
        }
        if std::mem::replace(&mut seen.reached, true) {
            let found = format!("{} as '{}'", dirent.ino, name());
            return wrong("dirent.inode", found, "a directory that has no name yet");
        }
        listing.below.push(dirent.ino);
        Ok(())
    }

    fn dot(&mut self, found: Ino, right: Ino, at: FsBlock) -> Result<()> {
        if let Some(seen) = self.inodes.get_mut(&right) {
            seen.named += 1;
        }
        match found == right {
            true => Ok(()),
            false => Err(Error::corrupt("dirent.inode of a dot", at, found, right)),
        }
    }

    /// The dots of a directory in the inode, which has no records for them.
    fn dots(&mut self, listing: &mut Listing, own: Ino, parent: Ino) {
        for (found, right) in [(own, listing.ino), (parent, listing.parent)] {
            if let Some(seen) = self.inodes.get_mut(&right) {
                seen.named += 1;
            }
            if found != right {
                self.find(format!("inode {own}"), "directory", found, right);
            }
        }
        listing.names.extend([&b"."[..], b".."].map(Box::from));
    }

    /// Compares link counts with the records that were counted.
    pub(super) fn links(&mut self) {
        let mut wrong: Vec<_> = Vec::new();
        for (ino, seen) in &self.inodes {
            let is_own = *ino < self.reader.sb.first_ino && *ino != ROOT_INO;
            if is_own || self.reader.is_internal(*ino) || self.orphans.contains(ino) {
                continue;
            }
            // A directory with too many below it has 1 link, and keeps it.
            let is_many = seen.kind == FileKind::Directory
                && seen.links == 1
                && (seen.named >= LINK_MAX || seen.named > 2);
            if seen.links != seen.named && !is_many && !self.is_value(*ino) {
                wrong.push((*ino, seen.links, seen.named));
            }
        }
        wrong.sort_unstable();
        for (ino, found, right) in wrong {
            self.find(format!("inode {ino}"), "inode.i_links_count", found, right);
        }
    }

    /// Whether an inode holds the value of an attribute, and so needs no name.
    fn is_value(&self, ino: Ino) -> bool {
        let has_any = self.reader.sb.incompat.contains(Incompat::EA_INODE);
        has_any && self.reader.inode(ino).is_ok_and(|inode| inode.flags().contains(Flags::EA_INODE))
    }
}
