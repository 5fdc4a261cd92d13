//! Names: every entry leads to a live inode of its kind, every inode has as many names as links,
//! and every directory is reached from the root by its one name.

use std::collections::{BTreeMap, BTreeSet};

use vfs::{FileKind, Ino};

use super::Check;
use crate::mount::ROOT;

/// What the names say about an inode.
#[derive(Default)]
struct Named {
    names: u32,
    /// Directories that have it as `..`.
    children: u32,
    /// The directory with its last name.
    parent: Ino,
}

impl Check {
    pub(super) fn tree(&mut self) {
        let mut named: BTreeMap<Ino, Named> = BTreeMap::new();
        let kinds: BTreeMap<Ino, FileKind> =
            self.inodes.iter().filter_map(|(ino, inode)| Some((*ino, inode.raw.kind()?))).collect();
        let mut wrong = Vec::new();
        for (dir, inode) in &self.inodes {
            for (name, ino, kind) in inode.index.all() {
                let place = || format!("inode {dir}, entry {}", name.escape_ascii());
                match kinds.get(&ino) {
                    None => wrong.push((place(), "inode", ino.to_string(), "a live inode")),
                    Some(&found) if found != kind => {
                        wrong.push((place(), "kind", format!("{kind:?}"), "that of the inode"));
                    }
                    Some(_) => {
                        let entry = named.entry(ino).or_default();
                        (entry.names, entry.parent) = (entry.names + 1, *dir);
                        if kind == FileKind::Directory {
                            named.entry(*dir).or_default().children += 1;
                        }
                    }
                }
                if vfs::check_name(name).is_err() {
                    wrong.push((place(), "name", name.escape_ascii().to_string(), "a name"));
                }
            }
        }
        for (place, what, found, allowed) in wrong {
            self.find(place, what, found, allowed);
        }
        self.links(&named);
        self.reachable(&named);
    }

    fn links(&mut self, named: &BTreeMap<Ino, Named>) {
        let none = Named::default();
        let mut wrong = Vec::new();
        for (ino, inode) in &self.inodes {
            let names = named.get(ino).unwrap_or(&none);
            let (links, parent) = (inode.raw.links.get(), inode.raw.parent.get());
            let root = *ino == ROOT;
            let should = if inode.raw.is_dir() { 2 + names.children } else { names.names };
            if links != should {
                wrong.push((*ino, "links", links.into(), should.to_string()));
            }
            if inode.raw.is_dir() && names.names != u32::from(!root) {
                wrong.push((*ino, "names of the directory", names.names.into(), "one".into()));
            }
            let above = if root { ROOT } else { names.parent };
            if inode.raw.is_dir() && parent != above {
                wrong.push((*ino, "parent", parent, above.to_string()));
            }
        }
        for (ino, what, found, should) in wrong {
            self.find(format!("inode {ino}"), what, found, should);
        }
    }

    /// Directories in a cycle have a name each, but no path leads to them.
    fn reachable(&mut self, named: &BTreeMap<Ino, Named>) {
        let mut met = BTreeSet::from([ROOT]);
        let mut lost = Vec::new();
        for (ino, _) in &self.inodes {
            let mut way = Vec::new();
            let mut here = *ino;
            while !met.contains(&here) && !way.contains(&here) {
                way.push(here);
                match named.get(&here) {
                    Some(entry) if entry.names > 0 => here = entry.parent,
                    _ => break,
                }
            }
            if met.contains(&here) {
                met.extend(way);
            } else {
                lost.push(*ino);
            }
        }
        for ino in lost {
            self.find(format!("inode {ino}"), "way from the root", "none", "one");
        }
    }
}
