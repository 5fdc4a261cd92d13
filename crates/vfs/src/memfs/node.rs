//! An inode of the reference file system: attributes, and a body by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::data::{BLOCK, FileData};
use crate::{Attr, Creator, FileKind, Ino, Timespec};

/// How old an access time may get while nothing changes: Linux's `relatime`.
const RELATIME: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct Node {
    pub(super) perm: u16,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
    pub(super) ctime: Timespec,
    crtime: Timespec,
    /// Calls of `open` without their `release`.
    pub(super) opens: u32,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) body: Body,
}

pub(super) enum Body {
    File(FileData),
    Dir(Dir),
    Link(Vec<u8>),
    /// Also FIFOs and sockets, whose `rdev` is 0.
    Device {
        kind: FileKind,
        rdev: u64,
    },
}

/// Names in byte order for lookups, and by cookie for `readdir`. An entry keeps its cookie, so a
/// reader that continues sees every entry exactly once if it was there all the time.
pub(super) struct Dir {
    pub(super) parent: Ino,
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    pub(super) by_cookie: BTreeMap<u64, Vec<u8>>,
    cookie_next: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    cookie: u64,
}

impl Node {
    pub(super) fn new(body: Body, perm: u16, creator: Creator) -> Self {
        let now = now();
        Self {
            perm: perm & 0o7777,
            nlink: if matches!(body, Body::Dir(_)) { 2 } else { 1 },
            uid: creator.uid,
            gid: creator.gid,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            opens: 0,
            xattrs: BTreeMap::new(),
            body,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::Regular,
            Body::Dir(_) => FileKind::Directory,
            Body::Link(_) => FileKind::Symlink,
            Body::Device { kind, .. } => *kind,
        }
    }

    pub(super) fn attr(&self, ino: Ino) -> Attr {
        let (size, blocks, rdev) = match &self.body {
            Body::File(file) => (file.size(), file.pages() * (BLOCK / 512), 0),
            Body::Dir(_) => (BLOCK, BLOCK / 512, 0),
            Body::Link(target) => (target.len() as u64, BLOCK / 512, 0),
            Body::Device { rdev, .. } => (0, 0, *rdev),
        };
        Attr {
            ino,
            kind: self.kind(),
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            crtime: self.crtime,
            generation: 0,
        }
    }

    pub(super) fn touch_ctime(&mut self) {
        self.ctime = now();
    }

    /// The data, or the entries of a directory, changed.
    pub(super) fn touch_data(&mut self) {
        self.mtime = now();
        self.ctime = self.mtime;
    }

    /// Marks an access as `relatime` does: only if the old mark is not newer than the last change,
    /// or is a day old.
    pub(super) fn touch_atime(&mut self) {
        let now = now();
        let old = now.secs.saturating_sub(self.atime.secs) >= RELATIME.as_secs() as i64;
        if old || self.atime <= self.mtime || self.atime <= self.ctime {
            self.atime = now;
        }
    }
}

impl Dir {
    pub(super) fn new(parent: Ino) -> Self {
        // 1 and 2 are the cookies of `.` and `..`.
        Self { parent, entries: BTreeMap::new(), by_cookie: BTreeMap::new(), cookie_next: 3 }
    }

    /// Makes `name` stand for `ino`; a name that is already there keeps its place.
    pub(super) fn put(&mut self, name: &[u8], ino: Ino) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.ino = ino;
            return;
        }
        let cookie = self.cookie_next;
        self.cookie_next += 1;
        self.entries.insert(name.to_vec(), Entry { ino, cookie });
        self.by_cookie.insert(cookie, name.to_vec());
    }

    pub(super) fn take(&mut self, name: &[u8]) {
        if let Some(entry) = self.entries.remove(name) {
            self.by_cookie.remove(&entry.cookie);
        }
    }
}

fn now() -> Timespec {
    let now = cores::wall_clock();
    Timespec { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
}
