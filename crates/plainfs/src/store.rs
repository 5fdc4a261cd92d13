//! Puts the tree in memory where it belongs on the drive. [`Disk::write`] then writes it.

use std::collections::BTreeMap;

use drive::{BLOCK_SIZE, Block};
use vfs::kind::{PageAt, Volume};
use vfs::path::{read_dir, walk};
use vfs::{Attr, FileKind, FileSystem, Ino, MemFs, Result};
use zerocopy::IntoBytes;

use crate::disk::Disk;
use crate::ondisk::{RawInode, nanos, push_entry};

/// Puts everything, and frees the inodes that lost their last name.
pub(crate) fn store_all(disk: &mut Disk, memory: &MemFs) -> Result<()> {
    let inodes = disk.stored.keys().filter(|(_, slot)| *slot == 0).map(|(ino, _)| *ino);
    let is_gone = |ino: &Ino| memory.getattr(*ino).map_or(true, |attr| attr.nlink == 0);
    let gone: Vec<Ino> = inodes.filter(is_gone).collect();
    gone.into_iter().try_for_each(|ino| disk.keep(ino, |_| false))?;
    store(disk, memory, memory.root())?;
    walk(memory, memory.root(), &mut |_, attr| store(disk, memory, attr.ino))
}

/// Puts one inode and its contents.
pub(crate) fn store(disk: &mut Disk, memory: &MemFs, ino: Ino) -> Result<()> {
    let attr = memory.getattr(ino)?;
    let (size, mut blocks) = contents(disk, memory, &attr)?;
    let raw = RawInode {
        mode: (attr.kind.mode_bits() | u32::from(attr.perm)).into(),
        nlink: attr.nlink.into(),
        uid: attr.uid.into(),
        gid: attr.gid.into(),
        rdev: attr.rdev.into(),
        size: size.into(),
        atime: nanos(attr.atime),
        mtime: nanos(attr.mtime),
        ctime: nanos(attr.ctime),
    };
    blocks.insert(0, Block::from_prefix(raw.as_bytes()));
    disk.keep(ino, |slot| blocks.contains_key(slot))?;
    for (slot, block) in blocks {
        let lba = disk.block_of(ino, slot)?;
        disk.put(lba, block);
    }
    Ok(())
}

/// How long an inode is, and what its blocks should hold, by slot.
fn contents(disk: &mut Disk, memory: &MemFs, attr: &Attr) -> Result<(u64, BTreeMap<u64, Block>)> {
    let (mut bytes, mut blocks) = (Vec::new(), BTreeMap::new());
    match attr.kind {
        FileKind::Regular => {
            memory.pages(attr.ino, 0..attr.size.div_ceil(BLOCK_SIZE as u64), &mut |page, at| {
                if let PageAt::Memory(block) = at {
                    blocks.insert(page + 1, block.clone());
                }
            })?;
            return Ok((attr.size, blocks));
        }
        FileKind::Directory => {
            for entry in read_dir(memory, attr.ino)? {
                push_entry(&mut bytes, disk.block_of(entry.ino, 0)?, &entry.name);
            }
        }
        FileKind::Symlink => bytes = memory.readlink(attr.ino)?,
        _ => {}
    }
    blocks.extend((1..).zip(bytes.chunks(BLOCK_SIZE).map(Block::from_prefix)));
    Ok((bytes.len() as u64, blocks))
}
