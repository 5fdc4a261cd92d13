//! Does the operations of a script on a recorded file system.

use std::borrow::Cow;
use std::collections::BTreeMap;

use vfs::ops::{Op, fill};
use vfs::{Errno, FileKind};

use super::Contents;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

/// Bytes read or copied at a time.
const CHUNK: u64 = 1 << 20;

/// Performs them: knows the open handles.
pub(crate) struct Player<'a> {
    fs: &'a Recorder,
    root: Node,
    contents: &'a Contents,
    handles: BTreeMap<String, Node>,
}

impl<'a> Player<'a> {
    /// Paths are relative to the directory `root`; data without `contents` is made up.
    pub(crate) fn new(fs: &'a Recorder, root: Node, contents: &'a Contents) -> Self {
        Self { fs, root, contents, handles: BTreeMap::new() }
    }

    /// Closes what is still open.
    pub(crate) fn finish(self) {
        self.handles.into_values().for_each(|node| self.fs.close(node));
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. } => self.names(op),
            Op::Open { path, handle } => {
                let node = self.find(path)?;
                self.fs.open(node)?;
                if let Some(old) = self.handles.insert(handle.clone(), node) {
                    self.fs.close(old);
                }
                Ok(())
            }
            Op::Close { handle } => {
                let node = self.handles.remove(handle).ok_or_else(|| refused(Errno::BADF))?;
                self.fs.close(node);
                Ok(())
            }
            Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::Chattr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => self.attributes(op),
            Op::Fsync { path } => self.fs.fsync(self.find(path)?),
            Op::Fdatasync { path } => self.fs.fdatasync(self.find(path)?),
            Op::Sync => self.fs.sync(),
            // Other look-ups change nothing that a cut could lose, but a read fills the page cache.
            Op::GetXattr { path, .. } | Op::Stat { path } | Op::List { path } => {
                self.find(path).map(drop)
            }
            _ => self.data(op),
        }
    }

    fn names(&self, op: &Op) -> Result<()> {
        let fs = self.fs;
        match op {
            Op::Create { path, perm } => {
                let (dir, name) = self.parent(path)?;
                fs.create(dir, name, *perm).map(drop)
            }
            Op::Mkdir { path, perm } => {
                let (dir, name) = self.parent(path)?;
                fs.mkdir(dir, name, *perm).map(drop)
            }
            Op::Mknod {
                kind: FileKind::Regular | FileKind::Directory | FileKind::Symlink, ..
            } => Err(Error::Usage("mknod is for fifos, sockets and devices in a workload".into())),
            Op::Mknod { path, kind, perm, rdev } => {
                let (dir, name) = self.parent(path)?;
                fs.special(dir, name, *kind, *perm, *rdev).map(drop)
            }
            Op::Symlink { target, path } => {
                let (dir, name) = self.parent(path)?;
                fs.symlink(dir, name, target.as_bytes()).map(drop)
            }
            Op::Link { from, path } => {
                let (dir, name) = self.parent(path)?;
                fs.link(self.find(from)?, dir, name)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                fs.unlink(dir, name)
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                fs.rmdir(dir, name)
            }
            Op::Rename { from, path, flags } => {
                let noreplace = vfs::RenameFlags::NOREPLACE;
                if *flags == vfs::RenameFlags::EXCHANGE {
                    let ((dir, name), (to, new)) = (self.parent(from)?, self.parent(path)?);
                    return fs.exchange(dir, name, to, new);
                }
                if !noreplace.contains(*flags) {
                    return Err(Error::Usage("no such flag in a workload".into()));
                }
                let ((dir, name), (to, new)) = (self.parent(from)?, self.parent(path)?);
                if flags.contains(noreplace) && fs.lookup(to, new).is_ok() {
                    return Err(refused(Errno::EXIST));
                }
                fs.rename(dir, name, to, new)
            }
            _ => Ok(()),
        }
    }

    fn attributes(&self, op: &Op) -> Result<()> {
        let fs = self.fs;
        match op {
            Op::Chmod { path, perm } => fs.chmod(self.find(path)?, *perm),
            Op::Chown { path, uid, gid } => fs.chown(self.find(path)?, (*uid, *gid)),
            Op::Utimens { path, atime, mtime } => fs.utimens(self.find(path)?, *atime, *mtime),
            Op::Chattr { path, flags } => fs.chattr(self.find(path)?, *flags),
            Op::SetXattr { path, name, len, seed, mode: _ } => {
                fs.set_xattr(self.find(path)?, name.as_bytes(), &self.bytes(*seed, 0, *len))
            }
            Op::RemoveXattr { path, name } => fs.remove_xattr(self.find(path)?, name.as_bytes()),
            _ => Ok(()),
        }
    }

    fn data(&self, op: &Op) -> Result<()> {
        let fs = self.fs;
        match op {
            Op::Write { path, offset, len, seed } => {
                fs.write(self.file(path)?, *offset, &self.bytes(*seed, *offset, *len))
            }
            Op::Append { path, len, seed } => {
                let node = self.file(path)?;
                let offset = fs.size(node);
                fs.write(node, offset, &self.bytes(*seed, offset, *len))
            }
            Op::Read { path, offset, len } => {
                let node = self.file(path)?;
                pieces(*offset, *len).try_for_each(|(at, len)| fs.read(node, at, len).map(drop))
            }
            Op::Truncate { path, size } => fs.truncate(self.file(path)?, *size),
            Op::Fallocate { path, mode, offset, len } => {
                fs.fallocate(self.file(path)?, *mode, *offset, *len)
            }
            // A copy is a read and a write: its effect does not depend on who moves the bytes.
            Op::Copy { from, from_offset, path, offset, len } => {
                let (from, to) = (self.file(from)?, self.file(path)?);
                pieces(*from_offset, *len).try_for_each(|(at, len)| {
                    let bytes = fs.read(from, at, len)?;
                    fs.write(to, at - from_offset + offset, &bytes)
                })
            }
            _ => Ok(()),
        }
    }

    /// What a write of `len` bytes with this seed writes.
    fn bytes(&self, seed: u32, offset: u64, len: u64) -> Cow<'a, [u8]> {
        if let Some(bytes) = self.contents.get(&seed) {
            return Cow::Borrowed(bytes);
        }
        let mut bytes = vec![0; len as usize];
        fill(seed, offset, &mut bytes);
        Cow::Owned(bytes)
    }

    /// A regular file.
    fn file(&self, path: &str) -> Result<Node> {
        let node = self.find(path)?;
        match self.fs.kind(node) {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(refused(Errno::ISDIR)),
            _ => Err(refused(Errno::INVAL)),
        }
    }

    fn find(&self, path: &str) -> Result<Node> {
        if let Some(handle) = path.strip_prefix('#') {
            return self.handles.get(handle).copied().ok_or_else(|| refused(Errno::BADF));
        }
        names(path).try_fold(self.root, |dir, name| self.fs.lookup(dir, name.as_bytes()))
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Node, &'p [u8])> {
        let mut way: Vec<&str> = names(path).collect();
        let name = way.pop().ok_or_else(|| refused(Errno::EXIST))?;
        let dir = way
            .into_iter()
            .try_fold(self.root, |dir, name| self.fs.lookup(dir, name.as_bytes()))?;
        if self.fs.kind(dir) != FileKind::Directory {
            return Err(refused(Errno::NOTDIR));
        }
        Ok((dir, name.as_bytes()))
    }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// A range in pieces of bounded length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len).step_by(CHUNK as usize).map(move |at| (offset + at, CHUNK.min(len - at)))
}

fn refused(errno: Errno) -> Error {
    Error::at("step", b"")(errno.into())
}
