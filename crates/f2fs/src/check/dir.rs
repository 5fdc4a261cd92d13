//! Directories: every entry's hash, place, target and type, and who is linked how often.

use vfs::FileKind;

use super::inode::Opened;
use super::{Checker, Links, Place};
use crate::ondisk::dentry::{Dentries, Dentry, bucket_of, level_start};
use crate::ondisk::hash::dentry_hash;
use crate::ondisk::inode::{FileFlags, Inline, MAX_DIR_DEPTH};
use crate::ondisk::{Nid, bits};

/// A directory being read.
struct Reading {
    ino: Nid,
    parent: Nid,
    depth: u32,
    dir_level: u8,
    /// Names are folded before they are hashed, by rules not known here.
    casefold: bool,
    dots: u32,
    dotdots: u32,
    subdirs: u32,
}

impl Checker {
    /// Reads directory `ino`, named in `parent`, and visits what it names.
    pub(super) fn visit_directory(&mut self, ino: Nid, parent: Nid) {
        self.report.dirs += 1;
        let Some(opened) = self.open_inode(ino) else { return };
        let i = &opened.raw().i;
        if i.kind() != Some(FileKind::Directory) {
            let found = format!("{:o}", i.mode.get());
            return self.find(Place::Inode { ino }, "i_mode", found, "a directory");
        }
        let mut dir = Reading {
            ino,
            parent,
            depth: i.current_depth.get(),
            dir_level: i.dir_level,
            casefold: i.file_flags().contains(FileFlags::CASEFOLD),
            dots: 0,
            dotdots: 0,
            subdirs: 0,
        };
        let blocks = self.walk_file(ino, &opened);
        if i.inline().contains(Inline::DENTRY) {
            let (geometry, range) = (opened.layout.inline_dentries(), opened.layout.inline_range());
            let entries = Dentries::new(geometry, &opened.block[range], opened.addr);
            self.read_entries(&mut dir, entries, None);
        }
        for (index, addr) in blocks {
            let read = self.volume.read(addr);
            let place = || Place::Block { addr: addr.into() };
            if let Some(block) = self.keep(place, read) {
                self.read_entries(&mut dir, Dentries::block(&block, addr), Some(index));
            }
        }
        self.check_directory(&opened, &dir);
    }

    fn check_directory(&mut self, opened: &Opened, dir: &Reading) {
        let (place, i) = (Place::Inode { ino: dir.ino }, &opened.raw().i);
        for (what, count) in [("entries `.`", dir.dots), ("entries `..`", dir.dotdots)] {
            if count != 1 {
                self.find(place.clone(), what, count, 1);
            }
        }
        let links = dir.subdirs.saturating_add(2);
        if i.links.get() != links {
            self.find(place.clone(), "i_links", i.links.get(), links);
        }
        if dir.ino != dir.parent && i.pino.get() != dir.parent {
            self.find(place, "i_pino", i.pino.get(), dir.parent);
        }
    }

    fn read_entries(&mut self, dir: &mut Reading, entries: Dentries<'_>, index: Option<u64>) {
        let mut from = 0;
        loop {
            let next = entries.next(from);
            let Some(Some(entry)) = self.keep(|| Place::Inode { ino: dir.ino }, next) else {
                return;
            };
            self.check_run(dir, &entries, &entry);
            self.check_entry(dir, &entry, index);
            from = entry.next_slot();
        }
    }

    /// A long name's later slots are in use as well.
    fn check_run(&mut self, dir: &Reading, entries: &Dentries<'_>, entry: &Dentry<'_>) {
        if (entry.slot..entry.next_slot()).any(|slot| !entries.is_used(slot)) {
            self.find(place_of(dir, entry), "bitmap", "slots of the name clear", "set");
        }
    }

    fn check_entry(&mut self, dir: &mut Reading, entry: &Dentry<'_>, index: Option<u64>) {
        let (expected, seen) = match entry.name {
            b"." => (dir.ino, &mut dir.dots),
            b".." => (dir.parent, &mut dir.dotdots),
            _ => {
                self.check_place(dir, entry, index);
                return self.check_child(dir, entry);
            }
        };
        *seen += 1;
        if entry.ino != expected {
            self.find(place_of(dir, entry), "ino", entry.ino, expected);
        }
        if entry.kind != FileKind::Directory || entry.hash != 0 {
            let found = format!("{:?}, hash {:#x}", entry.kind, entry.hash);
            self.find(place_of(dir, entry), "entry", found, "Directory, hash 0x0");
        }
    }

    /// The hash is the name's, and the block one of the hash's bucket.
    fn check_place(&mut self, dir: &Reading, entry: &Dentry<'_>, index: Option<u64>) {
        if entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            self.find(place_of(dir, entry), "name", "NUL or `/`", "neither");
        }
        if dir.casefold {
            return;
        }
        let hash = dentry_hash(entry.name);
        if entry.hash != hash {
            let (found, allowed) = (format!("{:#010x}", entry.hash), format!("{hash:#010x}"));
            self.find(place_of(dir, entry), "hash", found, allowed);
        }
        let Some(index) = index else { return };
        let level = (0..=MAX_DIR_DEPTH).find(|&l| index < level_start(l + 1, dir.dir_level));
        let Some(level) = level.filter(|&level| level < dir.depth) else {
            let allowed = format!("within {} levels", dir.depth);
            return self.find(place_of(dir, entry), "block", index, allowed);
        };
        let bucket = bucket_of(level, dir.dir_level, hash);
        if !bucket.contains(&index) {
            self.find(place_of(dir, entry), "block", index, format!("{bucket:?}"));
        }
    }

    /// What the entry names: directories are visited later, everything else at once.
    fn check_child(&mut self, dir: &mut Reading, entry: &Dentry<'_>) {
        let ino = entry.ino;
        let is_dir = entry.kind == FileKind::Directory;
        dir.subdirs += u32::from(is_dir);
        if !self.volume.sb.is_node_id(ino) {
            let allowed = format!("3..{}", self.volume.sb.max_nid());
            return self.find(place_of(dir, entry), "ino", ino, allowed);
        }
        if !bits::lsb::test(&self.nids_used, ino as usize) {
            return self.find(
                place_of(dir, entry),
                "ino",
                format!("{ino}, which is free"),
                "in use",
            );
        }
        let again = bits::lsb::set(&mut self.nids_reached, ino as usize);
        match (again, is_dir) {
            (false, true) => self.pending.push((ino, dir.ino)),
            (false, false) => self.visit_file(dir, entry),
            (true, true) => {
                self.find(place_of(dir, entry), "links to a directory", "several", "one");
            }
            (true, false) => match self.links.get_mut(&ino) {
                Some(links) => links.seen = links.seen.saturating_add(1),
                None => {
                    let found = format!("another name of node {ino}");
                    self.find(place_of(dir, entry), "i_links", found, "a link for each name");
                }
            },
        }
    }

    fn visit_file(&mut self, dir: &Reading, entry: &Dentry<'_>) {
        self.report.files += 1;
        let ino = entry.ino;
        let Some(opened) = self.open_inode(ino) else { return };
        let i = &opened.raw().i;
        if i.kind() != Some(entry.kind) {
            let found = format!("{:?}", entry.kind);
            self.find(place_of(dir, entry), "file_type", found, format!("{:?}", i.kind()));
        }
        match i.links.get() {
            0 => self.find(Place::Inode { ino }, "i_links", 0, "1 or more, for it has a name"),
            1 => {}
            claimed => drop(self.links.insert(ino, Links { claimed, seen: 1 })),
        }
        if i.kind() != Some(FileKind::Directory) {
            self.walk_file(ino, &opened);
        }
    }
}

fn place_of(dir: &Reading, entry: &Dentry<'_>) -> Place {
    Place::Dentry { dir: dir.ino, name: entry.name.escape_ascii().to_string().into() }
}
