//! The tree in memory: built from the tables at mount, and written back to them.

use std::collections::{BTreeMap, BTreeSet};

use drive::{BLOCK_SIZE, Block, Lba};
use vfs::kind::{PageAt, Volume};
use vfs::path::{read_dir, walk};
use vfs::{Attr, Creator, FileKind, FileSystem, Ino, MemFs, Result, SetAttr};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::disk::{Disk, Stored};
use crate::ondisk::{
    POINTERS, ROOT, RawEntry, RawInode, first_below, indirect_of, nanos, page_of, time,
};
use crate::survey::{Node, Survey};

/// Makes what the survey found. It has no findings.
pub(crate) fn load(disk: &mut Disk, mut survey: Survey, memory: &MemFs) -> Result<()> {
    let mut made = BTreeMap::from([(ROOT, memory.root())]);
    for dir in &survey.directories {
        let parent = made[dir];
        for (name, number) in &survey.nodes[dir].entries {
            match made.get(number) {
                Some(&ino) => drop(memory.link(ino, parent, name)?),
                None => {
                    let ino = make(disk, memory, parent, name, &survey.nodes[number])?;
                    made.insert(*number, ino);
                }
            }
        }
    }
    // At the end: a new name would change its directory's times.
    for (number, ino) in made {
        let Some(Node { raw, pages, kind, .. }) = survey.nodes.remove(&number) else { continue };
        let set = SetAttr {
            perm: Some(raw.perm()),
            uid: Some(raw.uid.get()),
            gid: Some(raw.gid.get()),
            size: (kind == FileKind::Regular).then_some(raw.size.get()),
            atime: Some(time(raw.atime)),
            mtime: Some(time(raw.mtime)),
            ctime: Some(time(raw.ctime)),
        };
        memory.setattr(ino, &set)?;
        disk.stored.insert(ino, Stored { number, pages });
    }
    Ok(())
}

fn make(disk: &mut Disk, memory: &MemFs, parent: Ino, name: &[u8], node: &Node) -> Result<Ino> {
    let (Node { raw, kind, pages, bytes, .. }, who) = (node, Creator::default());
    Ok(match kind {
        FileKind::Directory => memory.mkdir(parent, name, 0, who)?.ino,
        FileKind::Symlink => memory.symlink(parent, name, bytes, who)?.ino,
        FileKind::Regular => {
            let ino = memory.create(parent, name, 0, who)?.ino;
            for (page, &lba) in pages.range(..raw.size.get().div_ceil(BLOCK_SIZE as u64)) {
                let (block, at) = (disk.read(lba)?, page * BLOCK_SIZE as u64);
                let len = (raw.size.get() - at).min(BLOCK_SIZE as u64) as usize;
                vfs::path::write_all(memory, ino, at, &block[..len])?;
            }
            memory.pages(ino, 0..u64::MAX, &mut |page, at| {
                if let (PageAt::Memory(block), Some(&lba)) = (at, pages.get(&page)) {
                    disk.share(lba, block);
                }
            })?;
            ino
        }
        _ => memory.mknod(parent, name, *kind, 0, raw.rdev.get(), who)?.ino,
    })
}

/// Puts one inode and its contents where they belong; nothing is written yet.
pub(crate) fn store(disk: &mut Disk, memory: &MemFs, ino: Ino) -> Result<()> {
    let attr = memory.getattr(ino)?;
    let (size, blocks) = contents(disk, memory, &attr)?;
    let number = disk.number_of(ino)?;
    let mut pages = disk.stored.remove(&ino).unwrap_or_default().pages;
    let placed = put_pages(disk, &mut pages, &blocks);
    let mut raw = RawInode {
        mode: (attr.kind.mode_bits() | u32::from(attr.perm)).into(),
        nlink: attr.nlink.into(),
        uid: attr.uid.into(),
        gid: attr.gid.into(),
        rdev: attr.rdev.into(),
        size: size.into(),
        atime: nanos(attr.atime),
        mtime: nanos(attr.mtime),
        ctime: nanos(attr.ctime),
        ..RawInode::new_zeroed()
    };
    for (i, pointer) in raw.pointers.iter_mut().enumerate() {
        pointer.set(pages.get(&page_of(i)).map_or(0, |&lba| lba as u32));
    }
    disk.stored.insert(ino, Stored { number, pages });
    placed?;
    disk.set_inode(number, raw);
    Ok(())
}

/// Puts everything, and frees the inodes that lost their last name.
pub(crate) fn store_all(disk: &mut Disk, memory: &MemFs) -> Result<()> {
    let is_gone = |ino: &Ino| memory.getattr(*ino).map_or(true, |attr| attr.nlink == 0);
    let gone: Vec<Ino> = disk.stored.keys().copied().filter(is_gone).collect();
    gone.into_iter().for_each(|ino| disk.forget(ino));
    store(disk, memory, memory.root())?;
    walk(memory, memory.root(), &mut |_, attr| store(disk, memory, attr.ino))
}

/// How long an inode is, and what its blocks should hold.
fn contents(disk: &mut Disk, memory: &MemFs, attr: &Attr) -> Result<(u64, BTreeMap<u64, Block>)> {
    let (mut bytes, mut blocks) = (Vec::new(), BTreeMap::new());
    match attr.kind {
        FileKind::Regular => {
            let pages = 0..attr.size.div_ceil(BLOCK_SIZE as u64);
            memory.pages(attr.ino, pages, &mut |page, at| {
                if let PageAt::Memory(block) = at {
                    blocks.insert(page, block.clone());
                }
            })?;
            return Ok((attr.size, blocks));
        }
        FileKind::Directory => {
            for entry in read_dir(memory, attr.ino)? {
                let mut raw = RawEntry::new_zeroed();
                raw.ino.set(disk.number_of(entry.ino)?);
                raw.len.set(entry.name.len() as u16);
                raw.name[..entry.name.len()].copy_from_slice(&entry.name);
                bytes.extend_from_slice(raw.as_bytes());
            }
        }
        FileKind::Symlink => bytes = memory.readlink(attr.ino)?,
        _ => {}
    }
    blocks.extend((0..).zip(bytes.chunks(BLOCK_SIZE).map(Block::from_prefix)));
    Ok((bytes.len() as u64, blocks))
}

/// Gives every page a block, the one it has or a new one, and frees what is left over.
fn put_pages(
    disk: &mut Disk,
    pages: &mut BTreeMap<u64, Lba>,
    blocks: &BTreeMap<u64, Block>,
) -> Result<()> {
    let indirect: BTreeSet<u64> = blocks.keys().filter_map(|page| indirect_of(*page)).collect();
    pages.retain(|page, lba| {
        let stays = blocks.contains_key(page) || indirect.contains(page);
        if !stays {
            disk.mark(*lba, false);
        }
        stays
    });
    for page in blocks.keys().chain(&indirect) {
        if !pages.contains_key(page) {
            pages.insert(*page, disk.allocate()?);
        }
    }
    blocks.iter().for_each(|(page, block)| disk.put(pages[page], block.clone()));
    for above in &indirect {
        let (first, mut list) = (first_below(*above), [U32::ZERO; POINTERS]);
        for (page, &lba) in pages.range(first..first + POINTERS as u64) {
            list[(page - first) as usize].set(lba as u32);
        }
        disk.put(pages[above], Block::from_prefix(list.as_bytes()));
    }
    Ok(())
}
