//! What is known of the files a program uses while its calls become steps: names, sizes, what is
//! open.
//!
//! A file that a trace uses without making it was there before: it becomes part of the preparation,
//! under the name it had then. A file that loses its last name while it is open is given a handle.

use std::collections::BTreeMap;

use vfs::ops::Op;

use crate::workload::script::ScriptStep;

/// Number of a file; 0 is the root.
pub(super) type Id = usize;
pub(super) const ROOT: Id = 0;

/// Longest path, in names: PATH_MAX has room for half as many bytes.
const DEPTH_MAX: usize = 2048;

/// A file whose size is larger than this before the trace begins is prepared as a hole.
const FILLED_MAX: u64 = 16 << 20;

#[derive(Default)]
struct File {
    is_dir: bool,
    /// Directory and name, oldest first.
    names: Vec<(Id, String)>,
    size: u64,
    /// It was there before the trace: path and size then.
    before: Option<(String, u64)>,
    /// Something changed its contents.
    touched: bool,
    /// The step that made it, while that is only a guess.
    guessed: Option<usize>,
    opens: usize,
    handle: Option<String>,
}

/// The files, and the steps so far.
pub(super) struct Tree {
    files: Vec<File>,
    names: BTreeMap<(Id, String), Id>,
    prepare: Vec<Id>,
    /// `None` where a step turned out to be none.
    steps: Vec<Option<ScriptStep>>,
    seeds: u32,
}

impl Default for Tree {
    fn default() -> Self {
        let root = File { is_dir: true, before: Some((String::new(), 0)), ..File::default() };
        let (names, prepare) = (BTreeMap::new(), Vec::new());
        Self { files: vec![root], names, prepare, steps: Vec::new(), seeds: 0 }
    }
}

impl Tree {
    pub(super) fn push(&mut self, op: Op) {
        self.steps.push(Some(ScriptStep::Do(op)));
    }

    /// How many operations the trace has produced.
    pub(super) fn operations(&self) -> usize {
        self.steps.iter().flatten().count()
    }

    /// All before was preparation.
    pub(super) fn begin(&mut self) {
        self.steps.push(Some(ScriptStep::Begin));
    }

    /// What was there, and what was done, `begin` between the two unless it is somewhere else.
    pub(super) fn into_steps(mut self) -> Vec<ScriptStep> {
        let mut steps = Vec::new();
        for id in std::mem::take(&mut self.prepare) {
            let Some((path, size)) = self.files[id].before.clone() else { continue };
            if self.files[id].is_dir {
                steps.push(ScriptStep::Do(Op::Mkdir { path, perm: 0o755 }));
                continue;
            }
            steps.push(ScriptStep::Do(Op::Create { path: path.clone(), perm: 0o644 }));
            if size > FILLED_MAX {
                steps.push(ScriptStep::Do(Op::Truncate { path, size }));
            } else if size > 0 {
                let seed = self.seed();
                steps.push(ScriptStep::Do(Op::Write { path, offset: 0, len: size, seed }));
            }
        }
        if !self.steps.contains(&Some(ScriptStep::Begin)) {
            steps.push(ScriptStep::Begin);
        }
        steps.extend(self.steps.into_iter().flatten());
        steps
    }

    /// Bytes no other write has.
    pub(super) fn seed(&mut self) -> u32 {
        self.seeds += 1;
        self.seeds
    }

    /// The file at `path`, if it is known to be there.
    pub(super) fn known(&self, path: &str) -> Option<Id> {
        parts(path).try_fold(ROOT, |dir, name| self.names.get(&(dir, name.to_owned())).copied())
    }

    /// The file at `path`; if it is not known, it was there before the trace.
    pub(super) fn existing(&mut self, path: &str, is_dir: bool) -> Option<Id> {
        let names: Vec<&str> = parts(path).collect();
        if names.len() > DEPTH_MAX {
            return None;
        }
        let mut at = ROOT;
        for (n, name) in names.iter().enumerate() {
            at = match self.names.get(&(at, (*name).to_owned())) {
                Some(&id) => id,
                None => self.was_there(at, name, is_dir || n + 1 < names.len()),
            };
        }
        Some(at)
    }

    /// Its path before the trace, if its directory was there.
    fn path_before(&self, id: Id) -> Option<String> {
        let (dir, name) = self.files[id].names.first()?;
        let (parent, _) = self.files[*dir].before.as_ref()?;
        Some(if parent.is_empty() { name.clone() } else { format!("{parent}/{name}") })
    }

    fn was_there(&mut self, dir: Id, name: &str, is_dir: bool) -> Id {
        let id = self.add(dir, name, is_dir);
        match self.path_before(id) {
            Some(path) => {
                self.files[id].before = Some((path, 0));
                self.prepare.push(id);
            }
            // Its directory was made by the trace, so the file came there in a way that the trace
            // does not show.
            None => {
                let path = self.path(id).unwrap_or_default();
                self.push(if is_dir {
                    Op::Mkdir { path, perm: 0o755 }
                } else {
                    Op::Create { path, perm: 0o644 }
                });
            }
        }
        id
    }

    /// A name for a new file.
    fn add(&mut self, dir: Id, name: &str, is_dir: bool) -> Id {
        let file = File { is_dir, ..File::default() };
        self.files.push(file);
        let id = self.files.len() - 1;
        self.bind(id, dir, name);
        id
    }

    fn bind(&mut self, id: Id, dir: Id, name: &str) {
        self.files[id].names.push((dir, name.to_owned()));
        self.names.insert((dir, name.to_owned()), id);
    }

    /// The directory of `path`, and the name in it.
    fn parent<'p>(&mut self, path: &'p str) -> Option<(Id, &'p str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return None;
        }
        Some((self.existing(dir, true)?, name))
    }

    /// A file made by the trace; `op` makes it. `guess`: it may have been there.
    pub(super) fn make(
        &mut self,
        path: &str,
        is_dir: bool,
        guess: bool,
        op: impl FnOnce(String) -> Op,
    ) -> Option<Id> {
        let (dir, name) = self.parent(path)?;
        let id = self.add(dir, name, is_dir);
        let path = self.path(id)?;
        self.files[id].guessed = guess.then_some(self.steps.len());
        self.push(op(path));
        Some(id)
    }

    /// The path or the handle by which to call it now.
    pub(super) fn path(&self, id: Id) -> Option<String> {
        if id == ROOT {
            return Some("/".into());
        }
        let (mut parts, mut at) = (Vec::new(), id);
        while at != ROOT {
            let Some((dir, name)) = self.files[at].names.first() else {
                return self.files[id].handle.as_ref().map(|handle| format!("#{handle}"));
            };
            parts.push(name.as_str());
            at = *dir;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        parts.reverse();
        Some(written(&parts.join("/")))
    }

    pub(super) fn size(&self, id: Id) -> u64 {
        self.files[id].size
    }

    /// It is so long now.
    pub(super) fn resize(&mut self, id: Id, size: u64) {
        self.files[id].size = size;
        self.files[id].touched = true;
        self.files[id].guessed = None;
    }

    /// The trace shows that it has at least this length; if nothing has changed it, it had it
    /// before.
    pub(super) fn learn(&mut self, id: Id, size: u64) {
        let file = &mut self.files[id];
        if file.touched || file.is_dir || size <= file.size {
            return;
        }
        if let Some(step) = file.guessed.take()
            && let Some(path) = self.path_before(id)
        {
            self.steps[step] = None;
            self.files[id].before = Some((path, 0));
            self.prepare.push(id);
        }
        let file = &mut self.files[id];
        if let Some((_, before)) = &mut file.before {
            *before = size;
            file.size = size;
        }
    }

    /// One user more.
    pub(super) fn open(&mut self, id: Id) {
        self.files[id].opens += 1;
    }

    /// One less.
    pub(super) fn close(&mut self, id: Id) {
        let file = &mut self.files[id];
        file.opens = file.opens.saturating_sub(1);
        if file.opens == 0
            && let Some(handle) = file.handle.take()
        {
            self.push(Op::Close { handle });
        }
    }

    /// Closes what is open and has no name. A kernel may be late to say so: the recording would
    /// end before or after that by chance.
    pub(super) fn close_all(&mut self) {
        let handles: Vec<_> = self.files.iter_mut().filter_map(|file| file.handle.take()).collect();
        handles.into_iter().for_each(|handle| self.push(Op::Close { handle }));
    }

    /// Keeps what is open and about to lose its last name.
    fn keep(&mut self, id: Id) {
        let file = &self.files[id];
        if file.opens == 0 || file.is_dir || file.names.len() != 1 || file.handle.is_some() {
            return;
        }
        if let Some(path) = self.path(id) {
            let handle = format!("h{id}");
            self.push(Op::Open { path, handle: handle.clone() });
            self.files[id].handle = Some(handle);
        }
    }

    fn unbind(&mut self, dir: Id, name: &str) {
        if let Some(id) = self.names.remove(&(dir, name.to_owned())) {
            self.files[id].names.retain(|(d, n)| (*d, n.as_str()) != (dir, name));
            self.files[id].guessed = None;
        }
    }

    pub(super) fn unlink(&mut self, path: &str, is_dir: bool) -> Option<()> {
        let id = self.existing(path, is_dir)?;
        self.keep(id);
        let (dir, name) = self.parent(path)?;
        let path = path.to_owned();
        self.push(if is_dir { Op::Rmdir { path } } else { Op::Unlink { path } });
        self.unbind(dir, name);
        Some(())
    }

    pub(super) fn link(&mut self, from: &str, path: &str) -> Option<()> {
        let id = self.existing(from, false)?;
        let (dir, name) = self.parent(path)?;
        self.push(Op::Link { from: from.to_owned(), path: path.to_owned() });
        self.bind(id, dir, name);
        Some(())
    }

    pub(super) fn rename(&mut self, from: &str, path: &str) -> Option<()> {
        let id = self.existing(from, false)?;
        let ((old, old_name), (dir, name)) = (self.parent(from)?, self.parent(path)?);
        let replaced = self.names.get(&(dir, name.to_owned())).copied();
        if replaced == Some(id) {
            return Some(());
        }
        if let Some(replaced) = replaced {
            self.keep(replaced);
        }
        let flags = vfs::RenameFlags::empty();
        self.push(Op::Rename { from: from.to_owned(), path: path.to_owned(), flags });
        self.unbind(dir, name);
        self.unbind(old, old_name);
        self.bind(id, dir, name);
        Some(())
    }
}

/// A path as scripts have it: one that begins with `#` would be a handle.
pub(super) fn written(path: &str) -> String {
    if path.starts_with('#') { format!("/{path}") } else { path.to_owned() }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}
