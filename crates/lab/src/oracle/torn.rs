//! A file that is half of an fsync: some of it as before, some of it as after.

use std::collections::BTreeSet;

use drive::{BLOCK_SIZE, Block};
use vfs::{Attr, Ino};

use super::contents::BLOCK;
use super::event::{Meta, ObjId};
use super::object::Object;
use super::verdict::{Damage, Verdict};
use super::verify::{Walk, text};

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

impl Walk<'_> {
    /// Whether a mixture of old and new is half an fsync. With several threads it need not be.
    pub(super) fn can_tell_torn(&self, object: &Object) -> bool {
        let calls = &self.model.calls;
        if calls.overlap() { object.can_be_torn(calls) } else { object.is_syncing() }
    }

    /// A mixture of old and new of the fsync under way that cannot be explained by what was made
    /// durable before it: sizes, attributes and holes, all at once, and those blocks that had been
    /// written back by then.
    pub(super) fn torn(&self, ino: Ino, attr: &Attr, obj: ObjId) -> Option<Verdict> {
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
}
