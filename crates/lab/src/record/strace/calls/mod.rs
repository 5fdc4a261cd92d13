//! What each call of a trace does to the files below the root.

/// Continues with paths below the root.
macro_rules! inside {
    ($place:expr) => {
        match $place {
            Some(Some(inside)) => inside,
            Some(None) => return Some(Became::Outside),
            None => return Some(UNTOLD),
        }
    };
}

mod attributes;
mod data;
mod names;

use vfs::ops::Op;

use super::super::known::{Id, Tree};
use super::Became;
use super::line::Call;
use super::process::{Opened, Processes, annotation};

/// Calls that change no file, or nothing the oracle compares.
const HARMLESS: &[&str] = &[
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getcwd",
    "getdents",
    "getdents64",
    "execve",
    "execveat",
    "munmap",
    "mprotect",
    "fadvise64",
    "readahead",
    "flock",
    "fstatfs",
    "statfs",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "umask",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "eventfd2",
    "pipe",
    "pipe2",
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "setsockopt",
    "getsockopt",
    "getsockname",
    "getpeername",
    "shutdown",
    "socketpair",
    "exit",
    "exit_group",
    "wait4",
    "waitid",
    "kill",
    "tgkill",
    "brk",
    "prlimit64",
    "inotify_init1",
    "inotify_add_watch",
    "timerfd_create",
    "timerfd_settime",
    "signalfd4",
    "memfd_create",
    "arch_prctl",
    "rt_sigaction",
    "rt_sigprocmask",
    "futex",
    "getrandom",
];

/// Does one call that succeeded; `None` if its name is not known.
pub(super) fn apply(call: &Call, tree: &mut Tree, processes: &mut Processes) -> Option<Became> {
    let mut to = Calls { call, tree, processes };
    let name = call.name.as_str();
    if HARMLESS.contains(&name) {
        return Some(Became::Nothing);
    }
    to.descriptors(name)
        .or_else(|| to.data(name))
        .or_else(|| to.names(name))
        .or_else(|| to.attributes(name))
}

struct Calls<'a> {
    call: &'a Call,
    tree: &'a mut Tree,
    processes: &'a mut Processes,
}

const UNTOLD: Became = Became::Unknown("its file cannot be told");

impl Calls<'_> {
    /// The path in argument `path`: `Some(None)` outside the root, `None` if it cannot be told.
    fn path(&mut self, at: Option<usize>, path: usize) -> Option<Option<String>> {
        let path = self.processes.absolute(self.call, at, path)?;
        Some(self.processes.inside(&path))
    }

    /// The file behind the descriptor in argument `n`.
    fn fd(&mut self, n: usize) -> Option<Option<Id>> {
        match self.processes.open_of(self.call.pid, self.call.number(n)) {
            Some(open) => Some(open.id),
            // Not opened by path: a pipe, a terminal; or opened before the trace began.
            None => match annotation(self.call.arg(n)) {
                Some(path) if self.processes.inside(&path).is_some() => None,
                _ => Some(None),
            },
        }
    }

    fn done(&mut self, op: Op) -> Option<Became> {
        self.tree.push(op);
        Some(Became::Operations)
    }

    fn descriptors(&mut self, name: &str) -> Option<Became> {
        let (call, pid) = (self.call, self.call.pid);
        match name {
            "open" | "creat" => return self.open(None, 0, 1, 2),
            "openat" => return self.open(Some(0), 1, 2, 3),
            "openat2" => return self.open(Some(0), 1, 2, 2),
            "close" => self.processes.close(pid, call.number(0), self.tree),
            "close_range" => {
                let last = if call.arg(1).starts_with('~') { i64::MAX } else { call.number(1) };
                self.processes.close_range(pid, call.number(0), last, self.tree);
            }
            "dup" | "dup2" | "dup3" => {
                self.processes.dup(pid, call.number(0), call.result, self.tree);
            }
            "fcntl" | "fcntl64" if call.arg(1).starts_with("F_DUPFD") => {
                self.processes.dup(pid, call.number(0), call.result, self.tree);
            }
            "fcntl" | "fcntl64" => {}
            "fork" | "vfork" | "clone" | "clone3" => {
                let shares = call.args.iter().any(|arg| arg.contains("CLONE_FILES"));
                if !self.processes.fork(pid, call.result, shares) {
                    return Some(Became::Unknown("too many processes"));
                }
            }
            "chdir" => {
                let path = self.processes.absolute(call, None, 0)?;
                self.processes.chdir(pid, path);
            }
            "fchdir" => {
                let path = self.processes.open_of(pid, call.number(0))?.path.clone();
                self.processes.chdir(pid, path);
            }
            "lseek" | "_llseek" => {
                let end = call.arg(2) == "SEEK_END" && call.arg(1) == "0";
                let open = self.processes.open_of(pid, call.number(0));
                if let Some(open) = open {
                    open.offset = call.result.max(0) as u64;
                    if let Some(id) = open.id.filter(|_| end) {
                        self.tree.learn(id, call.result.max(0) as u64);
                    }
                }
            }
            _ => return None,
        }
        Some(Became::Nothing)
    }

    fn open(
        &mut self,
        at: Option<usize>,
        path: usize,
        flags: usize,
        mode: usize,
    ) -> Option<Became> {
        let call = self.call;
        let flags = if call.name == "creat" { "O_CREAT|O_TRUNC" } else { call.arg(flags) };
        let has = |flag: &str| {
            flags.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == flag)
        };
        let Some(absolute) = self.processes.absolute(call, at, path) else { return Some(UNTOLD) };
        if has("O_TMPFILE") {
            return Some(Became::Unknown("O_TMPFILE"));
        }
        let mut became = Became::Nothing;
        let mut id = None;
        match self.processes.inside(&absolute) {
            None => became = Became::Outside,
            Some(path) => {
                let known = self.tree.known(&path);
                if known.is_none() && has("O_CREAT") {
                    let perm = if call.name == "creat" { call.mode(1) } else { call.mode(mode) };
                    let guess = !has("O_EXCL");
                    id = self.tree.make(&path, false, guess, |path| Op::Create { path, perm });
                    became = Became::Operations;
                } else {
                    id = self.tree.existing(&path, has("O_DIRECTORY"));
                }
                if let Some(id) = id.filter(|id| has("O_TRUNC") && self.tree.size(*id) > 0) {
                    let path = self.tree.path(id)?;
                    self.tree.push(Op::Truncate { path, size: 0 });
                    self.tree.resize(id, 0);
                    became = Became::Operations;
                }
            }
        }
        let sync = if has("O_DSYNC") { Some(true) } else { has("O_SYNC").then_some(false) };
        let opened = Opened { id, path: absolute, append: has("O_APPEND"), sync };
        if self.processes.add(call, self.tree, opened) {
            Some(became)
        } else {
            Some(Became::Unknown("too many descriptors"))
        }
    }
}
