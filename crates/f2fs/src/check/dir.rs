//! Directories: every entry's hash, place, target and type, and how often each inode is linked.
//!
//! A block's entries are first read ([`super::dentry`]), then judged one by one here. When mending,
//! a block with an error is rewritten from the entries that stay, each in its old slot, so that
//! earlier positions of `readdir` stay valid.

use std::collections::BTreeSet;

use vfs::FileKind;

use super::dentry::Entry;
use super::inode::Opened;
use super::mend::NewName;
use super::mend_inode::Named;
use super::{Checker, Links, Place, Remedy};
use crate::dir::wanted::Naming;
use crate::ondisk::dentry::{Dentries, DentriesMut, DentryGeometry, bucket_of, level_of};
use crate::ondisk::hash::dentry_hash;
use crate::ondisk::inode::{Inline, MAX_DIR_DEPTH, RawInodeBlock};
use crate::ondisk::{Nid, bits};

/// A directory being read.
pub(super) struct Reading {
    pub ino: Nid,
    /// The directory that names it; `None` if none does.
    pub parent: Option<Nid>,
    depth: u32,
    dir_level: u8,
    pub naming: Naming,
    dots: u32,
    dotdots: u32,
    subdirs: u32,
    /// Names seen so far.
    names: BTreeSet<Box<[u8]>>,
}

impl Reading {
    /// A directory of which only the number is known.
    pub(super) fn new(ino: Nid) -> Self {
        Self {
            ino,
            parent: None,
            depth: 1,
            dir_level: 0,
            naming: Naming::Exact,
            dots: 0,
            dotdots: 0,
            subdirs: 0,
            names: BTreeSet::new(),
        }
    }
}

/// What becomes of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It stays, perhaps changed.
    Keep,
    /// It names nothing, or an inode that already has this name.
    Drop,
    /// It is right, but no lookup would find it there.
    Move,
}

impl Checker {
    /// Reads directory `ino`, named in `parent`, and visits what it names.
    pub(super) fn visit_directory(&mut self, ino: Nid, parent: Option<Nid>) {
        self.report.dirs += 1;
        let named =
            Named { kind: Some(FileKind::Directory), parent: parent.unwrap_or(0), name: b"" };
        let Some(mut opened) = self.open_inode(ino, named) else { return };
        let i = &opened.raw().i;
        if i.kind() != Some(FileKind::Directory) {
            let found = format!("{:o}", i.mode.get());
            self.find(Place::Inode { ino }, "i_mode", found, "a directory");
            if !self.mending() {
                return;
            }
            make_directory(opened.change());
        }
        let i = &opened.raw().i;
        let mut dir = Reading {
            parent,
            depth: i.current_depth.get(),
            dir_level: i.dir_level,
            naming: Naming::of(i, self.volume.sb.casefold),
            ..Reading::new(ino)
        };
        let blocks = self.walk_file(ino, &mut opened);
        if opened.raw().i.inline().contains(Inline::DENTRY) {
            self.read_inline(&mut dir, &mut opened);
        }
        self.mend_dir_level(&mut dir, &mut opened, &blocks);
        for (index, addr) in blocks {
            let read = self.volume.read(addr);
            let place = || Place::Block { addr: addr.into() };
            let Some(mut block) = self.keep(place, read) else { continue };
            let entries = Dentries::block(&block, addr);
            if let Some(kept) = self.read_entries(&mut dir, entries, Some(index)) {
                let bytes = block.make_mut();
                write_entries(DentryGeometry::BLOCK, bytes, &kept);
                if let Some(mend) = &mut self.mend {
                    mend.dirs.insert((ino, index), block);
                }
            }
        }
        self.check_directory(&mut opened, &dir);
        self.close_inode(ino, opened);
    }

    fn read_inline(&mut self, dir: &mut Reading, opened: &mut Opened) {
        let (geometry, range) = (opened.layout.inline_dentries(), opened.layout.inline_range());
        let block = opened.block.clone();
        let entries = Dentries::new(geometry, &block[range.clone()], opened.addr);
        if let Some(kept) = self.read_entries(dir, entries, None) {
            opened.change();
            write_entries(geometry, &mut opened.block.make_mut()[range], &kept);
        }
    }

    fn check_directory(&mut self, opened: &mut Opened, dir: &Reading) {
        let place = Place::Inode { ino: dir.ino };
        let (links, pino, depth) = {
            let i = &opened.raw().i;
            (i.links.get(), i.pino.get(), i.current_depth.get())
        };
        let up = dir.parent.unwrap_or(self.volume.sb.root_ino);
        for (what, count, name, ino) in [
            ("entries '.'", dir.dots, &b"."[..], dir.ino),
            ("entries '..'", dir.dotdots, b"..", up),
        ] {
            if count == 0 || count != 1 && !self.mending() {
                self.find(place.clone(), what, count, 1);
                self.add_name(dir.ino, name, ino, FileKind::Directory);
            }
        }
        let allowed = dir.subdirs.saturating_add(2);
        if links != allowed {
            self.find(place.clone(), "i_links", links, allowed);
            opened.change().i.links.set(allowed);
        }
        if let Some(parent) = dir.parent.filter(|&parent| dir.ino != parent && pino != parent) {
            self.find(place.clone(), "i_pino", pino, parent);
            opened.change().i.pino.set(parent);
        }
        if depth != dir.depth {
            opened.change().i.current_depth.set(dir.depth);
        }
    }

    fn add_name(&mut self, dir: Nid, name: &[u8], ino: Nid, kind: FileKind) {
        if let Some(mend) = &mut self.mend {
            mend.names.push(NewName { dir, name: name.to_vec(), ino, kind });
        }
    }

    /// Judges a block's entries. When mending, returns those that stay if anything must change.
    fn read_entries(
        &mut self,
        dir: &mut Reading,
        entries: Dentries<'_>,
        index: Option<u64>,
    ) -> Option<Vec<Entry>> {
        let (mut list, mut changed) = self.list_entries(dir, entries);
        list.retain_mut(|entry| {
            let before = entry.clone();
            let verdict = self.judge(dir, entry, index);
            if verdict == Verdict::Move {
                self.add_name(dir.ino, &entry.name, entry.ino, entry.kind);
            }
            changed |= verdict != Verdict::Keep || *entry != before;
            verdict == Verdict::Keep
        });
        (changed && self.mending()).then_some(list)
    }

    fn judge(&mut self, dir: &mut Reading, entry: &mut Entry, index: Option<u64>) -> Verdict {
        let (expected, seen) = match entry.name.as_slice() {
            b"." => (Some(dir.ino), &mut dir.dots),
            b".." => (dir.parent, &mut dir.dotdots),
            _ => {
                self.check_name(dir, entry);
                if !dir.names.insert(entry.name.clone().into()) {
                    self.find(place_of(dir, entry), "entries of this name", "another", "one");
                    self.remedy(Remedy::Removed);
                    return Verdict::Drop;
                }
                if self.check_child(dir, entry) == Verdict::Drop && self.mending() {
                    return Verdict::Drop;
                }
                return self.check_place(dir, entry, index);
            }
        };
        *seen += 1;
        let again = *seen > 1;
        if again {
            self.find(place_of(dir, entry), "entries of this name", "another", "one");
            self.remedy(Remedy::Removed);
            return Verdict::Drop;
        }
        if let Some(expected) = expected.filter(|&expected| expected != entry.ino) {
            self.find(place_of(dir, entry), "ino", entry.ino, expected);
            entry.ino = expected;
        }
        if entry.kind != FileKind::Directory || entry.hash != 0 {
            let found = format!("{:?}, hash {:#x}", entry.kind, entry.hash);
            self.find(place_of(dir, entry), "entry", found, "Directory, hash 0x0");
            (entry.kind, entry.hash) = (FileKind::Directory, 0);
        }
        Verdict::Keep
    }

    /// Whether the block belongs to the bucket that the hash selects.
    fn check_place(&mut self, dir: &mut Reading, entry: &Entry, index: Option<u64>) -> Verdict {
        let Some(index) = index else { return Verdict::Keep };
        let level = level_of(index, dir.dir_level);
        let Some(level) = level.filter(|&level| level < dir.depth || self.mending()) else {
            let allowed = format!("within {} levels", dir.depth);
            self.find(place_of(dir, entry), "block", index, allowed);
            return Verdict::Move;
        };
        let bucket = bucket_of(level, dir.dir_level, entry.hash);
        if !bucket.contains(&index) {
            self.find(place_of(dir, entry), "block", index, format!("{bucket:?}"));
            self.remedy(Remedy::Moved);
            return Verdict::Move;
        }
        if level >= dir.depth {
            let allowed = format!("within {} levels", dir.depth);
            self.find(place_of(dir, entry), "block", index, allowed);
            dir.depth = level + 1;
        }
        Verdict::Keep
    }

    /// Checks what the entry names. Directories are visited later, everything else at once.
    fn check_child(&mut self, dir: &mut Reading, entry: &mut Entry) -> Verdict {
        let ino = entry.ino;
        if !self.volume.sb.is_node_id(ino) {
            let allowed = format!("3..{}", self.volume.sb.max_nid());
            self.find(place_of(dir, entry), "ino", ino, allowed);
            self.remedy(Remedy::Removed);
            return Verdict::Drop;
        }
        if self.mending() {
            if !self.mend_target(dir, entry) {
                return Verdict::Drop;
            }
        } else if !bits::lsb::test(&self.nids_used, ino as usize) {
            let found = format!("{ino}, which is free");
            self.find(place_of(dir, entry), "ino", found, "in use");
            return Verdict::Drop;
        }
        let is_dir = entry.kind == FileKind::Directory;
        let again = bits::lsb::set(&mut self.nids_reached, ino as usize);
        let mending = self.mending();
        match (again, is_dir) {
            (false, true) => self.pending.push((ino, Some(dir.ino))),
            (false, false) => {
                if !self.visit_file(dir, entry) && self.mending() {
                    bits::lsb::clear(&mut self.nids_reached, ino as usize);
                    return Verdict::Drop;
                }
            }
            (true, true) => {
                self.find(place_of(dir, entry), "links to a directory", "several", "one");
                self.remedy(Remedy::Removed);
                return Verdict::Drop;
            }
            (true, false) => match self.links.get_mut(&ino) {
                Some(links) => links.seen = links.seen.saturating_add(1),
                None if mending => {
                    self.links.insert(ino, Links { claimed: 1, seen: 2 });
                }
                None => {
                    let found = format!("another name of node {ino}");
                    self.find(place_of(dir, entry), "i_links", found, "a link for each name");
                }
            },
        }
        dir.subdirs += u32::from(is_dir);
        Verdict::Keep
    }

    /// Whether the entry names an existing inode. Corrects the entry's type.
    fn mend_target(&mut self, dir: &Reading, entry: &mut Entry) -> bool {
        let Some((_, block)) = self.locate_node(entry.ino, entry.ino, 0) else {
            self.find(place_of(dir, entry), "ino", format!("{}, no inode", entry.ino), "an inode");
            self.remedy(Remedy::Removed);
            return false;
        };
        let kind = RawInodeBlock::of(&block).i.kind().unwrap_or(entry.kind);
        if kind != entry.kind {
            let (found, allowed) = (format!("{:?}", entry.kind), format!("{kind:?}"));
            self.find(place_of(dir, entry), "file_type", found, allowed);
            entry.kind = kind;
        }
        true
    }

    pub(super) fn visit_file(&mut self, dir: &Reading, entry: &mut Entry) -> bool {
        self.report.files += 1;
        let ino = entry.ino;
        let named = Named { kind: Some(entry.kind), parent: dir.ino, name: &entry.name };
        let Some(mut opened) = self.open_inode(ino, named) else { return false };
        let i = &opened.raw().i;
        let kind = i.kind().unwrap_or(entry.kind);
        let claimed = i.links.get();
        if kind != entry.kind {
            let (found, allowed) = (format!("{:?}", entry.kind), format!("{kind:?}"));
            self.find(place_of(dir, entry), "file_type", found, allowed);
            entry.kind = kind;
        }
        match claimed {
            0 if !self.mending() => {
                self.find(Place::Inode { ino }, "i_links", 0, "1 or more, for it has a name");
            }
            1 => {}
            claimed => drop(self.links.insert(ino, Links { claimed, seen: 1 })),
        }
        if kind != FileKind::Directory {
            self.walk_file(ino, &mut opened);
        }
        self.close_inode(ino, opened);
        true
    }

    /// `dir_level` decides where every name belongs. If most names are in the wrong place under
    /// this level but not under another, the level is wrong.
    fn mend_dir_level(&mut self, dir: &mut Reading, opened: &mut Opened, blocks: &[(u64, u32)]) {
        if !self.mending() || blocks.len() < 2 && dir.dir_level == 0 {
            return;
        }
        let mut misplaced = [0_u64; MAX_DIR_DEPTH as usize + 1];
        let own = usize::from(dir.dir_level).min(misplaced.len() - 1);
        let levels: Vec<usize> = (0..=4).chain([own]).collect();
        for &(index, addr) in blocks {
            let Ok(block) = self.volume.read(addr) else { continue };
            for hash in Dentries::block(&block, addr).hashes() {
                for &level in &levels {
                    let right = level_of(index, level as u8)
                        .is_some_and(|at| bucket_of(at, level as u8, hash).contains(&index));
                    misplaced[level] += u64::from(!right);
                }
            }
        }
        let best = levels.into_iter().min_by_key(|&level| (misplaced[level], level != own));
        if let Some(best) = best.filter(|&best| misplaced[best] < misplaced[own]) {
            let place = Place::Inode { ino: dir.ino };
            self.find(place, "i_dir_level", dir.dir_level, best);
            dir.dir_level = best as u8;
            opened.change().i.dir_level = best as u8;
        }
    }
}

/// Turns an inode that must be a directory into one. Its contents are then read as a directory.
fn make_directory(inode: &mut RawInodeBlock) {
    let permissions = inode.i.mode.get() & 0o7777;
    inode.i.mode.set(FileKind::Directory.mode_bits() as u16 | permissions);
    let inline = inode.i.inline() - Inline::DATA - Inline::DATA_EXIST;
    inode.i.set_inline(inline);
    inode.i.current_depth.set(1);
}

/// Fills `area`, shaped like `geometry`, with these entries and no others.
fn write_entries(geometry: DentryGeometry, area: &mut [u8], entries: &[Entry]) {
    area.fill(0);
    let mut dentries = DentriesMut::new(geometry, area);
    for entry in entries {
        dentries.insert(entry.slot, &entry.name, entry.hash, entry.ino, entry.kind);
    }
}

pub(super) fn place_of(dir: &Reading, entry: &Entry) -> Place {
    Place::Dentry { dir: dir.ino, name: entry.name.escape_ascii().to_string().into() }
}

impl Checker {
    /// Checks that the name has the right hash and only bytes that a name can have.
    fn check_name(&mut self, dir: &Reading, entry: &mut Entry) {
        if dir.naming.hash_of(&entry.name).is_some_and(|hash| hash != entry.hash)
            && self.mending()
            && self.restore_name(dir, entry)
        {
            return;
        }
        let is_bad = |byte: &u8| matches!(byte, 0 | b'/');
        let encrypted = matches!(dir.naming, Naming::Encrypted { .. });
        if !encrypted && entry.name.iter().any(is_bad) {
            self.find(place_of(dir, entry), "name", "NUL or '/'", "neither");
            entry.name.iter_mut().filter(|byte| is_bad(byte)).for_each(|byte| *byte = b'_');
        }
        let Some(hash) = dir.naming.hash_of(&entry.name) else { return };
        if entry.hash != hash {
            let (found, allowed) = (format!("{:#010x}", entry.hash), format!("{hash:#010x}"));
            self.find(place_of(dir, entry), "hash", found, allowed);
            entry.hash = hash;
        }
    }

    /// Replaces a name that does not match its hash with one that does: the name in the inode, or
    /// the name with one bit flipped. Leaves it if one flipped bit of the hash would explain it as
    /// well.
    fn restore_name(&mut self, dir: &Reading, entry: &mut Entry) -> bool {
        // After folding, many names have the same hash.
        let hash = dir.naming.hash_of_exact(&entry.name);
        if hash.is_none_or(|hash| (hash ^ entry.hash).is_power_of_two()) {
            return false;
        }
        let Some(name) = self.known_name(dir, entry).or_else(|| corrected_name(entry)) else {
            return false;
        };
        let allowed = name.escape_ascii().to_string();
        self.find(place_of(dir, entry), "name", "not its hash's", allowed);
        entry.name = name;
        true
    }

    /// The name in the inode, if it is this entry's.
    fn known_name(&mut self, dir: &Reading, entry: &Entry) -> Option<Vec<u8>> {
        let nat = self.volume.nat(entry.ino).ok()?;
        let block = self.probe(nat.addr, entry.ino, entry.ino, 0).ok()?;
        let i = &RawInodeBlock::of(&block).i;
        let fits = i.pino.get() == dir.ino
            && dentry_hash(i.name()) == entry.hash
            && i.name().len() == entry.name.len();
        fits.then(|| i.name().to_vec())
    }
}

/// The entry's name with that one bit flipped that makes it match its hash.
fn corrected_name(entry: &Entry) -> Option<Vec<u8>> {
    let mut name = entry.name.clone();
    for at in 0..name.len() {
        for bit in 0..8 {
            name[at] ^= 1 << bit;
            if dentry_hash(&name) == entry.hash && !matches!(name[at], 0 | b'/') {
                return Some(name);
            }
            name[at] ^= 1 << bit;
        }
    }
    None
}
