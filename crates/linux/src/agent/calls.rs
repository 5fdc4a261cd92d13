//! The agent's system calls on the mounted tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{
    self as sys, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, XattrFlags,
};
use rustix::io::Errno;
use vfs::InodeFlags;

use crate::machine::wire::{Answer, Ask, Entry, Stat, digest};

const BLOCK: usize = drive::BLOCK_SIZE;
/// Blocks read at a time to make digests of.
const STRIDE: u64 = 64;
/// Bytes of one read.
const READ_MAX: usize = 4 << 20;

/// Longest value of an extended attribute, xattr(7).
const XATTR_MAX: usize = 64 << 10;

/// A tree and the files of it that are kept open.
pub(crate) struct Calls {
    root: PathBuf,
    handles: BTreeMap<u64, File>,
}

type Done<T = ()> = Result<T, Errno>;

impl Calls {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, handles: BTreeMap::new() }
    }

    /// Closes everything, so that the tree can be unmounted.
    pub(crate) fn close_all(&mut self) {
        self.handles.clear();
    }

    fn path(&self, path: &str) -> Done<PathBuf> {
        let Some(handle) = path.strip_prefix('#') else { return Ok(self.root.join(path)) };
        let file = handle.parse().ok().and_then(|handle| self.handles.get(&handle));
        Ok(format!("/proc/self/fd/{}", file.ok_or(Errno::BADF)?.as_raw_fd()).into())
    }

    fn open(&self, path: &str, flags: OFlags) -> Done<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(sys::open(self.path(path)?, flags, Mode::empty())?))
    }

    /// Makes the call that `ask` names; bytes that it takes are in `bytes`, those that it gives
    /// come back.
    pub(crate) fn apply(&mut self, ask: &Ask, bytes: &[u8]) -> Done<(Answer, Vec<u8>)> {
        match ask {
            Ask::Open { path, handle } => {
                let file = self.open(path, OFlags::RDONLY)?;
                self.handles.insert(*handle, file);
            }
            Ask::Close { handle } => drop(self.handles.remove(handle).ok_or(Errno::BADF)?),
            Ask::Read { path, offset, len } => {
                // Whoever compares must not change what is compared.
                let file = self.open(path, OFlags::RDONLY | OFlags::NOATIME)?;
                return Ok((Answer::Done, read(&file, *offset, *len as usize)?));
            }
            Ask::Digests { path, first, blocks } => return self.digests(path, *first, *blocks),
            Ask::Write { path, offset } => {
                let file = self.open(path, OFlags::WRONLY)?;
                let done = file.write_at(bytes, *offset).map_err(|e| errno(&e))?;
                return Ok((Answer::Count(done as u64), Vec::new()));
            }
            Ask::Fallocate { path, mode, offset, len } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                sys::fallocate(self.open(path, OFlags::RDWR)?, mode, *offset, *len)?;
            }
            Ask::Truncate { path, size } => {
                sys::ftruncate(self.open(path, OFlags::WRONLY)?, *size)?;
            }
            Ask::Fsync { path, data_only: true } => {
                sys::fdatasync(self.open(path, OFlags::RDONLY)?)?;
            }
            Ask::Fsync { path, data_only: false } => {
                sys::fsync(self.open(path, OFlags::RDONLY)?)?;
            }
            Ask::Syncfs => sys::syncfs(self.open("", OFlags::RDONLY)?)?,
            Ask::Lstat { .. } | Ask::List { .. } | Ask::Readlink { .. } => return self.look(ask),
            Ask::Getxattr { .. } | Ask::Listxattr { .. } => return self.look(ask),
            Ask::Getflags { path } => {
                let flags = sys::ioctl_getflags(self.open(path, OFlags::RDONLY)?)?;
                return Ok((Answer::Count(flags.bits().into()), Vec::new()));
            }
            Ask::Chmod { .. } | Ask::Chown { .. } | Ask::Utimens { .. } | Ask::Setflags { .. } => {
                self.attributes(ask)?;
            }
            Ask::Setxattr { path, name } => {
                sys::setxattr(self.path(path)?, name.as_str(), bytes, XattrFlags::empty())?;
            }
            Ask::Removexattr { path, name } => sys::removexattr(self.path(path)?, name.as_str())?,
            _ => self.names(ask)?,
        }
        Ok((Answer::Done, Vec::new()))
    }

    /// Less to send than the blocks are. Holes are not read; behind the last data there is nothing
    /// to tell.
    fn digests(&self, path: &str, first: u64, blocks: u32) -> Done<(Answer, Vec<u8>)> {
        let file = self.open(path, OFlags::RDONLY | OFlags::NOATIME)?;
        let end = first.saturating_add(blocks.into());
        let hole = digest(&[0; BLOCK]);
        let (mut digests, mut at) = (Vec::new(), first);
        while at < end {
            let data = match sys::seek(&file, SeekFrom::Data(at.saturating_mul(BLOCK as u64))) {
                Ok(data) => (data / BLOCK as u64).clamp(at, end),
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error),
            };
            digests.resize(digests.len() + (data - at) as usize, hole);
            let want = (end - data).min(STRIDE) as usize * BLOCK;
            let mut bytes = read(&file, data.saturating_mul(BLOCK as u64), want)?;
            // A block that a file ends in counts as filled up with zeroes.
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            digests.extend(bytes.chunks_exact(BLOCK).map(digest));
            at = data + (bytes.len() / BLOCK).max(1) as u64;
        }
        let bytes = digests.into_iter().flat_map(u64::to_le_bytes).collect();
        Ok((Answer::Done, bytes))
    }

    fn names(&self, ask: &Ask) -> Done {
        match ask {
            Ask::Mknod { path, mode, rdev } => {
                let perm = Mode::from_raw_mode(mode & 0o7777);
                let path = self.path(path)?;
                match FileType::from_raw_mode(*mode) {
                    FileType::RegularFile => {
                        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                        sys::open(path, flags, perm).map(drop)
                    }
                    FileType::Directory => sys::mkdir(path, perm),
                    kind => sys::mknodat(CWD, path, kind, perm, *rdev),
                }
            }
            Ask::Symlink { path, target } => sys::symlink(target.as_str(), self.path(path)?),
            Ask::Link { from, path } => {
                let open = from.starts_with('#');
                let flags = if open { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                sys::linkat(CWD, self.path(from)?, CWD, self.path(path)?, flags)
            }
            Ask::Unlink { path } => sys::unlink(self.path(path)?),
            Ask::Rmdir { path } => sys::rmdir(self.path(path)?),
            Ask::Rename { from, path, flags } => {
                let flags = sys::RenameFlags::from_bits_retain(*flags);
                sys::renameat_with(CWD, self.path(from)?, CWD, self.path(path)?, flags)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self, ask: &Ask) -> Done {
        match ask {
            Ask::Chmod { path, perm } => {
                sys::chmod(self.path(path)?, Mode::from_raw_mode((*perm).into()))
            }
            Ask::Chown { path, uid, gid } => {
                let path = self.path(path)?;
                let (uid, gid) = (uid.map(sys::Uid::from_raw), gid.map(sys::Gid::from_raw));
                let mode = sys::stat(&path)?.st_mode & 0o7777;
                sys::chown(&path, uid, gid)?;
                // Clearing set-id bits is the kernel's courtesy, and not what was asked for.
                if mode & 0o6000 == 0 {
                    return Ok(());
                }
                sys::chmod(&path, Mode::from_raw_mode(mode))
            }
            Ask::Utimens { path, atime, mtime } => {
                let time = |time: &Option<(i64, u32)>| match *time {
                    Some((tv_sec, nanos)) => sys::Timespec { tv_sec, tv_nsec: nanos.into() },
                    None => sys::Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
                };
                let (last_access, last_modification) = (time(atime), time(mtime));
                let times = sys::Timestamps { last_access, last_modification };
                sys::utimensat(CWD, self.path(path)?, &times, AtFlags::empty())
            }
            Ask::Setflags { path, flags } => {
                // The file system has some of its own.
                let file = self.open(path, OFlags::RDONLY)?;
                let own = sys::ioctl_getflags(&file)?.bits() & !InodeFlags::all().bits();
                sys::ioctl_setflags(&file, sys::IFlags::from_bits_retain(own | flags))
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn look(&self, ask: &Ask) -> Done<(Answer, Vec<u8>)> {
        let mut bytes = Vec::new();
        let answer = match ask {
            Ask::Lstat { path } => {
                let at = self.path(path)?;
                let s = if path.starts_with('#') { sys::stat(at)? } else { sys::lstat(at)? };
                Answer::Stat(Stat {
                    ino: s.st_ino,
                    mode: s.st_mode,
                    nlink: s.st_nlink as u32,
                    uid: s.st_uid,
                    gid: s.st_gid,
                    size: s.st_size as u64,
                    blocks: s.st_blocks as u64,
                    rdev: s.st_rdev,
                    atime: (s.st_atime, s.st_atime_nsec as u32),
                    mtime: (s.st_mtime, s.st_mtime_nsec as u32),
                    ctime: (s.st_ctime, s.st_ctime_nsec as u32),
                })
            }
            Ask::List { path } => Answer::Entries(self.list(path)?),
            Ask::Readlink { path } => {
                let target = std::fs::read_link(self.path(path)?).map_err(|e| errno(&e))?;
                bytes = target.as_os_str().as_bytes().to_vec();
                Answer::Done
            }
            Ask::Getxattr { path, name } => {
                bytes = vec![0; XATTR_MAX];
                let path = self.path(path)?;
                let len = sys::lgetxattr(path, name.as_str(), bytes.as_mut_slice())?;
                bytes.truncate(len);
                Answer::Done
            }
            Ask::Listxattr { path } => {
                let mut list = vec![0; XATTR_MAX];
                let len = sys::llistxattr(self.path(path)?, list.as_mut_slice())?;
                let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
                let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
                Answer::Names(names.collect())
            }
            _ => return Err(Errno::NOSYS),
        };
        Ok((answer, bytes))
    }

    fn list(&self, path: &str) -> Done<Vec<Entry>> {
        let entries = std::fs::read_dir(self.path(path)?).map_err(|e| errno(&e))?;
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| errno(&e))?;
            let of = entry.metadata().map_err(|e| errno(&e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            all.push(Entry { name, ino: of.ino(), mode: of.mode() });
        }
        Ok(all)
    }
}

/// Up to `len` bytes, fewer at the end of the file.
fn read(file: &File, offset: u64, len: usize) -> Done<Vec<u8>> {
    let mut bytes = vec![0; len.min(READ_MAX)];
    let mut got = 0;
    while got < bytes.len() {
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
