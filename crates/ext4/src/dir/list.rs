//! Listing a directory. Where the volume has hash trees, names come in the order of their hashes
//! (`ext4_dx_readdir`), also those of a directory whose one block has no tree yet. A cookie is made
//! of a name's hash, so it stays good while leaves are split and the tree grows. Where many names
//! can have the same hash, by the older versions of it, another one sorts these. Other directories
//! are listed block by block, and a cookie is the byte behind an entry.

use drive::Block;
use vfs::DirEntry;

use crate::blocks::{Blocks, Walked};
use crate::dir::entries::{block_count, dir_block};
use crate::dir::htree::{default_version, hasher, is_indexed, walk};
use crate::error::Error;
use crate::inode::cached::Inode;
use crate::ondisk::FsBlock;
use crate::ondisk::dirent::{Dirent, Dirents};
use crate::ondisk::features::Compat;
use crate::ondisk::hash::{HALF_MD4, Hasher};

/// Cookies of the first names: `.` and `..` are in front of all hashes.
const DOTS: u64 = 2;
/// Bits of a cookie that count names whose hashes agree in all others: rare, so a few are enough.
/// The hash itself has 31 + 32 bits, as many as a cookie can have.
const COUNT_BITS: u32 = 6;

/// Some entries of a directory; the cookie to go on from, if there may be more.
pub(crate) type Listed = (Vec<DirEntry>, Option<u64>);

/// Passes the entries that `list` has from cookie `from` on to `emit` until it returns false.
pub(crate) fn emit_all<E>(
    mut from: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
    mut list: impl FnMut(u64) -> Result<Listed, E>,
) -> Result<(), E> {
    loop {
        let (entries, next) = list(from)?;
        for entry in entries {
            if !emit(entry) {
                return Ok(());
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Some entries from cookie `from` on.
pub(crate) fn list<B: Blocks>(blocks: &B, inode: &Inode, from: u64) -> Walked<Listed, B> {
    let sb = blocks.sb();
    let is_one_block = sb.compat.contains(Compat::DIR_INDEX) && block_count(sb, inode) == 1;
    match is_indexed(sb, inode) || is_one_block {
        true if from < DOTS => dots(blocks, inode, from),
        true => by_hash(blocks, inode, from),
        false => by_place(blocks, inode, from),
    }
}

/// The entry of a record in block `at`, with cookie `next` behind it.
pub(crate) fn entry<B: Blocks>(
    blocks: &B,
    dirent: &Dirent<'_>,
    at: FsBlock,
    next: u64,
) -> Walked<DirEntry, B> {
    dirent.check_name(at)?;
    let kind = blocks.kind_of(dirent)?;
    Ok(DirEntry { name: dirent.name.to_vec(), ino: dirent.ino.into(), kind, next })
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn dots<B: Blocks>(blocks: &B, inode: &Inode, from: u64) -> Walked<Listed, B> {
    let (at, block) = dir_block(blocks, inode, 0)?;
    let mut entries = Vec::new();
    for dirent in Dirents::new(blocks.sb().bytes(&block), at).take(DOTS as usize) {
        let dirent = dirent?;
        let next = dirent.name.len() as u64;
        if is_dots(dirent.name) && next > from {
            entries.push(entry(blocks, &dirent, at, next)?);
        }
    }
    Ok((entries, Some(DOTS)))
}

/// The lowest cookie of names with this hash.
fn cookie_of(major: u32) -> u64 {
    DOTS + (u64::from(major >> 1) << 32)
}

/// The entries of one leaf, and of those behind it that have names with the same hash.
fn by_hash<B: Blocks>(blocks: &B, inode: &Inode, from: u64) -> Walked<Listed, B> {
    let sb = blocks.sb();
    let spread = hasher(sb, HALF_MD4, inode.at)?;
    let mut names = Names { entries: Vec::new(), from, spread };
    if !is_indexed(sb, inode) {
        let (at, block) = dir_block(blocks, inode, 0)?;
        names.add(blocks, (at, &block), &hasher(sb, default_version(sb), at)?)?;
        return Ok((names.sorted(), None));
    }
    let major = (((from - DOTS) >> 32) as u32) << 1;
    let mut path = walk(blocks, inode, |_| major)?;
    let next = loop {
        let (at, block) = dir_block(blocks, inode, path.leaf)?;
        names.add(blocks, (at, &block), &path.hasher)?;
        match path.next(blocks, inode)? {
            None => break None,
            Some(hash) if hash & 1 == 1 => {}
            Some(hash) if cookie_of(hash) > from => break Some(cookie_of(hash)),
            Some(hash) => {
                return Err(Error::corrupt("dx_entry.hash", at, hash, "hashes in order").into());
            }
        }
        if names.entries.len() > usize::from(u16::MAX) * 16 {
            return Err(Error::corrupt("dx_entry.hash", at, "one hash", "less names").into());
        }
    };
    Ok((names.sorted(), next))
}

/// Names with their hashes.
struct Names {
    entries: Vec<(u64, DirEntry)>,
    from: u64,
    /// Sorts names with the same hash.
    spread: Hasher,
}

impl Names {
    fn add<B: Blocks>(
        &mut self,
        blocks: &B,
        (at, block): (FsBlock, &Block),
        hasher: &Hasher,
    ) -> Walked<(), B> {
        for dirent in Dirents::new(blocks.sb().bytes(block), at) {
            let dirent = dirent?;
            if dirent.ino != 0 && !is_dots(dirent.name) {
                let hash = hasher.hash(dirent.name);
                let is_same = *hasher == self.spread;
                let minor = if is_same { hash } else { self.spread.hash(dirent.name) }.minor;
                let minor = u64::from(minor >> COUNT_BITS << COUNT_BITS);
                let entry = entry(blocks, &dirent, at, 0)?;
                self.entries.push((cookie_of(hash.major) + minor, entry));
            }
        }
        Ok(())
    }

    /// Those from the cookie on, in order, each with the cookie behind it.
    fn sorted(mut self) -> Vec<DirEntry> {
        self.entries.sort_unstable_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
        let (mut last, mut count) = (None, 0);
        let mut found = Vec::with_capacity(self.entries.len());
        for (cookie, mut entry) in self.entries {
            count = if last == Some(cookie) { (count + 1).min((1 << COUNT_BITS) - 1) } else { 0 };
            last = Some(cookie);
            if cookie + count >= self.from {
                entry.next = cookie + count + 1;
                found.push(entry);
            }
        }
        found
    }
}

/// The entries of one block of a directory, from byte `from` of the directory on.
pub(crate) fn by_place<B: Blocks>(blocks: &B, inode: &Inode, from: u64) -> Walked<Listed, B> {
    let (sb, size) = (blocks.sb(), u64::from(blocks.sb().block_size));
    let index = (from / size).min(u32::MAX.into()) as u32;
    if index >= block_count(sb, inode) {
        return Ok((Vec::new(), None));
    }
    let start = u64::from(index) * size;
    let (at, block) = dir_block(blocks, inode, index)?;
    let mut entries: Vec<DirEntry> = Vec::new();
    for dirent in Dirents::new(sb.bytes(&block), at) {
        let listed = dirent.map_err(B::Stop::from).and_then(|dirent| {
            let here = start + dirent.offset as u64;
            let is_listed = dirent.ino != 0 && here >= from;
            let entry = || entry(blocks, &dirent, at, here + dirent.rec_len as u64);
            is_listed.then(entry).transpose()
        });
        match (listed, entries.last()) {
            (Ok(listed), _) => entries.extend(listed),
            (Err(stop), None) => return Err(stop),
            // What is in front of it is listed; the caller meets it again after that.
            (Err(_), Some(last)) => {
                let next = last.next;
                return Ok((entries, Some(next)));
            }
        }
    }
    Ok((entries, Some(start + size)))
}

#[cfg(test)]
mod tests {
    use vfs::FileKind;

    use super::*;

    #[test]
    fn names_with_one_hash_have_cookies_of_their_own() {
        let named = |name: &[u8]| DirEntry {
            name: name.to_vec(),
            ino: 12,
            kind: FileKind::Regular,
            next: 0,
        };
        let all = |from| Names {
            entries: vec![(64, named(b"c")), (64, named(b"a")), (128, named(b"d"))],
            from,
            spread: Hasher::new(HALF_MD4, false, [0; 4]).unwrap(),
        };
        let names = |from| -> Vec<(Vec<u8>, u64)> {
            all(from).sorted().into_iter().map(|entry| (entry.name, entry.next)).collect()
        };
        assert_eq!(names(2), [(b"a".to_vec(), 65), (b"c".to_vec(), 66), (b"d".to_vec(), 129)]);
        assert_eq!(names(65)[0].0, b"c");
        assert_eq!(names(66)[0].0, b"d");
        assert!(names(129).is_empty());
        assert!(cookie_of(0xffff_fffc) + u64::from(u32::MAX) < i64::MAX as u64);
    }
}
