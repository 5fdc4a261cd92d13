//! Making and removing names concurrently with changes of other inodes.
//!
//! Only for plain files, and only if all that the change needs is cached. All other changes lock
//! the volume exclusively.

use vfs::{Attr, FileKind, RenameFlags};

use crate::F2fs;
use crate::alloc::nat::Cached;
use crate::dir::change::{Entries, NewEntry, Room};
use crate::dir::entries::{EntryPlace, Found, Names};
use crate::dir::namei::{NameIn, Namei, NewInode};
use crate::dir::rename::Rename;
use crate::error::Result;
use crate::inode::attr::Stat;
use crate::inode::change::Change;
use crate::inode::see::{Own, See, Unseen};
use crate::mount::quota::Amount;
use crate::ondisk::{NULL_ADDR, Nid, is_data_addr};

/// How many blocks a change of an entry makes dirty at most: that of the entry with its node, and
/// the directory's inode.
const DIRECTORY: u64 = 3;

impl F2fs {
    /// Makes an inode and its name, if the lock is contended and all it takes is cached.
    pub(crate) fn make_beside(&self, new: &NewInode<'_>) -> Result<Option<Attr>> {
        if !self.is_crowded() {
            return Ok(None);
        }
        // The number comes first, since it decides which shards to lock.
        let taken = self.look().nat.lock().reserve_known();
        let Some((ino, known)) = taken else { return Ok(None) };
        let made = self.own([new.parent, ino], |own| own.make(ino, known, new));
        if !matches!(made, Ok(Some(_))) {
            self.look().nat.lock().give_back(ino);
        }
        made
    }

    /// Removes a name, if the lock is contended and all it takes is cached.
    pub(crate) fn unlink_beside(&self, at: NameIn<'_>) -> Result<Option<()>> {
        if !self.is_crowded() {
            return Ok(None);
        }
        // The name's inode decides which shards to lock. Under these locks it is looked up again.
        match self.glance(|volume| volume.find(at.dir, at.name)) {
            Ok(Some(found)) => self.own([at.dir, found.ino], |own| own.unlink(at)),
            _ => Ok(None),
        }
    }

    /// Moves a file's name, if the lock is contended and all it takes is cached.
    pub(crate) fn rename_beside(
        &self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        flags: RenameFlags,
    ) -> Result<Option<()>> {
        if !self.is_crowded() || !(flags - RenameFlags::NOREPLACE).is_empty() {
            return Ok(None);
        }
        let Ok(Some((source, target))) = self.glance(|volume| {
            let source = volume.find(from.dir, from.name)?;
            Ok((source.ino, volume.find_entry(to.dir, to.name)?.map(|found| found.ino)))
        }) else {
            return Ok(None);
        };
        let inodes = [from.dir, to.dir, source, target.unwrap_or(source)];
        self.own(inodes, |own| own.rename(from, to, flags))
    }
}

impl Own<'_> {
    /// Makes inode `ino`, whose number has been taken, and its name.
    fn make(&mut self, ino: Nid, known: Cached, new: &NewInode<'_>) -> Result<Attr, Unseen> {
        let NewInode { parent, name, kind, .. } = *new;
        self.check_free(parent, name)?;
        let entry = self.new_entry(parent, name, ino, kind)?;
        let room = self.foresee_entry(new, &entry)?;
        self.make_ready(parent, room)?;
        let owner = self.take_quota_of_new(new)?;
        let engine = self.engine();
        let taken = engine.space.take_node(true);
        taken.inspect_err(|_| engine.quotas.give(owner, Amount::INODE))?;
        // Nothing fails from here on.
        self.put_inode(ino, known, new)?;
        self.put_entry(parent, room, &entry)?;
        self.named(new)?;
        self.attr(ino)
    }

    /// Finds room for the entry of a new inode, and reserves the blocks that this makes dirty.
    fn foresee_entry(&mut self, new: &NewInode<'_>, entry: &NewEntry<'_>) -> Result<Room, Unseen> {
        let engine = self.engine();
        let takes_a_block = new.kind == FileKind::Directory && !engine.options.inline_dentry;
        // It may inherit ACLs from them.
        let has_xattrs = self.view(new.parent)?.may_have_xattrs();
        if takes_a_block || has_xattrs {
            return Err(Unseen::Absent);
        }
        self.pay(new.parent, 1 + DIRECTORY)?;
        self.room_for(new.parent, entry)
    }

    /// Room for `entry`; fails if an index has to be dropped or the directory converted first.
    fn room_for(&mut self, dir: Nid, entry: &NewEntry<'_>) -> Result<Room, Unseen> {
        if self.engine().inodes.names.is_exceeded() {
            return Err(Unseen::Absent);
        }
        self.find_room(dir, entry)?.ok_or(Unseen::Absent)
    }

    /// Makes the block that holds `room` writable.
    fn make_ready(&mut self, dir: Nid, room: Room) -> Result<(), Unseen> {
        match room.place {
            EntryPlace::Block(index, _) => self.page_mut(dir, index).map(drop),
            EntryPlace::Inline(_) => Ok(()),
        }
    }

    /// Removes a name. If it was the last one, its inode is freed.
    fn unlink(&mut self, at: NameIn<'_>) -> Result<(), Unseen> {
        let (found, lives_on) = self.find_to_unlink(at)?;
        self.pay(at.dir, 1 + DIRECTORY)?;
        self.lose_name(found.ino, lives_on)?;
        self.remove_name(at, found.place, lives_on)
    }

    /// Moves the name of a file. A file that has the new name loses it.
    fn rename(
        &mut self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        flags: RenameFlags,
    ) -> Result<(), Unseen> {
        let (source, target) = self.find_ends(from, to, flags)?;
        let is_dir = |found: Found| found.kind == FileKind::Directory;
        let is_same = target.is_some_and(|target| target.ino == source.ino);
        if is_dir(source) || target.is_some_and(is_dir) || is_same {
            return Err(Unseen::Absent);
        }
        self.check_may_move(from.dir, source, to.dir, target)?;
        self.view(source.ino)?;
        self.pay(from.dir, 2 + 2 * DIRECTORY)?;
        match target {
            Some(target) => self.take_over(source, to, target)?,
            None => self.add_name(source, to)?,
        }
        self.remove_name(from, source.place, true)?;
        self.moved(source.ino, to)?;
        self.touch_dir(to.dir)
    }

    /// Gives `source` one more name.
    fn add_name(&mut self, source: Found, to: NameIn<'_>) -> Result<(), Unseen> {
        if self.view(to.dir)?.links.get() == 0 {
            return Err(Unseen::Absent);
        }
        let entry = self.new_entry(to.dir, to.name, source.ino, source.kind)?;
        let room = self.room_for(to.dir, &entry)?;
        self.make_ready(to.dir, room)?;
        self.put_entry(to.dir, room, &entry)
    }

    /// Gives `source` the name of `target`.
    fn take_over(&mut self, source: Found, to: NameIn<'_>, target: Found) -> Result<(), Unseen> {
        let lives_on = self.view(target.ino)?.links.get() > 1;
        self.lose_name(target.ino, lives_on)?;
        self.set_entry(to.dir, target.place, source.ino, source.kind)?;
        self.engine().since_checkpoint.lost_name(to, lives_on);
        Ok(())
    }

    /// An inode loses one of its names. If it was the last one, it is freed.
    fn lose_name(&mut self, ino: Nid, lives_on: bool) -> Result<(), Unseen> {
        if lives_on {
            return self.take_link(ino).map(drop);
        }
        self.check_free_to_go(ino)?;
        self.free_inode(ino)
    }

    /// Fails for an inode that is in use, or has other nodes than its own: the exclusive path
    /// frees these.
    fn check_free_to_go(&mut self, ino: Nid) -> Result<(), Unseen> {
        let engine = self.engine();
        let is_used = engine.opens.is_open(ino.into())
            || engine.turns.is_under_way(ino.into())
            || engine.atomic_writes.contains_key(&ino)
            || engine.lazy_atimes.contains_key(&ino)
            || engine.write_errors.contains(&ino)
            || engine.orphans.contains(&ino);
        let inode = self.view(ino)?;
        let is_plain = matches!(inode.file_kind(), FileKind::Regular | FileKind::Symlink)
            && inode.layout().cluster().is_none();
        let has_nodes = inode.xattr_nid.get() != 0 || inode.nid.iter().any(|nid| nid.get() != 0);
        if is_used || has_nodes || !is_plain { Err(Unseen::Absent) } else { Ok(()) }
    }

    /// Frees an inode, its node and its blocks, or nothing.
    fn free_inode(&mut self, ino: Nid) -> Result<(), Unseen> {
        let (known, owner) = (self.place_of(ino)?, self.counted_for(ino)?);
        let mut addrs = self.view(ino)?.block_addrs();
        let blocks = addrs.len() as u64;
        addrs.push(known.entry.addr);
        addrs.retain(|addr| is_data_addr(*addr));
        self.invalidate_all(addrs)?;
        self.nat(|nat| nat.put(known, ino, ino, NULL_ADDR));
        let shard = self.shard_mut(ino)?;
        shard.forget(ino);
        shard.nodes.remove(ino);
        let engine = self.engine();
        engine.space.give_inode(blocks);
        if let Some(owner) = owner {
            engine.quotas.give(owner, Amount { inodes: 1, ..Amount::blocks(blocks) });
        }
        engine.since_checkpoint.forget(ino);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cores::{Machine, Profile};
    use drive::Drive;
    use vfs::{Creator, FileSystem, Ino, RenameFlags, XattrMode};

    use crate::F2fs;
    use crate::offline::mkfs::{MkfsOptions, format};

    /// A volume with directory `dir`, which has two files, one of them with a block.
    fn with_dir(options: &str) -> (Arc<F2fs>, Ino) {
        let drive: Arc<dyn Drive> = drive::ram(1 << 16);
        format(&drive, &MkfsOptions::default()).unwrap();
        let fs = Arc::new(F2fs::mount(drive, &options.parse().unwrap()).unwrap());
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        make(&fs, dir, "empty");
        fs.write(make(&fs, dir, "full"), 0, &[1; 8192]).unwrap();
        (fs, dir)
    }

    fn make(fs: &F2fs, dir: Ino, name: &str) -> Ino {
        fs.create(dir, name.as_bytes(), 0o644, Creator::default()).unwrap().ino
    }

    fn unlink(fs: &F2fs, dir: Ino, name: &str) {
        fs.unlink(dir, name.as_bytes()).unwrap();
        fs.lookup(dir, name.as_bytes()).unwrap_err();
    }

    /// Whether `operation` in `dir` completes while another thread holds the volume's lock shared,
    /// so that it cannot be taken exclusively.
    fn is_done_beside(
        prepare: fn(&F2fs, Ino),
        operation: impl FnOnce(&F2fs, Ino) + Send + 'static,
    ) -> bool {
        let run = move || {
            let (fs, dir) = with_dir("");
            prepare(&fs, dir);
            // The lock counts as contended once an exclusive holder has waited for a shared one.
            let (look, holder) = (fs.look(), fs.clone());
            let holder = cores::spawn("holder", Some(1), move || drop(holder.lock()));
            cores::sleep(100_000);
            drop(look);
            holder.join();
            let (look, other) = (fs.look(), fs.clone());
            cores::spawn("other", Some(1), move || operation(&other, dir)).join();
            drop(look);
        };
        let profile = Profile::named("xeon-4116").unwrap();
        Machine::simulated(&profile, 1).run(run).is_ok()
    }

    /// So many names that they do not fit the directory's inode.
    fn make_many(fs: &F2fs, dir: Ino) {
        (0..300).for_each(|n| _ = make(fs, dir, &format!("name {n}")));
    }

    #[test]
    fn names_are_made_and_removed_beside_others() {
        for prepare in [|_: &F2fs, _| (), make_many] {
            assert!(is_done_beside(prepare, |fs, dir| {
                let ino = make(fs, dir, "new");
                assert_eq!(fs.lookup(dir, b"new").unwrap().ino, ino);
            }));
            assert!(is_done_beside(prepare, |fs, dir| {
                fs.mkdir(dir, b"new", 0o755, Creator::default()).unwrap();
                assert_eq!(fs.getattr(dir).unwrap().nlink, 3);
            }));
            assert!(is_done_beside(prepare, |fs, dir| unlink(fs, dir, "empty")));
            let synced = |fs: &F2fs, _| fs.sync().unwrap();
            assert!(is_done_beside(synced, |fs, dir| {
                let free = fs.look().space.free_blocks();
                unlink(fs, dir, "full");
                assert_eq!(fs.look().space.free_blocks(), free + 3);
            }));
        }
        let with_link = |fs: &F2fs, dir| {
            let full = fs.lookup(dir, b"full").unwrap().ino;
            fs.link(full, dir, b"link").unwrap();
        };
        assert!(is_done_beside(with_link, |fs, dir| {
            unlink(fs, dir, "full");
            assert_eq!(fs.lookup(dir, b"link").unwrap().nlink, 1);
        }));
    }

    fn rename(fs: &F2fs, dir: Ino, name: &str, to: Ino, new_name: &str) {
        let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        fs.rename(dir, name.as_bytes(), to, new_name.as_bytes(), RenameFlags::empty()).unwrap();
        fs.lookup(dir, name.as_bytes()).unwrap_err();
        assert_eq!(fs.lookup(to, new_name.as_bytes()).unwrap().ino, ino);
    }

    #[test]
    fn files_are_moved_beside_others() {
        for prepare in [|_: &F2fs, _| (), make_many] {
            assert!(is_done_beside(prepare, |fs, dir| rename(fs, dir, "full", dir, "new")));
            assert!(is_done_beside(prepare, |fs, dir| rename(fs, dir, "full", fs.root(), "new")));
            assert!(is_done_beside(prepare, |fs, dir| rename(fs, dir, "full", dir, "empty")));
        }
        let nothing = |_: &F2fs, _| ();
        assert!(is_done_beside(nothing, |fs, dir| rename(fs, dir, "empty", dir, "full")));
        let a_dir = |fs: &F2fs, _| rename(fs, fs.root(), "dir", fs.root(), "new");
        assert!(!is_done_beside(nothing, a_dir), "a directory");
    }

    #[test]
    fn what_takes_more_is_left_to_those_who_hold_the_volume() {
        let long = |fs: &F2fs, dir| _ = fs.write(make(fs, dir, "long"), 0, &[1; 4 << 20]).unwrap();
        assert!(!is_done_beside(long, |fs, dir| unlink(fs, dir, "long")), "it has other nodes");
        let open = |fs: &F2fs, dir| fs.open(fs.lookup(dir, b"empty").unwrap().ino).unwrap();
        assert!(!is_done_beside(open, |fs, dir| unlink(fs, dir, "empty")), "somebody has it open");
        let with_xattr =
            |fs: &F2fs, dir| fs.setxattr(dir, b"user.x", b"y", XattrMode::Set).unwrap();
        assert!(!is_done_beside(with_xattr, |fs, dir| _ = make(fs, dir, "new")), "an ACL maybe");
    }

    #[test]
    fn a_number_that_was_not_used_is_free_again() {
        let (fs, dir) = with_dir("");
        let available = || fs.look().nat.lock().available();
        for _ in 0..3 {
            let before = available();
            let (ino, _) = fs.look().nat.lock().reserve_known().unwrap();
            assert_eq!(available(), before - 1);
            fs.look().nat.lock().give_back(ino);
            assert_eq!(available(), before);
            assert_eq!(make(&fs, dir, "next"), Ino::from(ino));
            unlink(&fs, dir, "next");
            fs.sync().unwrap();
        }
    }
}
