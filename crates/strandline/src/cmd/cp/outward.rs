//! From a mounted volume to the host.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps, XattrFlags};
use vfs::{Attr, FileKind, FileSystem};

use super::{Counts, os};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::target::Volume;

/// One copy out of a volume.
pub(super) struct Outward<'a> {
    pub(super) volume: &'a Volume,
    pub(super) recursive: bool,
    pub(super) counts: Counts,
    pub(super) progress: &'a Progress,
    pub(super) chunk: Vec<u8>,
}

impl Outward<'_> {
    /// Copies `source` to `to`, or into it if that is a directory, as cp(1) does.
    pub(super) fn copy_to(&mut self, source: &[u8], to: &Path) -> Outcome<()> {
        let attr = self.volume.find(source, false)?;
        let name = source.rsplit(|&b| b == b'/').find(|n| !n.is_empty());
        match name {
            Some(name) if to.is_dir() && name != b"." && name != b".." => {
                self.node(source, &attr, &to.join(os(name)))
            }
            _ => self.node(source, &attr, to),
        }
    }

    fn node(&mut self, source: &[u8], attr: &Attr, to: &Path) -> Outcome<()> {
        let host = || Failure::host(to);
        match attr.kind {
            FileKind::Directory => {
                if !self.recursive {
                    let error = "is a directory; use -r";
                    return Err(Failure::on(to.display())(error));
                }
                if !to.is_dir() {
                    fs::create_dir(to).map_err(host())?;
                }
                self.children(source, attr, to)?;
                self.counts.directories += 1;
            }
            FileKind::Symlink => {
                remove(to);
                let fs = &self.volume.fs;
                let target = fs.readlink(attr.ino).map_err(self.volume.about(source))?;
                symlink(os(&target), to).map_err(host())?;
                self.counts.symlinks += 1;
            }
            FileKind::Regular => self.file(source, attr, to)?,
            kind => {
                remove(to);
                let Some(kind) = host_type(kind) else { return Ok(()) };
                let made = rustix::fs::mknodat(CWD, to, kind, Mode::RUSR, attr.rdev);
                if made.is_err() {
                    // Making devices takes privileges; the rest of the tree does not.
                    self.counts.skipped += 1;
                    return Ok(());
                }
            }
        }
        self.attributes(source, attr, to)?;
        self.progress.step();
        Ok(())
    }

    fn children(&mut self, source: &[u8], attr: &Attr, to: &Path) -> Outcome<()> {
        let volume = self.volume;
        let entries = vfs::path::read_dir(&volume.fs, attr.ino).map_err(volume.about(source))?;
        for entry in entries {
            // A volume is foreign data: a name must not lead out of the destination.
            if entry.name.contains(&b'/') || entry.name.contains(&0) {
                let error = vfs::Error::from(vfs::Errno::UCLEAN);
                return Err(volume.about(&entry.name)(error));
            }
            let path = [source.strip_suffix(b"/").unwrap_or(source), b"/", &entry.name].concat();
            let attr = volume.fs.getattr(entry.ino).map_err(volume.about(&path))?;
            self.node(&path, &attr, &to.join(os(&entry.name)))?;
        }
        Ok(())
    }

    fn file(&mut self, source: &[u8], attr: &Attr, to: &Path) -> Outcome<()> {
        remove(to);
        let file = File::create_new(to).map_err(Failure::host(to))?;
        let mut offset = 0;
        loop {
            let got = self.volume.fs.read(attr.ino, offset, &mut self.chunk);
            let got = got.map_err(self.volume.about(source))?;
            if got == 0 {
                break;
            }
            file.write_all_at(&self.chunk[..got], offset).map_err(Failure::host(to))?;
            offset += got as u64;
        }
        self.counts.files += 1;
        self.counts.bytes += offset;
        Ok(())
    }

    /// Owner and extended attributes as far as the host lets us, then mode and times.
    fn attributes(&self, source: &[u8], attr: &Attr, to: &Path) -> Outcome<()> {
        drop(lchown(to, Some(attr.uid), Some(attr.gid)));
        let fs = &self.volume.fs;
        for name in fs.listxattr(attr.ino).map_err(self.volume.about(source))? {
            let value = fs.getxattr(attr.ino, &name).map_err(self.volume.about(source))?;
            let _denied = rustix::fs::lsetxattr(to, &*name, &value, XattrFlags::empty());
        }
        if attr.kind != FileKind::Symlink {
            let mode = Permissions::from_mode(u32::from(attr.perm));
            fs::set_permissions(to, mode).map_err(Failure::host(to))?;
        }
        let time =
            |t: vfs::Timespec| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
        let times =
            Timestamps { last_access: time(attr.atime), last_modification: time(attr.mtime) };
        rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(Failure::host(to))
    }
}

/// Makes room; what cannot be removed shows when it is made anew.
fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

fn host_type(kind: FileKind) -> Option<FileType> {
    Some(match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        _ => return None,
    })
}
