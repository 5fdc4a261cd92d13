//! What each call of a trace does to the files below the root.

use vfs::FileKind;
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

    fn data(&mut self, name: &str) -> Option<Became> {
        let call = self.call;
        let result = call.result.max(0) as u64;
        let sync_flags = || match call.args.last().map_or("", String::as_str) {
            flags if flags.contains("RWF_DSYNC") => Some(true),
            flags if flags.contains("RWF_SYNC") => Some(false),
            _ => None,
        };
        match name {
            "write" | "writev" => self.write(0, None, result, None),
            "pwrite64" | "pwritev" => self.write(0, Some(call.number(3)), result, None),
            "pwritev2" => {
                let at = Some(call.number(3)).filter(|at| *at >= 0);
                self.write(0, at, result, sync_flags())
            }
            "sendfile" | "sendfile64" => self.write(0, None, result, None),
            "copy_file_range" | "splice" => {
                // An offset is shown as [n], or as [n => m].
                let at = call.arg(3).trim_start_matches('[');
                let at =
                    at.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
                self.write(2, at, result, None)
            }
            "read" | "readv" => self.read(None, result),
            "pread64" | "preadv" | "preadv2" => self.read(Some(call.number(3)), result),
            "ftruncate" | "ftruncate64" => {
                let id = inside!(self.fd(0));
                self.truncate(id, call.number(1))
            }
            "truncate" | "truncate64" => {
                let path = inside!(self.path(None, 0));
                let id = self.tree.existing(&path, false)?;
                self.truncate(id, call.number(1))
            }
            "fallocate" => {
                let id = inside!(self.fd(0));
                self.fallocate(id)
            }
            "fsync" | "fdatasync" => {
                let id = inside!(self.fd(0));
                let Some(path) = self.tree.path(id) else { return Some(UNTOLD) };
                self.done(if name == "fsync" { Op::Fsync { path } } else { Op::Fdatasync { path } })
            }
            "sync" => self.done(Op::Sync),
            "syncfs" => {
                inside!(self.fd(0));
                self.done(Op::Sync)
            }
            "mmap" | "mmap2" => {
                let writes =
                    call.arg(2).contains("PROT_WRITE") && call.arg(3).contains("MAP_SHARED");
                if writes && call.number(4) >= 0 {
                    inside!(self.fd(4));
                    return Some(Became::Unknown("shared, for writing"));
                }
                Some(Became::Nothing)
            }
            _ => None,
        }
    }

    fn write(&mut self, n: usize, at: Option<i64>, len: u64, sync: Option<bool>) -> Option<Became> {
        let id = inside!(self.fd(n));
        let Some(path) = self.tree.path(id) else { return Some(UNTOLD) };
        let open = self.processes.open_of(self.call.pid, self.call.number(n))?;
        let sync = sync.or(open.sync);
        let size = self.tree.size(id);
        let append = open.append;
        let offset = match at {
            _ if append => size,
            Some(at) => u64::try_from(at).ok()?,
            None => open.offset,
        };
        let end = offset.saturating_add(len);
        if at.is_none() {
            open.offset = end;
        }
        if len == 0 {
            return Some(Became::Nothing);
        }
        let seed = self.tree.seed();
        self.tree.push(if append {
            Op::Append { path: path.clone(), len, seed }
        } else {
            Op::Write { path: path.clone(), offset, len, seed }
        });
        self.tree.resize(id, size.max(end));
        match sync {
            Some(true) => self.tree.push(Op::Fdatasync { path }),
            Some(false) => self.tree.push(Op::Fsync { path }),
            None => {}
        }
        Some(Became::Operations)
    }

    /// Notes the least length of a file.
    fn read(&mut self, at: Option<i64>, len: u64) -> Option<Became> {
        let id = inside!(self.fd(0));
        let open = self.processes.open_of(self.call.pid, self.call.number(0))?;
        let offset = at.map_or(open.offset, |at| at.max(0) as u64);
        let end = offset.saturating_add(len);
        if at.is_none() {
            open.offset = end;
        }
        if len > 0 {
            self.tree.learn(id, end);
        }
        Some(Became::Nothing)
    }

    fn truncate(&mut self, id: Id, size: i64) -> Option<Became> {
        let (Some(path), Ok(size)) = (self.tree.path(id), u64::try_from(size)) else {
            return Some(UNTOLD);
        };
        self.tree.resize(id, size);
        self.done(Op::Truncate { path, size })
    }

    fn fallocate(&mut self, id: Id) -> Option<Became> {
        let call = self.call;
        let words = call.arg(1).split('|').filter(|word| *word != "0");
        let known = [
            ("FALLOC_FL_KEEP_SIZE", vfs::FallocateMode::KEEP_SIZE),
            ("FALLOC_FL_PUNCH_HOLE", vfs::FallocateMode::PUNCH_HOLE),
            ("FALLOC_FL_ZERO_RANGE", vfs::FallocateMode::ZERO_RANGE),
        ];
        let mut mode = vfs::FallocateMode::empty();
        for word in words {
            match known.iter().find(|(name, _)| *name == word) {
                Some((_, flag)) => mode |= *flag,
                None => return Some(Became::Unknown("its mode")),
            }
        }
        let range = (u64::try_from(call.number(2)), u64::try_from(call.number(3)));
        let (Some(path), (Ok(offset), Ok(len))) = (self.tree.path(id), range) else {
            return Some(UNTOLD);
        };
        if !mode.contains(vfs::FallocateMode::KEEP_SIZE) {
            self.tree.resize(id, self.tree.size(id).max(offset.saturating_add(len)));
        }
        self.done(Op::Fallocate { path, mode, offset, len })
    }

    fn names(&mut self, name: &str) -> Option<Became> {
        let call = self.call;
        let changed = |done: Option<()>| Some(done.map_or(UNTOLD, |()| Became::Operations));
        match name {
            "mkdir" | "mkdirat" => {
                let (at, n) = if name == "mkdir" { (None, 0) } else { (Some(0), 1) };
                let path = inside!(self.path(at, n));
                let perm = call.mode(n + 1);
                changed(
                    self.tree.make(&path, true, false, |path| Op::Mkdir { path, perm }).map(drop),
                )
            }
            "mknod" | "mknodat" => {
                let (at, n) = if name == "mknod" { (None, 0) } else { (Some(0), 1) };
                let path = inside!(self.path(at, n));
                let kind = match call.arg(n + 1) {
                    mode if mode.contains("S_IFIFO") => FileKind::Fifo,
                    mode if mode.contains("S_IFSOCK") => FileKind::Socket,
                    mode if mode.contains("S_IFREG") => FileKind::Regular,
                    _ => return Some(Became::Unknown("a device")),
                };
                let perm = call.mode(n + 1);
                changed(
                    self.tree
                        .make(&path, false, false, |path| match kind {
                            FileKind::Regular => Op::Create { path, perm },
                            _ => Op::Mknod { path, kind, perm, rdev: 0 },
                        })
                        .map(drop),
                )
            }
            "symlink" | "symlinkat" => {
                let (at, n) = if name == "symlink" { (None, 1) } else { (Some(1), 2) };
                let path = inside!(self.path(at, n));
                let Some(target) = call.string(0) else { return Some(UNTOLD) };
                let op = |path| Op::Symlink { target, path };
                changed(self.tree.make(&path, false, false, op).map(drop))
            }
            "unlink" | "unlinkat" | "rmdir" => {
                let (at, n) = if name == "unlinkat" { (Some(0), 1) } else { (None, 0) };
                let path = inside!(self.path(at, n));
                let is_dir = name == "rmdir" || call.arg(2).contains("AT_REMOVEDIR");
                changed(self.tree.unlink(&path, is_dir))
            }
            "rename" | "renameat" | "renameat2" | "link" | "linkat" => self.two_names(name),
            _ => None,
        }
    }

    fn two_names(&mut self, name: &str) -> Option<Became> {
        let is_at = name.contains("at");
        let (from, to) = if is_at { ((Some(0), 1), (Some(2), 3)) } else { ((None, 0), (None, 1)) };
        let (from, to) = (self.path(from.0, from.1)?, self.path(to.0, to.1)?);
        let (Some(from), Some(to)) = (&from, &to) else {
            let both = from.is_none() && to.is_none();
            let across = Became::Unknown("across the root");
            return Some(if both { Became::Outside } else { across });
        };
        if self.call.arg(4).contains("RENAME_EXCHANGE") || self.call.arg(4).contains("AT_EMPTY") {
            return Some(Became::Unknown("its flags"));
        }
        let done = if name.starts_with("rename") {
            self.tree.rename(from, to)
        } else {
            self.tree.link(from, to)
        };
        Some(done.map_or(UNTOLD, |()| Became::Operations))
    }

    fn attributes(&mut self, name: &str) -> Option<Became> {
        let call = self.call;
        let by_path = |at, n| (at, n);
        let (at, n) = match name {
            "chmod" | "chown" | "lchown" | "stat" | "lstat" | "stat64" | "lstat64" | "setxattr"
            | "lsetxattr" | "removexattr" | "lremovexattr" => by_path(None, 0),
            "fchmodat" | "fchownat" | "newfstatat" | "statx" => by_path(Some(0), 1),
            "fchmod" | "fchown" | "fstat" | "fstat64" | "fsetxattr" | "fremovexattr" => {
                let id = inside!(self.fd(0));
                return self.attribute(name, id, 0);
            }
            _ => return None,
        };
        let by_fd = call.string(n).is_some_and(|path| path.is_empty());
        let id = if let Some(at) = at.filter(|_| by_fd) {
            inside!(self.fd(at))
        } else {
            let path = inside!(self.path(at, n));
            match self.tree.known(&path) {
                Some(id) => id,
                None => {
                    self.tree.existing(&path, call.args.iter().any(|a| a.contains("S_IFDIR")))?
                }
            }
        };
        self.attribute(name, id, n)
    }

    /// What the call does to, or reveals about, a file named by argument `n`.
    fn attribute(&mut self, name: &str, id: Id, n: usize) -> Option<Became> {
        let call = self.call;
        if name.contains("stat") {
            let size = call.field("st_size").or_else(|| call.field("stx_size"));
            if let Some(size) = size.and_then(|size| size.parse().ok()) {
                self.tree.learn(id, size);
            }
            return Some(Became::Nothing);
        }
        let Some(path) = self.tree.path(id) else { return Some(UNTOLD) };
        let known = |n: usize| u32::try_from(call.number(n)).unwrap_or(0);
        let op = match name {
            _ if name.contains("chmod") => Op::Chmod { path, perm: call.mode(n + 1) },
            _ if name.contains("chown") => {
                if call.number(n + 1) < 0 || call.number(n + 2) < 0 {
                    return Some(Became::Unknown("one owner of two"));
                }
                Op::Chown { path, uid: known(n + 1), gid: known(n + 2) }
            }
            _ => {
                let Some(attribute) = call.string(n + 1) else { return Some(UNTOLD) };
                if name.contains("removexattr") {
                    return self.done(Op::RemoveXattr { path, name: attribute });
                }
                let (len, seed) = (u64::from(known(n + 3)), self.tree.seed());
                let mode = vfs::XattrMode::Set;
                Op::SetXattr { path, name: attribute, len, seed, mode }
            }
        };
        self.done(op)
    }
}
