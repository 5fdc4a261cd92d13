//! Names and links: an entry goes if it leads to no live inode, or if it is the second of a
//! directory; what no name leads to gets one in `lost+found`; link counts and parents become what
//! the names say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfs::{Creator, Errno, FileKind, Ino, NewInode, Result};

use crate::commit::Change;
use crate::inode::node::{Inode, Node};
use crate::mount::{Pmfs, ROOT};

const LOST_FOUND: &[u8] = b"lost+found";

/// What the names of a volume say.
struct Names<'fs> {
    fs: &'fs Pmfs,
    nodes: BTreeMap<Ino, (Arc<Node>, FileKind)>,
    /// How many names an inode has.
    counts: BTreeMap<Ino, u32>,
    /// A directory's own name, and the directory that has it.
    homes: BTreeMap<Ino, (Ino, Vec<u8>)>,
    notes: &'fs mut Vec<String>,
}

/// Makes names and links agree. Returns what got a name in `lost+found`.
pub(super) fn agree(fs: &Pmfs, notes: &mut Vec<String>) -> Result<Vec<(u64, String)>> {
    let (nodes, counts, homes) = Default::default();
    let mut names = Names { fs, nodes, counts, homes, notes };
    names.load()?;
    names.drop_xattrs()?;
    names.drop_entries()?;
    names.break_circles()?;
    let reconnected = names.reconnect()?;
    names.set_links()?;
    Ok(reconnected)
}

impl Names<'_> {
    fn load(&mut self) -> Result<()> {
        for ino in self.fs.layout.inodes() {
            match self.fs.node(ino) {
                Ok(node) => self.add(ino, node)?,
                Err(error) if error.errno() == Errno::NOENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add(&mut self, ino: Ino, node: Arc<Node>) -> Result<()> {
        let kind = node.lock.read().kind()?;
        self.nodes.insert(ino, (node, kind));
        Ok(())
    }

    /// Changes one inode, durably.
    fn change(
        &self,
        ino: Ino,
        work: impl FnOnce(&mut Inode, &mut Change<'_>) -> Result<()>,
    ) -> Result<()> {
        let (node, _) = self.nodes.get(&ino).ok_or(Errno::NOENT)?;
        let mut inode = node.lock.write();
        self.fs.reserve([&mut *inode], true)?;
        let mut change = Change::new(&*self.fs.pm);
        work(&mut inode, &mut change)?;
        let _done = self.fs.commit(change, [&mut *inode]);
        Ok(())
    }

    fn drop_xattrs(&mut self) -> Result<()> {
        let pm = &*self.fs.pm;
        let damaged = |(node, _): &(Arc<Node>, _)| node.lock.read().xattrs_in(pm).is_err();
        let damaged = self.nodes.iter().filter(|(_, node)| damaged(node)).map(|(ino, _)| *ino);
        for ino in damaged.collect::<Vec<_>>() {
            self.change(ino, |inode, change| {
                inode.edit(change, |raw| raw.xattrs = 0.into());
                Ok(())
            })?;
            let (node, _) = &self.nodes[&ino];
            if let Some((start, len)) = node.lock.write().xattrs.take() {
                self.fs.space.give(start, len);
            }
            self.notes.push(format!("inode {ino}: extended attributes dropped"));
        }
        Ok(())
    }

    /// Counts the names that are right. The others go, or get the kind of their inode.
    fn drop_entries(&mut self) -> Result<()> {
        let dirs = self.nodes.iter().filter(|(_, (_, kind))| *kind == FileKind::Directory);
        for dir in dirs.map(|(ino, _)| *ino).collect::<Vec<_>>() {
            let entries: Vec<_> = {
                let inode = self.nodes[&dir].0.lock.read();
                inode.index.all().map(|(name, ino, kind)| (name.to_vec(), ino, kind)).collect()
            };
            for (name, ino, kind) in entries {
                let is = self.nodes.get(&ino).map(|(_, kind)| *kind);
                let is_second = ino == ROOT || self.homes.contains_key(&ino);
                match is {
                    Some(found) if vfs::check_name(&name).is_ok() && !is_second => {
                        if found != kind {
                            self.change(dir, |inode, change| {
                                inode.replace_name(change, &name, (ino, found));
                                Ok(())
                            })?;
                            self.note(dir, &name, "kind set right");
                        }
                        *self.counts.entry(ino).or_default() += 1;
                        if found == FileKind::Directory {
                            self.homes.insert(ino, (dir, name));
                        }
                    }
                    _ => self.drop_entry(dir, &name)?,
                }
            }
        }
        Ok(())
    }

    fn drop_entry(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(dir, |inode, change| {
            inode.remove_name(change, name);
            Ok(())
        })?;
        self.note(dir, name, "dropped");
        Ok(())
    }

    fn note(&mut self, dir: Ino, name: &[u8], what: &str) {
        self.notes.push(format!("inode {dir}, entry {}: {what}", name.escape_ascii()));
    }

    /// Directories that lie in a circle all have names. One of them loses its own.
    fn break_circles(&mut self) -> Result<()> {
        let mut ends = BTreeSet::from([ROOT]);
        let dirs: Vec<Ino> = self.homes.keys().copied().collect();
        for dir in dirs {
            let (mut way, mut here) = (BTreeSet::new(), dir);
            while !ends.contains(&here) && way.insert(here) {
                match self.homes.get(&here) {
                    Some((parent, _)) => here = *parent,
                    None => break,
                }
            }
            if way.contains(&here)
                && let Some((parent, name)) = self.homes.remove(&here)
            {
                self.counts.remove(&here);
                self.drop_entry(parent, &name)?;
            }
            ends.extend(way);
        }
        Ok(())
    }

    /// Gives a name to everything that has none.
    fn reconnect(&mut self) -> Result<Vec<(u64, String)>> {
        let has_none = |ino: &Ino| *ino != ROOT && !self.counts.contains_key(ino);
        let lost: Vec<Ino> = self.nodes.keys().copied().filter(has_none).collect();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let home = self.lost_found()?;
        let mut reconnected = Vec::new();
        for ino in lost {
            let kind = self.nodes[&ino].1;
            let name = self.free_name(home, ino)?;
            let fs = self.fs;
            self.change(home, |dir, change| {
                fs.make_room(dir, change, name.len())?;
                dir.add_name(change, name.as_bytes(), (ino, kind));
                Ok(())
            })?;
            self.counts.insert(ino, 1);
            if kind == FileKind::Directory {
                self.homes.insert(ino, (home, name.clone().into_bytes()));
            }
            reconnected.push((ino, name));
        }
        Ok(reconnected)
    }

    /// The directory for what was lost: the root if the name stands for something else.
    fn lost_found(&mut self) -> Result<Ino> {
        match self.fs.look(ROOT, LOST_FOUND) {
            Ok((ino, FileKind::Directory)) => return Ok(ino),
            Ok(_) => return Ok(ROOT),
            Err(error) if error.errno() != Errno::NOENT => return Err(error),
            Err(_) => {}
        }
        let new = NewInode::plain(FileKind::Directory, 0o700, Creator::default());
        let ino = self.fs.make_named(ROOT, LOST_FOUND, &new)?.ino;
        self.add(ino, self.fs.node(ino)?)?;
        self.counts.insert(ino, 1);
        self.homes.insert(ino, (ROOT, LOST_FOUND.to_vec()));
        Ok(ino)
    }

    /// `#` and the number, as e2fsck names what it finds.
    fn free_name(&self, dir: Ino, ino: Ino) -> Result<String> {
        let inode = self.nodes.get(&dir).ok_or(Errno::NOENT)?.0.lock.read();
        let names = (0..).map(|n| match n {
            0 => format!("#{ino}"),
            n => format!("#{ino}.{n}"),
        });
        let mut free = names.filter(|name| inode.index.find(name.as_bytes()).is_none());
        free.next().ok_or_else(|| Errno::NOSPC.into())
    }

    /// Link counts, and the parents of directories.
    fn set_links(&mut self) -> Result<()> {
        let mut children: BTreeMap<Ino, u32> = BTreeMap::new();
        self.homes.values().for_each(|(dir, _)| *children.entry(*dir).or_default() += 1);
        let inos: Vec<(Ino, FileKind)> =
            self.nodes.iter().map(|(ino, (_, kind))| (*ino, *kind)).collect();
        for (ino, kind) in inos {
            let is_dir = kind == FileKind::Directory;
            let raw = self.nodes[&ino].0.lock.read().raw;
            let links = match is_dir {
                true => 2 + children.get(&ino).unwrap_or(&0),
                false => self.counts.get(&ino).copied().unwrap_or(0),
            };
            let home = self.homes.get(&ino).map_or(ROOT, |(dir, _)| *dir);
            let parent = if is_dir { home } else { raw.parent.get() };
            if (raw.links.get(), raw.parent.get()) == (links, parent) {
                continue;
            }
            self.change(ino, |inode, change| {
                inode.edit(change, |raw| {
                    raw.links = links.into();
                    raw.parent = parent.into();
                });
                Ok(())
            })?;
            self.notes.push(format!("inode {ino}: {links} links, parent {parent}"));
        }
        Ok(())
    }
}
