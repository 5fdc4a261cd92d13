//! Compares a recovered volume, byte for byte, with all that may be on it.
//!
//! Walks the directories of the file system and of the model together. Where a name may stand for
//! several objects the one that fits best is taken.

use std::collections::BTreeMap;

use drive::{BLOCK_SIZE, Block};
use vfs::{Attr, FileKind, FileSystem, Ino};

use super::event::{Meta, ObjId, ROOT};
use super::model::{BlockVersions, Model, Versions};
use super::verdict::{Damage, Verdict};

/// Bytes read at a time.
const CHUNK: usize = 32 * BLOCK_SIZE;

/// Findings kept of one file; the first few tell the story.
const PER_FILE: usize = 4;

/// All differences between `fs` and what `model` allows.
pub fn verify(fs: &dyn FileSystem, model: &Model) -> Vec<Verdict> {
    let mut walk = Walk {
        fs,
        model,
        reached: vec![false; model.objects.len()],
        verdicts: Vec::new(),
        buf: vec![0; CHUNK],
    };
    walk.reached[ROOT] = true;
    walk.directory(fs.root(), ROOT);
    walk.unreachable();
    walk.verdicts
}

struct Walk<'a> {
    fs: &'a dyn FileSystem,
    model: &'a Model,
    reached: Vec<bool>,
    verdicts: Vec<Verdict>,
    buf: Vec<u8>,
}

impl Walk<'_> {
    fn directory(&mut self, ino: Ino, obj: ObjId) {
        let mut found = BTreeMap::new();
        let listed = self.fs.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                found.insert(entry.name, (entry.ino, entry.kind));
            }
            true
        });
        if let Err(error) = listed {
            let verdict = self.unreadable(obj, &error);
            self.verdicts.push(verdict);
            return;
        }
        let model = self.model;
        for (name, versions) in model.entries(obj) {
            match found.remove(name) {
                Some((ino, kind)) => self.entry(obj, name, ino, kind, versions),
                None if versions.allows(&None) => {}
                None => self.verdicts.push(Verdict {
                    damage: Damage::Lost,
                    path: self.child(obj, name),
                    block: None,
                    expected: "the file".into(),
                    found: "nothing".into(),
                    in_flight: false,
                }),
            }
        }
        for name in found.keys() {
            self.verdicts.push(Verdict {
                damage: Damage::Garbage,
                path: self.child(obj, name),
                block: None,
                expected: "no such name".into(),
                found: "an entry".into(),
                in_flight: false,
            });
        }
    }

    fn entry(
        &mut self,
        dir: ObjId,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
        versions: &Versions<Option<ObjId>>,
    ) {
        let mut best: Option<(ObjId, Vec<Verdict>)> = None;
        let candidates = versions.allowed().filter_map(|v| *v);
        for obj in candidates.filter(|&o| self.model.objects[o].kind == kind) {
            let verdicts = self.object(ino, obj);
            let better = best.as_ref().is_none_or(|(_, b)| verdicts.len() < b.len());
            if better {
                let done = verdicts.is_empty();
                best = Some((obj, verdicts));
                if done {
                    break;
                }
            }
        }
        let Some((obj, verdicts)) = best else {
            self.verdicts.push(Verdict {
                damage: Damage::Garbage,
                path: self.child(dir, name),
                block: None,
                expected: "nothing of that type".into(),
                found: format!("{kind:?}"),
                in_flight: false,
            });
            return;
        };
        self.verdicts.extend(verdicts);
        self.reached[obj] = true;
        if kind == FileKind::Directory {
            self.directory(ino, obj);
        }
    }

    /// Attributes and contents of one inode, if it is `obj`.
    fn object(&mut self, ino: Ino, obj: ObjId) -> Vec<Verdict> {
        let attr = match self.fs.getattr(ino) {
            Ok(attr) => attr,
            Err(error) => return vec![self.unreadable(obj, &error)],
        };
        let model = self.model;
        let object = &model.objects[obj];
        let mut out = Vec::new();
        self.attributes(&attr, obj, &mut out);
        self.xattrs(ino, obj, &mut out);
        match object.kind {
            FileKind::Regular => {
                self.size(&attr, obj, &mut out);
                self.contents(ino, attr.size, obj, &mut out);
            }
            FileKind::Symlink => match self.fs.readlink(ino) {
                Ok(target) if *target == *object.target => {}
                Ok(target) => out.push(self.finding(
                    obj,
                    Damage::Garbage,
                    text(&object.target),
                    text(&target),
                )),
                Err(error) => out.push(self.unreadable(obj, &error)),
            },
            _ => {}
        }
        out
    }

    fn attributes(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let meta = &self.model.objects[obj].meta;
        let fits = |m: &Meta| {
            (m.perm, m.uid, m.gid) == (attr.perm, attr.uid, attr.gid)
                && m.mtime.is_none_or(|t| t == attr.mtime)
        };
        if obj != ROOT && !meta.allowed().any(fits) {
            let (perm, uid, gid, mtime) = (attr.perm, attr.uid, attr.gid, Some(attr.mtime));
            let found = Meta { perm, uid, gid, mtime };
            let expected = format!("{:?}", meta.current());
            out.push(self.finding(obj, Damage::Lost, expected, format!("{found:?}")));
        }
    }

    fn xattrs(&self, ino: Ino, obj: ObjId, out: &mut Vec<Verdict>) {
        for (name, versions) in &self.model.objects[obj].xattrs {
            let found = self.fs.getxattr(ino, name).ok().map(Vec::into_boxed_slice);
            if !versions.allows(&found) {
                let show = |v: &Option<Box<[u8]>>| v.as_ref().map_or("none".into(), |v| text(v));
                let expected = format!("{}={}", text(name), show(versions.current()));
                out.push(self.finding(obj, Damage::Lost, expected, show(&found)));
            }
        }
    }

    fn size(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let object = &self.model.objects[obj];
        let (low, high) = object.size_range();
        if !(low..=high).contains(&attr.size) {
            let once = attr.size <= object.size_ever;
            let damage = if once { Damage::Lost } else { Damage::Garbage };
            let expected = format!("size {low}..={high}");
            out.push(self.finding(obj, damage, expected, format!("size {}", attr.size)));
        }
    }

    fn contents(&mut self, ino: Ino, size: u64, obj: ObjId, out: &mut Vec<Verdict>) {
        let object = &self.model.objects[obj];
        let mut buf = std::mem::take(&mut self.buf);
        // A size no version has is a finding already; do not read terabytes of holes for it.
        let end = size.min(object.size_ever);
        let mut offset = 0;
        while offset < end && out.len() < PER_FILE {
            let want = CHUNK.min((end - offset) as usize);
            match self.fs.read(ino, offset, &mut buf[..want]) {
                Ok(got) if got == want => {}
                Ok(got) => {
                    let (want, got) = (format!("{want} bytes"), format!("{got} bytes"));
                    out.push(self.finding(obj, Damage::Garbage, want, got));
                    break;
                }
                Err(error) => {
                    out.push(self.unreadable(obj, &error));
                    break;
                }
            }
            for (i, bytes) in buf[..want].chunks(BLOCK_SIZE).enumerate() {
                let index = offset / BLOCK_SIZE as u64 + i as u64;
                if let Some(verdict) = self.block(obj, index, bytes) {
                    out.push(verdict);
                }
            }
            offset += want as u64;
        }
        self.buf = buf;
        if out.is_empty() && object.syncing {
            out.extend(self.torn(ino, end, obj));
        }
        out.truncate(PER_FILE);
    }

    fn block(&self, obj: ObjId, index: u64, found: &[u8]) -> Option<Verdict> {
        let object = &self.model.objects[obj];
        let Some(block) = object.blocks.get(usize::try_from(index).ok()?) else {
            let hole = found.iter().all(|&b| b == 0);
            return (!hole).then(|| Verdict {
                block: Some(index),
                ..self.finding(obj, Damage::Garbage, "a hole".into(), head(found))
            });
        };
        if block.versions.allowed().any(|v| v[..found.len()] == *found) {
            return None;
        }
        let damage = if block.was_once(found) { Damage::Lost } else { Damage::Garbage };
        // The blocks an fsync moves: those written, and the one that leaves a small inode.
        let inline = index == 0 && object.size.durable <= BLOCK_SIZE as u64;
        let moving = inline || !block.versions.pending.is_empty();
        Some(Verdict {
            block: Some(index),
            in_flight: object.syncing && moving,
            ..self.finding(obj, damage, expected(block), head(found))
        })
    }

    /// Old blocks beside new ones of the fsync under way. Only blocks that differ between the two
    /// count, and only where there is one new version of each.
    fn torn(&self, ino: Ino, size: u64, obj: ObjId) -> Option<Verdict> {
        let object = &self.model.objects[obj];
        let (mut old, mut new) = (None, None);
        let mut page = [0; BLOCK_SIZE];
        for &index in object.dirty_blocks() {
            let versions = &object.blocks[index].versions;
            let offset = index as u64 * BLOCK_SIZE as u64;
            let [pending] = versions.pending.as_slice() else { return None };
            if *pending == versions.durable || offset >= size {
                continue;
            }
            let want = BLOCK_SIZE.min((size - offset) as usize);
            self.fs.read(ino, offset, &mut page[..want]).ok()?;
            let side = if pending[..want] == page[..want] { &mut new } else { &mut old };
            side.get_or_insert(index as u64);
        }
        Some(Verdict {
            block: old,
            ..self.finding(
                obj,
                Damage::Torn,
                format!("the version of block {}", new?),
                format!("the version before it in block {}", old?),
            )
        })
    }

    /// Objects with a durable name and none of the names they may be under.
    fn unreachable(&mut self) {
        for (obj, object) in self.model.objects.iter().enumerate() {
            let must = object.anchored && !object.places.is_empty() && !self.reached[obj];
            if must && object.places.iter().all(|(dir, _)| self.reached[*dir]) {
                let listed = self.verdicts.iter().any(|v| v.path == self.model.path(obj));
                if !listed {
                    let name = "one of its names".into();
                    self.verdicts.push(self.finding(obj, Damage::Lost, name, "none".into()));
                }
            }
        }
    }

    fn finding(&self, obj: ObjId, damage: Damage, expected: String, found: String) -> Verdict {
        let path = self.model.path(obj);
        Verdict { damage, path, block: None, expected, found, in_flight: false }
    }

    fn unreadable(&self, obj: ObjId, error: &vfs::Error) -> Verdict {
        self.finding(obj, Damage::Corrupt, "a readable inode".into(), error.to_string())
    }

    fn child(&self, dir: ObjId, name: &[u8]) -> String {
        let parent = self.model.path(dir);
        format!("{}/{}", parent.trim_end_matches('/'), text(name))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn head(bytes: &[u8]) -> String {
    if bytes.iter().all(|&b| b == 0) {
        return "zeroes".into();
    }
    let hex: String = bytes.iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!("{hex}…")
}

fn expected(block: &BlockVersions) -> String {
    let mut shown: Vec<String> =
        block.versions.allowed().map(|v: &Block| head(v.bytes())).collect();
    shown.dedup();
    shown.join(" or ")
}
