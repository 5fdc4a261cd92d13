//! What no mount can read: a damaged superblock becomes a copy of the other, a mark without its
//! record goes, and an inode whose attributes, map, log or names cannot be read is freed. Of inodes
//! that claim the same block the one with the lowest number keeps it.

use std::collections::BTreeMap;

use drive::pm::Pm;
use drive::pm::typed::{Obj, fence};
use vfs::kind::Result;
use vfs::{FileKind, Ino};
use zerocopy::IntoBytes;

use crate::alloc::BlockRun;
use crate::commit::slots;
use crate::inode::node::{Inode, read_raw};
use crate::mount::ROOT;
use crate::mount::format::load;
use crate::offline::{label, mkfs};
use crate::ondisk::BLOCK;
use crate::ondisk::inode::{FILE_SIZE_MAX, INODE_SIZE, RawInode};
use crate::ondisk::superblock::Layout;

/// A word of metadata that cannot be as it is.
enum Damaged {}

/// Makes a volume that can be mounted. Returns what was done, one line each.
pub(super) fn void(pm: &dyn Pm) -> Result<Vec<String>> {
    let (raw, layout) = load(pm)?;
    let mut notes = Vec::new();
    if !label::others(pm, &raw, &layout).is_empty() {
        label::write(pm, &raw, &layout)?;
        notes.push("superblock: written anew from the other copy".into());
    }
    for slot in (0..layout.cores).map(|core| layout.slot_at(core)) {
        if let Err(corrupt) = slots::left_in(pm, &layout, slot) {
            set(pm, slot, &[0; 8]);
            notes.push(format!("{corrupt}: record dropped"));
        }
    }
    let left = slots::left(pm, &layout).map_err(vfs::Error::from)?;
    slots::finish(pm, left);
    let mut owned = Owned::default();
    for ino in layout.inodes() {
        let Some(at) = layout.inode_at(ino) else { continue };
        if pm.load(at) as u32 == 0 && ino != ROOT {
            continue;
        }
        mend(pm, &layout, at, &mut notes);
        let Some(why) = unreadable(pm, &layout, ino, &mut owned) else { continue };
        if ino == ROOT {
            set(pm, at, &[0; INODE_SIZE as usize]);
            mkfs::put_root(pm, &layout, (0, 0));
            notes.push(format!("inode {ino}: {why}: made anew, empty"));
        } else {
            set(pm, at, &[0; 8]);
            notes.push(format!("inode {ino}: {why}: freed"));
        }
    }
    Ok(notes)
}

/// Attributes that have a right value without anything being lost.
fn mend(pm: &dyn Pm, layout: &Layout, at: u64, notes: &mut Vec<String>) {
    let old = read_raw(pm, at);
    let mut raw = old;
    for nanos in
        [&mut raw.mtime_nanos, &mut raw.ctime_nanos, &mut raw.atime_nanos, &mut raw.crtime_nanos]
    {
        nanos.set(nanos.get().min(999_999_999));
    }
    raw.size.set(raw.size.get().min(FILE_SIZE_MAX));
    write_raw(pm, at, &old, &raw, notes);
    let old = raw;
    // The size of a directory in place says how many pages it has.
    if let Ok(Some(inode)) = Inode::load_bare(pm, layout, at)
        && inode.raw.is_dir()
        && inode.log.is_none()
    {
        let pages: u64 = inode.map.extents().map(|extent| extent.len).sum();
        raw.size.set(pages * BLOCK);
        write_raw(pm, at, &old, &raw, notes);
    }
}

fn write_raw(pm: &dyn Pm, at: u64, old: &RawInode, new: &RawInode, notes: &mut Vec<String>) {
    if old.as_bytes() != new.as_bytes() {
        set(pm, at, new.as_bytes());
        notes.push(format!("inode at {at:#x}: size or times set right"));
    }
}

/// Why a mount could not use this inode; `None` if it can, and then its blocks are its own.
fn unreadable(pm: &dyn Pm, layout: &Layout, ino: Ino, owned: &mut Owned) -> Option<String> {
    let inode = match Inode::load(pm, layout, ino) {
        Err(corrupt) => return Some(corrupt.to_string()),
        Ok(None) => return (ino == ROOT).then(|| "free".into()),
        Ok(Some(inode)) => inode,
    };
    let size = inode.raw.size.get();
    match inode.raw.kind() {
        kind if ino == ROOT && kind != Some(FileKind::Directory) => return Some("mode".into()),
        Some(FileKind::Symlink) if size == 0 || size >= vfs::path::PATH_MAX as u64 => {
            return Some("size of the symbolic link".into());
        }
        // Recovery frees it, and with it its blocks.
        _ if inode.raw.links.get() == 0 && ino != ROOT => return None,
        _ => {}
    }
    let clash = owned.take(inode.runs());
    clash.map(|block| format!("block {block} belongs to another inode, or twice to this one"))
}

/// The blocks of the inodes so far: starts and lengths of runs that do not overlap.
#[derive(Default)]
struct Owned(BTreeMap<u64, u64>);

impl Owned {
    /// Takes all of these runs, or none; then, a block that was taken before.
    fn take(&mut self, runs: impl Iterator<Item = BlockRun>) -> Option<u64> {
        let mut taken = Vec::new();
        for (start, len) in runs {
            let before = self.0.range(..start + len).next_back();
            if let Some((&other, &other_len)) = before
                && other + other_len > start
            {
                for start in taken {
                    self.0.remove(&start);
                }
                return Some(start.max(other));
            }
            self.0.insert(start, len);
            taken.push(start);
        }
        None
    }
}

/// Durably sets words of metadata.
fn set(pm: &dyn Pm, at: u64, bytes: &[u8]) {
    let place = Obj::<Damaged>::settled(pm, at, bytes.len() as u64);
    let _set = fence(pm, place.store(0, bytes).write_back());
}

#[cfg(test)]
mod tests {
    use super::Owned;

    #[test]
    fn a_block_has_one_owner() {
        let mut owned = Owned::default();
        assert_eq!(owned.take([(10, 5), (20, 1)].into_iter()), None);
        for clash in [(14, 1), (8, 3), (8, 20), (12, 1), (20, 1)] {
            assert!(owned.take([(30, 2), clash].into_iter()).is_some(), "{clash:?}");
        }
        assert_eq!(owned.take([(30, 2), (15, 5), (8, 2), (21, 9)].into_iter()), None);
        assert!(owned.take([(40, 2), (41, 1)].into_iter()).is_some());
    }
}
