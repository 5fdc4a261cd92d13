//! Applying operations to a file system.

use std::collections::BTreeMap;

use super::Op;
use crate::path::{read_dir, resolve, resolve_parent};
use crate::{Attr, Creator, Errno, FileKind, FileSystem, Ino, Result, SetAttr};

/// The answer of a successful operation, without what may differ between file systems (inode
/// numbers, times, allocated blocks, the size of a directory).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to say.
    Done,
    /// Bytes written or copied.
    Count(u64),
    /// Bytes read.
    Bytes(Vec<u8>),
    /// Names and kinds, sorted.
    Names(Vec<(Vec<u8>, FileKind)>),
    /// Kind, permissions, links, owner, group, size (0 for a directory), device.
    Attr(FileKind, u16, u32, u32, u32, u64, u64),
}

/// A user of one file system: applies operations and keeps what [`Op::Open`] opened. Dropping it
/// closes everything.
pub struct Session<'f> {
    fs: &'f dyn FileSystem,
    creator: Creator,
    handles: BTreeMap<String, Ino>,
}

/// Applies one operation on its own. A handle that it opens is closed again.
pub fn apply(fs: &dyn FileSystem, op: &Op) -> Result<Outcome, Errno> {
    Session::new(fs).apply(op)
}

/// Writes the bytes of `seed` at file offset `offset`. No two offsets have the same words, so
/// misplaced data shows. Seed 0 is zeroes.
pub fn fill(seed: u32, offset: u64, buf: &mut [u8]) {
    if seed == 0 {
        buf.fill(0);
        return;
    }
    let mut word_at = u64::MAX;
    let mut word = [0; 8];
    for (at, byte) in (offset..).zip(buf) {
        if at / 8 != word_at {
            word_at = at / 8;
            word = cores::mix(u64::from(seed) << 40 ^ word_at).to_le_bytes();
        }
        *byte = word[(at % 8) as usize];
    }
}

impl<'f> Session<'f> {
    /// A session of root without open files.
    pub fn new(fs: &'f dyn FileSystem) -> Self {
        Self { fs, creator: Creator::default(), handles: BTreeMap::new() }
    }

    /// Applies `op`; the error is the errno the system call would set.
    pub fn apply(&mut self, op: &Op) -> Result<Outcome, Errno> {
        self.run(op).map_err(|error| error.errno())
    }

    fn run(&mut self, op: &Op) -> Result<Outcome> {
        match op {
            Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. } => self.change_names(op).map(|()| Outcome::Done),
            Op::Open { .. } | Op::Close { .. } => self.change_handles(op).map(|()| Outcome::Done),
            Op::Write { .. }
            | Op::Append { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::Copy { .. } => self.change_data(op),
            Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => self.change_attributes(op).map(|()| Outcome::Done),
            // This is an ioctl, which is not part of the trait.
            Op::Chattr { .. } => Err(Errno::OPNOTSUPP.into()),
            Op::Read { .. } | Op::GetXattr { .. } | Op::Stat { .. } | Op::List { .. } => {
                self.look(op)
            }
            Op::Fsync { path } => self.sync_file(path, false),
            Op::Fdatasync { path } => self.sync_file(path, true),
            Op::Sync => self.fs.sync().map(|()| Outcome::Done),
        }
    }

    fn change_names(&self, op: &Op) -> Result<()> {
        let fs = self.fs;
        let at = |path: &str| -> Result<(Ino, Vec<u8>)> {
            let (parent, name) = resolve_parent(fs, path.as_bytes())?;
            Ok((parent, name.to_vec()))
        };
        match op {
            Op::Create { path, perm } => {
                let (parent, name) = at(path)?;
                fs.create(parent, &name, *perm, self.creator)?;
            }
            Op::Mkdir { path, perm } => {
                let (parent, name) = at(path)?;
                fs.mkdir(parent, &name, *perm, self.creator)?;
            }
            Op::Mknod { path, kind, perm, rdev } => {
                let (parent, name) = at(path)?;
                fs.mknod(parent, &name, *kind, *perm, *rdev, self.creator)?;
            }
            Op::Symlink { target, path } => {
                let (parent, name) = at(path)?;
                fs.symlink(parent, &name, target.as_bytes(), self.creator)?;
            }
            Op::Link { from, path } => {
                let ino = self.find(from, false)?.ino;
                let (parent, name) = at(path)?;
                fs.link(ino, parent, &name)?;
            }
            Op::Unlink { path } => {
                let (parent, name) = at(path)?;
                fs.unlink(parent, &name)?;
            }
            Op::Rmdir { path } => {
                let (parent, name) = at(path)?;
                fs.rmdir(parent, &name)?;
            }
            Op::Rename { from, path, flags } => {
                let (parent, name) = at(from)?;
                let (new_parent, new_name) = at(path)?;
                fs.rename(parent, &name, new_parent, &new_name, *flags)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn change_handles(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Open { path, handle } => {
                let ino = self.find(path, true)?.ino;
                self.fs.open(ino)?;
                if let Some(old) = self.handles.insert(handle.clone(), ino) {
                    self.fs.release(old);
                }
            }
            Op::Close { handle } => {
                self.fs.release(self.handles.remove(handle).ok_or(Errno::BADF)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn change_data(&self, op: &Op) -> Result<Outcome> {
        let fs = self.fs;
        match op {
            Op::Write { path, offset, len, seed } => {
                self.write(self.find(path, true)?.ino, *offset, *len, *seed)
            }
            Op::Append { path, len, seed } => {
                let attr = self.find(path, true)?;
                self.write(attr.ino, attr.size, *len, *seed)
            }
            Op::Truncate { path, size } => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                fs.setattr(self.find(path, true)?.ino, &set).map(|_| Outcome::Done)
            }
            Op::Fallocate { path, mode, offset, len } => fs
                .fallocate(self.find(path, true)?.ino, *mode, *offset, *len)
                .map(|()| Outcome::Done),
            Op::Copy { from, from_offset, path, offset, len } => {
                let from = self.find(from, true)?.ino;
                let to = self.find(path, true)?.ino;
                fs.copy_file_range(from, *from_offset, to, *offset, *len).map(Outcome::Count)
            }
            _ => Ok(Outcome::Done),
        }
    }

    fn write(&self, ino: Ino, offset: u64, len: u64, seed: u32) -> Result<Outcome> {
        let mut data = vec![0; usize::try_from(len).map_err(|_| Errno::INVAL)?];
        fill(seed, offset, &mut data);
        self.fs.write(ino, offset, &data).map(|done| Outcome::Count(done as u64))
    }

    fn change_attributes(&self, op: &Op) -> Result<()> {
        let fs = self.fs;
        match op {
            Op::Chmod { path, perm } => {
                let set = SetAttr { perm: Some(*perm), ..SetAttr::default() };
                fs.setattr(self.find(path, true)?.ino, &set)?;
            }
            Op::Chown { path, uid, gid } => {
                let set = SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() };
                fs.setattr(self.find(path, true)?.ino, &set)?;
            }
            Op::Utimens { path, atime, mtime } => {
                let set = SetAttr { atime: *atime, mtime: *mtime, ..SetAttr::default() };
                fs.setattr(self.find(path, true)?.ino, &set)?;
            }
            Op::SetXattr { path, name, len, seed, mode } => {
                let mut value = vec![0; usize::try_from(*len).map_err(|_| Errno::INVAL)?];
                fill(*seed, 0, &mut value);
                fs.setxattr(self.find(path, true)?.ino, name.as_bytes(), &value, *mode)?;
            }
            Op::RemoveXattr { path, name } => {
                fs.removexattr(self.find(path, true)?.ino, name.as_bytes())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn look(&self, op: &Op) -> Result<Outcome> {
        let fs = self.fs;
        Ok(match op {
            Op::Read { path, offset, len } => {
                let mut buf = vec![0; usize::try_from(*len).map_err(|_| Errno::INVAL)?];
                let got = fs.read(self.find(path, true)?.ino, *offset, &mut buf)?;
                buf.truncate(got);
                Outcome::Bytes(buf)
            }
            Op::GetXattr { path, name } => {
                Outcome::Bytes(fs.getxattr(self.find(path, true)?.ino, name.as_bytes())?)
            }
            Op::Stat { path } => {
                let a = self.find(path, false)?;
                let size = if a.kind == FileKind::Directory { 0 } else { a.size };
                Outcome::Attr(a.kind, a.perm, a.nlink, a.uid, a.gid, size, a.rdev)
            }
            Op::List { path } => {
                let entries = read_dir(fs, self.find(path, true)?.ino)?;
                let mut names: Vec<_> = entries.into_iter().map(|e| (e.name, e.kind)).collect();
                names.sort();
                Outcome::Names(names)
            }
            _ => Outcome::Done,
        })
    }

    fn sync_file(&self, path: &str, datasync: bool) -> Result<Outcome> {
        self.fs.fsync(self.find(path, true)?.ino, datasync).map(|()| Outcome::Done)
    }

    fn find(&self, path: &str, follow: bool) -> Result<Attr> {
        match path.strip_prefix('#') {
            Some(handle) => self.fs.getattr(*self.handles.get(handle).ok_or(Errno::BADF)?),
            None => resolve(self.fs, path.as_bytes(), follow),
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for &ino in self.handles.values() {
            self.fs.release(ino);
        }
    }
}
