//! Operations on a directory of the running kernel's file system, by system calls.
//!
//! The counterpart of [`vfs::ops::Session`]: for what model tests do in a guest, and for what a
//! campaign has the agent do. Needs root (device nodes, owners, trusted attributes) and a umask
//! of 0.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags};
use vfs::ops::{Op, Outcome, fill};
use vfs::{Errno, FileKind, InodeFlags, XattrMode};

/// The directory itself, as a path below it.
pub(crate) const ROOT: &str = ".";
/// Leaves an owner unchanged, as for chown(2).
pub(crate) const UNCHANGED: u32 = u32::MAX;

/// A user of a directory of the kernel's. Dropping it closes what [`Op::Open`] opened.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    handles: BTreeMap<String, File>,
}

pub(crate) type Done<T = ()> = Result<T, Errno>;

impl Directory {
    /// A user of the tree below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), handles: BTreeMap::new() }
    }

    /// Closes everything, so that the file system can be unmounted.
    pub(crate) fn close_all(&mut self) {
        self.handles.clear();
    }

    /// Where `path` is: below the root, or what was opened as `#handle`.
    pub(crate) fn path(&self, path: &str) -> Done<PathBuf> {
        use std::os::fd::AsRawFd;
        match path.strip_prefix('#') {
            Some(handle) => {
                let file = self.handles.get(handle).ok_or(Errno::BADF)?;
                Ok(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
            }
            None => Ok(self.root.join(path)),
        }
    }

    pub(crate) fn open(&self, path: &str, flags: OFlags) -> Done<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(sys::open(self.path(path)?, flags, Mode::empty())?))
    }

    /// Applies one operation; the error is what the system call set.
    pub fn apply(&mut self, op: &Op) -> Done<Outcome> {
        let (len, seed, offset) = match op {
            Op::Write { len, seed, offset, .. } => (*len, *seed, *offset),
            Op::Append { path, len, seed } => {
                let file = self.open(path, OFlags::WRONLY)?;
                (*len, *seed, file.metadata().map_err(|e| errno(&e))?.len())
            }
            Op::SetXattr { len, seed, .. } => (*len, *seed, 0),
            _ => (0, 0, 0),
        };
        let mut data = vec![0; len as usize];
        fill(seed, offset, &mut data);
        self.apply_with(op, &data)
    }

    /// As [`Directory::apply`], where `data` is what the operation writes.
    pub(crate) fn apply_with(&mut self, op: &Op, data: &[u8]) -> Done<Outcome> {
        match op {
            Op::Open { path, handle } => {
                let file = self.open(path, OFlags::RDONLY)?;
                self.handles.insert(handle.clone(), file);
            }
            Op::Close { handle } => {
                self.handles.remove(handle).ok_or(Errno::BADF)?;
            }
            Op::Write { .. } | Op::Append { .. } | Op::Copy { .. } | Op::Read { .. } => {
                return self.transfer(op, data);
            }
            Op::Stat { .. } | Op::List { .. } | Op::GetXattr { .. } => return self.look(op),
            Op::SetXattr { path, name, mode, .. } => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                sys::setxattr(self.path(path)?, name.as_str(), data, flags)?;
            }
            Op::RemoveXattr { path, name } => sys::removexattr(self.path(path)?, name.as_str())?,
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } | Op::Chattr { .. } => {
                self.attributes(op)?;
            }
            Op::Truncate { path, size } => {
                // By path, because opening a directory for writing already fails.
                let size = i64::try_from(*size).map_err(|_| Errno::INVAL)?;
                let path = self.path(path)?;
                if sys::stat(&path)?.st_mode & 0o170_000 == 0o040_000 {
                    return Err(Errno::ISDIR);
                }
                // A FIFO would wait for a reader.
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                sys::ftruncate(sys::open(&path, flags, Mode::empty())?, size as u64)?;
            }
            Op::Fallocate { path, mode, offset, len } => {
                let mode = FallocateFlags::from_bits_retain(mode.bits());
                sys::fallocate(self.open(path, OFlags::RDWR)?, mode, *offset, *len)?;
            }
            Op::Fsync { path } => sys::fsync(self.open(path, OFlags::RDONLY)?)?,
            Op::Fdatasync { path } => sys::fdatasync(self.open(path, OFlags::RDONLY)?)?,
            Op::Sync => sys::syncfs(self.open(ROOT, OFlags::RDONLY)?)?,
            _ => self.names(op)?,
        }
        Ok(Outcome::Done)
    }

    fn names(&self, op: &Op) -> Done {
        match op {
            Op::Create { path, perm } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                sys::open(self.path(path)?, flags, Mode::from_raw_mode((*perm).into())).map(drop)
            }
            Op::Mkdir { path, perm } => {
                let path = self.path(path)?;
                sys::mkdir(&path, Mode::from_raw_mode((*perm).into()))?;
                // mkdir(2) leaves out the set-ID bits that the trait's `perm` may ask for.
                if perm & 0o6000 == 0 {
                    return Ok(());
                }
                let inherited = sys::stat(&path)?.st_mode & 0o2000;
                sys::chmod(&path, Mode::from_raw_mode(u32::from(*perm) | inherited))
            }
            Op::Mknod { path, kind, perm, rdev } => {
                let mode = Mode::from_raw_mode((*perm).into());
                let kind = FileType::from_raw_mode(kind.mode_bits());
                sys::mknodat(CWD, self.path(path)?, kind, mode, *rdev)
            }
            Op::Symlink { target, path } => sys::symlink(target.as_str(), self.path(path)?),
            Op::Link { from, path } => {
                let open = from.starts_with('#');
                let flags = if open { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                sys::linkat(CWD, self.path(from)?, CWD, self.path(path)?, flags)
            }
            Op::Unlink { path } => sys::unlink(self.path(path)?),
            Op::Rmdir { path } => sys::rmdir(self.path(path)?),
            Op::Rename { from, path, flags } => {
                let flags = sys::RenameFlags::from_bits_retain(flags.bits());
                sys::renameat_with(CWD, self.path(from)?, CWD, self.path(path)?, flags)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self, op: &Op) -> Done {
        match op {
            Op::Chmod { path, perm } => {
                sys::chmod(self.path(path)?, Mode::from_raw_mode((*perm).into()))
            }
            Op::Chown { path, uid, gid } => {
                let path = self.path(path)?;
                let mode = sys::stat(&path)?.st_mode & 0o7777;
                let uid = (*uid != UNCHANGED).then(|| sys::Uid::from_raw(*uid));
                let gid = (*gid != UNCHANGED).then(|| sys::Gid::from_raw(*gid));
                sys::chown(&path, uid, gid)?;
                // The kernel clears set-ID bits on its own; that was not asked for.
                if mode & 0o6000 == 0 {
                    return Ok(());
                }
                sys::chmod(&path, Mode::from_raw_mode(mode))
            }
            Op::Utimens { path, atime, mtime } => {
                let time = |time: &Option<vfs::Timespec>| match time {
                    Some(t) => sys::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() },
                    None => sys::Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
                };
                let (last_access, last_modification) = (time(atime), time(mtime));
                let times = sys::Timestamps { last_access, last_modification };
                sys::utimensat(CWD, self.path(path)?, &times, AtFlags::empty())
            }
            Op::Chattr { path, flags } => {
                // The file system has some of its own.
                let file = self.open(path, OFlags::RDONLY)?;
                let own = sys::ioctl_getflags(&file)?.bits() & !InodeFlags::all().bits();
                sys::ioctl_setflags(&file, sys::IFlags::from_bits_retain(own | flags.bits()))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn transfer(&self, op: &Op, data: &[u8]) -> Done<Outcome> {
        let write = |file: &File, at| {
            let done = file.write_at(data, at).map_err(|e| errno(&e))?;
            Ok(Outcome::Count(done as u64))
        };
        match op {
            Op::Write { path, offset, .. } => write(&self.open(path, OFlags::WRONLY)?, *offset),
            Op::Append { path, .. } => {
                let file = self.open(path, OFlags::WRONLY)?;
                write(&file, file.metadata().map_err(|e| errno(&e))?.len())
            }
            Op::Read { path, offset, len } => {
                // Comparing must not change what is compared.
                let file = self.open(path, OFlags::RDONLY | OFlags::NOATIME)?;
                read(&file, *offset, (*len as usize).min(READ_MAX)).map(Outcome::Bytes)
            }
            Op::Copy { from, from_offset, path, offset, len } => {
                let from = self.open(from, OFlags::RDONLY)?;
                let to = self.open(path, OFlags::WRONLY)?;
                let (mut read_at, mut write_at) = (*from_offset, *offset);
                let mut done = 0;
                loop {
                    let left = (*len - done) as usize;
                    let (at, to_at) = (Some(&mut read_at), Some(&mut write_at));
                    match sys::copy_file_range(&from, at, &to, to_at, left)? {
                        0 => return Ok(Outcome::Count(done)),
                        got => done += got as u64,
                    }
                    if done == *len {
                        return Ok(Outcome::Count(done));
                    }
                }
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn look(&self, op: &Op) -> Done<Outcome> {
        match op {
            Op::Stat { path } => {
                let s = sys::lstat(self.path(path)?)?;
                let kind = FileKind::from_mode(s.st_mode).ok_or(Errno::UCLEAN)?;
                let size = if kind == FileKind::Directory { 0 } else { s.st_size as u64 };
                let (perm, nlink) = ((s.st_mode & 0o7777) as u16, s.st_nlink as u32);
                Ok(Outcome::Attr(kind, perm, nlink, s.st_uid, s.st_gid, size, s.st_rdev))
            }
            Op::List { path } => {
                let entries = std::fs::read_dir(self.path(path)?).map_err(|e| errno(&e))?;
                let mut names = Vec::new();
                for entry in entries {
                    let entry = entry.map_err(|e| errno(&e))?;
                    let mode = entry.metadata().map_err(|e| errno(&e))?.mode();
                    let kind = FileKind::from_mode(mode).ok_or(Errno::UCLEAN)?;
                    names.push((entry.file_name().into_encoded_bytes(), kind));
                }
                names.sort();
                Ok(Outcome::Names(names))
            }
            Op::GetXattr { path, name } => {
                let mut value = vec![0; 65_536];
                let len = sys::getxattr(self.path(path)?, name.as_str(), value.as_mut_slice())?;
                value.truncate(len);
                Ok(Outcome::Bytes(value))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// Whether the operation goes through a FIFO, socket or device, on which a system call does
    /// something that is not the file system's.
    pub fn meets_a_device(&self, op: &Op) -> bool {
        let paths: &[&String] = match op {
            Op::Copy { from, path, .. } => &[from, path],
            Op::Open { path, .. }
            | Op::Write { path, .. }
            | Op::Append { path, .. }
            | Op::Read { path, .. }
            | Op::Truncate { path, .. }
            | Op::Fallocate { path, .. }
            | Op::Fsync { path }
            | Op::Fdatasync { path } => &[path],
            _ => &[],
        };
        paths.iter().any(|path| {
            let kind = self.path(path).ok().and_then(|p| p.metadata().ok()).map(|m| m.file_type());
            kind.is_some_and(|k| !k.is_file() && !k.is_dir())
        })
    }
}

/// Most that is read at once, whatever is asked for.
const READ_MAX: usize = 16 << 20;

/// Up to `len` bytes, fewer at the end of the file.
pub(crate) fn read(file: &File, offset: u64, len: usize) -> Done<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    // Even if nothing is to be read: the kernel may refuse.
    loop {
        match file.read_at(&mut bytes[got..], offset.saturating_add(got as u64)) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) => return Err(errno(&error)),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

/// The number behind an error of the standard library.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
