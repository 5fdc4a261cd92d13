//! The inode table: finds, lists and frees inodes.

use std::collections::BTreeMap;

use super::data::FileData;
use super::node::{Body, Dir, Node};
use crate::path::NAME_MAX;
use crate::{Attr, Creator, DirEntry, Errno, FileKind, Ino, Result};

pub(super) const ROOT: Ino = 1;

pub(super) struct State {
    pub(super) nodes: BTreeMap<Ino, Node>,
    pub(super) ino_next: Ino,
    /// Pages of all files, written or preallocated.
    pub(super) pages: u64,
    pub(super) pages_max: u64,
    /// Reading sets access times.
    pub(super) marks_access: bool,
    pub(super) unmounted: bool,
}

impl State {
    pub(super) fn new(pages_max: u64) -> Self {
        let root = Node::new(Body::Dir(Dir::new(ROOT)), 0o755, Creator::default());
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            ino_next: ROOT + 1,
            pages: 0,
            pages_max,
            marks_access: true,
            unmounted: false,
        }
    }

    pub(super) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.node(ino)?.attr(ino))
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes.get(&ino), Some(Node { body: Body::Dir(_), .. }))
    }

    /// A directory that still has a name. If it was removed while in use, Linux finds nothing in it
    /// and makes nothing there.
    pub(super) fn dir(&self, ino: Ino) -> Result<&Dir> {
        let node = self.node(ino)?;
        match &node.body {
            Body::Dir(_) if node.nlink == 0 => Err(Errno::NOENT.into()),
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Changes the entries of a directory and marks its times.
    pub(super) fn change_dir(&mut self, ino: Ino, change: impl FnOnce(&mut Dir)) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.touch_data();
            if let Body::Dir(dir) = &mut node.body {
                change(dir);
            }
        }
    }

    /// A regular file. Anything else is `EISDIR` or `EINVAL`, as for read(2) and write(2).
    pub(super) fn file(&self, ino: Ino) -> Result<&FileData> {
        match &self.node(ino)?.body {
            Body::File(file) => Ok(file),
            Body::Dir(_) => Err(Errno::ISDIR.into()),
            Body::Link(_) | Body::Device { .. } => Err(Errno::INVAL.into()),
        }
    }

    pub(super) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        let dir = self.dir(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(dir.parent),
            _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG.into()),
            _ => dir.entries.get(name).map(|e| e.ino).ok_or_else(|| Errno::NOENT.into()),
        }
    }

    /// Up to `max` entries behind cookie `from`.
    pub(super) fn list(&mut self, ino: Ino, from: u64, max: usize) -> Result<Vec<DirEntry>> {
        let dir = self.dir(ino)?;
        let dots = [(1, b".".as_slice(), ino), (2, b"..", dir.parent)];
        let names = dir.by_cookie.range(from.saturating_add(1)..);
        let found = names.filter_map(|(&cookie, name)| {
            Some((cookie, name.as_slice(), dir.entries.get(name)?.ino))
        });
        let list = dots.into_iter().filter(|dot| dot.0 > from).chain(found).take(max);
        let entries = list
            .map(|(next, name, ino)| {
                let kind = self.nodes.get(&ino).map_or(FileKind::Directory, Node::kind);
                DirEntry { name: name.to_vec(), ino, kind, next }
            })
            .collect();
        self.mark_access(ino)?;
        Ok(entries)
    }

    pub(super) fn mark_access(&mut self, ino: Ino) -> Result<()> {
        if self.marks_access {
            self.node_mut(ino)?.touch_atime();
        }
        Ok(())
    }

    pub(super) fn release(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens = node.opens.saturating_sub(1);
            self.free_unused(ino);
        }
    }

    /// Takes one link away from `ino`, or both from a directory.
    pub(super) fn unlink_node(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.nlink = match node.body {
                Body::Dir(_) => 0,
                _ => node.nlink.saturating_sub(1),
            };
            node.touch_ctime();
            self.free_unused(ino);
        }
    }

    fn free_unused(&mut self, ino: Ino) {
        if let Some(Node { nlink: 0, opens: 0, body, .. }) = self.nodes.get(&ino) {
            if let Body::File(file) = body {
                self.pages -= file.pages();
            }
            self.nodes.remove(&ino);
        }
    }
}
