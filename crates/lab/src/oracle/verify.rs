//! Compares a recovered volume, byte for byte, with all that may be on it.
//!
//! Walks the directories of the file system and of the model together. Where a name may stand for
//! several objects, the best match is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use drive::{BLOCK_SIZE, Block, Lba};
use rustc_hash::FxHashMap;
use vfs::{Attr, FileKind, Ino};

use super::attributes::Links;
use super::event::{Meta, ObjId, ROOT};
use super::model::Model;
use super::object::{BlockVersions, Object};
use super::order::Versions;
use super::verdict::{Damage, Verdict};
use vfs::kind::{PageAt, Volume};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Bytes read at a time.
const CHUNK: usize = 32 * BLOCK_SIZE;

/// Bytes of a block that are shown.
const SHOWN: usize = 16;

/// Findings kept per file; the first few tell the story.
const PER_FILE: usize = 4;

/// Pages found equal before, so as not to compare the same memory for every cut of a run.
///
/// It keeps references to them, so that an address always means the same bytes.
#[derive(Default)]
pub struct Memo {
    equal: FxHashMap<usize, (Block, Block)>,
}

impl Memo {
    /// Whether the first `len` bytes of both are the same.
    fn are_equal(&mut self, found: &Block, version: &Block, len: usize) -> bool {
        if len < BLOCK_SIZE {
            return found[..len] == version[..len];
        }
        let address = found.bytes().as_ptr() as usize;
        if self.equal.get(&address).is_some_and(|(_, known)| known.same_page(version)) {
            return true;
        }
        let equal = found == version;
        if equal {
            self.equal.insert(address, (found.clone(), version.clone()));
        }
        equal
    }
}

/// Shows blocks of the drive, in the order asked for.
pub(super) type Look<'a> = dyn Fn(&mut dyn Iterator<Item = Lba>, &mut dyn FnMut(&Block)) + 'a;

/// All differences between `fs` and what `model` allows. `look` shows the drive's blocks.
pub fn verify(fs: &dyn Volume, look: &Look<'_>, model: &Model, memo: &mut Memo) -> Vec<Verdict> {
    let mut walk = Walk {
        fs,
        model,
        reached: vec![false; model.objects.len()],
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

/// Something found as it was before an fsync, and something as it should be after it.
#[derive(Default)]
struct Sides {
    old: Option<String>,
    new: Option<String>,
}

impl Sides {
    /// Notes `what`, unless it could be either of the two.
    fn note(&mut self, is_old: bool, is_new: bool, what: impl FnOnce() -> String) {
        match (is_old, is_new) {
            (true, false) => self.old.get_or_insert_with(what),
            (false, true) => self.new.get_or_insert_with(what),
            _ => return,
        };
    }
}

/// Where a page of a file was found.
enum Found {
    Memory(Block),
    Drive(Lba),
}

pub(super) struct Walk<'a> {
    pub(super) fs: &'a dyn Volume,
    pub(super) model: &'a Model,
    reached: Vec<bool>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) links: Links,
    look: &'a Look<'a>,
    memo: &'a mut Memo,
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
        let candidates = versions.allowed().filter_map(|v| *v);
        for obj in candidates.filter(|&o| self.model.objects[o].kind == kind) {
            let verdicts = self.object(ino, obj);
            let better = best.as_ref().is_none_or(|(_, b)| badness(&verdicts) < badness(b));
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
        let never = badness(&verdicts).0 > 0;
        if never && self.former(dir, name, ino, kind).is_some() {
            let (expected, found) = ("the file".into(), "the one before it".into());
            self.verdicts.push(self.finding(obj, Damage::Lost, expected, found));
        } else {
            self.verdicts.extend(verdicts);
        }
        self.reached[obj] = true;
        if !never {
            // Contents that this file never had may belong to another file that the name may stand
            // for.
            self.links.found(obj, ino);
        }
        if kind == FileKind::Directory {
            self.directory(ino, obj);
        }
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

    fn contents(&mut self, ino: Ino, size: u64, obj: ObjId, out: &mut Vec<Verdict>) {
        // A size that no version has is already a finding: do not read terabytes of holes for it.
        let end = size.min(self.model.objects[obj].size.largest());
        let compared = self
            .pages(ino, end, obj, out)
            .and_then(|all| if all { Ok(()) } else { self.bytes(ino, end, obj, out) });
        if let Err(error) = compared {
            out.push(self.unreadable(obj, &error));
        }
        out.truncate(PER_FILE);
    }

    /// Compares page by page; false if the volume does not show its pages.
    fn pages(
        &mut self,
        ino: Ino,
        end: u64,
        obj: ObjId,
        out: &mut Vec<Verdict>,
    ) -> vfs::Result<bool> {
        let mut found = Vec::new();
        let all = self.fs.pages(ino, 0..end.div_ceil(BLOCK), &mut |index, at| {
            found.push(match at {
                PageAt::Memory(page) => (index, Found::Memory(page.clone())),
                PageAt::Drive(lba) => (index, Found::Drive(lba)),
            });
        })?;
        if !all {
            return Ok(false);
        }
        let (look, model) = (self.look, self.model);
        let mut known = model.objects[obj].blocks.iter().peekable();
        let mut next = 0;
        let mut compare = |index: u64, page: &Block| {
            self.hole(obj, next * BLOCK..index * BLOCK, out);
            next = index + 1;
            let len = (end - index * BLOCK).min(BLOCK) as usize;
            while known.next_if(|(at, _)| **at < index).is_some() {}
            let equal = known.next_if(|(at, _)| **at == index).is_some_and(|(_, block)| {
                block.versions.allowed().any(|version| self.memo.are_equal(page, version, len))
            });
            if !equal {
                out.extend(self.block(obj, index, &page[..len]));
            }
        };
        let lba = |found: &Found| if let Found::Drive(lba) = found { Some(*lba) } else { None };
        for run in found.chunk_by(|(_, one), (_, next)| lba(one).and(lba(next)).is_some()) {
            if let [(index, Found::Memory(page))] = run {
                compare(*index, page);
                continue;
            }
            let mut indexes = run.iter().map(|(index, _)| *index);
            let mut lbas = run.iter().filter_map(|(_, found)| lba(found));
            look(&mut lbas, &mut |page| indexes.by_ref().take(1).for_each(|i| compare(i, page)));
        }
        self.hole(obj, next * BLOCK..end, out);
        Ok(true)
    }

    /// Compares what can be read.
    fn bytes(&mut self, ino: Ino, end: u64, obj: ObjId, out: &mut Vec<Verdict>) -> vfs::Result<()> {
        let mut buf = vec![0; CHUNK];
        for offset in (0..end).step_by(CHUNK) {
            let want = CHUNK.min((end - offset) as usize);
            let got = self.fs.read(ino, offset, &mut buf[..want])?;
            if got < want {
                let (want, got) = (format!("{want} bytes"), format!("{got} bytes"));
                out.push(self.finding(obj, Damage::Garbage, want, got));
                break;
            }
            let blocks = buf[..want].chunks(BLOCK_SIZE);
            let found = (offset / BLOCK..).zip(blocks);
            out.extend(found.filter_map(|(index, bytes)| self.block(obj, index, bytes)));
        }
        Ok(())
    }

    /// Bytes of holes, which are zeroes without being read.
    fn hole(&self, obj: ObjId, bytes: Range<u64>, out: &mut Vec<Verdict>) {
        if bytes.is_empty() {
            return;
        }
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let known = self.model.objects[obj].blocks.range(blocks).map(|(&index, _)| index);
        let zeroes = Block::zeroed();
        out.extend(known.filter_map(|index| {
            let left = (bytes.end - index * BLOCK).min(BLOCK);
            self.block(obj, index, &zeroes.bytes()[..left as usize])
        }));
    }

    fn block(&self, obj: ObjId, index: u64, found: &[u8]) -> Option<Verdict> {
        let object = &self.model.objects[obj];
        let Some(block) = object.blocks.get(&index) else {
            let hole = found.iter().all(|&b| b == 0);
            return (!hole).then(|| Verdict {
                block: Some(index),
                ..self.finding(obj, Damage::Garbage, "a hole".into(), head(found))
            });
        };
        if block.versions.allowed().any(|v| v[..found.len()] == *found) {
            return None;
        }
        let damage = match () {
            () if block.was_once(found) => Damage::Lost,
            () if block.has_sectors(found) => Damage::Torn,
            () => Damage::Garbage,
        };
        // The blocks that an fsync writes: those changed, and the first of what was a small file.
        let small = self.model.habits.small_file;
        let inline = index == 0 && object.size.durable(&self.model.calls) <= small;
        let moving = inline || block.versions.is_open();
        let (expected, shown) = told(block, found);
        Some(Verdict {
            block: Some(index),
            in_flight: object.is_syncing() && moving,
            ..self.finding(obj, damage, expected, shown)
        })
    }

    /// Whether a mixture of old and new is half an fsync. With several threads it need not be.
    fn can_tell_torn(&self, object: &Object) -> bool {
        let calls = &self.model.calls;
        if calls.overlap() { object.can_be_torn(calls) } else { object.is_syncing() }
    }

    /// A mixture of old and new of the fsync under way that cannot be explained by what was made
    /// durable before it: sizes, attributes and holes, all at once, and those blocks that had been
    /// written back by then.
    fn torn(&self, ino: Ino, attr: &Attr, obj: ObjId) -> Option<Verdict> {
        let blocks = self.block_sides(ino, attr.size, obj);
        let attributes = self.attribute_sides(ino, attr, obj);
        let by_fsync = attributes.new.clone().filter(|_| !self.model.objects[obj].carried);
        let new = blocks.new.clone().or(by_fsync)?;
        let old = match blocks.new {
            Some(_) => blocks.old.or(attributes.old)?,
            None => attributes.old?,
        };
        let (expected, found) = (format!("the version of {new}"), format!("{old} of before"));
        Some(self.finding(obj, Damage::Torn, expected, found))
    }

    /// The blocks that differ between what was durable and what the fsync should make durable.
    fn block_sides(&self, ino: Ino, size: u64, obj: ObjId) -> Sides {
        let object = &self.model.objects[obj];
        let (mut sides, mut page) = (Sides::default(), [0; BLOCK_SIZE]);
        let since: BTreeSet<u64> = object.dirty_since_carried().iter().copied().collect();
        for &index in object.dirty_blocks() {
            let versions = &object.blocks[&index].versions;
            let offset = index * BLOCK;
            if offset >= size {
                continue;
            }
            let want = BLOCK_SIZE.min((size - offset) as usize);
            let page = &mut page[..want];
            if self.fs.read(ino, offset, page).is_ok_and(|got| got == want) {
                let found = |version: &Block| version[..want] == *page;
                // What a truncation cut off becomes durable with the sizes.
                let is_hole = page.iter().all(|&byte| byte == 0);
                let is_carried = object.carried && (is_hole || !since.contains(&index));
                match versions.sides(found) {
                    Some((false, true)) if is_carried => (),
                    Some((old, new)) => sides.note(old, new, || format!("block {index}")),
                    None => (),
                }
            }
        }
        sides
    }

    fn attribute_sides(&self, ino: Ino, attr: &Attr, obj: ObjId) -> Sides {
        let object = &self.model.objects[obj];
        let mut sides = Sides::default();
        if object.size.is_open() {
            let is = |size: u64| size == attr.size;
            let old = object.size.durable(&self.model.calls);
            sides.note(is(old), is(object.size.current()), || "the size".into());
        }
        let is = |meta: &Meta| (meta.perm, meta.uid, meta.gid) == (attr.perm, attr.uid, attr.gid);
        if let Some((old, new)) = object.meta.sides(is) {
            sides.note(old, new, || "the attributes".into());
        }
        for (name, versions) in &object.xattrs {
            let found = self.fs.getxattr(ino, name).ok().map(Vec::into_boxed_slice);
            if let Some((old, new)) = versions.sides(|value| *value == found) {
                sides.note(old, new, || text(name));
            }
        }
        sides
    }

    /// Objects with a durable name and none of the names they may be under.
    fn unreachable(&mut self) {
        for (obj, object) in self.model.objects.iter().enumerate() {
            let must = object.is_somewhere() && !self.reached[obj];
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

pub(super) fn head(bytes: &[u8]) -> String {
    if bytes.iter().all(|&b| b == 0) {
        return "zeroes".into();
    }
    let hex: String = bytes.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
    format!("{hex}…")
}

/// What may be in a block and what was found, shown from the first difference on.
fn told(block: &BlockVersions, found: &[u8]) -> (String, String) {
    let differs = |v: &Block| v.bytes().iter().zip(found).position(|(one, other)| one != other);
    let at = block.versions.allowed().filter_map(differs).max().filter(|&at| at >= SHOWN);
    let show = |bytes: &[u8]| match at {
        Some(at) => format!("{} from byte {at} on", head(&bytes[at..])),
        None => head(bytes),
    };
    let mut expected: Vec<String> =
        block.versions.allowed().map(|v: &Block| show(v.bytes())).collect();
    expected.dedup();
    (expected.join(" or "), show(found))
}
