//! Compares a recovered volume, byte for byte, with all that may be on it.
//!
//! Walks the directories of the file system and of the model together. Where a name may stand for
//! several objects, the best match is taken; of several as good, whichever leaves other names
//! theirs.

use std::collections::BTreeMap;

use drive::{BLOCK_SIZE, Block, Lba};
use vfs::kind::Volume;
use vfs::{FileKind, Ino};

use super::attributes::Links;
use super::contents::{BLOCK, Memo};
use super::event::{ObjId, ROOT};
use super::model::Model;
use super::order::Versions;
use super::verdict::{Damage, Verdict};

/// Shows blocks of the drive, in the order asked for.
pub(super) type Look<'a> = dyn Fn(&mut dyn Iterator<Item = Lba>, &mut dyn FnMut(&Block)) + 'a;

/// All differences between `fs` and what `model` allows. `look` shows the drive's blocks.
pub fn verify(fs: &dyn Volume, look: &Look<'_>, model: &Model, memo: &mut Memo) -> Vec<Verdict> {
    let mut walk = Walk {
        fs,
        model,
        reached: vec![false; model.objects.len()],
        resembled: vec![false; model.objects.len()],
        verdicts: Vec::new(),
        links: Links::default(),
        look,
        memo,
    };
    walk.reached[ROOT] = true;
    walk.directory(fs.root(), ROOT);
    walk.unreachable();
    walk.links();
    walk.verdicts
}

pub(super) struct Walk<'a> {
    pub(super) fs: &'a dyn Volume,
    pub(super) model: &'a Model,
    reached: Vec<bool>,
    /// Which objects may be what was found under one of their names, and was taken for another that
    /// need not be anywhere: two files that were not synced yet can look the same.
    resembled: Vec<bool>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) links: Links,
    pub(super) look: &'a Look<'a>,
    pub(super) memo: &'a mut Memo,
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
        found.values().for_each(|(child, kind)| self.links.entry(ino, *child, *kind));
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
        for (name, (ino, kind)) in &found {
            let is_former = self.former(obj, name, *ino, *kind).is_some();
            self.verdicts.push(Verdict {
                damage: if is_former { Damage::Lost } else { Damage::Garbage },
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
        let (mut alike, mut perfect) = (Vec::new(), Vec::new());
        let candidates = versions.allowed().filter_map(|v| *v);
        for obj in candidates.filter(|&o| self.model.objects[o].kind == kind) {
            let verdicts = self.object(ino, obj);
            if verdicts.iter().all(|verdict| self.is_of_its_sectors(ino, obj, verdict)) {
                alike.push(obj);
            }
            if verdicts.is_empty() && kind != FileKind::Directory {
                perfect.push(obj);
            }
            let better = best.as_ref().is_none_or(|(_, b)| badness(&verdicts) < badness(b));
            if better {
                best = Some((obj, verdicts));
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
        let never = badness(&verdicts).0 > 0;
        if never && self.former(dir, name, ino, kind).is_some() {
            let (expected, found) = ("the file".into(), "the one before it".into());
            self.verdicts.push(self.finding(obj, Damage::Lost, expected, found));
        } else {
            self.verdicts.extend(verdicts);
        }
        self.reached[obj] = true;
        if !self.model.objects[obj].is_somewhere() {
            alike.iter().for_each(|&other| self.resembled[other] = true);
        }
        if !never {
            // Contents that this file never had may belong to another file that the name may stand
            // for.
            for other in self.links.found(obj, ino, perfect) {
                self.reached[other] = true;
            }
        }
        if kind == FileKind::Directory {
            self.directory(ino, obj);
        }
    }

    /// Whether it is about a block of `obj` in which no sector is wrong.
    fn is_of_its_sectors(&self, ino: Ino, obj: ObjId, verdict: &Verdict) -> bool {
        let mut page = [0; BLOCK_SIZE];
        verdict.block.is_some_and(|index| {
            let read = self.fs.read(ino, index * BLOCK, &mut page);
            let block = self.model.objects[obj].blocks.get(&index);
            let known = |len: usize| block.is_some_and(|b| b.has_sectors_or_zeroes(&page[..len]));
            read.is_ok_and(known)
        })
    }

    /// The earlier object of this name that this matches exactly, however old.
    fn former(&mut self, dir: ObjId, name: &[u8], ino: Ino, kind: FileKind) -> Option<ObjId> {
        let model = self.model;
        let former = model.former(dir, name).iter().copied();
        former
            .filter(|obj| model.objects[*obj].kind == kind)
            .find(|obj| badness(&self.object(ino, *obj)).0 == 0)
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
        match object.kind {
            FileKind::Regular => {
                self.contents(ino, attr.size, obj, &mut out);
                if out.is_empty() && self.can_tell_torn(object) {
                    out.extend(self.torn(ino, &attr, obj));
                }
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

    /// Objects with a durable name and none of the names they may be under.
    fn unreachable(&mut self) {
        for (obj, object) in self.model.objects.iter().enumerate() {
            let is_there = self.reached[obj] || self.resembled[obj];
            let must = object.is_somewhere() && !is_there;
            if must && object.places.iter().all(|(dir, _)| self.has_told(*dir)) {
                let listed = self.verdicts.iter().any(|v| v.path == self.model.path(obj));
                if !listed {
                    let name = "one of its names".into();
                    self.verdicts.push(self.finding(obj, Damage::Lost, name, "none".into()));
                }
            }
        }
    }

    /// Whether something missing in this directory is a separate finding: the directory is there,
    /// or does not have to be.
    fn has_told(&self, dir: ObjId) -> bool {
        self.reached[dir] || self.model.calls.overlap() && !self.model.objects[dir].is_somewhere()
    }

    pub(super) fn finding(
        &self,
        obj: ObjId,
        damage: Damage,
        expected: String,
        found: String,
    ) -> Verdict {
        let path = self.model.path(obj);
        Verdict { damage, path, block: None, expected, found, in_flight: false }
    }

    pub(super) fn unreadable(&self, obj: ObjId, error: &vfs::Error) -> Verdict {
        self.finding(obj, Damage::Corrupt, "a readable inode".into(), error.to_string())
    }

    fn child(&self, dir: ObjId, name: &[u8]) -> String {
        let parent = self.model.path(dir);
        format!("{}/{}", parent.trim_end_matches('/'), text(name))
    }
}

/// How well what was found matches one of several objects: an old version of one is better than a
/// mixture that never existed, and of two mixtures the one of an fsync under way is better.
fn badness(verdicts: &[Verdict]) -> (usize, usize, usize) {
    let never = verdicts.iter().filter(|verdict| verdict.damage != Damage::Lost);
    let settled = verdicts.iter().filter(|verdict| !verdict.in_flight);
    (never.count(), verdicts.len(), settled.count())
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
