//! What a cut has taken from files, found by comparing each with what it was before. That no
//! fsync has covered a change does not tell: another file's commit may have.

use std::hash::Hasher;
use std::ops::Range;

use rustc_hash::FxHasher;
use vfs::kind::Volume;
use vfs::{Ino, Result};

/// The most bytes that are compared of a file. If more were written, the file counts as changed.
const COMPARED_MAX: u64 = 64 << 20;
const CHUNK: usize = 64 << 10;

/// A file with changes that no fsync has covered.
pub(super) struct DirtyFile {
    ino: Ino,
    ranges: Vec<Range<u64>>,
    /// As it was; `None` if that is not known.
    digest: Option<u64>,
}

impl DirtyFile {
    pub(super) fn of(volume: &dyn Volume, ino: Ino, ranges: Vec<Range<u64>>) -> Self {
        let digest = digest(volume, ino, &ranges).ok().flatten();
        Self { ino, ranges, digest }
    }

    pub(super) fn ino(&self) -> Ino {
        self.ino
    }

    /// Whether it is the same on what is left.
    pub(super) fn is_same(&self, left: &dyn Volume) -> bool {
        let now = digest(left, self.ino, &self.ranges).ok().flatten();
        self.digest.is_some() && self.digest == now
    }
}

/// A number for the bytes in these ranges, the size, and what users set of an inode.
fn digest(volume: &dyn Volume, ino: Ino, ranges: &[Range<u64>]) -> Result<Option<u64>> {
    if ranges.iter().map(|range| range.end - range.start).sum::<u64>() > COMPARED_MAX {
        return Ok(None);
    }
    let attr = volume.getattr(ino)?;
    let mut hash = FxHasher::default();
    hash.write_u64(attr.size);
    hash.write_u32(u32::from(attr.perm));
    hash.write_u32(attr.uid);
    hash.write_u32(attr.gid);
    // A file system without them has none to lose.
    let mut names = volume.listxattr(ino).unwrap_or_default();
    names.sort();
    for name in names {
        let value = volume.getxattr(ino, &name)?;
        hash.write_usize(name.len());
        hash.write(&name);
        hash.write_usize(value.len());
        hash.write(&value);
    }
    let mut chunk = vec![0; CHUNK];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let want = (range.end - at).min(CHUNK as u64) as usize;
            let len = volume.read(ino, at, &mut chunk[..want])?;
            hash.write(&chunk[..len]);
            at += want as u64;
        }
    }
    Ok(Some(hash.finish()))
}
