//! A file system of another machine's kernel, through the agent there: a [`FileSystem`] like ours,
//! so that workloads, recorder and oracle need not know.
//!
//! The agent knows paths and this trait inodes, so the names of each inode are remembered here as
//! they are seen.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use cores::Mutex;
use drive::{BLOCK_SIZE, Block};
use vfs::kind::{PageAt, Recovery, Volume};
use vfs::ops::Op;
use vfs::{
    Attr, DirEntry, Errno, Error, FallocateMode, FileKind, FileSystem, Ino, InodeFlags, NewInode,
    RenameFlags, Result, Seek, SetAttr, StatFs, Timespec, XattrMode,
};

use super::Machine;
use super::wire::{Answer, Ask, Stat, digest};
use crate::apply::{ROOT, UNCHANGED};

/// Bytes of one read: a frame of the wire has room for more.
const READ_MAX: usize = 1 << 20;
/// Digests of one answer.
const DIGESTS_MAX: u64 = 64 << 10;
/// The directory that some file systems make for themselves.
const OWN: &str = "lost+found";

/// A volume mounted there.
pub(crate) struct Remote {
    machine: Arc<Machine>,
    root: Ino,
    /// Protects the names of inodes and who has them open, which every call needs.
    known: Mutex<BTreeMap<Ino, Known>>,
    blocks: Blocks,
    /// Every fsync is an fdatasync.
    data_only: bool,
}

/// Blocks that were read, by their digests, for all volumes of a campaign.
#[derive(Clone)]
pub(crate) struct Blocks(
    /// Protects them: volumes of one campaign add to them.
    Arc<Mutex<BTreeMap<u64, Block>>>,
);

impl Default for Blocks {
    fn default() -> Self {
        Self(Arc::new(Mutex::named("blocks", BTreeMap::new())))
    }
}

/// What is known of an inode.
#[derive(Default)]
struct Known {
    names: BTreeSet<(Ino, String)>,
    /// How often it was opened.
    open: usize,
}

impl Remote {
    /// The volume that the agent has just mounted.
    pub(crate) fn new(machine: Arc<Machine>, blocks: Blocks) -> Result<Self> {
        let known = Mutex::named("names", BTreeMap::new());
        let mut new = Self { machine, root: 0, known, blocks, data_only: false };
        new.root = new.stat(ROOT.into())?.ino;
        Ok(new)
    }

    /// The same, with fdatasync for fsync if `yes`.
    pub(crate) fn data_only(self, yes: bool) -> Self {
        Self { data_only: yes, ..self }
    }

    fn ask(&self, ask: &Ask, bytes: &[u8]) -> Result<(Answer, Vec<u8>)> {
        Ok(self.machine.ask(ask, bytes)?)
    }

    fn apply_with(&self, op: &Op, data: &[u8]) -> Result<(Answer, Vec<u8>)> {
        self.ask(&Ask::Apply { op: op.to_string() }, data)
    }

    fn apply(&self, op: &Op) -> Result<()> {
        self.apply_with(op, b"").map(drop)
    }

    fn stat(&self, path: String) -> Result<Attr> {
        match self.ask(&Ask::Lstat { path }, b"")? {
            (Answer::Stat(stat), _) => attr(&stat),
            _ => Err(Errno::PROTO.into()),
        }
    }

    /// One way to `ino`.
    fn path(&self, ino: Ino) -> Result<String> {
        let known = self.known.lock();
        let mut parts: Vec<&str> = Vec::new();
        let mut at = ino;
        while at != self.root {
            let of = known.get(&at).ok_or(Errno::STALE)?;
            if of.open > 0 && at == ino {
                return Ok(format!("#{ino}"));
            }
            let (parent, name) = of.names.first().ok_or(Errno::STALE)?;
            parts.push(name);
            at = *parent;
            if parts.len() > 4096 {
                return Err(Errno::LOOP.into());
            }
        }
        parts.reverse();
        Ok(if parts.is_empty() { ROOT.into() } else { parts.join("/") })
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<String> {
        let (dir, name) = (self.path(parent)?, text(name)?);
        Ok(if dir == ROOT { name } else { format!("{dir}/{name}") })
    }

    /// What is now at `name`.
    fn learn(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = self.stat(self.child(parent, name)?)?;
        let place = (parent, text(name)?);
        self.known.lock().entry(attr.ino).or_default().names.insert(place);
        Ok(attr)
    }

    /// A block of a file whose digest is known; what was read once needs not come again.
    fn block(&self, ino: Ino, index: u64, digest: u64) -> Result<Block> {
        if let Some(block) = self.blocks.0.lock().get(&digest) {
            return Ok(block.clone());
        }
        let mut bytes = [0; BLOCK_SIZE];
        self.read(ino, index * BLOCK_SIZE as u64, &mut bytes)?;
        let block = Block::new(bytes);
        self.blocks.0.lock().insert(digest, block.clone());
        Ok(block)
    }

    /// Whole blocks that were sent there need not come back.
    fn remember(&self, offset: u64, bytes: &[u8]) {
        let skip = (offset.next_multiple_of(BLOCK_SIZE as u64) - offset) as usize;
        let (whole, _) = bytes.get(skip..).unwrap_or_default().as_chunks::<BLOCK_SIZE>();
        let mut blocks = self.blocks.0.lock();
        for block in whole {
            blocks.entry(digest(block)).or_insert_with(|| Block::new(*block));
        }
    }

    /// `name` is gone, and its inode number may come back as another file.
    fn forget(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let place = (parent, text(name)?);
        self.known.lock().retain(|_, of| {
            of.names.remove(&place);
            !of.names.is_empty() || of.open > 0
        });
        Ok(())
    }
}

impl Volume for Remote {
    /// The kernel does not report what its recovery did.
    fn recovery(&self) -> Recovery {
        Recovery::default()
    }

    fn flags(&self, ino: Ino) -> Result<u32> {
        match self.ask(&Ask::Getflags { path: self.path(ino)? }, b"")? {
            (Answer::Count(flags), _) => Ok(flags as u32),
            _ => Err(Errno::PROTO.into()),
        }
    }

    fn set_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        let flags = InodeFlags::from_bits_truncate(flags);
        self.apply(&Op::Chattr { path: self.path(ino)?, flags })
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        let path = self.path(ino)?;
        for first in range.clone().step_by(DIGESTS_MAX as usize) {
            let blocks = (range.end - first).min(DIGESTS_MAX) as u32;
            let ask = Ask::Digests { path: path.clone(), first, blocks };
            let (_, digests) = self.ask(&ask, b"")?;
            let (digests, _) = digests.as_chunks::<8>();
            for (index, digest) in (first..range.end).zip(digests) {
                let block = self.block(ino, index, u64::from_le_bytes(*digest))?;
                see(index, PageAt::Memory(&block));
            }
        }
        Ok(true)
    }
}

impl FileSystem for Remote {
    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.learn(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.stat(self.path(ino)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let path = || self.path(ino);
        if let Some(size) = set.size {
            self.apply(&Op::Truncate { path: path()?, size })?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let [uid, gid] = [set.uid, set.gid].map(|id| id.unwrap_or(UNCHANGED));
            self.apply(&Op::Chown { path: path()?, uid, gid })?;
        }
        if let Some(perm) = set.perm {
            self.apply(&Op::Chmod { path: path()?, perm })?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let (atime, mtime) = (set.atime, set.mtime);
            self.apply(&Op::Utimens { path: path()?, atime, mtime })?;
        }
        self.getattr(ino)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        let NewInode { kind, perm, rdev, target, .. } = *new;
        let path = self.child(parent, name)?;
        self.apply(&match kind {
            FileKind::Regular => Op::Create { path, perm },
            FileKind::Directory => Op::Mkdir { path, perm },
            FileKind::Symlink => Op::Symlink { path, target: text(target)? },
            _ => Op::Mknod { path, kind, perm, rdev },
        })?;
        self.learn(parent, name)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.ask(&Ask::Readlink { path: self.path(ino)? }, b"").map(|(_, target)| target)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let (from, path) = (self.path(ino)?, self.child(parent, name)?);
        self.apply(&Op::Link { from, path })?;
        self.learn(parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.apply(&Op::Unlink { path: self.child(parent, name)? })?;
        self.forget(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.apply(&Op::Rmdir { path: self.child(parent, name)? })?;
        self.forget(parent, name)
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, path) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
        self.apply(&Op::Rename { from, path, flags })?;
        let (old, new) = ((parent, text(name)?), (new_parent, text(new_name)?));
        let mut known = self.known.lock();
        let moved = known.iter().find(|(_, of)| of.names.contains(&old)).map(|(ino, _)| *ino);
        for of in known.values_mut() {
            of.names.remove(&new);
            of.names.remove(&old);
        }
        if let Some(of) = moved.and_then(|ino| known.get_mut(&ino)) {
            of.names.insert(new);
        }
        known.retain(|_, of| !of.names.is_empty() || of.open > 0);
        Ok(())
    }

    fn open(&self, ino: Ino) -> Result<()> {
        let path = self.path(ino)?;
        if !path.starts_with('#') {
            self.apply(&Op::Open { path, handle: ino.to_string() })?;
        }
        self.known.lock().entry(ino).or_default().open += 1;
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut known = self.known.lock();
        let Some(of) = known.get_mut(&ino) else { return };
        of.open = of.open.saturating_sub(1);
        if of.open == 0 {
            if of.names.is_empty() {
                known.remove(&ino);
            }
            drop(known);
            // The result of a close is not reported to anybody.
            let _closed = self.apply(&Op::Close { handle: ino.to_string() });
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (path, mut done) = (self.path(ino)?, 0);
        while done < buf.len() {
            let len = (buf.len() - done).min(READ_MAX);
            let at = offset.saturating_add(done as u64);
            let op = Op::Read { path: path.clone(), offset: at, len: len as u64 };
            let (_, bytes) = self.apply_with(&op, b"")?;
            let into = buf.get_mut(done..done + bytes.len().min(len)).ok_or(Errno::PROTO)?;
            into.copy_from_slice(&bytes[..into.len()]);
            done += into.len();
            if bytes.len() < len {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let (path, mut done) = (self.path(ino)?, 0);
        for piece in data.chunks(READ_MAX) {
            let (path, offset, len) = (path.clone(), offset + done as u64, piece.len() as u64);
            match self.apply_with(&Op::Write { path, offset, len, seed: 0 }, piece)? {
                (Answer::Count(count), _) if count as usize == piece.len() => {
                    self.remember(offset, piece);
                    done += piece.len();
                }
                (Answer::Count(count), _) => return Ok(done + count as usize),
                _ => return Err(Errno::PROTO.into()),
            }
        }
        Ok(done)
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let path = self.path(ino)?;
        let data_only = datasync || self.data_only;
        self.apply(&if data_only { Op::Fdatasync { path } } else { Op::Fsync { path } })
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.apply(&Op::Fallocate { path: self.path(ino)?, mode, offset, len })
    }

    fn lseek(&self, _: Ino, _: u64, _: Seek) -> Result<u64> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let (Answer::Entries(entries), _) = self.ask(&Ask::List { path: self.path(ino)? }, b"")?
        else {
            return Err(Errno::PROTO.into());
        };
        for (entry, next) in entries.into_iter().zip(1_u64..) {
            if next <= from || (ino == self.root && entry.name == OWN) {
                continue;
            }
            let kind = FileKind::from_mode(entry.mode).ok_or(Errno::PROTO)?;
            let mut known = self.known.lock();
            known.entry(entry.ino).or_default().names.insert((ino, entry.name.clone()));
            drop(known);
            if !emit(DirEntry { name: entry.name.into_bytes(), ino: entry.ino, kind, next }) {
                break;
            }
        }
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let ask = Ask::Getxattr { path: self.path(ino)?, name: text(name)? };
        self.ask(&ask, b"").map(|(_, value)| value)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (path, name, len) = (self.path(ino)?, text(name)?, value.len() as u64);
        self.apply_with(&Op::SetXattr { path, name, len, seed: 0, mode }, value).map(drop)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        match self.ask(&Ask::Listxattr { path: self.path(ino)? }, b"")? {
            (Answer::Names(names), _) => Ok(names.into_iter().map(String::into_bytes).collect()),
            _ => Err(Errno::PROTO.into()),
        }
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.apply(&Op::RemoveXattr { path: self.path(ino)?, name: text(name)? })
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn sync(&self) -> Result<()> {
        self.apply(&Op::Sync)
    }

    fn unmount(&self) -> Result<()> {
        self.ask(&Ask::Unmount, b"").map(drop)
    }
}

/// The wire carries text.
fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::from(Errno::ILSEQ))
}

fn attr(stat: &Stat) -> Result<Attr> {
    let kind = FileKind::from_mode(stat.mode).ok_or(Errno::PROTO)?;
    let time = |(secs, nanos)| Timespec { secs, nanos };
    Ok(Attr {
        ino: stat.ino,
        kind,
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        crtime: Timespec::default(),
        generation: 0,
    })
}
