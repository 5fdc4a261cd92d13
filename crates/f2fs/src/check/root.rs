//! A root directory for a volume that has lost its own. It is empty, for `lost+found`.

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
use crate::ondisk::{BLOCK_SIZE, NEW_ADDR};

impl Checker {
    /// Makes a root directory if even a search of all blocks found none.
    pub(super) fn mend_root(&mut self) {
        let root = self.volume.sb.root_ino;
        if self.locate_node(root, root, 0).is_some() || !self.searched(Search::Everything) {
            return;
        }
        self.find(Place::Inode { ino: root }, "root directory", "none", "one; made anew, empty");
        self.set_nat(root, NatEntry { version: 0, ino: root, addr: NEW_ADDR });
        let block = empty_root(&self.volume.sb);
        self.put_node(root, root, block);
    }
}

fn empty_root(sb: &Superblock) -> Block {
    let root = sb.root_ino;
    let extra = if sb.features.contains(Features::EXTRA_ATTR) { EXTRA_ISIZE } else { 0 };
    let layout = InodeLayout::new(extra, DEFAULT_INLINE_XATTR_SLOTS);
    let mut bytes = [0; BLOCK_SIZE];
    let inode = RawInodeBlock::of_mut(&mut bytes);
    inode.footer = RawNodeFooter::new(root, root, 0);
    let i = &mut inode.i;
    i.mode.set(FileKind::Directory.mode_bits() as u16 | 0o755);
    let mut inline = Inline::DENTRY | Inline::XATTR;
    inline.set(Inline::EXTRA_ATTR, extra > 0);
    i.set_inline(inline);
    i.links.set(2);
    i.blocks.set(1);
    i.size.set(layout.inline_capacity() as u64);
    i.current_depth.set(1);
    i.flags.set(FileFlags::INDEX.bits());
    if let Some(extra_attr) = i.extra_mut() {
        extra_attr.extra_isize.set(extra);
        if sb.features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            extra_attr.inline_xattr_size.set(DEFAULT_INLINE_XATTR_SLOTS);
        }
    }
    let geometry: DentryGeometry = layout.inline_dentries();
    init_dots(geometry, &mut bytes[layout.inline_range()], root, root);
    Block::new(bytes)
}
