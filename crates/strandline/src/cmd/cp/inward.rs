//! From the host into a mounted volume.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use vfs::{Attr, Creator, Errno, FileKind, FileSystem, Ino, SetAttr, Timespec, XattrMode};

use super::{Counts, base_name};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::target::Volume;

/// One copy into a volume.
pub(super) struct Inward<'a> {
    pub(super) volume: &'a Volume,
    pub(super) fsync: bool,
    pub(super) recursive: bool,
    pub(super) counts: Counts,
    pub(super) progress: &'a Progress,
    pub(super) chunk: Vec<u8>,
}

/// How many files `path` and all below it are.
pub(super) fn count(path: &Path) -> u64 {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
    let below = if is_dir { fs::read_dir(path).ok() } else { None };
    1 + below.into_iter().flatten().flatten().map(|e| count(&e.path())).sum::<u64>()
}

impl Inward<'_> {
    /// Copies `source` to `to`, or into it if that is a directory, as cp(1) does.
    pub(super) fn copy_to(&mut self, source: &Path, to: &[u8]) -> Outcome<()> {
        let fs = &self.volume.fs;
        match vfs::path::resolve(fs, to, true) {
            Ok(attr) if attr.kind == FileKind::Directory => {
                // `dir/.` and `..` have no name of their own: what is in them is copied.
                match base_name(source) {
                    Some(name) => self.node(source, attr.ino, name),
                    None => self.children(source, attr.ino),
                }
            }
            Ok(_) => self.copy_as(source, to),
            Err(error) if error.errno() == Errno::NOENT => self.copy_as(source, to),
            Err(error) => Err(self.volume.about(to)(error)),
        }
    }

    fn copy_as(&mut self, source: &Path, to: &[u8]) -> Outcome<()> {
        let found = vfs::path::resolve_parent(&self.volume.fs, to);
        let (dir, name) = found.map_err(self.volume.about(to))?;
        self.node(source, dir, name)
    }

    fn node(&mut self, source: &Path, dir: Ino, name: &[u8]) -> Outcome<()> {
        let meta = fs::symlink_metadata(source).map_err(Failure::host(source))?;
        let kind = meta.file_type();
        let about = self.volume.about(source.as_os_str().as_bytes());
        let attr = if kind.is_dir() {
            if !self.recursive {
                let message = format!("{}: is a directory; use -r", source.display());
                return Err(Failure::Problem(message));
            }
            let attr = self.directory(dir, name).map_err(&about)?;
            self.children(source, attr.ino)?;
            self.counts.directories += 1;
            attr
        } else {
            self.replace(dir, name).map_err(&about)?;
            let fs = &self.volume.fs;
            let who = Creator::default();
            let special = |kind| fs.mknod(dir, name, kind, 0o600, meta.rdev(), who);
            if kind.is_symlink() {
                let target = fs::read_link(source).map_err(Failure::host(source))?;
                self.counts.symlinks += 1;
                fs.symlink(dir, name, target.as_os_str().as_bytes(), who).map_err(&about)?
            } else if kind.is_file() {
                self.file(source, dir, name)?
            } else if kind.is_fifo() {
                special(FileKind::Fifo).map_err(&about)?
            } else if kind.is_socket() {
                special(FileKind::Socket).map_err(&about)?
            } else if kind.is_char_device() {
                special(FileKind::CharDevice).map_err(&about)?
            } else {
                special(FileKind::BlockDevice).map_err(&about)?
            }
        };
        self.attributes(source, &meta, &attr)?;
        if self.fsync && attr.kind == FileKind::Regular {
            self.volume.fs.fsync(attr.ino, false).map_err(about)?;
        }
        self.progress.step();
        Ok(())
    }

    fn children(&mut self, source: &Path, dir: Ino) -> Outcome<()> {
        let mut names = fs::read_dir(source)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(Failure::host(source))?;
        names.sort_by_key(fs::DirEntry::file_name);
        names.iter().try_for_each(|e| self.node(&e.path(), dir, e.file_name().as_bytes()))
    }

    fn directory(&self, dir: Ino, name: &[u8]) -> vfs::Result<Attr> {
        let fs = &self.volume.fs;
        match fs.lookup(dir, name) {
            Ok(attr) if attr.kind == FileKind::Directory => Ok(attr),
            Ok(_) => Err(Errno::EXIST.into()),
            Err(error) if error.errno() == Errno::NOENT => {
                fs.mkdir(dir, name, 0o700, Creator::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes room for a new file under `name`.
    fn replace(&self, dir: Ino, name: &[u8]) -> vfs::Result<()> {
        match self.volume.fs.unlink(dir, name) {
            Err(error) if error.errno() != Errno::NOENT => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&mut self, source: &Path, dir: Ino, name: &[u8]) -> Outcome<Attr> {
        let fs = &self.volume.fs;
        let about = self.volume.about(source.as_os_str().as_bytes());
        let mut from = File::open(source).map_err(Failure::host(source))?;
        let attr = fs.create(dir, name, 0o600, Creator::default()).map_err(&about)?;
        let mut offset = 0;
        loop {
            let got = from.read(&mut self.chunk).map_err(Failure::host(source))?;
            if got == 0 {
                break;
            }
            vfs::path::write_all(fs, attr.ino, offset, &self.chunk[..got]).map_err(&about)?;
            offset += got as u64;
        }
        self.counts.files += 1;
        self.counts.bytes += offset;
        Ok(attr)
    }

    fn attributes(&self, source: &Path, meta: &fs::Metadata, attr: &Attr) -> Outcome<()> {
        let fs = &self.volume.fs;
        let about = self.volume.about(source.as_os_str().as_bytes());
        for name in host_xattrs(source) {
            let Some(value) = host_xattr(source, &name) else { continue };
            match fs.setxattr(attr.ino, &name, &value, XattrMode::Set) {
                // A namespace the volume does not keep, SELinux labels for one.
                Err(error) if error.errno() == Errno::OPNOTSUPP => {}
                set => set.map_err(&about)?,
            }
        }
        let time = |secs, nanos: i64| Timespec { secs, nanos: nanos as u32 };
        let symlink = attr.kind == FileKind::Symlink;
        let set = SetAttr {
            perm: (!symlink).then_some((meta.mode() & 0o7777) as u16),
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
            size: None,
            ctime: None,
            atime: Some(time(meta.atime(), meta.atime_nsec())),
            mtime: Some(time(meta.mtime(), meta.mtime_nsec())),
        };
        fs.setattr(attr.ino, &set).map_err(about)?;
        Ok(())
    }
}

/// Names of the extended attributes of a host file; none where they cannot be had.
fn host_xattrs(path: &Path) -> Vec<Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) else { return Vec::new() };
    let names = names.get(..len).unwrap_or_default();
    names.split(|&b| b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
}

fn host_xattr(path: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}
