//! The file system as a workload sees it: every call is reported to the oracle first, and every
//! fsync is timed.

mod attributes;
mod contents;
mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use vfs::kind::Volume;
use vfs::ops::Op;
use vfs::{Attr, FileKind, FileSystem, Ino};

use crate::oracle::{Call, Event, Model, ObjId, Oracle, ROOT, Times};
use crate::workload::script::{ScriptStep, Tape, handle};
use crate::{Error, Result};

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
    /// Every call is durable when it returns.
    at_return: bool,
}

impl Recorder {
    /// Starts recording; the clock of the samples starts here.
    pub fn new(fs: Arc<dyn Volume>, oracle: Arc<Oracle>) -> Self {
        Self {
            fs,
            oracle,
            tape: None,
            fsyncs: Arc::new(Mutex::instrument("fsyncs recorded", Vec::new())),
            begun_ns: Arc::new(AtomicU64::new(crate::now_ns())),
            times: true,
            at_return: false,
        }
    }

    /// The same over a file system that promises, or not, that every call is durable when it
    /// returns ([`vfs::kind::Promise::at_return`]).
    pub fn durable(self, at_return: bool) -> Self {
        Self { at_return, ..self }
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
        if self.at_return && done.is_ok() {
            self.oracle.record(Event::SyncEnd { obj: None, call: None, times: None });
        }
        done
    }

    /// Records a call that is about to be made.
    fn tape(&self, step: impl FnOnce(&Tape, &Model) -> Op) {
        if let Some(tape) = &self.tape {
            let op = self.oracle.with_model(|model| step(tape, model));
            tape.note(ScriptStep::Do(op));
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

    /// Events of the oracle so far.
    pub(crate) fn position(&self) -> usize {
        self.oracle.position()
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
            tape.note(ScriptStep::Clean);
        }
        self.fs.clean().map_err(Error::at("clean", b""))
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        Node { ino: self.fs.root(), obj: ROOT }
    }

    /// What kind of file it is.
    pub fn kind(&self, node: Node) -> FileKind {
        self.oracle.with_model(|m| m.objects[node.obj].kind)
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
