//! Calls that look names up, make, move and remove them.

use vfs::ops::Op;
use vfs::{Attr, Creator, Errno, FileKind, RenameFlags};

use super::{Node, Recorder};
use crate::oracle::{Event, Meta, Place, ROOT};
use crate::{Error, Result};

impl Recorder {
    /// The object called `name` in `dir`.
    pub fn lookup(&self, dir: Node, name: &[u8]) -> Result<Node> {
        let attr = self.fs.lookup(dir.ino, name).map_err(Error::at("lookup", name))?;
        let place = place(dir, name);
        let known = self.oracle.with_model(|m| m.names.get(&place).and_then(|v| *v.current()));
        let obj = known.ok_or_else(|| Error::at("lookup", name)(Errno::NOENT.into()))?;
        Ok(Node { ino: attr.ino, obj })
    }

    fn create_as(
        &self,
        dir: Node,
        name: &[u8],
        kind: FileKind,
        (perm, rdev): (u16, u64),
        target: &[u8],
    ) -> Result<Node> {
        let place = place(dir, name);
        self.tape(|tape, model| {
            let path = tape.place(model, &place);
            match kind {
                FileKind::Directory => Op::Mkdir { path, perm },
                FileKind::Symlink => {
                    Op::Symlink { target: String::from_utf8_lossy(target).into(), path }
                }
                FileKind::Regular => Op::Create { path, perm },
                _ => Op::Mknod { path, kind, perm, rdev },
            }
        });
        let meta = Meta { perm, ..Meta::default() };
        let mut obj = ROOT;
        let call = self.oracle.record_with(|model| {
            obj = model.objects.len();
            Event::Create { place, kind, meta, target: target.into(), rdev }
        });
        let who = Creator::default();
        let made: vfs::Result<Attr> = match kind {
            FileKind::Directory => self.fs.mkdir(dir.ino, name, perm, who),
            FileKind::Symlink => self.fs.symlink(dir.ino, name, target, who),
            FileKind::Regular => self.fs.create(dir.ino, name, perm, who),
            _ => self.fs.mknod(dir.ino, name, kind, perm, rdev, who),
        };
        let attr = self.returned(call, made.map_err(Error::at("create", name)))?;
        Ok(Node { ino: attr.ino, obj })
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Node, name: &[u8], perm: u16) -> Result<Node> {
        self.create_as(dir, name, FileKind::Directory, (perm, 0), b"")
    }

    /// Makes an empty file.
    pub fn create(&self, dir: Node, name: &[u8], perm: u16) -> Result<Node> {
        self.create_as(dir, name, FileKind::Regular, (perm, 0), b"")
    }

    /// Makes a symbolic link. Its permission bits are always 0777, symlink(7).
    pub fn symlink(&self, dir: Node, name: &[u8], target: &[u8]) -> Result<Node> {
        self.create_as(dir, name, FileKind::Symlink, (0o777, 0), target)
    }

    /// Makes a fifo, a socket or the device `rdev`.
    pub fn special(
        &self,
        dir: Node,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u64,
    ) -> Result<Node> {
        self.create_as(dir, name, kind, (perm, rdev), b"")
    }

    /// Another name for `node`.
    pub fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Link {
            from: tape.path(model, node.obj),
            path: tape.place(model, &place(dir, name)),
        });
        self.call(Event::Link { obj: node.obj, place: place(dir, name) }, || {
            self.fs.link(node.ino, dir.ino, name).map(drop).map_err(Error::at("link", name))
        })
    }

    /// Removes a file's name.
    pub fn unlink(&self, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Unlink { path: tape.place(model, &place(dir, name)) });
        self.call(Event::Unlink { place: place(dir, name) }, || {
            self.fs.unlink(dir.ino, name).map_err(Error::at("unlink", name))
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Rmdir { path: tape.place(model, &place(dir, name)) });
        self.call(Event::Unlink { place: place(dir, name) }, || {
            self.fs.rmdir(dir.ino, name).map_err(Error::at("rmdir", name))
        })
    }

    /// Moves a name.
    pub fn rename(&self, dir: Node, name: &[u8], to: Node, new: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Rename {
            from: tape.place(model, &place(dir, name)),
            path: tape.place(model, &place(to, new)),
            flags: RenameFlags::empty(),
        });
        self.call(Event::Rename { from: place(dir, name), to: place(to, new) }, || {
            let flags = RenameFlags::empty();
            self.fs.rename(dir.ino, name, to.ino, new, flags).map_err(Error::at("rename", name))
        })
    }
}

impl Recorder {
    /// Lets two names change places.
    pub fn exchange(&self, dir: Node, name: &[u8], to: Node, new: &[u8]) -> Result<()> {
        let flags = RenameFlags::EXCHANGE;
        self.tape(|tape, model| Op::Rename {
            from: tape.place(model, &place(dir, name)),
            path: tape.place(model, &place(to, new)),
            flags,
        });
        // By way of a name that no file can have.
        let (one, other, between) = (place(dir, name), place(to, new), place(dir, b"/"));
        self.oracle.record(Event::Rename { from: one.clone(), to: between.clone() });
        self.oracle.record(Event::Rename { from: other.clone(), to: one });
        self.call(Event::Rename { from: between, to: other }, || {
            self.fs.rename(dir.ino, name, to.ino, new, flags).map_err(Error::at("rename", name))
        })
    }
}

fn place(dir: Node, name: &[u8]) -> Place {
    (dir.obj, name.into())
}
