//! Calls that make, move and remove names.

use vfs::FileKind;
use vfs::ops::Op;

use super::super::Became;
use super::{Calls, UNTOLD};

impl Calls<'_> {
    pub(super) fn names(&mut self, name: &str) -> Option<Became> {
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
}
