//! The names of inodes, as far as they were looked up: faults wait for paths, but a file system
//! under FUSE is only told inode numbers.

use rustc_hash::FxHashMap;
use vfs::{Ino, RenameFlags};

/// A name in a directory.
pub(super) type Name = (Ino, Vec<u8>);

/// The deepest path.
const DEPTH_MAX: usize = 2048;

/// Names that are known, both ways.
pub(super) struct Names {
    root: Ino,
    inodes: FxHashMap<Name, Ino>,
    names: FxHashMap<Ino, Vec<Name>>,
}

impl Names {
    pub(super) fn new(root: Ino) -> Self {
        Self { root, inodes: FxHashMap::default(), names: FxHashMap::default() }
    }

    /// Name `name` stands for `ino`.
    pub(super) fn set(&mut self, name: Name, ino: Ino) {
        match self.inodes.insert(name.clone(), ino) {
            Some(before) if before == ino => return,
            Some(before) => self.drop_name(before, &name),
            None => {}
        }
        self.names.entry(ino).or_default().push(name);
    }

    /// The name stands for nothing. Returns what it stood for.
    pub(super) fn remove(&mut self, name: &Name) -> Option<Ino> {
        let ino = self.inodes.remove(name)?;
        self.drop_name(ino, name);
        Some(ino)
    }

    /// As rename(2). Returns what has lost its name by that.
    pub(super) fn rename(&mut self, from: &Name, to: Name, flags: RenameFlags) -> Option<Ino> {
        let (moved, victim) = (self.remove(from), self.remove(&to));
        if let Some(moved) = moved {
            self.set(to, moved);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            if let Some(other) = victim {
                self.set(from.clone(), other);
            }
            return None;
        }
        victim.filter(|victim| Some(*victim) != moved)
    }

    /// What a name stands for.
    pub(super) fn get(&self, name: &Name) -> Option<Ino> {
        self.inodes.get(name).copied()
    }

    /// The names of an inode.
    pub(super) fn of(&self, ino: Ino) -> &[Name] {
        self.names.get(&ino).map_or(&[], |names| names)
    }

    /// Whether any name of `ino` is known.
    pub(super) fn has(&self, ino: Ino) -> bool {
        !self.of(ino).is_empty()
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<(Name, Ino)> {
        self.inodes.iter().map(|(name, ino)| (name.clone(), *ino)).collect()
    }

    /// The paths of an inode, from the root.
    pub(super) fn paths(&self, ino: Ino) -> Vec<Vec<u8>> {
        if ino == self.root {
            return vec![b"/".to_vec()];
        }
        self.of(ino).iter().filter_map(|(dir, name)| self.path(*dir, name)).collect()
    }

    /// The path of a name, if that of its directory is known.
    pub(super) fn path(&self, dir: Ino, name: &[u8]) -> Option<Vec<u8>> {
        let mut parts = vec![name];
        let mut here = dir;
        while here != self.root {
            // A directory has one name.
            let (dir, name) = self.of(here).first()?;
            parts.push(name);
            here = *dir;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        Some(parts.into_iter().rev().flat_map(|part| [b"/", part].concat()).collect())
    }

    fn drop_name(&mut self, ino: Ino, name: &Name) {
        let Some(names) = self.names.get_mut(&ino) else { return };
        names.retain(|other| other != name);
        if names.is_empty() {
            self.names.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(dir: Ino, name: &str) -> Name {
        (dir, name.as_bytes().to_vec())
    }

    fn paths(names: &Names, ino: Ino) -> Vec<String> {
        let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
        names.paths(ino).into_iter().map(text).collect()
    }

    #[test]
    fn paths_follow_links_and_renames_of_directories() {
        let mut names = Names::new(1);
        names.set(name(1, "d"), 2);
        names.set(name(2, "f"), 3);
        names.set(name(1, "g"), 3);
        names.set(name(1, "g"), 3);
        assert_eq!(paths(&names, 3), ["/d/f", "/g"]);
        assert_eq!(names.rename(&name(1, "d"), name(1, "e"), RenameFlags::empty()), None);
        assert_eq!(paths(&names, 3), ["/e/f", "/g"]);
        assert_eq!(names.remove(&name(2, "f")), Some(3));
        assert_eq!(paths(&names, 3), ["/g"]);
        assert_eq!(names.remove(&name(1, "g")), Some(3));
        assert!(!names.has(3) && paths(&names, 3).is_empty());
        assert_eq!(paths(&names, 1), ["/"]);
    }

    #[test]
    fn a_rename_replaces_or_exchanges() {
        let mut names = Names::new(1);
        names.set(name(1, "a"), 2);
        names.set(name(1, "b"), 3);
        names.rename(&name(1, "a"), name(1, "b"), RenameFlags::EXCHANGE);
        assert_eq!((paths(&names, 2), paths(&names, 3)), (vec!["/b".into()], vec!["/a".into()]));
        assert_eq!(names.rename(&name(1, "a"), name(1, "b"), RenameFlags::empty()), Some(2));
        assert_eq!((paths(&names, 2).len(), paths(&names, 3)), (0, vec!["/b".into()]));
    }
}
