//! Inodes that a volume must have, for one that has lost its own: a root directory, empty but for
//! `lost+found` to come, and quota files, which the repair fills with what it has counted.

use drive::Block;
use vfs::FileKind;

use super::{Checker, Place, Search};
use crate::dir::entries::init_dots;
use crate::ondisk::dentry::DentryGeometry;
use crate::ondisk::inode::{
    DEFAULT_INLINE_XATTR_SLOTS, EXTRA_ISIZE, FileFlags, Inline, InodeLayout, RawInodeBlock,
};
use crate::ondisk::nat::NatEntry;
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCK_SIZE, NEW_ADDR, Nid};

impl Checker {
    /// Makes a root directory if even a search of all blocks found none.
    pub(super) fn mend_root(&mut self) {
        self.make_if_lost(self.volume.sb.root_ino, "root directory", empty_root);
    }

    /// Makes a quota file if even a search of all blocks found none.
    pub(super) fn mend_quota_inode(&mut self, ino: Nid) {
        self.make_if_lost(ino, "quota inode", |sb| empty_quota_file(sb, ino));
    }

    fn make_if_lost(&mut self, ino: Nid, what: &'static str, make: impl Fn(&Superblock) -> Block) {
        if self.locate_node(ino, ino, 0).is_some() || !self.searched(Search::Everything) {
            return;
        }
        self.find(Place::Inode { ino }, what, "none", "one; made anew, empty");
        self.set_nat(ino, NatEntry { version: 0, ino, addr: NEW_ADDR });
        let block = make(&self.volume.sb);
        self.put_node(ino, ino, block);
    }
}

/// The inode of a volume's first day: with space for attributes in it, and no blocks.
fn inode(sb: &Superblock, ino: Nid, mode: u16, links: u32) -> ([u8; BLOCK_SIZE], InodeLayout) {
    let extra = if sb.features.contains(Features::EXTRA_ATTR) { EXTRA_ISIZE } else { 0 };
    let mut bytes = [0; BLOCK_SIZE];
    let inode = RawInodeBlock::of_mut(&mut bytes);
    inode.footer = RawNodeFooter::new(ino, ino, 0);
    let i = &mut inode.i;
    i.mode.set(mode);
    let mut inline = Inline::XATTR;
    inline.set(Inline::EXTRA_ATTR, extra > 0);
    i.set_inline(inline);
    i.links.set(links);
    i.blocks.set(1);
    if let Some(extra_attr) = i.extra_mut() {
        extra_attr.extra_isize.set(extra);
        if sb.features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            extra_attr.inline_xattr_size.set(DEFAULT_INLINE_XATTR_SLOTS);
        }
    }
    (bytes, InodeLayout::new(extra, DEFAULT_INLINE_XATTR_SLOTS))
}

fn empty_root(sb: &Superblock) -> Block {
    let root = sb.root_ino;
    let mode = FileKind::Directory.mode_bits() as u16 | 0o755;
    let (mut bytes, layout) = inode(sb, root, mode, 2);
    let i = &mut RawInodeBlock::of_mut(&mut bytes).i;
    i.set_inline(i.inline() | Inline::DENTRY);
    i.size.set(layout.inline_capacity() as u64);
    i.current_depth.set(1);
    i.flags.set(FileFlags::INDEX.bits());
    let geometry: DentryGeometry = layout.inline_dentries();
    init_dots(geometry, &mut bytes[layout.inline_range()], root, root);
    Block::new(bytes)
}

fn empty_quota_file(sb: &Superblock, ino: Nid) -> Block {
    let (mut bytes, _) = inode(sb, ino, FileKind::Regular.mode_bits() as u16 | 0o600, 1);
    RawInodeBlock::of_mut(&mut bytes).i.flags.set(FileFlags::IMMUTABLE.bits());
    Block::new(bytes)
}
