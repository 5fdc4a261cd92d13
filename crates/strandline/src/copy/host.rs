//! The host's files, to copy from and to.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};

use drive::image;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Timestamps, XattrFlags};
use vfs::{Attr, Errno, FileKind, Result, Seek, Timespec};

use super::{New, Sink, Source, Xattrs};

/// The file systems of this machine, except the images that take part in the copy: an image must
/// not be copied into itself, nor removed as being in the way.
pub(crate) struct Host {
    images: Vec<(u64, u64)>,
}

impl Host {
    /// All files but those of the drives at `images`.
    pub(crate) fn without<'a>(images: impl IntoIterator<Item = &'a Path>) -> Self {
        let files = images.into_iter().flat_map(|path| [path.to_owned(), image::zones_path(path)]);
        let metadata = files.filter_map(|path| fs::metadata(path).ok());
        Self { images: metadata.map(|meta| (meta.dev(), meta.ino())).collect() }
    }

    /// Fails for a file of an image, by whatever name.
    fn spare(&self, meta: &fs::Metadata) -> Result<()> {
        if self.images.contains(&(meta.dev(), meta.ino())) {
            Err(Errno::BUSY.into())
        } else {
            Ok(())
        }
    }
}

/// Room for names or a value of extended attributes; Linux allows no more.
const XATTR_MAX: usize = 64 << 10;

fn errno(error: io::Error) -> vfs::Error {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error).into()
}

fn to_attr(meta: &fs::Metadata) -> Attr {
    let time = |secs, nanos: i64| Timespec { secs, nanos: nanos as u32 };
    Attr {
        ino: meta.ino(),
        kind: FileKind::from_mode(meta.mode()).unwrap_or(FileKind::Regular),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev(),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: time(meta.ctime(), meta.ctime_nsec()),
        generation: 0,
    }
}

impl Source for Host {
    type Node = PathBuf;
    type File = File;

    fn show(&self, node: &PathBuf) -> String {
        node.display().to_string()
    }

    fn attr(&self, node: &PathBuf) -> Result<Attr> {
        let meta = fs::symlink_metadata(node).map_err(errno)?;
        self.spare(&meta)?;
        Ok(to_attr(&meta))
    }

    fn identity(&self, node: &PathBuf, attr: &Attr) -> (u64, u64) {
        let several = attr.nlink > 1 && attr.kind != FileKind::Directory;
        let meta = if several { fs::symlink_metadata(node).ok() } else { None };
        (meta.map_or(0, |meta| meta.dev()), attr.ino)
    }

    fn follow(&self, node: &PathBuf) -> Result<PathBuf> {
        fs::canonicalize(node).map_err(errno)
    }

    fn children(&self, node: &PathBuf) -> Result<Vec<(Vec<u8>, PathBuf)>> {
        let entries = fs::read_dir(node).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let named = |entry: fs::DirEntry| (entry.file_name().into_vec(), entry.path());
        let mut children: Vec<_> = entries.map_err(errno)?.into_iter().map(named).collect();
        children.sort();
        Ok(children)
    }

    fn target(&self, node: &PathBuf) -> Result<Vec<u8>> {
        Ok(fs::read_link(node).map_err(errno)?.into_os_string().into_vec())
    }

    fn xattrs(&self, node: &PathBuf) -> Result<Xattrs> {
        let mut room = vec![0; XATTR_MAX];
        let names = match rustix::fs::llistxattr(node, &mut room[..]) {
            Ok(len) => room.get(..len).unwrap_or_default().to_vec(),
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut all = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match rustix::fs::lgetxattr(node, name, &mut room[..]) {
                Ok(len) => {
                    all.push((name.to_vec(), room.get(..len).unwrap_or_default().to_vec()));
                }
                // Gone since, or not readable for this user.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    fn open(&self, node: &PathBuf) -> Result<File> {
        File::open(node).map_err(errno)
    }

    fn read(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        loop {
            match file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(errno),
            }
        }
    }

    fn seek(&self, file: &File, offset: u64, seek: Seek) -> Result<Option<u64>> {
        let to = match seek {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        match (rustix::fs::seek(file, to), seek) {
            (Ok(found), _) => Ok(Some(found)),
            (Err(Errno::NXIO), _) => Ok(None),
            // A file system that knows no holes has none.
            (Err(Errno::INVAL | Errno::OPNOTSUPP), Seek::Data) => Ok(Some(offset)),
            (Err(Errno::INVAL | Errno::OPNOTSUPP), Seek::Hole) => Ok(None),
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl Sink for Host {
    type Node = PathBuf;
    type File = File;

    fn show(&self, path: &[u8]) -> String {
        Path::new(OsStr::from_bytes(path)).display().to_string()
    }

    fn look(&self, dir: &PathBuf, name: &[u8]) -> Result<Option<(PathBuf, FileKind)>> {
        let path = dir.join(OsStr::from_bytes(name));
        match fs::symlink_metadata(&path) {
            Ok(meta) => Ok(Some((path, to_attr(&meta).kind))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    fn make(&self, dir: &PathBuf, name: &[u8], new: &New<'_>) -> Result<PathBuf> {
        let path = dir.join(OsStr::from_bytes(name));
        match new {
            // Closed to others until the mode is set.
            New::Directory => fs::DirBuilder::new().mode(0o700).create(&path).map_err(errno)?,
            New::File => {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600);
                options.open(&path).map_err(errno)?;
            }
            New::Symlink(target) => symlink(OsStr::from_bytes(target), &path).map_err(errno)?,
            New::Special(kind, rdev) => {
                let kind = FileType::from_raw_mode(kind.mode_bits());
                rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, *rdev)?;
            }
        }
        Ok(path)
    }

    fn link(&self, node: &PathBuf, dir: &PathBuf, name: &[u8]) -> Result<()> {
        fs::hard_link(node, dir.join(OsStr::from_bytes(name))).map_err(errno)
    }

    fn remove(&self, dir: &PathBuf, name: &[u8]) -> Result<()> {
        let path = dir.join(OsStr::from_bytes(name));
        self.spare(&fs::symlink_metadata(&path).map_err(errno)?)?;
        fs::remove_file(path).map_err(errno)
    }

    fn open(&self, node: &PathBuf) -> Result<File> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(flags).open(node).map_err(errno)
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        file.write_all_at(data, offset).map_err(errno)
    }

    fn set_size(&self, file: &File, size: u64) -> Result<()> {
        file.set_len(size).map_err(errno)
    }

    fn set_owner(&self, node: &PathBuf, uid: u32, gid: u32) -> Result<bool> {
        match lchown(node, Some(uid), Some(gid)) {
            Ok(()) => Ok(true),
            Err(error) if !rustix::process::geteuid().is_root() => {
                // Without privileges that was to be expected; the group may still be one of the
                // user's.
                let _group = lchown(node, None, Some(gid));
                match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::PERM | Errno::INVAL) => Ok(false),
                    _ => Err(errno(error)),
                }
            }
            Err(error) => Err(errno(error)),
        }
    }

    fn set_mode(&self, node: &PathBuf, perm: u16) -> Result<()> {
        fs::set_permissions(node, Permissions::from_mode(perm.into())).map_err(errno)
    }

    fn set_times(&self, node: &PathBuf, atime: Timespec, mtime: Timespec) -> Result<()> {
        let time = |t: Timespec| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        Ok(rustix::fs::utimensat(CWD, node, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn set_xattr(&self, node: &PathBuf, name: &[u8], value: &[u8]) -> Result<()> {
        Ok(rustix::fs::lsetxattr(node, name, value, XattrFlags::empty())?)
    }

    fn fsync(&self, node: &PathBuf) -> Result<()> {
        File::open(node).and_then(|file| file.sync_all()).map_err(errno)
    }

    fn is_gone(&self) -> bool {
        false
    }
}
