//! What each step of a run changes, inode by inode, and which changes each fsync makes durable.

use std::collections::{BTreeMap, BTreeSet};

use vfs::ops::Op;
use vfs::{FallocateMode, FileKind};

use super::tree::PAGE;
use crate::record::Run;
use crate::workload::script::ScriptStep;
use crate::{Error, Result};

/// An inode, by number; 0 is the program's directory.
pub(super) type Id = usize;
const ROOT: Id = 0;

/// An inode as it was made.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) kind: FileKind,
    pub(super) perm: u16,
    pub(super) target: Vec<u8>,
    /// The name by which it is called in words: the first it had.
    pub(super) name: String,
}

/// A name in a directory.
pub(super) type Name = (Id, String);

/// A change that is there after a cut or not, as a whole.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Names go and come together.
    Names { gone: Option<Name>, come: Option<(Name, Id)> },
    /// The file is at least so long, or exactly.
    Size { to: u64, exact: bool },
    /// Bytes within one page: what the step's write has from byte `from` on, or zeros.
    Bytes { at: u64, len: usize, from: Option<(u32, usize)> },
    /// Permissions.
    Perm(u16),
}

/// One change, and by which step.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// Number of the step after `begin`, from 0.
    pub(super) step: usize,
    /// The inode whose fsync makes it durable. A change of names has the directory's.
    pub(super) of: Id,
    pub(super) what: What,
    /// The step of the first fsync that made it durable.
    pub(super) durable: Option<usize>,
}

impl Effect {
    /// Whether it is durable when this many steps have returned.
    pub(super) fn is_durable(&self, steps: usize) -> bool {
        self.durable.is_some_and(|step| step < steps)
    }

    /// The directory that a rename leaves. An fsync of it makes the rename durable as well.
    fn left(&self) -> Option<Id> {
        match &self.what {
            What::Names { gone: Some((dir, _)), .. } if *dir != self.of => Some(*dir),
            _ => None,
        }
    }
}

/// A run, taken apart.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) inodes: Vec<Inode>,
    /// Before `begin`, all of them durable.
    pub(super) before: Vec<Effect>,
    pub(super) effects: Vec<Effect>,
    /// By inode, the effects that no fsync has covered so far.
    open: BTreeMap<Id, Vec<usize>>,
    /// Steps after `begin`.
    pub(super) steps: Vec<Op>,
    names: BTreeMap<Name, Id>,
    handles: BTreeMap<String, Id>,
    sizes: BTreeMap<Id, u64>,
    /// Pages that were written. All others are zeros whatever is missing.
    written: BTreeSet<(Id, u64)>,
}

impl Effects {
    /// Takes a run apart.
    ///
    /// # Errors
    ///
    /// A step that does not fit those before it.
    pub(super) fn of(run: &Run) -> Result<Self> {
        let mut all = Self::default();
        all.add_inode(FileKind::Directory, 0o755, "/");
        let mut begun = false;
        for step in &run.steps {
            match step {
                ScriptStep::Begin => {
                    begun = true;
                    all.before = std::mem::take(&mut all.effects);
                    all.open.clear();
                }
                ScriptStep::Clean => {}
                ScriptStep::Do(op) => {
                    let at = all.steps.len();
                    let wrong = || Error::Usage(format!("'{op}' does not fit the steps before it"));
                    all.take(at, op).ok_or_else(wrong)?;
                    if begun {
                        all.steps.push(op.clone());
                    }
                }
            }
        }
        Ok(all)
    }

    fn add_inode(&mut self, kind: FileKind, perm: u16, name: &str) -> Id {
        let (target, name) = (Vec::new(), name.to_owned());
        self.inodes.push(Inode { kind, perm, target, name });
        self.inodes.len() - 1
    }

    /// The inode that a path or handle stands for.
    pub(super) fn find(&self, path: &str) -> Option<Id> {
        if let Some(handle) = path.strip_prefix('#') {
            return self.handles.get(handle).copied();
        }
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |dir, part| self.names.get(&(dir, part.to_owned())).copied())
    }

    fn name(&self, path: &str) -> Option<Name> {
        let path = path.trim_start_matches('/');
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.find(dir)?, name.to_owned()))
    }

    fn add(&mut self, step: usize, of: Id, what: What) {
        let effect = Effect { step, of, what, durable: None };
        for id in [Some(of), effect.left()].into_iter().flatten() {
            self.open.entry(id).or_default().push(self.effects.len());
        }
        self.effects.push(effect);
    }

    /// Step `step` made these effects durable.
    fn sync(&mut self, step: usize, which: impl IntoIterator<Item = usize>) {
        for n in which {
            self.effects[n].durable.get_or_insert(step);
        }
    }

    fn make(&mut self, step: usize, path: &str, kind: FileKind, perm: u16) -> Option<Id> {
        let name = self.name(path)?;
        let id = self.add_inode(kind, perm, path);
        self.names.insert(name.clone(), id);
        self.add(step, name.0, What::Names { gone: None, come: Some((name, id)) });
        Some(id)
    }

    fn remove(&mut self, step: usize, path: &str) -> Option<()> {
        let name = self.name(path)?;
        self.names.remove(&name)?;
        self.add(step, name.0, What::Names { gone: Some(name), come: None });
        Some(())
    }

    fn take(&mut self, step: usize, op: &Op) -> Option<()> {
        match op {
            Op::Create { path, perm } => {
                self.make(step, path, FileKind::Regular, *perm)?;
            }
            Op::Mkdir { path, perm } => {
                self.make(step, path, FileKind::Directory, *perm)?;
            }
            Op::Mknod { path, kind, perm, .. } => {
                self.make(step, path, *kind, *perm)?;
            }
            Op::Symlink { target, path } => {
                let id = self.make(step, path, FileKind::Symlink, 0o777)?;
                self.inodes[id].target = target.as_bytes().to_vec();
            }
            Op::Link { from, path } => {
                let (id, name) = (self.find(from)?, self.name(path)?);
                self.names.insert(name.clone(), id);
                self.add(step, name.0, What::Names { gone: None, come: Some((name, id)) });
            }
            Op::Unlink { path } | Op::Rmdir { path } => self.remove(step, path)?,
            Op::Rename { from, path, .. } => {
                let (old, new) = (self.name(from)?, self.name(path)?);
                let id = self.names.remove(&old)?;
                self.names.insert(new.clone(), id);
                let of = new.0;
                self.add(step, of, What::Names { gone: Some(old), come: Some((new, id)) });
            }
            Op::Open { path, handle } => {
                let id = self.find(path)?;
                self.handles.insert(handle.clone(), id);
            }
            Op::Close { handle } => drop(self.handles.remove(handle)),
            Op::Chmod { path, perm } => {
                let id = self.find(path)?;
                self.add(step, id, What::Perm(*perm));
            }
            Op::Fsync { path } => {
                let open = self.open.remove(&self.find(path)?);
                self.sync(step, open.into_iter().flatten());
            }
            Op::Fdatasync { path } => {
                let id = self.find(path)?;
                let open = self.open.remove(&id).unwrap_or_default();
                // Nobody needs them to read the data back.
                let is_perm = |n: &usize| matches!(self.effects[*n].what, What::Perm(_));
                let (perms, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(is_perm);
                self.sync(step, rest);
                self.open.insert(id, perms);
            }
            Op::Sync => {
                let open = std::mem::take(&mut self.open);
                self.sync(step, open.into_values().flatten());
            }
            op => self.data(step, op)?,
        }
        Some(())
    }

    /// Changes of contents; other calls change nothing of what is compared.
    fn data(&mut self, step: usize, op: &Op) -> Option<()> {
        match op {
            Op::Write { path, offset, len, seed } => {
                let id = self.find(path)?;
                self.grow(step, id, offset + len);
                self.bytes(step, id, *offset, *len, *seed);
            }
            Op::Truncate { path, size } => {
                let id = self.find(path)?;
                self.sizes.insert(id, *size);
                self.add(step, id, What::Size { to: *size, exact: true });
            }
            Op::Fallocate { path, mode, offset, len } => {
                let id = self.find(path)?;
                let size = self.sizes.get(&id).copied().unwrap_or(0);
                let zeros = FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE;
                if mode.intersects(zeros) {
                    let end = size.min(offset.saturating_add(*len));
                    self.zeros(step, id, *offset, end);
                }
                if !mode.contains(FallocateMode::KEEP_SIZE) {
                    self.grow(step, id, offset.saturating_add(*len));
                }
            }
            _ => {}
        }
        Some(())
    }

    fn grow(&mut self, step: usize, id: Id, to: u64) {
        let size = self.sizes.entry(id).or_default();
        if to > *size {
            *size = to;
            self.add(step, id, What::Size { to, exact: false });
        }
    }

    fn bytes(&mut self, step: usize, id: Id, offset: u64, len: u64, seed: u32) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let next = end.min((at / PAGE + 1) * PAGE);
            self.written.insert((id, at / PAGE));
            let from = Some((seed, (at - offset) as usize));
            self.add(step, id, What::Bytes { at, len: (next - at) as usize, from });
            at = next;
        }
    }

    /// Zeros from `offset` to `end`. A range of a sparse file may be as large as it likes.
    fn zeros(&mut self, step: usize, id: Id, offset: u64, end: u64) {
        if offset >= end {
            return;
        }
        let pages = self.written.range((id, offset / PAGE)..=(id, (end - 1) / PAGE));
        for (_, page) in pages.copied().collect::<Vec<_>>() {
            let (at, next) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
            self.add(step, id, What::Bytes { at, len: (next - at) as usize, from: None });
        }
    }
}
