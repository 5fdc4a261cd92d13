//! Reads everything that a volume says about itself, and what of it cannot be so.
//!
//! A mount stops at the first finding; a check goes on to compare. Counts are checked before they
//! are believed: no table makes this loop, recurse or take more memory than the volume has blocks.

use std::collections::{BTreeMap, BTreeSet};

use drive::{BLOCK_SIZE, Lba};
use vfs::FileKind;
use vfs::kind::Finding;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::disk::Disk;
use crate::ondisk::{PAGES_MAX, POINTERS, ROOT, RawEntry, RawInode, first_below, page_of, wrong};

/// An inode in use.
pub(crate) struct Node {
    pub(crate) raw: RawInode,
    pub(crate) kind: FileKind,
    /// Its blocks, by page.
    pub(crate) pages: BTreeMap<u64, Lba>,
    /// What a directory or symbolic link holds.
    pub(crate) bytes: Vec<u8>,
    /// Names in a directory, and their inodes.
    pub(crate) entries: Vec<(Vec<u8>, u32)>,
}

/// What there is.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) nodes: BTreeMap<u32, Node>,
    /// Directories from the root on, parents first.
    pub(crate) directories: Vec<u32>,
    /// How many links lead to each inode.
    pub(crate) links: BTreeMap<u32, u32>,
    /// Values that cannot be.
    pub(crate) findings: Vec<Finding>,
}

impl Survey {
    /// Reads inodes, pointers and directories.
    pub(crate) fn new(disk: &mut Disk) -> Self {
        let (mut all, mut room) = (Self::default(), disk.geometry.data_blocks());
        for number in disk.taken.clone() {
            match Node::read(disk, number, &mut room) {
                Ok(node) => drop(all.nodes.insert(number, node)),
                Err(finding) => all.findings.push(finding),
            }
        }
        all.walk();
        all
    }

    /// Follows the names from the root on. A directory has one, a link by its `.` and one by each
    /// `..` in it.
    fn walk(&mut self) {
        let Self { nodes, directories, links, findings } = self;
        if nodes.get(&ROOT).is_none_or(|root| root.kind != FileKind::Directory) {
            findings.push(wrong(ROOT, "root", "something else", "a directory"));
            return;
        }
        let mut ahead = vec![ROOT];
        links.insert(ROOT, 2);
        while let Some(dir) = ahead.pop() {
            directories.push(dir);
            for (_, number) in &nodes[&dir].entries {
                match nodes.get(number).map(|node| node.kind) {
                    None => {
                        let found = format!("inode {number}");
                        findings.push(wrong(dir, "entry", found, "an inode that is in use"));
                    }
                    Some(FileKind::Directory) if links.contains_key(number) => {
                        findings.push(wrong(*number, "names", "another one", "one of a directory"));
                    }
                    Some(FileKind::Directory) => {
                        ahead.push(*number);
                        links.insert(*number, 2);
                        *links.entry(dir).or_default() += 1;
                    }
                    Some(_) => *links.entry(*number).or_default() += 1,
                }
            }
        }
    }
}

impl Node {
    /// Reads an inode; `room` is how many more blocks there can be on this volume.
    fn read(disk: &mut Disk, number: u32, room: &mut u64) -> Result<Self, Finding> {
        let raw = disk.table[number as usize];
        let kind = raw.check(number)?;
        let mut pages = BTreeMap::new();
        let mut add = |disk: &Disk, page: u64, pointer: &U32| {
            let (lba, geometry) = (Lba::from(pointer.get()), disk.geometry);
            let allowed = match *room {
                _ if lba == 0 => return Ok(0),
                0 => "no more blocks than the volume has".into(),
                _ if (geometry.data..geometry.blocks).contains(&lba) => {
                    *room -= 1;
                    pages.insert(page, lba);
                    return Ok(lba);
                }
                _ => format!("{:#x} to {:#x}", geometry.data, geometry.blocks - 1),
            };
            Err(wrong(number, "pointer", format!("{lba:#x}"), allowed))
        };
        let read = |disk: &mut Disk, lba| {
            disk.read(lba).map_err(|error| wrong(number, "block", error, "one that can be read"))
        };
        for (i, pointer) in raw.pointers.iter().enumerate() {
            let page = page_of(i);
            let lba = add(disk, page, pointer)?;
            if lba != 0 && page >= PAGES_MAX {
                let block = read(disk, lba)?;
                let list = <[U32; POINTERS]>::ref_from_bytes(&block[..]).expect("sizes are equal");
                for (page, pointer) in (first_below(page)..).zip(list) {
                    add(disk, page, pointer)?;
                }
            }
        }
        let (size, mut bytes) = (raw.size.get(), Vec::new());
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            for page in 0..size.div_ceil(BLOCK_SIZE as u64) {
                let lba = pages.get(&page).ok_or_else(|| {
                    wrong(number, "pointer", 0, format!("a block for page {page}"))
                })?;
                bytes.extend_from_slice(&read(disk, *lba)?[..]);
            }
            bytes.truncate(size as usize);
        }
        let entries = if kind == FileKind::Directory { entries(number, &bytes)? } else { vec![] };
        Ok(Self { raw, kind, pages, bytes, entries })
    }
}

fn entries(dir: u32, bytes: &[u8]) -> Result<Vec<(Vec<u8>, u32)>, Finding> {
    let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
    for raw in bytes.chunks_exact(size_of::<RawEntry>()) {
        let raw = RawEntry::ref_from_bytes(raw).expect("sizes are equal");
        let name = raw.name.get(..usize::from(raw.len.get())).unwrap_or_default();
        let can_be = (1..=vfs::path::NAME_MAX).contains(&name.len())
            && !matches!(name, b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if raw.ino.get() != 0 {
            if !can_be || !names.insert(name) {
                let found = format!("{:?}", String::from_utf8_lossy(name));
                return Err(wrong(dir, "name", found, "one that can be, and only once"));
            }
            entries.push((name.to_vec(), raw.ino.get()));
        }
    }
    Ok(entries)
}
