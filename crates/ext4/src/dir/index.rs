//! Adding names to a directory with a hash tree (`ext4_dx_add_entry`): a full block becomes a tree,
//! a full leaf is split, a full node too, and a full root becomes a level deeper.

use drive::Block;
use vfs::FileKind;

use crate::blocks::Kind;
use crate::dir::entries::{Gap, area, dir_block, find_gap_in};
use crate::dir::htree::{self as tree, Path, deepest, default_version, walk};
use crate::error::Error;
use crate::mount::draft::Draft;
use crate::mount::want::Step;
use crate::ondisk::dirent::{self, Dirents, record_len};
use crate::ondisk::hash::Hasher;
use crate::ondisk::htree::{self, Entry, Place};
use crate::ondisk::inode::Flags;
use crate::ondisk::{FileBlock, FsBlock, Ino};

/// A record of a leaf.
struct Record {
    hash: u32,
    ino: Ino,
    file_type: u8,
    name: Vec<u8>,
}

impl Record {
    fn len(&self) -> usize {
        record_len(self.name.len())
    }
}

/// A block with these records, one after another; the last one has the rest.
fn packed(records: &[Record], area: usize, size: usize) -> Block {
    let mut block = Block::zeroed();
    let bytes = &mut block.make_mut()[..size];
    let (mut offset, last) = (0, records.len().saturating_sub(1));
    for (i, record) in records.iter().enumerate() {
        let len = if i == last { area - offset } else { record.len() };
        dirent::emit(bytes, offset, len, record.ino, record.file_type, &record.name);
        offset += len;
    }
    if records.is_empty() {
        dirent::emit(bytes, 0, area, 0, 0, b"");
    }
    if area < size {
        dirent::emit_tail(bytes);
    }
    block
}

/// The records of a block in use, from byte `from` on, as they lie.
fn records(block: &[u8], from: usize, at: FsBlock, hasher: &Hasher) -> Step<Vec<Record>> {
    let mut found = Vec::new();
    for dirent in Dirents::new(block, at) {
        let dirent = dirent?;
        if dirent.ino != 0 && dirent.offset >= from {
            found.push(Record {
                hash: hasher.hash(dirent.name).major,
                ino: dirent.ino,
                file_type: dirent.file_type,
                name: dirent.name.to_vec(),
            });
        }
    }
    Ok(found)
}

/// Where sorted records are split, so that neither half has more than half a block (`do_split`).
fn split_point(records: &[Record], block_size: usize) -> usize {
    let (mut size, mut moved) = (0, 0);
    for record in records.iter().rev() {
        if size + record.len() / 2 > block_size / 2 {
            break;
        }
        size += record.len();
        moved += 1;
    }
    let split = records.len() - moved;
    if split == 0 { records.len() / 2 } else { split }
}

impl Draft<'_, '_> {
    /// Adds an entry to a directory with a tree, which does not have its name.
    pub(super) fn add_in_tree(
        &mut self,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Step<()> {
        let inode = self.inode(dir)?;
        let needed = record_len(name.len());
        let path = walk(self, inode, |hasher| hasher.hash(name).major)?;
        let (at, block) = dir_block(self, inode, path.leaf)?;
        if let Some(offset) = find_gap_in(&block, area(&self.volume().sb, inode), at, needed)? {
            return self.put_entry(dir, &Gap { at, offset }, name, ino, kind);
        }
        let at = self.split_leaf(dir, &path)?;
        let inode = self.inode(dir)?;
        let block = self.block_of(at, Kind::Dir(inode.seed))?;
        let area = area(&self.volume().sb, inode);
        let Some(offset) = find_gap_in(&block, area, at, needed)? else {
            return Err(Error::corrupt("directory", at, "a leaf without names", "some").into());
        };
        self.put_entry(dir, &Gap { at, offset }, name, ino, kind)
    }

    /// Makes a directory of one block one with a tree (`make_indexed_dir`).
    pub(super) fn make_index(&mut self, dir: Ino) -> Step<()> {
        let inode = self.inode(dir)?.clone();
        let sb = &self.volume().sb;
        let version = default_version(sb);
        let (at, mut block) = dir_block(self, &inode, 0)?;
        let first = record_len(1);
        let hasher = tree::hasher(sb, version, at)?;
        let names = records(sb.bytes(&block), first + 1, at, &hasher)?;
        let packed = packed(&names, area(sb, &inode), sb.block_size as usize);
        self.append_block(dir, packed, None)?;
        let bytes = sb.bytes_mut(&mut block);
        let keep = first + record_len(2);
        bytes[keep..].fill(0);
        let rest = (bytes.len() - first) as u16;
        bytes[first + 4..first + 6].copy_from_slice(&rest.to_le_bytes());
        htree::emit_info(bytes, version, 0);
        self.write_index(dir, (at, block), Place::Root, &[Entry { hash: 0, block: 1 }])?;
        let raw = &mut self.inode_mut(dir)?.raw;
        raw.flags = (raw.flags() | Flags::INDEX).bits().into();
        Ok(())
    }

    /// Moves the upper half of a leaf to a new one (`do_split`). The block that names with the
    /// path's hash go to.
    fn split_leaf(&mut self, dir: Ino, path: &Path) -> Step<FsBlock> {
        let inode = self.inode(dir)?.clone();
        let (at, block) = dir_block(self, &inode, path.leaf)?;
        let sb = &self.volume().sb;
        let size = sb.block_size as usize;
        let mut lower = records(sb.bytes(&block), 0, at, &path.hasher)?;
        if lower.len() < 2 {
            return Err(Error::corrupt("directory", at, "a full leaf of one name", "more").into());
        }
        lower.sort_by_key(|record| record.hash);
        let upper = lower.split_off(split_point(&lower, size));
        let first = upper.first().map_or(0, |record| record.hash);
        let continues = lower.last().is_some_and(|record| record.hash == first);
        let packed = |records: &[Record]| packed(records, area(sb, &inode), size);
        self.seal_and_put(at, packed(&lower), inode.seed, None);
        let new = self.append_block(dir, packed(&upper), None)?;
        let child = Entry { hash: first | u32::from(continues), block: new.0 };
        self.insert_child(dir, path, path.levels.len() - 1, child)?;
        Ok(if path.hash >= first { new.1 } else { at })
    }

    /// Puts a child behind the one that the way goes through at `depth`.
    fn insert_child(&mut self, dir: Ino, path: &Path, depth: usize, new: Entry) -> Step<()> {
        let inode = self.inode(dir)?;
        let (level, sums) = (&path.levels[depth], inode.seed.is_some());
        let sb = &self.volume().sb;
        let mut entries: Vec<Entry> = level.node(sb, inode)?.entries().collect();
        entries.insert(level.slot + 1, new);
        let node = (level.at, level.block.clone());
        if entries.len() <= htree::limit(level.place, sb.block_size as usize, sums).into() {
            return self.write_index(dir, node, level.place, &entries);
        }
        let Some(above) = depth.checked_sub(1) else {
            return self.deepen(dir, path, node, &entries);
        };
        let right = entries.split_off(entries.len() / 2);
        self.write_index(dir, node, Place::Node, &entries)?;
        let hash = right[0].hash;
        let block = self.append_node(dir, &right)?;
        self.insert_child(dir, path, above, Entry { hash, block })
    }

    /// Moves the root's entries to a node of their own.
    fn deepen(
        &mut self,
        dir: Ino,
        path: &Path,
        (at, mut root): (FsBlock, Block),
        entries: &[Entry],
    ) -> Step<()> {
        let levels = path.levels.len() as u8;
        if levels > deepest(&self.volume().sb) {
            // As the kernel: the index is full.
            return Err(Error::NoSpace.into());
        }
        let child = self.append_node(dir, entries)?;
        let bytes = self.volume().sb.bytes_mut(&mut root);
        let info = htree::info(bytes, levels, at)?;
        htree::emit_info(bytes, info.hash_version, levels);
        self.write_index(dir, (at, root), Place::Root, &[Entry { hash: 0, block: child }])
    }

    /// Adds a node to the directory; which of its blocks that is.
    fn append_node(&mut self, dir: Ino, entries: &[Entry]) -> Step<FileBlock> {
        let sums = self.inode(dir)?.seed.is_some();
        let mut block = Block::zeroed();
        let bytes = self.volume().sb.bytes_mut(&mut block);
        dirent::emit(bytes, 0, bytes.len(), 0, 0, b"");
        htree::emit_entries(bytes, Place::Node, sums, entries);
        Ok(self.append_block(dir, block, Some(Place::Node))?.0)
    }

    fn write_index(
        &mut self,
        dir: Ino,
        (at, mut block): (FsBlock, Block),
        place: Place,
        entries: &[Entry],
    ) -> Step<()> {
        let seed = self.inode(dir)?.seed;
        let bytes = self.volume().sb.bytes_mut(&mut block);
        htree::emit_entries(bytes, place, seed.is_some(), entries);
        self.seal_and_put(at, block, seed, Some(place));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: usize) -> Record {
        Record { hash: 0, ino: 12, file_type: 1, name: vec![b'n'; len] }
    }

    #[test]
    fn halves_are_halves_of_bytes() {
        let of = |lens: &[usize]| {
            let records: Vec<_> = lens.iter().map(|len| record(*len)).collect();
            split_point(&records, 4096)
        };
        assert_eq!(of(&[250; 16]), 8);
        assert_eq!(of(&[8; 4]), 2, "all of them fit one half");
        // 14 short names and 15 long ones: the long ones fill more than half.
        let mixed: Vec<usize> = [[8; 14].as_slice(), &[250; 15]].concat();
        assert_eq!(of(&mixed), 21);
        let block = packed(&[record(8), record(9)], 4084, 4096);
        let hasher = Hasher::new(1, false, [0; 4]).unwrap();
        let back = records(&block[..], 0, 0, &hasher);
        let names: Vec<usize> = back.unwrap_or_default().iter().map(|r| r.name.len()).collect();
        assert_eq!(names, [8, 9]);
    }
}
