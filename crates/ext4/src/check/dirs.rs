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
use crate::ondisk::{FsBlock, Ino, ROOT_INO, ensure};

/// The names that every directory has.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// One directory while its records are read.
struct Listing<'a> {
    dir: &'a Inode,
    /// The directory above.
    parent: Ino,
    names: FxHashSet<Box<[u8]>>,
    /// Directories that it names.
    below: Vec<Ino>,
}

impl Checker {
    /// Walks from the root, so that every directory is met once, from above.
    pub(super) fn dirs(&mut self) -> Result<()> {
        let root = self.inodes.get_mut(&ROOT_INO);
        let Some(root) = root.filter(|root| root.kind == FileKind::Directory) else {
            self.notes.add("inode 2", "root directory", "none", "a directory");
            return Ok(());
        };
        root.reached = true;
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
            let found = "not reached from the root";
            self.notes.add(format!("inode {ino}"), "directory", found, "a name");
        }
        Ok(())
    }

    /// Checks one directory. Returns the directories that it names first.
    fn dir(&mut self, ino: Ino, parent: Ino) -> Result<Vec<Ino>> {
        let place = format!("inode {ino}");
        let read = self.reader.inode_uncached(ino);
        let Some(dir) = self.notes.sound(&*place, read)? else { return Ok(Vec::new()) };
        let (names, below) = (FxHashSet::default(), Vec::new());
        let mut listing = Listing { dir: &dir, parent, names, below };
        if dir.flags().contains(Flags::INLINE_DATA) {
            let records = self.reader.inline_records(&dir);
            let Some((found, areas)) = self.notes.sound(&*place, records)? else {
                return Ok(Vec::new());
            };
            // It has no records for the dots.
            self.count_name(ino);
            self.count_name(parent);
            self.notes.compare(&*place, "directory", found, parent);
            listing.names.extend(DOTS.map(Box::from));
            for area in areas {
                self.records(&mut listing, area, dir.at)?;
            }
            return Ok(listing.below);
        }
        for block in 0..block_count(&self.reader.sb, &dir) {
            let read = dir_block(&self.reader, &dir, block);
            if let Some((at, block)) = self.notes.sound(&*place, read)? {
                let bytes = &block[..self.reader.sb.block_size as usize];
                self.records(&mut listing, bytes, at)?;
            }
        }
        for dot in DOTS.into_iter().filter(|dot| !listing.names.contains(*dot)) {
            let found = format!("no '{}'", dot.escape_ascii());
            self.notes.add(&*place, "directory", found, "both dots");
        }
        let checked = self.tree(&dir);
        self.notes.sound(&*place, checked)?;
        Ok(listing.below)
    }

    fn records(&mut self, listing: &mut Listing<'_>, bytes: &[u8], at: FsBlock) -> Result<()> {
        for dirent in Dirents::new(bytes, at) {
            let place = format!("inode {}", listing.dir.ino);
            let Some(dirent) = self.notes.sound(&*place, dirent)? else { break };
            if dirent.ino == 0 {
                continue;
            }
            if !listing.dir.flags().contains(Flags::ENCRYPT) {
                self.notes.sound(&*place, dirent.check_name(at))?;
            }
            if !listing.names.insert(dirent.name.into()) {
                let name = String::from_utf8_lossy(dirent.name);
                self.notes.add(&*place, "dirent.name", format!("'{name}' twice"), "once");
            }
            let checked = self.record(listing, &dirent, at);
            self.notes.sound(&*place, checked)?;
        }
        Ok(())
    }

    /// Checks what a record names, and counts it.
    fn record(
        &mut self,
        listing: &mut Listing<'_>,
        dirent: &Dirent<'_>,
        at: FsBlock,
    ) -> Result<()> {
        let name = String::from_utf8_lossy(dirent.name);
        match dirent.name {
            b"." => return self.dot(dirent.ino, listing.dir.ino, at),
            b".." => return self.dot(dirent.ino, listing.parent, at),
            _ => {}
        }
        let found = format_args!("{} as '{name}'", dirent.ino);
        let Some(seen) = self.inodes.get_mut(&dirent.ino) else {
            return Err(Error::corrupt("dirent.inode", at, found, "an inode in use"));
        };
        seen.named += 1;
        if self.reader.sb.incompat.contains(Incompat::FILETYPE) {
            let is_same = FileKind::from_dirent_type(dirent.file_type) == Some(seen.kind);
            let found = format_args!("{} of '{name}'", dirent.file_type);
            ensure(is_same, "dirent.file_type", at, found, format_args!("{:?}", seen.kind))?;
        }
        if seen.kind == FileKind::Directory {
            let is_new = !std::mem::replace(&mut seen.reached, true);
            ensure(is_new, "dirent.inode", at, found, "a directory that has no name yet")?;
            listing.below.push(dirent.ino);
        }
        Ok(())
    }

    fn dot(&mut self, found: Ino, right: Ino, at: FsBlock) -> Result<()> {
        self.count_name(right);
        ensure(found == right, "dirent.inode of a dot", at, found, right)
    }

    fn count_name(&mut self, ino: Ino) {
        self.inodes.get_mut(&ino).into_iter().for_each(|seen| seen.named += 1);
    }

    /// Compares link counts with the records that were counted.
    pub(super) fn links(&mut self) {
        let mut wrong: Vec<_> = Vec::new();
        for (ino, seen) in &self.inodes {
            let is_own = self.is_reserved(*ino) || self.reader.is_internal(*ino);
            if is_own || self.orphans.contains(ino) {
                continue;
            }
            // A directory with too many below it has 1 link, and keeps it.
            let is_many = seen.kind == FileKind::Directory && seen.links == 1 && seen.named > 2;
            if seen.links != seen.named && !is_many && !self.is_value(*ino) {
                wrong.push((*ino, seen.links, seen.named));
            }
        }
        wrong.sort_unstable();
        for (ino, found, right) in wrong {
            self.notes.add(format!("inode {ino}"), "inode.i_links_count", found, right);
        }
    }

    /// Whether an inode holds the value of an attribute, and so needs no name.
    fn is_value(&self, ino: Ino) -> bool {
        let has_any = self.reader.sb.incompat.contains(Incompat::EA_INODE);
        has_any && self.reader.inode(ino).is_ok_and(|inode| inode.flags().contains(Flags::EA_INODE))
    }
}
