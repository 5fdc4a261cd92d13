//! Descriptors and working directories of the processes in a trace.

use std::collections::BTreeMap;

use super::super::known::{Id, Tree};
use super::line::Call;

/// Descriptors of one process.
const FDS_MAX: usize = 4096;
/// Processes, open files in all.
const PROCESSES_MAX: usize = 1024;

/// An open file description: what dup(2) and fork(2) share.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// `None` outside the root.
    pub(super) id: Option<Id>,
    /// The path it was opened by, absolute and normal.
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) append: bool,
    /// Each write is followed by an fdatasync (`O_DSYNC`) or an fsync (`O_SYNC`).
    pub(super) sync: Option<bool>,
    users: usize,
}

struct Process {
    table: usize,
    cwd: String,
}

/// All of them.
pub(super) struct Processes {
    root: String,
    processes: BTreeMap<u32, Process>,
    tables: Vec<BTreeMap<i64, usize>>,
    opens: Vec<Open>,
}

impl Processes {
    pub(super) fn new(root: &str) -> Self {
        let (processes, opens) = (BTreeMap::new(), Vec::new());
        Self { root: root.into(), processes, tables: vec![BTreeMap::new()], opens }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        let cwd = &self.root;
        self.processes.entry(pid).or_insert_with(|| Process { table: 0, cwd: cwd.clone() })
    }

    fn table(&mut self, pid: u32) -> &mut BTreeMap<i64, usize> {
        let table = self.process(pid).table;
        &mut self.tables[table]
    }

    /// The open file behind descriptor `fd`.
    pub(super) fn open_of(&mut self, pid: u32, fd: i64) -> Option<&mut Open> {
        let number = *self.table(pid).get(&fd)?;
        self.opens.get_mut(number)
    }

    /// A new descriptor; false if there are too many.
    pub(super) fn add(&mut self, call: &Call, tree: &mut Tree, open: Opened) -> bool {
        let (pid, fd) = (call.pid, call.result);
        self.close(pid, fd, tree);
        if self.table(pid).len() >= FDS_MAX {
            return false;
        }
        if let Some(id) = open.id {
            tree.open(id);
        }
        let Opened { id, path, append, sync } = open;
        self.opens.push(Open { id, path, offset: 0, append, sync, users: 1 });
        let number = self.opens.len() - 1;
        self.table(pid).insert(fd, number);
        true
    }

    /// `new` stands for what `old` does.
    pub(super) fn dup(&mut self, pid: u32, old: i64, new: i64, tree: &mut Tree) {
        if old == new {
            return;
        }
        self.close(pid, new, tree);
        if let Some(&number) = self.table(pid).get(&old) {
            self.opens[number].users += 1;
            self.table(pid).insert(new, number);
        }
    }

    pub(super) fn close(&mut self, pid: u32, fd: i64, tree: &mut Tree) {
        if let Some(number) = self.table(pid).remove(&fd) {
            self.release(number, tree);
        }
    }

    /// Closes all descriptors in a range.
    pub(super) fn close_range(&mut self, pid: u32, first: i64, last: i64, tree: &mut Tree) {
        if first > last {
            return;
        }
        let fds: Vec<i64> = self.table(pid).range(first..=last).map(|(&fd, _)| fd).collect();
        fds.into_iter().for_each(|fd| self.close(pid, fd, tree));
    }

    fn release(&mut self, number: usize, tree: &mut Tree) {
        let open = &mut self.opens[number];
        open.users = open.users.saturating_sub(1);
        if open.users == 0
            && let Some(id) = open.id
        {
            tree.close(id);
        }
    }

    /// A child, with the descriptors of `pid` or a copy; false if there are too many.
    pub(super) fn fork(&mut self, pid: u32, child: i64, shares: bool) -> bool {
        let Ok(child) = u32::try_from(child) else { return false };
        if self.processes.len() >= PROCESSES_MAX || self.tables.len() >= PROCESSES_MAX {
            return false;
        }
        let Process { table, cwd } = self.process(pid);
        let (mut table, cwd) = (*table, cwd.clone());
        if !shares {
            let copy = self.tables[table].clone();
            copy.values().for_each(|&number| self.opens[number].users += 1);
            self.tables.push(copy);
            table = self.tables.len() - 1;
        }
        self.processes.insert(child, Process { table, cwd });
        true
    }

    /// A process ends; the last that shares descriptors closes them.
    pub(super) fn exit(&mut self, pid: u32, tree: &mut Tree) {
        let Some(Process { table, .. }) = self.processes.remove(&pid) else { return };
        if self.processes.values().all(|other| other.table != table) {
            let open = std::mem::take(&mut self.tables[table]);
            open.into_values().for_each(|number| self.release(number, tree));
        }
    }

    pub(super) fn chdir(&mut self, pid: u32, path: String) {
        self.process(pid).cwd = path;
    }

    /// The absolute path that argument `path` means relative to the descriptor in argument `at`.
    pub(super) fn absolute(
        &mut self,
        call: &Call,
        at: Option<usize>,
        path: usize,
    ) -> Option<String> {
        let path = call.string(path)?;
        if path.starts_with('/') {
            return Some(normal(&path));
        }
        let base = match at {
            Some(at) if !call.arg(at).starts_with("AT_FDCWD") => {
                self.open_of(call.pid, call.number(at))?.path.clone()
            }
            Some(at) => match annotation(call.arg(at)) {
                Some(cwd) => cwd,
                None => self.process(call.pid).cwd.clone(),
            },
            None => self.process(call.pid).cwd.clone(),
        };
        Some(normal(&format!("{base}/{path}")))
    }

    /// The same below the root: `Ok(None)` if it is outside, `Err` if it cannot be told.
    pub(super) fn inside(&self, path: &str) -> Option<String> {
        let rest = if self.root == "/" { path } else { path.strip_prefix(&self.root)? };
        match rest.strip_prefix('/') {
            Some(rest) => Some(rest.to_owned()),
            None => rest.is_empty().then(String::new),
        }
    }
}

/// What is to be opened.
pub(super) struct Opened {
    pub(super) id: Option<Id>,
    pub(super) path: String,
    pub(super) append: bool,
    pub(super) sync: Option<bool>,
}

/// The path that -y gives with a descriptor.
pub(super) fn annotation(arg: &str) -> Option<String> {
    let path = arg.split_once('<')?.1.strip_suffix('>')?;
    path.starts_with('/').then(|| path.to_owned())
}

/// Without `.`, `..` and empty parts.
pub(super) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
