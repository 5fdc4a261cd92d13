//! Calls that set what belongs to a file besides its contents.

use vfs::ops::Op;
use vfs::{Errno, FileKind, InodeFlags, SetAttr, Timespec, XattrMode};

use super::{Node, Recorder};
use crate::oracle::{Event, Meta};
use crate::{Error, Result};

impl Recorder {
    /// Sets permission bits, owner and modification time.
    pub fn set_meta(
        &self,
        node: Node,
        perm: u16,
        owner: (u32, u32),
        mtime: Timespec,
    ) -> Result<()> {
        self.tape(|tape, model| Op::Chmod { path: tape.path(model, node.obj), perm });
        let (uid, gid) = owner;
        self.tape(|tape, model| Op::Chown { path: tape.path(model, node.obj), uid, gid });
        self.tape(|tape, model| Op::Utimens {
            path: tape.path(model, node.obj),
            atime: None,
            mtime: Some(mtime),
        });
        let meta = Meta { perm, uid, gid, mtime: Some(mtime), ..self.meta(node) };
        let (perm, uid, gid, mtime) = (Some(perm), Some(uid), Some(gid), Some(mtime));
        let set = SetAttr { perm, uid, gid, mtime, ..SetAttr::default() };
        self.set_attr("setattr", node, meta, &set)
    }

    fn set_attr(&self, call: &'static str, node: Node, meta: Meta, set: &SetAttr) -> Result<()> {
        self.call(Event::SetMeta { obj: node.obj, meta }, || {
            self.fs.setattr(node.ino, set).map(drop).map_err(Error::at(call, b""))
        })
    }

    /// Sets permission bits.
    pub fn chmod(&self, node: Node, perm: u16) -> Result<()> {
        self.tape(|tape, model| Op::Chmod { path: tape.path(model, node.obj), perm });
        let meta = Meta { perm, ..self.meta(node) };
        self.set_attr("chmod", node, meta, &SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    /// Sets owner and group.
    pub fn chown(&self, node: Node, (uid, gid): (u32, u32)) -> Result<()> {
        self.tape(|tape, model| Op::Chown { path: tape.path(model, node.obj), uid, gid });
        let meta = Meta { uid, gid, ..self.meta(node) };
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.set_attr("chown", node, meta, &set)
    }

    /// Sets times; `None` leaves one as it is.
    pub fn utimens(
        &self,
        node: Node,
        atime: Option<Timespec>,
        mtime: Option<Timespec>,
    ) -> Result<()> {
        self.tape(|tape, model| Op::Utimens { path: tape.path(model, node.obj), atime, mtime });
        let meta = self.meta(node);
        let meta = Meta { atime: atime.or(meta.atime), mtime: mtime.or(meta.mtime), ..meta };
        self.set_attr("utimens", node, meta, &SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// Sets the flags of a file. New entries of a directory would inherit its flags.
    pub fn chattr(&self, node: Node, flags: InodeFlags) -> Result<()> {
        if self.kind(node) != FileKind::Regular {
            return Err(Error::Usage("only files have flags in a workload".into()));
        }
        self.tape(|tape, model| Op::Chattr { path: tape.path(model, node.obj), flags });
        let meta = Meta { flags, ..self.meta(node) };
        self.call(Event::SetMeta { obj: node.obj, meta }, || {
            // As chattr(1): the flags of one file system alone stay.
            let others = |set: u32| (set & !InodeFlags::all().bits()) | flags.bits();
            let set =
                self.fs.flags(node.ino).and_then(|set| self.fs.set_flags(node.ino, others(set)));
            set.map_err(Error::at("chattr", b""))
        })
    }

    fn meta(&self, node: Node) -> Meta {
        self.oracle.with_model(|m| *m.objects[node.obj].meta.current())
    }

    /// Whether the file system knows extended attributes at all.
    pub fn has_xattrs(&self, node: Node) -> bool {
        let asked = self.fs.getxattr(node.ino, b"user.any");
        asked.map_or_else(|error| error.errno() != Errno::OPNOTSUPP, |_| true)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, node: Node, name: &[u8], value: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::SetXattr {
            path: tape.path(model, node.obj),
            name: String::from_utf8_lossy(name).into(),
            len: value.len() as u64,
            seed: tape.seed(node.obj, u64::MAX, value),
            mode: XattrMode::Set,
        });
        let event = Event::Xattr { obj: node.obj, name: name.into(), value: Some(value.into()) };
        self.call(event, || {
            let set = self.fs.setxattr(node.ino, name, value, XattrMode::Set);
            set.map_err(Error::at("setxattr", name))
        })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::RemoveXattr {
            path: tape.path(model, node.obj),
            name: String::from_utf8_lossy(name).into(),
        });
        self.call(Event::Xattr { obj: node.obj, name: name.into(), value: None }, || {
            self.fs.removexattr(node.ino, name).map_err(Error::at("removexattr", name))
        })
    }
}
