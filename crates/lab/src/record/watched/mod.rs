//! A file system in memory that records what is done to it, as steps of a script: mounted, it makes
//! the run of any program a workload.
//!
//! Calls that fail or only read change nothing and are left out. Bytes are made up, as for a trace,
//! unless they are [asked for](Watched::keeping). Calls are served one at a time, so that the steps
//! are in the order of their effects.

mod calls;

use cores::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use vfs::kind::{Atomic, Recovery, Volume};
use vfs::ops::Op;
use vfs::{Attr, Creator, Errno, FileSystem, Ino, MemFs, Result, SetAttr};

use super::known::{Id, ROOT, Tree, written};
use crate::workload::Script;
use crate::workload::script::{Contents, ScriptStep};

/// See the module's header.
pub struct Watched {
    fs: MemFs,
    noted: Mutex<Noted>,
    /// Keeps what is written.
    keeps: bool,
    /// Says what else has happened, before each change.
    listener: Option<Listener>,
    /// Every fsync fails, and makes nothing durable.
    fails_syncs: bool,
}

/// Returns what the program has said since the last call. It is called with the recording locked.
pub type Listener = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Something that the program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Steps after `begin` that it had done by then.
    pub after: usize,
    /// What.
    pub text: String,
}

/// A run with the bytes that it wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Everything before [`ScriptStep::Begin`] is preparation.
    pub steps: Vec<ScriptStep>,
    /// What was written, by the seeds of the steps.
    pub contents: Contents,
    /// What it said, in order.
    pub markers: Vec<Marker>,
    /// The steps after `begin` before which an fsync failed, and of which path.
    pub failed_syncs: Vec<(usize, String)>,
}

impl Run {
    /// Steps after `begin`.
    pub fn steps_after_begin(&self) -> usize {
        let mut steps = self.steps.iter();
        steps.find(|step| **step == ScriptStep::Begin);
        steps.count()
    }
}

#[derive(Default)]
struct Noted {
    tree: Tree,
    ids: FxHashMap<Ino, Id>,
    /// Files of `O_TMPFILE` that have no name yet, with the directory and the name that stand in
    /// for it: scripts make files by name.
    nameless: FxHashMap<Ino, (Ino, Vec<u8>)>,
    contents: Contents,
    markers: Vec<Marker>,
    failed_syncs: Vec<(usize, String)>,
    /// Steps until `begin`, with it.
    begun: usize,
}

impl Noted {
    /// The path or handle of an inode.
    fn path(&self, ino: Ino) -> Result<String> {
        let id = self.ids.get(&ino).ok_or(Errno::IO)?;
        self.tree.path(*id).ok_or(Errno::IO.into())
    }

    /// The path of a name in a directory. A workload is text, and so a name has to be.
    fn child(&self, dir: Ino, name: &[u8]) -> Result<String> {
        let name = text(name)?;
        let dir = self.path(dir)?;
        Ok(if dir == "/" { written(&name) } else { format!("{dir}/{name}") })
    }

    /// Steps since `begin`.
    fn done(&self) -> usize {
        self.tree.operations().saturating_sub(self.begun)
    }

    fn made(&mut self, ino: Ino, path: &str, is_dir: bool, op: impl FnOnce(String) -> Op) {
        if let Some(id) = self.tree.make(path, is_dir, false, op) {
            self.ids.insert(ino, id);
        }
    }
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Errno::ILSEQ.into())
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Watched {
    /// An empty file system, and nothing done yet.
    pub fn new() -> Self {
        let fs = MemFs::new();
        let mut noted = Noted::default();
        noted.ids.insert(fs.root(), ROOT);
        let noted = Mutex::new(noted);
        Self { fs, noted, keeps: false, listener: None, fails_syncs: false }
    }

    /// The same, whose root directory belongs to this user and group, so that their program may
    /// work in it.
    pub fn owned_by(self, uid: u32, gid: u32) -> Result<Self> {
        let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.fs.setattr(self.fs.root(), &owner)?;
        Ok(self)
    }

    /// The same, which keeps the bytes that are written and is told by `listener` what the program
    /// says.
    pub fn keeping(self, listener: Listener) -> Self {
        Self { keeps: true, listener: Some(listener), ..self }
    }

    /// The same, whose every fsync from `begin` on fails with `EIO`.
    pub fn failing_syncs(self) -> Self {
        Self { fails_syncs: true, ..self }
    }

    /// Everything done until now is preparation: durable before the power may fail.
    pub fn begin(&self) {
        let mut noted = self.noted();
        noted.tree.begin();
        noted.begun = noted.tree.operations();
        noted.markers.clear();
    }

    /// Listens: to be called when the program may have said something without changing anything.
    pub fn hear(&self) {
        drop(self.noted());
    }

    /// Ends the recording; returns all of it.
    pub fn end(&self) -> Run {
        let mut noted = std::mem::take(&mut *self.noted());
        noted.tree.close_all();
        let Noted { tree, contents, markers, failed_syncs, .. } = noted;
        Run { steps: tree.into_steps(), contents, markers, failed_syncs }
    }

    /// The recording, with everything in it that was said before now.
    fn noted(&self) -> MutexGuard<'_, Noted> {
        let mut noted = self.noted.lock();
        let said = self.listener.as_ref().map(|listener| listener()).unwrap_or_default();
        let after = noted.done();
        noted.markers.extend(said.into_iter().map(|text| Marker { after, text }));
        noted
    }

    /// A seed that stands for these bytes.
    fn keep(&self, noted: &mut Noted, bytes: &[u8]) -> u32 {
        let seed = noted.tree.seed();
        if self.keeps {
            noted.contents.insert(seed, bytes.to_vec());
        }
        seed
    }

    /// Ends the recording; returns the steps.
    ///
    /// # Errors
    ///
    /// Nothing was done, or more than a script may do.
    pub fn script(&self, name: &str) -> crate::Result<Script> {
        let mut tree = std::mem::take(&mut *self.noted()).tree;
        tree.close_all();
        let steps = tree.into_steps();
        if steps.len() < 2 {
            return Err(crate::Error::Usage(format!("{name}: it changed nothing")));
        }
        Script::of_steps(name, steps, None, "")
    }

    /// Does something to one inode, and records it.
    fn on<T>(
        &self,
        ino: Ino,
        call: impl FnOnce(&MemFs) -> Result<T>,
        op: impl FnOnce(String, &mut Noted) -> Op,
    ) -> Result<T> {
        let mut noted = self.noted();
        let path = noted.path(ino)?;
        let done = call(&self.fs)?;
        let op = op(path, &mut noted);
        noted.tree.push(op);
        Ok(done)
    }

    /// Whether an fsync of `path` fails; notes that it did.
    fn check_sync(&self, path: &str) -> Result<()> {
        let mut noted = self.noted.lock();
        if !self.fails_syncs || noted.begun == 0 {
            return Ok(());
        }
        let at = noted.done();
        noted.failed_syncs.push((at, path.to_owned()));
        Err(Errno::IO.into())
    }
}

impl Volume for Watched {
    fn recovery(&self) -> Recovery {
        self.fs.recovery()
    }

    // Memory has neither flags nor atomic writes. Linux says the same of file systems that lack
    // them, and programs then do without.
    fn flags(&self, _ino: Ino) -> Result<u32> {
        Err(Errno::NOTTY.into())
    }

    fn set_flags(&self, _ino: Ino, _flags: u32) -> Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn atomic_write(&self, _ino: Ino, _step: Atomic) -> Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let mut noted = self.noted();
        let name = format!(".tmpfile-{}", noted.ids.len()).into_bytes();
        let path = noted.child(parent, &name)?;
        let attr = self.fs.create(parent, &name, perm, creator)?;
        noted.made(attr.ino, &path, false, |path| Op::Create { path, perm });
        noted.nameless.insert(attr.ino, (parent, name));
        self.fs.open(attr.ino)?;
        if let Some(&id) = noted.ids.get(&attr.ino) {
            noted.tree.open(id);
        }
        Ok(Attr { nlink: 0, ..attr })
    }
}

#[cfg(test)]
mod tests;
