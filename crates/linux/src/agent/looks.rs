//! What the agent reports about the mounted tree besides the results of operations: everything that
//! an oracle compares.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{self as sys, OFlags, SeekFrom};
use vfs::Errno;

use crate::apply::{Directory, Done, errno, read};
use crate::machine::wire::{Answer, Ask, Entry, Stat, digest};

const BLOCK: usize = drive::BLOCK_SIZE;
/// Blocks read at a time to make digests of.
const STRIDE: u64 = 64;

/// Longest value of an extended attribute, xattr(7).
const XATTR_MAX: usize = 64 << 10;

impl Directory {
    /// Looks at what `ask` names; what has no other form comes as bytes.
    pub(super) fn tell(&self, ask: &Ask) -> Done<(Answer, Vec<u8>)> {
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
            Ask::Digests { path, first, blocks } => {
                bytes = self.digests(path, *first, *blocks)?;
                Answer::Done
            }
            Ask::Getflags { path } => {
                let flags = sys::ioctl_getflags(self.open(path, OFlags::RDONLY)?)?;
                Answer::Count(flags.bits().into())
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

    /// Smaller to send than the blocks. Holes are not read, and nothing is sent behind the last
    /// data.
    fn digests(&self, path: &str, first: u64, blocks: u32) -> Done<Vec<u8>> {
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
            // A file's last block counts as padded with zeroes.
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            digests.extend(bytes.chunks_exact(BLOCK).map(digest));
            at = data + (bytes.len() / BLOCK).max(1) as u64;
        }
        Ok(digests.into_iter().flat_map(u64::to_le_bytes).collect())
    }
}
