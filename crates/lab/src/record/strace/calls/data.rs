//! Calls that read, write, cut and sync.

use vfs::ops::Op;

use super::super::Became;
use super::{Calls, UNTOLD};
use crate::record::known::Id;

impl Calls<'_> {
    pub(super) fn data(&mut self, name: &str) -> Option<Became> {
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
}
