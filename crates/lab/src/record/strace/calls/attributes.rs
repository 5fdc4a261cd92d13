//! Calls that set, or show, what belongs to a file besides its contents.

use vfs::ops::Op;

use super::super::Became;
use super::{Calls, UNTOLD};
use crate::record::known::Id;

impl Calls<'_> {
    pub(super) fn attributes(&mut self, name: &str) -> Option<Became> {
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
