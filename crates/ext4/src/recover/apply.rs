//! Records of single files, brought home after the journal's transactions: files get the contents
//! they had, bitmaps follow from what they gain and lose, and new ones get their names.
//!
//! Each file or directory is one operation of the engine, so every state in between is consistent,
//! and applying a record to a volume that has it changes nothing. The journal keeps the records
//! until all are applied and committed.

use std::collections::BTreeMap;
use std::ops::Range;

use drive::Block;
use journal::{Entry, Record};
use vfs::op::Stop;
use vfs::{Errno, FileKind};

use crate::alloc::groups::by_group;
use crate::blocks::Kind;
use crate::dir::entries;
use crate::error::{Error, Result};
use crate::inode::cached::Inode;
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::want::{Step, Want};
use crate::ondisk::extent::{Node, emit_leaf};
use crate::ondisk::inode::Flags;
use crate::ondisk::{FsBlock, Ino, bitmap, ensure};

/// Room in the log that most entries need.
const ROOM: u32 = 24;
/// Runs of blocks that one file may have: as many as a record's nodes can name.
const RUNS_MAX: usize = 1 << 17;

/// The blocks of a file: nodes of its tree, and contents.
#[derive(Default)]
struct Tree {
    nodes: Vec<FsBlock>,
    runs: Vec<Range<FsBlock>>,
}

impl Engine {
    /// Applies the records, oldest first. Durable once the journal is closed. How many inodes they
    /// had.
    pub(crate) fn apply_records(&self, records: Vec<Record>) -> Result<usize> {
        let entries = newest(records);
        for entry in &entries {
            self.change(&[entry.ino.into()], 2, |draft| draft.claim(entry))?;
        }
        for entry in &entries {
            self.change(&[entry.ino.into()], ROOM, |draft| draft.restore(entry))?;
        }
        self.commit()?;
        Ok(entries.len())
    }
}

/// The newest entry of each inode, without entries whose name a newer one has. A directory comes
/// before what is in it.
fn newest(records: Vec<Record>) -> Vec<Entry> {
    let mut newest: BTreeMap<Ino, (usize, usize, Entry)> = BTreeMap::new();
    for (at, entry) in records.into_iter().flat_map(|record| record.entries).enumerate() {
        let first = newest.get(&entry.ino).map_or(at, |(first, ..)| *first);
        newest.insert(entry.ino, (first, at, entry));
    }
    let mut names: BTreeMap<(Ino, &[u8]), (usize, Ino)> = BTreeMap::new();
    for (_, at, entry) in newest.values().filter(|(.., entry)| entry.is_new) {
        let holder = names.entry((entry.parent, &entry.name)).or_insert((*at, entry.ino));
        *holder = (*at, entry.ino).max(*holder);
    }
    let holders: Vec<Ino> = names.into_values().map(|(_, ino)| ino).collect();
    let mut kept: Vec<_> = newest.into_values().collect();
    kept.retain(|(.., entry)| !entry.is_new || holders.contains(&entry.ino));
    kept.sort_by_key(|(first, ..)| *first);
    kept.into_iter().map(|(.., entry)| entry).collect()
}

impl Draft<'_, '_> {
    /// Takes the blocks that the entry's file gains out of the allocator's bits: what is made for
    /// other entries must not get them.
    fn claim(&mut self, entry: &Entry) -> Step<()> {
        let new = self.recorded(entry)?;
        if new.kind() == FileKind::Directory {
            return Ok(());
        }
        let before = self.tree_before(entry)?;
        let after = self.tree(&new, &entry.images)?;
        self.take_gained(entry.ino, less(&after.all(), &before.all()))
    }

    /// Takes blocks that the file gains, which must be free.
    pub(super) fn take_gained(&self, ino: Ino, gained: Vec<Range<FsBlock>>) -> Step<()> {
        let engine = self.volume();
        for (group, bits) in gained.into_iter().flat_map(|run| by_group(&engine.sb, run)) {
            let mut state = engine.groups.lock(group);
            let bitmaps = state.bitmaps.as_mut().ok_or(Stop::Want(Want::Group(group)))?;
            let at = engine.sb.group_start(group) + u64::from(bits.start);
            let is_used = bitmaps.blocks.read(|map| bits.clone().any(|bit| bitmap::test(map, bit)));
            let found = format_args!("blocks in use for inode {ino}");
            ensure(!is_used, "record", at, found, "free blocks")?;
            bitmap::set_range(bitmaps.blocks_taken.make_mut(), bits);
        }
        Ok(())
    }

    /// Makes the inode what the entry says.
    fn restore(&mut self, entry: &Entry) -> Step<()> {
        let mut new = self.recorded(entry)?;
        let (ino, kind) = (entry.ino, new.kind());
        let exists = self.has_inode(ino)?;
        match (exists, kind) {
            (true, FileKind::Directory) => {}
            (false, FileKind::Directory) if entry.is_new => {
                empty(&mut new, self.volume().sb.block_size);
                self.use_inode(ino, true)?;
                self.put_inode(ino, new);
                self.init_dir(ino, entry.parent)?;
            }
            (true, FileKind::Regular) => {
                self.remap(entry, &new)?;
                let there = &self.inode(ino)?.raw;
                let (found, allowed) = (new.raw.file_acl(), there.file_acl());
                ensure(found == allowed, "record", 0, found, allowed)?;
                new.raw.links_count = there.links_count;
                *self.inode_mut(ino)? = new;
            }
            (false, FileKind::Regular) if entry.is_new => {
                self.remap(entry, &new)?;
                self.use_inode(ino, false)?;
                self.put_inode(ino, new);
            }
            _ => {
                let found = format!("inode {ino}, {kind:?}");
                let allowed = "a file or directory that is new or there";
                return Err(Error::corrupt("record", 0_u32, found, allowed).into());
            }
        }
        let name = (entry.parent, &*entry.name);
        if entry.is_new { self.give_name(name, ino, kind) } else { Ok(()) }
    }

    /// The inode of an entry.
    fn recorded(&self, entry: &Entry) -> Step<Inode> {
        let sb = &self.volume().sb;
        sb.inode_place(entry.ino)?;
        let is_whole = entry.ino >= sb.first_ino && entry.inode.len() == sb.inode_size as usize;
        let found = format_args!("{} bytes for inode {}", entry.inode.len(), entry.ino);
        ensure(is_whole, "record", 0, found, "an inode")?;
        let (at, _) = self.volume().inode_slot(entry.ino)?;
        Ok(Inode::parse(sb, entry.ino, &entry.inode, at)?)
    }

    pub(super) fn has_inode(&self, ino: Ino) -> Step<bool> {
        let engine = self.volume();
        let place = engine.sb.inode_place(ino)?;
        let state = engine.groups.lock(place.group);
        let bitmaps = state.bitmaps.as_ref().ok_or(Stop::Want(Want::Group(place.group)))?;
        Ok(bitmaps.inodes.read(|bits| bitmap::test(bits, place.index)))
    }

    /// Moves the file from the blocks it has to those of the entry.
    fn remap(&mut self, entry: &Entry, new: &Inode) -> Step<()> {
        let before = self.tree_before(entry)?;
        let after = self.tree(new, &entry.images)?;
        let engine = self.volume();
        let gained = less(&after.all(), &before.all());
        let lost = less(&before.all(), &after.all());
        self.take_gained(entry.ino, gained.clone())?;
        for (group, _) in lost.iter().flat_map(|run| by_group(&engine.sb, run.clone())) {
            if engine.groups.lock(group).bitmaps.is_none() {
                return Err(Stop::Want(Want::Group(group)));
            }
        }
        self.changes.adopted.extend(gained);
        self.changes.free(lost);
        for node in before.nodes.iter().filter(|node| !after.nodes.contains(node)) {
            self.forget(*node);
        }
        for (home, image) in entry.images.iter().filter(|(home, _)| after.nodes.contains(home)) {
            self.put(*home, image.clone());
        }
        Ok(())
    }

    /// Blocks that the file has on the volume.
    fn tree_before(&self, entry: &Entry) -> Step<Tree> {
        if !self.has_inode(entry.ino)? {
            return Ok(Tree::default());
        }
        let inode = self.inode(entry.ino)?;
        let has_tree = inode.kind() == FileKind::Regular && inode.has_extents();
        let found = format_args!("inode {}, {:?}", entry.ino, inode.kind());
        ensure(has_tree, "record", 0, found, "a file with extents")?;
        self.tree(inode, &[])
    }

    fn tree(&self, inode: &Inode, images: &[(FsBlock, Block)]) -> Step<Tree> {
        let mut tree = Tree::default();
        if inode.has_extents() {
            self.walk(inode, &inode.raw.block, (None, inode.at), images, &mut tree)?;
        }
        tree.runs.sort_by_key(|run| run.start);
        tree.nodes.sort_unstable();
        for pair in tree.all().windows(2) {
            let (at, allowed) = (pair[1].start, "blocks that a file has once");
            ensure(pair[0].end <= at, "record", at, "a block twice", allowed)?;
        }
        Ok(tree)
    }

    fn walk(
        &self,
        inode: &Inode,
        bytes: &[u8],
        (depth, at): (Option<u16>, FsBlock),
        images: &[(FsBlock, Block)],
        tree: &mut Tree,
    ) -> Step<()> {
        let sb = &self.volume().sb;
        let node = Node::parse(bytes, depth, at)?;
        let fits = tree.runs.len() + tree.nodes.len() <= RUNS_MAX;
        ensure(fits, "record", at, "too many extents", RUNS_MAX)?;
        if node.depth == 0 {
            for extent in node.extents() {
                sb.check_blocks(extent.start, extent.len.into(), "extent.ee_start", at)?;
                tree.runs.push(extent.home());
            }
            return Ok(());
        }
        for index in node.indexes() {
            sb.check_blocks(index.child, 1, "extent_idx.ei_leaf", at)?;
            tree.nodes.push(index.child);
            let image = images.iter().find(|(home, _)| *home == index.child);
            let block = match image {
                Some((_, image)) => image.clone(),
                None => self.block_of(index.child, Kind::Extents(inode.seed))?,
            };
            self.walk(inode, &block[..], (Some(node.depth - 1), index.child), images, tree)?;
        }
        Ok(())
    }

    /// Puts the inode under its name. What stands there was unlinked before.
    pub(super) fn give_name(
        &mut self,
        (parent, name): (Ino, &[u8]),
        ino: Ino,
        kind: FileKind,
    ) -> Step<()> {
        let dir = self.inode(parent)?;
        let can = dir.kind() == FileKind::Directory && dir.links() > 0 && !name.is_empty();
        ensure(can, "record", 0, format_args!("a name in inode {parent}"), "a directory")?;
        match entries::find(self, dir, name)? {
            Some(found) if found.ino == ino => return Ok(()),
            Some(found) => {
                if self.inode(found.ino)?.kind() == FileKind::Directory {
                    return Err(Errno::UCLEAN.into());
                }
                self.set_entry(parent, found, ino, kind)?;
                self.touch_dir(parent)?;
                self.drop_link(found.ino)?;
            }
            None => self.add_entry(parent, name, ino, kind)?,
        }
        if kind == FileKind::Directory { self.add_link(parent) } else { Ok(()) }
    }
}

/// A directory without entries: those that count have entries in records of their own.
fn empty(dir: &mut Inode, block_size: u32) {
    dir.raw.flags = (dir.raw.flags() - Flags::INDEX).bits().into();
    emit_leaf(&mut dir.raw.block, &[]);
    dir.raw.set_size(0);
    dir.raw.set_sectors(0, block_size);
    dir.raw.links_count = 2.into();
    dir.size = 0;
}

impl Tree {
    /// All blocks, in order.
    fn all(&self) -> Vec<Range<FsBlock>> {
        let nodes = self.nodes.iter().map(|node| *node..node + 1);
        let mut all: Vec<_> = self.runs.iter().cloned().chain(nodes).collect();
        all.sort_by_key(|run| run.start);
        all
    }
}

/// Blocks of `runs` that are not in `others`. Both are in order and do not overlap.
fn less(runs: &[Range<FsBlock>], others: &[Range<FsBlock>]) -> Vec<Range<FsBlock>> {
    let mut left = Vec::new();
    let mut from = 0;
    for run in runs {
        let mut start = run.start;
        while others.get(from).is_some_and(|other| other.end <= start) {
            from += 1;
        }
        for other in others[from..].iter().take_while(|other| other.start < run.end) {
            if start < other.start {
                left.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < run.end {
            left.push(start..run.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ino: Ino, parent: Ino, name: &str) -> Entry {
        let name = name.as_bytes().into();
        Entry { ino, is_new: parent > 0, parent, name, ..Entry::default() }
    }

    fn kept(records: Vec<Vec<Entry>>) -> Vec<Ino> {
        let record = |entries| Record { entries, ..Record::default() };
        newest(records.into_iter().map(record).collect()).iter().map(|entry| entry.ino).collect()
    }

    #[test]
    fn the_newest_record_of_an_inode_and_of_a_name_counts() {
        let (dir, file) = (entry(12, 2, "dir"), entry(13, 12, "a"));
        let later = vec![dir.clone(), entry(14, 12, "b")];
        assert_eq!(kept(vec![vec![dir.clone(), file.clone()], later.clone()]), [12, 13, 14]);
        assert_eq!(kept(vec![vec![dir, file], later, vec![entry(15, 12, "a")]]), [12, 14, 15]);
        // An inode that is not new has no name to lose.
        assert_eq!(kept(vec![vec![entry(16, 0, "")], vec![entry(17, 0, "")]]), [16, 17]);
    }

    #[test]
    fn what_is_gained_and_lost() {
        let less = |runs: &[(u64, u64)], others: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let ranges = |list: &[(u64, u64)]| list.iter().map(|(a, b)| *a..*b).collect::<Vec<_>>();
            less(&ranges(runs), &ranges(others))
                .into_iter()
                .map(|run| (run.start, run.end))
                .collect()
        };
        assert_eq!(less(&[(0, 10), (20, 30)], &[]), [(0, 10), (20, 30)]);
        let left = [(0, 5), (22, 25), (26, 30)];
        assert_eq!(less(&[(0, 10), (20, 30)], &[(5, 22), (25, 26)]), left);
        assert_eq!(less(&[(5, 6)], &[(0, 10)]), []);
        assert_eq!(less(&[(0, 4), (4, 8)], &[(3, 5)]), [(0, 3), (5, 8)]);
    }
}
