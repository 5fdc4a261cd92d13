//! Reads a volume into memory, and finds what in it cannot be and what disagrees.
//!
//! A block has one owner, so no volume makes this take more memory than it has blocks.

use std::collections::BTreeMap;

use drive::{BLOCK_SIZE, Block, Lba};
use vfs::kind::Finding;
use vfs::{Attr, Creator, FileKind, FileSystem, Ino, MemFs, Result, SetAttr};
use zerocopy::FromBytes;

use crate::disk::Disk;
use crate::ondisk::{RawInode, next_entry, time};

/// The most findings that are kept.
const FINDINGS_MAX: usize = 64;

/// A volume as it was read.
pub(crate) struct Loaded {
    pub(crate) memory: MemFs,
    /// The inodes that have names.
    pub(crate) inodes: BTreeMap<Lba, (Ino, RawInode)>,
    pub(crate) findings: Vec<Finding>,
    /// The first value that cannot be: such a volume must not be mounted.
    pub(crate) wrong: Option<Finding>,
    /// What the map says, by inode and slot.
    map: BTreeMap<(Lba, u64), Lba>,
}

/// An inode and what it holds.
struct Node {
    raw: RawInode,
    kind: FileKind,
    /// From the slots that have blocks.
    contents: Vec<(u64, Block)>,
    /// The same of a directory or symbolic link.
    bytes: Vec<u8>,
}

impl Loaded {
    pub(crate) fn new(disk: &mut Disk) -> Result<Self> {
        // A third for contents, a third for as many inodes, and a third for directories.
        let capacity = (disk.data.end - disk.data.start) / 3 * BLOCK_SIZE as u64;
        let mut all = Self {
            memory: MemFs::with_capacity(capacity).without_atime(),
            inodes: BTreeMap::new(),
            findings: Vec::new(),
            wrong: None,
            map: BTreeMap::new(),
        };
        for lba in disk.data.clone() {
            let owner = disk.owner(lba)?;
            if owner.inode != 0 {
                disk.free.remove(&lba);
                let other = all.map.insert((owner.inode.get(), owner.slot.get()), lba);
                if let Some(other) = other {
                    all.differs("block", lba, "owner", format!("as of {other:#x}"), "its own");
                }
            }
        }
        all.read_tree(disk)?;
        all.set_attributes()?;
        for ((inode, slot), lba) in std::mem::take(&mut all.map) {
            match all.inodes.get(&inode) {
                Some((ino, _)) => drop(disk.stored.insert((*ino, slot), lba)),
                None => all.differs("block", lba, "owner", format!("inode {inode:#x}"), "none"),
            }
        }
        Ok(all)
    }

    /// Something disagrees with something else.
    fn differs(
        &mut self,
        place: &str,
        lba: Lba,
        what: &'static str,
        found: impl ToString,
        allowed: impl ToString,
    ) {
        if self.findings.len() < FINDINGS_MAX {
            let place = format!("{place} {lba:#x}");
            self.findings.push(Finding::new(place, what, found, allowed));
        }
    }

    /// An inode holds a value that it must not.
    fn wrong(&mut self, lba: Lba, what: &'static str, found: impl ToString, allowed: &str) {
        let finding = Finding::new(format!("inode {lba:#x}"), what, found, allowed);
        self.wrong.get_or_insert_with(|| finding.clone());
        self.findings.push(finding);
        self.findings.truncate(FINDINGS_MAX);
    }

    /// Follows the names from the root on.
    fn read_tree(&mut self, disk: &mut Disk) -> Result<()> {
        let root = disk.data.start;
        let node = self.node(disk, root)?;
        let Some(node) = node.filter(|node| node.kind == FileKind::Directory) else {
            self.wrong(root, "root", "something else", "a directory");
            return Ok(());
        };
        self.inodes.insert(root, (self.memory.root(), node.raw));
        let mut ahead = vec![(root, node.bytes)];
        while let Some((dir, bytes)) = ahead.pop() {
            let (parent, mut rest) = (self.inodes[&dir].0, &bytes[..]);
            while !rest.is_empty() {
                let Some((lba, name, behind)) = next_entry(rest) else {
                    self.wrong(dir, "entry", "the end of the directory", "a whole entry");
                    break;
                };
                rest = behind;
                let made = if let Some((ino, _)) = self.inodes.get(&lba) {
                    self.memory.link(*ino, parent, name)
                } else if let Some(node) = self.node(disk, lba)? {
                    self.make(parent, name, &node).inspect(|attr| {
                        self.inodes.insert(lba, (attr.ino, node.raw));
                        ahead.extend(
                            (node.kind == FileKind::Directory).then_some((lba, node.bytes)),
                        );
                    })
                } else {
                    self.wrong(dir, "entry", format!("block {lba:#x}"), "an inode");
                    continue;
                };
                if let Err(error) = made {
                    let found = format!("{:?}: {error}", String::from_utf8_lossy(name));
                    self.wrong(dir, "name", found, "one that can be made");
                }
            }
        }
        Ok(())
    }

    /// Reads an inode and its contents. `None` if it is none.
    fn node(&mut self, disk: &mut Disk, lba: Lba) -> Result<Option<Node>> {
        if self.map.get(&(lba, 0)) != Some(&lba) {
            return Ok(None);
        }
        let block = disk.read(lba)?;
        let (raw, _) = RawInode::read_from_prefix(&block[..]).expect("an inode is shorter");
        let Some(kind) = FileKind::from_mode(raw.mode.get()) else {
            let found = format!("{:#o}", raw.mode);
            self.wrong(lba, "mode", found, "a type and permissions");
            return Ok(None);
        };
        let (mut contents, mut bytes) = (Vec::new(), Vec::new());
        for ((_, slot), lba) in self.map.range((lba, 1)..=(lba, u64::MAX)) {
            contents.push((*slot, disk.read(*lba)?));
        }
        let mut size_max = MemFs::FILE_SIZE_MAX;
        if kind != FileKind::Regular {
            bytes.extend(contents.iter().flat_map(|(_, block)| &block[..]));
            size_max = bytes.len() as u64;
        }
        if raw.size.get() > size_max {
            self.wrong(lba, "size", raw.size, &format!("at most {size_max}"));
            return Ok(None);
        }
        bytes.truncate(raw.size.get() as usize);
        Ok(Some(Node { raw, kind, contents, bytes }))
    }

    fn make(&self, parent: Ino, name: &[u8], node: &Node) -> Result<Attr> {
        let (memory, who) = (&self.memory, Creator::default());
        match node.kind {
            FileKind::Directory => memory.mkdir(parent, name, 0, who),
            FileKind::Symlink => memory.symlink(parent, name, &node.bytes, who),
            FileKind::Regular => {
                let attr = memory.create(parent, name, 0, who)?;
                for (slot, block) in &node.contents {
                    let offset = (slot - 1).saturating_mul(BLOCK_SIZE as u64);
                    memory.write(attr.ino, offset, &block[..])?;
                }
                Ok(attr)
            }
            kind => memory.mknod(parent, name, kind, 0, node.raw.rdev.get(), who),
        }
    }

    /// At the end, since a new name changes its directory's times.
    fn set_attributes(&mut self) -> Result<()> {
        for (lba, (ino, raw)) in self.inodes.clone() {
            let attr = self.memory.getattr(ino)?;
            let set = SetAttr {
                perm: Some((raw.mode.get() & 0o7777) as u16),
                uid: Some(raw.uid.get()),
                gid: Some(raw.gid.get()),
                size: (attr.kind == FileKind::Regular).then_some(raw.size.get()),
                atime: Some(time(raw.atime)),
                mtime: Some(time(raw.mtime)),
                ctime: Some(time(raw.ctime)),
            };
            self.memory.setattr(ino, &set)?;
            if attr.nlink != raw.nlink.get() {
                self.differs("inode", lba, "link count", raw.nlink, attr.nlink);
            }
        }
        Ok(())
    }
}
