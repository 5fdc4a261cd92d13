//! The checks that an inode must pass before its fields are read without any.

use vfs::{Corrupt, FileKind};

use super::{
    EXTRA_ISIZE, FileFlags, Inline, InodeLayout, MAX_DIR_DEPTH, MAX_INLINE_XATTR_SLOTS,
    MIN_INLINE_XATTR_SLOTS, RawInodeBlock,
};
use crate::error::{Error, Result};
use crate::ondisk::compress::Compression;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BlockAddr, NAME_MAX, Nid};

impl RawInodeBlock {
    /// Checks the inode that was read from block `at` as node `ino`, and says how its slots are
    /// used.
    pub fn check(&self, sb: &Superblock, ino: Nid, at: BlockAddr) -> Result<InodeLayout> {
        self.footer.check(ino, ino, at)?;
        if self.footer.node_offset() != 0 {
            return Err(Error::corrupt("inode's node offset", at, self.footer.node_offset(), 0));
        }
        let layout = self.check_layout(sb, at)?;
        self.check_checksum(sb, at)?;
        self.check_fields(sb, ino, at)?;
        self.check_inline(&layout, at)?;
        Ok(layout)
    }

    fn check_layout(&self, sb: &Superblock, at: BlockAddr) -> Result<InodeLayout> {
        let extra = self.i.extra();
        let features = sb.features;
        if extra.is_some() && !features.contains(Features::EXTRA_ATTR) {
            return Err(Error::corrupt("inode.i_inline", at, "extra_attr", "feature extra_attr"));
        }
        if extra.is_none() && features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            return Err(Error::corrupt("inode.i_inline", at, "no extra_attr", "extra_attr"));
        }
        let isize = extra.map_or(0, |extra| extra.extra_isize.get());
        if isize > EXTRA_ISIZE || !isize.is_multiple_of(4) || extra.is_some() && isize < 4 {
            let allowed = "4..=36, multiple of 4";
            return Err(Error::corrupt("inode.i_extra_isize", at, isize, allowed));
        }
        let xattr = self.i.inline_xattr_slots(features);
        let min = if self.i.inline().contains(Inline::XATTR) { MIN_INLINE_XATTR_SLOTS } else { 0 };
        if !(min..=MAX_INLINE_XATTR_SLOTS).contains(&xattr) {
            let allowed = format!("{min}..={MAX_INLINE_XATTR_SLOTS}");
            return Err(Error::corrupt("inode.i_inline_xattr_size", at, xattr, allowed));
        }
        let cluster = self.compression(sb, at)?.map_or(0, Compression::cluster);
        Ok(InodeLayout { cluster, ..InodeLayout::new(isize, xattr) })
    }

    /// How the file is compressed, if it can be (`sanity_check_compress_inode`).
    pub fn compression(&self, sb: &Superblock, at: BlockAddr) -> Result<Option<Compression>> {
        let compressed = self.i.file_flags().contains(FileFlags::COMPR)
            && self.i.kind() == Some(FileKind::Regular)
            && sb.features.contains(Features::COMPRESSION);
        if !compressed {
            return Ok(None);
        }
        match self.i.extra().filter(|_| self.i.extra_fits(EXTRA_ISIZE)) {
            Some(extra) => Compression::decode(extra, self.i.blocks.get(), at).map(Some),
            None => Err(Error::corrupt("inode.i_flags", at, "compressed", "compression fields")),
        }
    }

    fn check_fields(&self, sb: &Superblock, ino: Nid, at: BlockAddr) -> Result<()> {
        let i = &self.i;
        let Some(kind) = i.kind() else {
            return Err(Error::corrupt("inode.i_mode", at, format!("{:o}", i.mode), "a file type"));
        };
        if i.blocks.get() == 0 || i.blocks.get() > u64::from(sb.main_blocks()) {
            let allowed = format!("1..={}", sb.main_blocks());
            return Err(Error::corrupt("inode.i_blocks", at, i.blocks.get(), allowed));
        }
        if i.namelen.get() as usize > NAME_MAX {
            return Err(Error::corrupt("inode.i_namelen", at, i.namelen.get(), "0..=255"));
        }
        if kind == FileKind::Directory && i.current_depth.get() > MAX_DIR_DEPTH + 1 {
            let found = i.current_depth.get();
            return Err(Error::corrupt("inode.i_current_depth", at, found, "0..=64"));
        }
        for nid in i.nid.iter().chain([&i.xattr_nid]).map(|nid| nid.get()) {
            if nid != 0 && (!sb.is_node_id(nid) || nid == ino) {
                let allowed = format!("0, 3..{} but not {ino}", sb.max_nid());
                return Err(Error::corrupt("inode.i_nid", at, nid, allowed));
            }
        }
        let (start, len) = (i.ext.blk.get(), i.ext.len.get());
        if len != 0 {
            let end = start.checked_add(len - 1);
            if !sb.in_main(start) || !end.is_some_and(|end| sb.in_main(end)) {
                let found = format!("{len} blocks from {start:#x}");
                return Err(Error::corrupt("inode.i_ext", at, found, "within the main area"));
            }
        }
        if i.file_flags().contains(FileFlags::CASEFOLD)
            && (kind != FileKind::Directory || !sb.features.contains(Features::CASEFOLD))
        {
            return Err(Error::corrupt("inode.i_flags", at, "casefold", "casefold volume's dir"));
        }
        Ok(())
    }

    fn check_inline(&self, layout: &InodeLayout, at: BlockAddr) -> Result<()> {
        let (inline, kind) = (self.i.inline(), self.i.kind());
        let data = matches!(kind, Some(FileKind::Regular | FileKind::Symlink))
            && self.i.size.get() <= layout.inline_capacity() as u64;
        let wrong_data = inline.contains(Inline::DATA) && !data;
        let wrong_dentry = inline.contains(Inline::DENTRY) && kind != Some(FileKind::Directory);
        if wrong_data || wrong_dentry {
            let found =
                format!("{:#x}, mode {:o}, size {}", self.i.inline, self.i.mode, self.i.size);
            return Err(Error::corrupt("inode.i_inline", at, found, "inline bits that fit"));
        }
        let inline_content = inline.intersects(Inline::DATA | Inline::DENTRY);
        let reserved = self.i.addr[layout.slot(0)].get();
        if inline_content && reserved != 0 {
            return Err(Error::corrupt("inode.i_addr[0] of inline content", at, reserved, 0));
        }
        Ok(())
    }

    fn check_checksum(&self, sb: &Superblock, at: BlockAddr) -> Result<()> {
        if !self.has_checksum(sb) {
            return Ok(());
        }
        let found = self.i.extra_bytes().inode_checksum.get();
        let allowed = self.compute_checksum(sb);
        if found != allowed {
            let (found, allowed) = (format!("{found:#010x}"), format!("{allowed:#010x}"));
            let wrong = Corrupt::checksum("inode.i_inode_checksum", at, found, allowed);
            return Err(Error::Corrupt(wrong));
        }
        Ok(())
    }
}
