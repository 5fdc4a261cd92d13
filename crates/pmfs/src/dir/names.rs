//! Names made and removed. Each call is one change: the entry, both inodes, and what is freed.
//!
//! The inodes in question are locked in the order of their numbers. To know them, the names are
//! looked up first, with one inode locked at a time; if a name stands for something else once all
//! are locked, the call begins again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::{Attr, Creator, Errno, FileKind, Ino, NewInode, Result, check_name};
use zerocopy::IntoBytes;

use crate::alloc::Taken;
use crate::commit::Change;
use crate::file::map::Way;
use crate::inode::lock::WriteGuard;
use crate::inode::node::{Inode, Node, read_raw};
use crate::inode::xattr::Staged;
use crate::log::{Log, NAMES_ROOM};
use crate::mount::Pmfs;
use crate::ondisk::extent::{Extent, PLACE};
use crate::ondisk::inode::{BIRTH_AT, EXTENTS_AT, INODE_SIZE, LINK_MAX, RawInode, now};
use crate::ondisk::log::Entry;
use crate::ondisk::superblock::Design;
use crate::ondisk::{BLOCK, Corrupt};

const SET_GID: u16 = 0o2000;

/// An inode that is about to be made.
struct Draft<'a> {
    at: u64,
    raw: RawInode,
    /// The block of a symbolic link's target.
    target: Option<Taken<'a>>,
    xattrs: Staged<'a>,
    /// Where its extent goes, relative to its place in the table.
    birth_at: u64,
}

impl Draft<'_> {
    fn extent(&self) -> Option<Extent> {
        let &(block, len) = self.target.as_ref()?.runs().first()?;
        Some(Extent { page: 0, block, len })
    }

    /// The change that makes it is about to be durable.
    fn keep(self, design: Design) -> Inode {
        let inode = Inode::new(design, self.at, self.raw, self.extent());
        self.target.map(Taken::keep);
        Inode { xattrs: self.xattrs.keep(), ..inode }
    }

    /// Stores it, all but its first word, which is zero on the medium and is patched.
    fn store(&self, change: &mut Change<'_>) {
        let mut bytes = [0; INODE_SIZE as usize];
        bytes[..EXTENTS_AT as usize].copy_from_slice(self.raw.as_bytes());
        if let Some(extent) = self.extent() {
            let at = self.birth_at as usize;
            bytes[at..at + PLACE as usize].copy_from_slice(&extent.bytes());
        }
        let (first, rest) = bytes.split_at(8);
        change.store(self.at + 8, rest);
        change.patch(self.at, first);
    }
}

/// Several inodes, locked.
pub(crate) struct Locked<'a> {
    all: Vec<(Ino, WriteGuard<'a>)>,
}

impl<'a> Locked<'a> {
    /// Locks inodes in the order of their numbers, each once.
    pub(crate) fn new(nodes: &'a mut Vec<Arc<Node>>) -> Self {
        nodes.sort_unstable_by_key(|node| node.ino);
        nodes.dedup_by_key(|node| node.ino);
        Self { all: nodes.iter().map(|node| (node.ino, node.lock.write())).collect() }
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Inode> {
        self.all.iter_mut().map(|(_, guard)| &mut **guard)
    }

    /// One of them. `ENOENT` if the caller has not locked it, which means that it changed.
    pub(crate) fn get(&mut self, ino: Ino) -> Result<&mut Inode> {
        let found = self.all.iter_mut().find(|(locked, _)| *locked == ino);
        found.map(|(_, guard)| &mut **guard).ok_or_else(|| Errno::NOENT.into())
    }
}

impl Inode {
    /// What `name` stands for in this directory.
    pub(crate) fn find(&self, ino: Ino, name: &[u8]) -> Result<(Ino, FileKind)> {
        self.check_dir()?;
        match name {
            b"." => Ok((ino, FileKind::Directory)),
            b".." => Ok((self.raw.parent.get(), FileKind::Directory)),
            _ if name.len() > vfs::path::NAME_MAX => Err(Errno::NAMETOOLONG.into()),
            _ => self.index.find(name).ok_or_else(|| Errno::NOENT.into()),
        }
    }

    /// Whether a new entry `name` can be made here.
    pub(crate) fn check_free(&self, ino: Ino, name: &[u8]) -> Result<()> {
        match self.find(ino, name) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(error) if error.errno() != Errno::NOENT => Err(error),
            Err(_) => {
                self.check_dir()?;
                check_name(name)
            }
        }
    }

    pub(crate) fn check_links(&self) -> Result<()> {
        if self.raw.links.get() >= LINK_MAX { Err(Errno::MLINK.into()) } else { Ok(()) }
    }

    /// Changes attributes as part of `change`.
    pub(crate) fn edit(&mut self, change: &mut Change<'_>, edit: impl FnOnce(&mut RawInode)) {
        let mut raw = self.raw;
        edit(&mut raw);
        self.set_raw(change, raw);
    }

    /// Removes a name from this directory as part of `change`.
    pub(crate) fn remove_name(&mut self, change: &mut Change<'_>, name: &[u8]) {
        match &mut self.log {
            None => self.index.take(change, &self.map, name),
            Some(log) => {
                if let Some(cookie) = self.index.remove_logged(name) {
                    log.stage(&Entry::Name { cookie, to: None, name: name.into() });
                }
            }
        }
        self.edit(change, RawInode::touch_data);
    }

    /// Adds a name, for which [`Pmfs::make_room`] has made room.
    pub(crate) fn add_name(&mut self, change: &mut Change<'_>, name: &[u8], to: (Ino, FileKind)) {
        match &mut self.log {
            None => self.index.put(change, &self.map, name, to),
            Some(log) => {
                let cookie = self.index.insert_logged(name, to);
                log.stage(&Entry::Name { cookie, to: Some(to), name: name.into() });
            }
        }
        self.edit(change, RawInode::touch_data);
    }

    /// Lets a name stand for another inode, as part of `change`.
    pub(crate) fn replace_name(
        &mut self,
        change: &mut Change<'_>,
        name: &[u8],
        to: (Ino, FileKind),
    ) {
        match &mut self.log {
            None => self.index.set(change, &self.map, name, to),
            Some(log) => {
                let cookie = self.index.insert_logged(name, to);
                log.stage(&Entry::Name { cookie, to: Some(to), name: name.into() });
            }
        }
        self.edit(change, RawInode::touch_data);
    }
}

impl Pmfs {
    /// Makes an inode with one name.
    pub(crate) fn make_named(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let node = self.node(parent)?;
        let mut dir = node.lock.write();
        dir.check_free(parent, name)?;
        let is_dir = new.kind == FileKind::Directory;
        if is_dir {
            dir.check_links()?;
        }
        let ino = self.numbers.take().ok_or(Errno::NOSPC)?;
        let made = self.make_inode(&mut dir, parent, name, ino, new);
        made.inspect_err(|_| self.numbers.give(ino))
    }

    fn make_inode(
        &self,
        dir: &mut Inode,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        let is_dir = new.kind == FileKind::Directory;
        let mut change = Change::new(&*self.pm);
        let draft = self.draft(&mut change, dir, parent, ino, new)?;
        self.make_room(dir, &mut change, name.len())?;
        draft.store(&mut change);
        dir.add_name(&mut change, name, (ino, new.kind));
        if is_dir {
            dir.edit(&mut change, |raw| raw.links += 1);
        }
        let node = Arc::new(Node::new(ino, self.share(draft.keep(self.layout.design))));
        let inode = node.lock.new_write().ok_or(Errno::IO)?;
        self.inodes.insert(&node);
        let _done = self.commit(change, [dir]);
        Ok(inode.attr(ino)?)
    }

    /// `O_TMPFILE`: makes a file without a name, open once. A cut frees it.
    pub(crate) fn make_nameless(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let node = self.node(parent)?;
        let dir = node.lock.read();
        dir.check_dir()?;
        let ino = self.numbers.take().ok_or(Errno::NOSPC)?;
        let new = NewInode::plain(FileKind::Regular, perm, creator);
        let mut change = Change::new(&*self.pm);
        let draft = self.draft(&mut change, &dir, parent, ino, &new);
        let mut draft = draft.inspect_err(|_| self.numbers.give(ino))?;
        draft.raw.links = 0.into();
        draft.store(&mut change);
        let node = Arc::new(Node::new(ino, self.share(draft.keep(self.layout.design))));
        let inode = node.lock.new_write().ok_or(Errno::IO)?;
        self.inodes.insert_nameless(&node);
        let _done = self.commit(change, []);
        Ok(inode.attr(ino)?)
    }

    /// A new inode with what it has from the start, all of it stored and nothing pointing to it.
    fn draft(
        &self,
        change: &mut Change<'_>,
        dir: &Inode,
        parent: Ino,
        ino: Ino,
        new: &NewInode<'_>,
    ) -> Result<Draft<'_>> {
        let at = self.layout.inode_at(ino).ok_or(Errno::NOSPC)?;
        let (xattrs, perm) = self.inherited(dir, new.kind, new.perm)?;
        let mut raw = self.new_raw(at, dir, parent, &NewInode { perm, ..*new });
        let target = match new.target {
            [] => None,
            _ => Some(self.space.take_run(1).ok_or(Errno::NOSPC)?),
        };
        let xattrs = self.stage_xattrs(change, &mut raw, &xattrs)?;
        let birth_at = match self.layout.design {
            Design::Inplace => EXTENTS_AT,
            Design::Nova => BIRTH_AT,
        };
        let draft = Draft { at, raw, target, xattrs, birth_at };
        if let Some(extent) = draft.extent() {
            change.stream(extent.block * BLOCK, new.target);
        }
        Ok(draft)
    }

    /// The attributes of a new inode. In a set-group-ID directory it gets the directory's group,
    /// and a new directory the bit as well.
    fn new_raw(&self, at: u64, dir: &Inode, parent: Ino, new: &NewInode<'_>) -> RawInode {
        let is_dir = new.kind == FileKind::Directory;
        let generation = read_raw(&*self.pm, at).generation.get().wrapping_add(1);
        let mut raw = RawInode::free(generation);
        let (mut perm, mut gid) = (new.perm & 0o7777, new.creator.gid);
        if dir.raw.perm() & SET_GID != 0 {
            gid = dir.raw.gid.get();
            perm |= if is_dir { SET_GID } else { 0 };
        }
        raw.mode = (new.kind.mode_bits() | u32::from(perm)).into();
        raw.links = (1 + u32::from(is_dir)).into();
        (raw.uid, raw.gid) = (new.creator.uid.into(), gid.into());
        raw.rdev = new.rdev.into();
        raw.size = (new.target.len() as u64).into();
        raw.parent = if is_dir { parent } else { 0 }.into();
        raw.born(now());
        raw
    }

    /// Makes sure that the directory has a free run for a name of this length. If it fails, nothing
    /// has changed; if not, the change must be committed.
    pub(crate) fn make_room(
        &self,
        dir: &mut Inode,
        change: &mut Change<'_>,
        name_len: usize,
    ) -> Result<()> {
        if let Some(log) = &mut dir.log {
            return Ok(log.reserve(&self.space, NAMES_ROOM, false)?);
        }
        if dir.index.has_room(name_len) {
            return Ok(());
        }
        let mut raw = dir.raw;
        let page = raw.size.get() / BLOCK;
        let taken = self.space.take(1, dir.map.goal(page));
        let &[(block, _)] = taken.runs() else { return Err(Errno::NOSPC.into()) };
        let map_block = match dir.map.way(change, 1) {
            Way::Places => None,
            Way::Block => Some(self.space.take_run(1).ok_or(Errno::NOSPC)?),
            // One extent, in a change that has but begun.
            Way::Rewrite => return Err(Errno::FBIG.into()),
        };
        let map_block = map_block.and_then(|taken| taken.keep().first().map(|run| run.0));
        taken.keep();
        dir.map.add(change, &mut raw, &[Extent { page, block, len: 1 }], map_block);
        dir.index.add_page(change, page, block);
        raw.size += BLOCK;
        dir.set_raw(change, raw);
        Ok(())
    }

    pub(crate) fn link_inode(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut nodes = vec![self.node(parent)?, self.node(ino)?];
        let mut locked = Locked::new(&mut nodes);
        locked.get(parent)?.check_free(parent, name)?;
        let inode = locked.get(ino)?;
        let kind = inode.kind()?;
        if kind == FileKind::Directory {
            return Err(Errno::PERM.into());
        }
        if inode.raw.links.get() == 0 && !self.inodes.is_linkable(ino) {
            return Err(Errno::NOENT.into());
        }
        inode.check_links()?;
        let mut change = Change::new(&*self.pm);
        self.reserve(locked.iter_mut(), false)?;
        self.make_room(locked.get(parent)?, &mut change, name.len())?;
        locked.get(parent)?.add_name(&mut change, name, (ino, kind));
        locked.get(ino)?.edit(&mut change, |raw| {
            raw.links += 1;
            raw.touch_ctime();
        });
        let _done = self.commit(change, locked.iter_mut());
        self.inodes.named(ino);
        Ok(locked.get(ino)?.attr(ino)?)
    }

    /// Removes a name: a directory's with `dirs`, any other without.
    pub(crate) fn remove(&self, parent: Ino, name: &[u8], dirs: bool) -> Result<()> {
        loop {
            let (ino, kind) = self.look(parent, name)?;
            match (dirs, kind == FileKind::Directory) {
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, false) => return Err(Errno::NOTDIR.into()),
                _ => {}
            }
            let Some(mut nodes) = self.nodes(&[parent, ino])? else { continue };
            let mut locked = Locked::new(&mut nodes);
            if locked.get(parent)?.find(parent, name)?.0 != ino {
                continue;
            }
            if dirs && !locked.get(ino)?.index.is_empty() {
                return Err(Errno::NOTEMPTY.into());
            }
            let mut change = Change::new(&*self.pm);
            self.reserve(locked.iter_mut(), true)?;
            let dir = locked.get(parent)?;
            dir.remove_name(&mut change, name);
            if dirs {
                dir.edit(&mut change, |raw| raw.links -= 1);
            }
            let freed = self.drop_link(locked.get(ino)?, ino, &mut change);
            let _done = self.commit(change, locked.iter_mut());
            if freed {
                self.free_inode(locked.get(ino)?, ino);
            }
            return Ok(());
        }
    }

    /// Takes one link away, or all from a directory, as part of `change`. True if the inode is then
    /// neither linked nor open: it is freed by the same change, and by [`Pmfs::free_inode`] after
    /// it.
    pub(crate) fn drop_link(&self, inode: &mut Inode, ino: Ino, change: &mut Change<'_>) -> bool {
        let links = if inode.raw.is_dir() { 0 } else { inode.raw.links.get().saturating_sub(1) };
        let free = links == 0 && !self.inodes.is_open(ino);
        inode.edit(change, |raw| {
            raw.links = links.into();
            raw.touch_ctime();
            if free {
                raw.mode = 0.into();
            }
        });
        free
    }

    /// Gives back what an inode had, once it is durably free.
    pub(crate) fn free_inode(&self, inode: &mut Inode, ino: Ino) {
        inode.map.runs().chain(inode.xattrs).for_each(|(start, len)| self.space.give(start, len));
        let log = inode.log.iter().flat_map(Log::blocks);
        let cores = inode.cores.iter().flat_map(|cores| cores.blocks());
        log.chain(cores).for_each(|block| self.space.give(block, 1));
        *inode = Inode::empty(inode.at, RawInode::free(inode.raw.generation.get()));
        self.inodes.remove(ino);
        self.numbers.give(ino);
    }

    /// What a name stands for now.
    pub(crate) fn look(&self, parent: Ino, name: &[u8]) -> Result<(Ino, FileKind)> {
        let node = self.node(parent)?;
        let dir = node.lock.read();
        dir.find(parent, name)
    }

    /// Inodes that names of the first of them, and of the second if that is a directory, stood for
    /// a moment ago; `None` if one was freed since.
    pub(crate) fn nodes(&self, inos: &[Ino]) -> Result<Option<Vec<Arc<Node>>>> {
        let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(inos.len());
        for &ino in inos {
            match self.node(ino) {
                Ok(node) => nodes.push(node),
                Err(error) if error.errno() == Errno::NOENT && ino != inos[0] => {
                    nodes.iter().try_for_each(|dir| self.check_stale(dir, ino))?;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(nodes))
    }

    /// Fails if a name in `dir` stands for `ino`, which is free. An inode is freed with its
    /// directory locked until the name is gone, so this is damage, and looking again would never
    /// end.
    fn check_stale(&self, dir: &Node, ino: Ino) -> Result<()> {
        let locked = dir.lock.read();
        let is_named = locked.index.all().any(|(_, named, _)| named == ino);
        if !is_named || self.node(ino).is_ok() {
            return Ok(());
        }
        let (structure, what, allowed) = ("directory", "inode of an entry", "a live inode");
        let corrupt = Corrupt { structure, at: locked.at, what, found: ino, allowed };
        self.damaged.store(true, Ordering::Relaxed);
        Err(corrupt.into())
    }
}
