//! The file system as a workload sees it: every call is reported to the oracle first, and every
//! fsync is timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use drive::{BLOCK_SIZE, Block};
use vfs::ops::Op;
use vfs::{
    Attr, Creator, Errno, FallocateMode, FileKind, FileSystem, Ino, InodeFlags, RenameFlags,
    SetAttr, Timespec, XattrMode,
};

use crate::oracle::{Call, Event, Meta, Model, ObjId, Oracle, Place, ROOT, Times};
use crate::workload::script::{Step, Tape, handle};
use crate::{Error, Result};
use vfs::kind::Volume;

/// An inode, by the file system's number and by the oracle's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The file system's number.
    pub ino: Ino,
    /// The oracle's.
    pub obj: ObjId,
}

/// When an fsync began and how long it took, nanoseconds on the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsyncSample {
    /// Since the start of the run.
    pub start_ns: u64,
    /// Until it returned.
    pub took_ns: u64,
}

/// A file system watched by an oracle. A clone serves another thread.
#[derive(Clone)]
pub struct Recorder {
    fs: Arc<dyn Volume>,
    oracle: Arc<Oracle>,
    tape: Option<Arc<Tape>>,
    fsyncs: Arc<Mutex<Vec<FsyncSample>>>,
    begun_ns: Arc<AtomicU64>,
    times: bool,
}

impl Recorder {
    /// Starts recording; the clock of the samples starts here.
    pub fn new(fs: Arc<dyn Volume>, oracle: Arc<Oracle>) -> Self {
        Self {
            fs,
            oracle,
            tape: None,
            fsyncs: Arc::default(),
            begun_ns: Arc::new(AtomicU64::new(crate::now_ns())),
            times: true,
        }
    }

    /// The same, without reading a file's times before each fsync of it; they are then not
    /// compared.
    pub fn without_times(self) -> Self {
        Self { times: false, ..self }
    }

    /// As [`Recorder::new`], and records every call.
    pub(crate) fn taped(fs: Arc<dyn Volume>, oracle: Arc<Oracle>, tape: Arc<Tape>) -> Self {
        Self { tape: Some(tape), ..Self::new(fs, oracle) }
    }

    /// From here on several threads use it.
    pub fn overlap(&self) -> Result<()> {
        if self.tape.is_some() {
            let why = "a workload of several threads cannot be written as text";
            return Err(Error::Usage(why.into()));
        }
        self.oracle.begin_overlap();
        Ok(())
    }

    /// A call: reported to the oracle before it is made and, if calls overlap, when it has
    /// returned.
    fn call<T>(&self, event: Event, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let call = self.oracle.record(event);
        self.returned(call, run())
    }

    fn returned<T>(&self, call: Call, done: Result<T>) -> Result<T> {
        if self.oracle.overlaps() {
            let is_done = done.is_ok();
            self.oracle.record(if is_done { Event::Return { call } } else { Event::Fail { call } });
        }
        done
    }

    /// Records a call that is about to be made.
    fn tape(&self, step: impl FnOnce(&Tape, &Model) -> Op) {
        if let Some(tape) = &self.tape {
            let op = self.oracle.with_model(|model| step(tape, model));
            tape.note(Step::Do(op));
        }
    }

    /// All fsyncs so far.
    pub fn fsyncs(&self) -> Vec<FsyncSample> {
        self.fsyncs.lock().clone()
    }

    /// Forgets the fsyncs so far; the clock of the samples starts here.
    pub fn restart(&self) {
        self.fsyncs.lock().clear();
        self.begun_ns.store(crate::now_ns(), Ordering::Relaxed);
    }

    /// The file system underneath.
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// The volume underneath.
    pub fn volume(&self) -> Arc<dyn Volume> {
        self.fs.clone()
    }

    /// Cleans a section. Changes nothing that users see, and so nothing for the oracle.
    pub fn clean(&self) -> Result<()> {
        if let Some(tape) = &self.tape {
            tape.note(Step::Clean);
        }
        self.fs.clean().map_err(Error::at("clean", b""))
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        Node { ino: self.fs.root(), obj: ROOT }
    }

    /// The object called `name` in `dir`.
    pub fn lookup(&self, dir: Node, name: &[u8]) -> Result<Node> {
        let attr = self.fs.lookup(dir.ino, name).map_err(Error::at("lookup", name))?;
        let place = place(dir, name);
        let known = self.oracle.with_model(|m| m.names.get(&place).and_then(|v| *v.current()));
        let obj = known.ok_or_else(|| Error::at("lookup", name)(Errno::NOENT.into()))?;
        Ok(Node { ino: attr.ino, obj })
    }

    /// What kind of file it is.
    pub fn kind(&self, node: Node) -> FileKind {
        self.oracle.with_model(|m| m.objects[node.obj].kind)
    }

    fn create_as(
        &self,
        dir: Node,
        name: &[u8],
        kind: FileKind,
        (perm, rdev): (u16, u64),
        target: &[u8],
    ) -> Result<Node> {
        let place = place(dir, name);
        self.tape(|tape, model| {
            let path = tape.place(model, &place);
            match kind {
                FileKind::Directory => Op::Mkdir { path, perm },
                FileKind::Symlink => {
                    Op::Symlink { target: String::from_utf8_lossy(target).into(), path }
                }
                FileKind::Regular => Op::Create { path, perm },
                _ => Op::Mknod { path, kind, perm, rdev },
            }
        });
        let meta = Meta { perm, ..Meta::default() };
        let mut obj = ROOT;
        let call = self.oracle.record_with(|model| {
            obj = model.objects.len();
            Event::Create { place, kind, meta, target: target.into(), rdev }
        });
        let who = Creator::default();
        let made: vfs::Result<Attr> = match kind {
            FileKind::Directory => self.fs.mkdir(dir.ino, name, perm, who),
            FileKind::Symlink => self.fs.symlink(dir.ino, name, target, who),
            FileKind::Regular => self.fs.create(dir.ino, name, perm, who),
            _ => self.fs.mknod(dir.ino, name, kind, perm, rdev, who),
        };
        let attr = self.returned(call, made.map_err(Error::at("create", name)))?;
        Ok(Node { ino: attr.ino, obj })
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Node, name: &[u8], perm: u16) -> Result<Node> {
        self.create_as(dir, name, FileKind::Directory, (perm, 0), b"")
    }

    /// Makes an empty file.
    pub fn create(&self, dir: Node, name: &[u8], perm: u16) -> Result<Node> {
        self.create_as(dir, name, FileKind::Regular, (perm, 0), b"")
    }

    /// Makes a symbolic link. Its permission bits are always 0777, symlink(7).
    pub fn symlink(&self, dir: Node, name: &[u8], target: &[u8]) -> Result<Node> {
        self.create_as(dir, name, FileKind::Symlink, (0o777, 0), target)
    }

    /// Makes a fifo, a socket or the device `rdev`.
    pub fn special(
        &self,
        dir: Node,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u64,
    ) -> Result<Node> {
        self.create_as(dir, name, kind, (perm, rdev), b"")
    }

    /// Another name for `node`.
    pub fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Link {
            from: tape.path(model, node.obj),
            path: tape.place(model, &place(dir, name)),
        });
        self.call(Event::Link { obj: node.obj, place: place(dir, name) }, || {
            self.fs.link(node.ino, dir.ino, name).map(drop).map_err(Error::at("link", name))
        })
    }

    /// Removes a file's name.
    pub fn unlink(&self, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Unlink { path: tape.place(model, &place(dir, name)) });
        self.call(Event::Unlink { place: place(dir, name) }, || {
            self.fs.unlink(dir.ino, name).map_err(Error::at("unlink", name))
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Node, name: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Rmdir { path: tape.place(model, &place(dir, name)) });
        self.call(Event::Unlink { place: place(dir, name) }, || {
            self.fs.rmdir(dir.ino, name).map_err(Error::at("rmdir", name))
        })
    }

    /// Keeps a file in use, whatever becomes of its names, until it is closed.
    pub fn open(&self, node: Node) -> Result<()> {
        self.tape(|tape, model| Op::Open {
            path: tape.path(model, node.obj),
            handle: handle(node.obj),
        });
        self.fs.open(node.ino).map_err(Error::at("open", b""))
    }

    /// Ends that.
    pub fn close(&self, node: Node) {
        self.tape(|_, _| Op::Close { handle: handle(node.obj) });
        self.fs.release(node.ino);
    }

    /// Moves a name.
    pub fn rename(&self, dir: Node, name: &[u8], to: Node, new: &[u8]) -> Result<()> {
        self.tape(|tape, model| Op::Rename {
            from: tape.place(model, &place(dir, name)),
            path: tape.place(model, &place(to, new)),
            flags: RenameFlags::empty(),
        });
        self.call(Event::Rename { from: place(dir, name), to: place(to, new) }, || {
            let flags = RenameFlags::empty();
            self.fs.rename(dir.ino, name, to.ino, new, flags).map_err(Error::at("rename", name))
        })
    }

    /// Bytes in the file now.
    pub fn size(&self, node: Node) -> u64 {
        self.oracle.with_model(|m| m.objects[node.obj].size.current())
    }

    /// Writes `data` at `offset`.
    pub fn write(&self, node: Node, offset: u64, data: &[u8]) -> Result<()> {
        self.write_as(node, offset, data, |model| merged(model, node, offset, data))
    }

    /// Writes one whole block, sharing the page with the oracle.
    pub fn write_block(&self, node: Node, index: u64, block: &Block) -> Result<()> {
        let offset = index * BLOCK_SIZE as u64;
        self.write_as(node, offset, block.bytes(), |_| vec![block.clone()])
    }

    fn write_as(
        &self,
        node: Node,
        offset: u64,
        data: &[u8],
        blocks: impl FnOnce(&Model) -> Vec<Block>,
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.tape(|tape, model| Op::Write {
            path: tape.path(model, node.obj),
            offset,
            len: data.len() as u64,
            seed: tape.seed(node.obj, offset, data),
        });
        let (first, end) = (offset / BLOCK_SIZE as u64, offset + data.len() as u64);
        let call = self.oracle.record_with(|model| {
            let blocks = blocks(model);
            Event::Write { obj: node.obj, first, blocks, from: offset, end }
        });
        let write = || {
            let wrote = self.fs.write(node.ino, offset, data).map_err(Error::at("write", b""))?;
            if wrote < data.len() { Err(Error::Full) } else { Ok(()) }
        };
        // To a file with this flag each write is an fsync, too.
        let flags = self.oracle.with_model(|model| model.objects[node.obj].meta.current().flags);
        let syncs = flags.contains(InodeFlags::SYNC);
        let wrote = if syncs { self.synced(Some(node.obj), None, write) } else { write() };
        self.returned(call, wrote)
    }

    /// Sets the size.
    pub fn truncate(&self, node: Node, size: u64) -> Result<()> {
        self.tape(|tape, model| Op::Truncate { path: tape.path(model, node.obj), size });
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.call(Event::Truncate { obj: node.obj, size }, || {
            self.fs.setattr(node.ino, &set).map(drop).map_err(Error::at("truncate", b""))
        })
    }

    /// Allocates, or makes a range read as zeroes.
    pub fn fallocate(&self, node: Node, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.tape(|tape, model| {
            let path = tape.path(model, node.obj);
            Op::Fallocate { path, mode, offset, len }
        });
        let zeroing = FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE;
        if !(zeroing | FallocateMode::KEEP_SIZE).contains(mode) {
            return Err(Error::at("fallocate", b"")(Errno::OPNOTSUPP.into()));
        }
        let (obj, size, end) = (node.obj, self.size(node), offset + len);
        let mut calls = Vec::new();
        if mode.intersects(zeroing) && offset < size {
            let zeroes = vec![0; (end.min(size) - offset) as usize];
            let first = offset / BLOCK_SIZE as u64;
            calls.push(self.oracle.record_with(|model| {
                let blocks = merged(model, node, offset, &zeroes);
                Event::Write { obj, first, blocks, from: offset, end: end.min(size) }
            }));
        }
        if end > size && !mode.contains(FallocateMode::KEEP_SIZE) {
            calls.push(self.oracle.record(Event::Truncate { obj, size: end }));
        }
        let done = self.fs.fallocate(node.ino, mode, offset, len);
        let done = done.map_err(Error::at("fallocate", b""));
        calls.into_iter().fold(done, |done, call| self.returned(call, done))
    }

    /// Reads, to the end of the file at most.
    pub fn read(&self, node: Node, offset: u64, len: u64) -> Result<Vec<u8>> {
        let left = self.size(node).saturating_sub(offset);
        let mut bytes = vec![0; len.min(left) as usize];
        let got = self.fs.read(node.ino, offset, &mut bytes).map_err(Error::at("read", b""))?;
        bytes.truncate(got);
        Ok(bytes)
    }

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
            self.fs.set_flags(node.ino, flags.bits()).map_err(Error::at("chattr", b""))
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

    /// A transaction of the workload begins, or is `done`; after a cut, the workload's check learns
    /// how far it was.
    pub fn transaction(&self, number: u64, done: bool) {
        self.oracle.record(Event::Transaction { number, done });
    }

    /// Makes a file or directory durable.
    pub fn fsync(&self, node: Node) -> Result<()> {
        self.fsync_as(node, false)
    }

    /// Makes a file's contents durable, and whatever is needed to find them.
    pub fn fdatasync(&self, node: Node) -> Result<()> {
        self.fsync_as(node, true)
    }

    fn fsync_as(&self, node: Node, datasync: bool) -> Result<()> {
        self.tape(|tape, model| {
            let path = tape.path(model, node.obj);
            if datasync { Op::Fdatasync { path } } else { Op::Fsync { path } }
        });
        let (mut start, mut took_ns) = (0, 0);
        // The one guarantee that fdatasync does not give.
        let times = (self.times && !datasync).then(|| self.fs.getattr(node.ino).ok()).flatten();
        let times = times.map(|Attr { mtime, ctime, .. }| Times { mtime, ctime });
        self.synced(Some(node.obj), times, || {
            start = crate::now_ns();
            self.fs.fsync(node.ino, datasync).map_err(Error::at("fsync", b""))?;
            took_ns = crate::now_ns() - start;
            Ok(())
        })?;
        let start_ns = start - self.begun_ns.load(Ordering::Relaxed);
        self.fsyncs.lock().push(FsyncSample { start_ns, took_ns });
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        self.tape(|_, _| Op::Sync);
        self.synced(None, None, || self.fs.sync().map_err(Error::at("sync", b"")))
    }

    fn synced(
        &self,
        obj: Option<ObjId>,
        times: Option<Times>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let call = self.oracle.record(Event::SyncBegin { obj });
        let done = sync();
        if done.is_ok() {
            self.oracle.record(Event::SyncEnd { obj, call: Some(call), times });
            return done;
        }
        self.returned(call, done)
    }
}

/// The blocks a write touches, as they are after it.
fn merged(model: &Model, node: Node, offset: u64, data: &[u8]) -> Vec<Block> {
    let block = BLOCK_SIZE as u64;
    let end = offset + data.len() as u64;
    let touched = offset / block..end.div_ceil(block);
    let object = &model.objects[node.obj];
    touched
        .map(|index| {
            let (from, to) = (offset.max(index * block), end.min((index + 1) * block));
            let bytes = &data[(from - offset) as usize..(to - offset) as usize];
            if bytes.len() == BLOCK_SIZE {
                return Block::from_prefix(bytes);
            }
            let mut page = object.current_block(index);
            let at = (from - index * block) as usize;
            page.make_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            page
        })
        .collect()
}

fn place(dir: Node, name: &[u8]) -> Place {
    (dir.obj, name.into())
}
