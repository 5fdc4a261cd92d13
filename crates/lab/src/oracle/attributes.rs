//! What must hold of an inode besides its contents, one rule each. For everything changed since the
//! last fsync, a rule allows the old and the new values, and nothing else.

use std::collections::BTreeMap;

use vfs::{Attr, FileKind, Ino, InodeFlags, Timespec};

use super::contents::head;
use super::event::{Meta, ObjId, ROOT};
use super::verdict::{Damage, Verdict};
use super::verify::{Walk, text};

/// The names that lead to each inode, and the links it claims to have, collected on the walk.
#[derive(Default)]
pub(super) struct Links {
    names: BTreeMap<Ino, u32>,
    said: BTreeMap<Ino, (ObjId, FileKind, u32)>,
    found: BTreeMap<ObjId, Ino>,
    /// Objects that the inode may be as well, by each of its names.
    alike: BTreeMap<Ino, Vec<ObjId>>,
}

impl Links {
    /// Notes that a name of `obj` leads to `ino`, which may as well be any of `alike`. If `obj` was
    /// taken for another inode before, that one is taken for what it is like, if it can be. Returns
    /// what is found by that.
    pub(super) fn found(&mut self, obj: ObjId, ino: Ino, alike: Vec<ObjId>) -> Vec<ObjId> {
        let moved = self.taken_for(obj, ino, &mut Vec::new()).unwrap_or_default();
        let objs = moved.iter().map(|(obj, _)| *obj).collect();
        self.found.extend(moved);
        let known = self.alike.entry(ino).or_insert_with(|| alike.clone());
        known.retain(|obj| alike.contains(obj));
        objs
    }

    /// What must be taken for which inode so that `obj` is `ino`: that alone, or first of all the
    /// inode that `obj` was taken for is another of those that it is like, and so on. `None` if
    /// `obj` is another inode.
    fn taken_for(&self, obj: ObjId, ino: Ino, seen: &mut Vec<ObjId>) -> Option<Vec<(ObjId, Ino)>> {
        let before = self.found.get(&obj).copied().filter(|before| *before != ino);
        let Some(before) = before else { return Some(vec![(obj, ino)]) };
        seen.push(obj);
        for other in self.alike.get(&before)? {
            if seen.contains(other) {
                continue;
            }
            if let Some(mut taken) = self.taken_for(*other, before, seen) {
                taken.push((obj, ino));
                return Some(taken);
            }
        }
        None
    }

    /// An entry of directory `dir`. A subdirectory has one in itself, and one for its parent.
    pub(super) fn entry(&mut self, dir: Ino, ino: Ino, kind: FileKind) {
        let is_dir = kind == FileKind::Directory;
        *self.names.entry(ino).or_default() += if is_dir { 2 } else { 1 };
        if is_dir {
            *self.names.entry(dir).or_default() += 1;
        }
    }
}

impl Walk<'_> {
    /// All rules about one inode, except that of [`Walk::links`].
    pub(super) fn attributes(&mut self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        // The root was not made by the workload, and its attributes are not known.
        if obj == ROOT {
            return;
        }
        self.links.said.insert(attr.ino, (obj, attr.kind, attr.nlink));
        self.identity(attr, obj, out);
        self.meta(attr, obj, out);
        self.device(attr, obj, out);
        self.xattrs(attr.ino, obj, out);
        if attr.kind == FileKind::Regular {
            self.size(attr, obj, out);
        }
    }

    /// All names of a file lead to one inode.
    fn identity(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let taken = self.links.taken_for(obj, attr.ino, &mut Vec::new());
        if let (None, Some(ino)) = (taken, self.links.found.get(&obj)) {
            let expected = format!("inode {ino}, as by another name");
            out.push(self.finding(obj, Damage::Corrupt, expected, format!("inode {}", attr.ino)));
        }
    }

    /// Permissions, owner, flags and explicitly set times are, all together, what they were after
    /// one of the calls that set them. After an fsync, the times that move by themselves are those
    /// that the fsync found, or later ones.
    fn meta(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let has_flags = matches!(attr.kind, FileKind::Regular | FileKind::Directory);
        let flags = match has_flags.then(|| self.fs.flags(attr.ino)).transpose() {
            Ok(flags) => InodeFlags::from_bits_truncate(flags.unwrap_or_default()),
            Err(error) => return out.push(self.unreadable(obj, &error)),
        };
        let object = &self.model.objects[obj];
        let least = object.times;
        let (perm, uid, gid) = (attr.perm, attr.uid, attr.gid);
        let (atime, mtime) = (Some(attr.atime), Some(attr.mtime));
        let found = Meta { perm, uid, gid, flags, atime, mtime };
        let fits = |meta: &Meta| {
            let early = meta.mtime.is_none() && least.is_some_and(|least| attr.mtime < least.mtime);
            let (atime, mtime) = (meta.atime.or(atime), meta.mtime.or(mtime));
            !early && Meta { atime, mtime, ..*meta } == found
        };
        if !object.meta.allowed().any(fits) {
            let mut expected = told(object.meta.current());
            if let Some(least) = least {
                expected += &format!(", and no mtime before {}", instant(least.mtime));
            }
            out.push(self.finding(obj, Damage::Lost, expected, told(&found)));
        }
        if let Some(least) = least.filter(|least| attr.ctime < least.ctime) {
            let expected = format!("ctime {} or later", instant(least.ctime));
            out.push(self.finding(obj, Damage::Lost, expected, instant(attr.ctime)));
        }
    }

    /// A device has the number that it was made with.
    fn device(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let made = self.model.objects[obj].rdev;
        if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) && attr.rdev != made {
            let (made, found) = (format!("device {made:#x}"), format!("{:#x}", attr.rdev));
            out.push(self.finding(obj, Damage::Garbage, made, found));
        }
    }

    /// The list of extended attributes has those that are set, each once, and no others; each has a
    /// value it was given.
    fn xattrs(&self, ino: Ino, obj: ObjId, out: &mut Vec<Verdict>) {
        let known = &self.model.objects[obj].xattrs;
        let mut listed = match self.fs.listxattr(ino) {
            Ok(listed) => listed,
            Err(error) => return out.push(self.unreadable(obj, &error)),
        };
        for (name, versions) in known {
            let found = self.fs.getxattr(ino, name).ok().map(Vec::into_boxed_slice);
            if !versions.allows(&found) {
                let show = |v: &Option<Box<[u8]>>| v.as_ref().map_or("none".into(), |v| head(v));
                let expected = format!("{}={}", text(name), show(versions.current()));
                out.push(self.finding(obj, Damage::Lost, expected, show(&found)));
            }
            let at = listed.iter().position(|other| **other == **name);
            at.map(|at| listed.swap_remove(at));
            if at.is_some() != found.is_some() {
                let (is, seen) =
                    if found.is_some() { ("listed", "not") } else { ("not", "listed") };
                let expected = format!("{} {is} in the list of attributes", text(name));
                out.push(self.finding(obj, Damage::Corrupt, expected, seen.into()));
            }
        }
        for name in listed {
            let expected = "no such attribute, or only one".into();
            out.push(self.finding(obj, Damage::Garbage, expected, text(&name)));
        }
    }

    /// A size must be one that a call sets, or that a write passes on its way.
    fn size(&self, attr: &Attr, obj: ObjId, out: &mut Vec<Verdict>) {
        let object = &self.model.objects[obj];
        let (size, calls) = (&object.size, &self.model.calls);
        if size.allows(attr.size, calls) {
            return;
        }
        // Where a block may set the size, this is half an fsync, or a complete one that is no
        // longer complete.
        let moving = object.is_syncing() && size.is_open();
        let may_set = self.model.habits.blocks_may_set_size;
        let damage = match may_set && size.ends_with_block(attr.size) {
            true if moving => Damage::Torn,
            true => Damage::Lost,
            false if size.was_once(attr.size) => Damage::Lost,
            false => Damage::Garbage,
        };
        let (low, high) = size.range(calls);
        let expected = match low == high {
            true => format!("size {low}"),
            false => format!("one of the sizes from {low} to {high}"),
        };
        out.push(self.finding(obj, damage, expected, format!("size {}", attr.size)));
    }

    /// An inode has as many links as names lead to it; a directory has two, and one more for each
    /// directory in it; or 1, in file systems that do not count them.
    pub(super) fn links(&mut self) {
        let links = std::mem::take(&mut self.links);
        for (ino, (obj, kind, said)) in links.said {
            let names = links.names.get(&ino).copied().unwrap_or(0);
            if said != names && (kind, said) != (FileKind::Directory, 1) {
                let (names, said) = (format!("{names} links"), format!("{said}"));
                self.verdicts.push(self.finding(obj, Damage::Corrupt, names, said));
            }
        }
    }
}

/// Attributes as people write them. Times that were not set are left out.
fn told(meta: &Meta) -> String {
    let Meta { perm, uid, gid, flags, atime, mtime } = *meta;
    let mut text = format!("mode {perm:o}, owner {uid}:{gid}, flags {:#x}", flags.bits());
    for (name, time) in [("atime", atime), ("mtime", mtime)] {
        text += &time.map_or_else(String::new, |time| format!(", {name} {}", instant(time)));
    }
    text
}

fn instant(time: Timespec) -> String {
    format!("{}.{:09}", time.secs, time.nanos)
}
