//! Second pass: applying the fsynced nodes to the volume (`recover_data`, `do_recover_data`).

use cores::Stage;
use drive::Block;
use vfs::{FileKind, Ino};
use zerocopy::little_endian::U32;

use super::RecoveryReport;
use super::chain::{Chain, Link};
use crate::alloc::zones::Reach;
use crate::dir::entries::Names;
use crate::dir::namei::Namei;
use crate::dir::wanted::Naming;
use crate::error::{Error, Result};
use crate::inode::change::Change;
use crate::inode::mapping::{Difference, Lookup, Mapping};
use crate::mount::engine::Engine;
use crate::mount::options::Inject;
use crate::mount::quota::{Amount, Owner};
use crate::ondisk::inode::{Advise, Inline, InodeLayout, RawInode, RawInodeBlock};
use crate::ondisk::node::{
    FOOTER_OFFSET, NodeKind, RawDirectNode, RawNodeFooter, XATTR_NODE_OFFSET, first_index_of,
};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::{RawSummary, RawSummaryBlock};
use crate::ondisk::{BLOCK_SIZE, BlockAddr, NEW_ADDR, NULL_ADDR, Nid, is_data_addr};

/// Bits of `i_inline` that a later fsync may have changed.
const RECOVERED_INLINE: Inline = Inline::PIN_FILE.union(Inline::DATA_EXIST);

impl Engine {
    /// Finds and applies the chain. Returns how far it reaches, if there are zones.
    pub(super) fn roll_forward(&mut self, report: &mut RecoveryReport) -> Result<Option<Reach>> {
        if self.options.inject.contains(Inject::SKIP_ROLL_FORWARD) {
            return Ok(None);
        }
        let (mut links, end) = self.read_chain()?;
        report.scanned_nodes = links.len() as u64;
        let chain = self.survey(&mut links)?;
        report.skipped_inodes = chain.skipped.len() as u64;
        report.recovered_inodes = chain.inodes.len() as u64;
        let reach = self.reach(&links, end)?;
        let every = self.options.inject.contains(Inject::RECOVER_EVERY_VERSION);
        for link in chain.that_count(links, every) {
            self.replay(&link, &chain)?;
            report.replayed_nodes += 1;
        }
        Ok(reach)
    }

    /// Applies one node.
    fn replay(&mut self, link: &Link, chain: &Chain) -> Result<()> {
        let _span = cores::span(Stage::Recover);
        let ino = link.footer().ino.get();
        let fsynced = chain.inodes[&ino];
        if link.footer().is_inode() {
            let block = RawInodeBlock::of(&link.block);
            let layout = block.check(&self.sb, ino, link.addr)?;
            self.recover_attributes(ino, &block.i)?;
            if fsynced.last_dentry == Some(link.addr) {
                self.recover_dentry(ino, &block.i)?;
            }
            self.recover_inode_contents(ino, &link.block, &layout)?;
        } else {
            self.recover_contents(ino, link)?;
        }
        if fsynced.last == link.addr {
            self.cut_off_behind_end(ino)?;
        }
        Ok(())
    }

    /// Frees what lies behind the end of the file. The chain has no trace of the nodes that an
    /// fsynced truncation freed, so otherwise their blocks would never be freed.
    fn cut_off_behind_end(&mut self, ino: Nid) -> Result<()> {
        let inode = self.inode(ino)?;
        let keeps = inode.advise().contains(Advise::KEEP_SIZE)
            || inode.inline().intersects(Inline::DATA | Inline::DENTRY)
            || inode.file_kind() != FileKind::Regular;
        let blocks = inode.size.get().div_ceil(BLOCK_SIZE as u64);
        drop(inode);
        if keeps {
            return Ok(());
        }
        self.inodes.of(ino).pages.truncate(Ino::from(ino), blocks);
        self.truncate_blocks(ino, blocks)
    }

    /// Makes an inode that the checkpoint does not have, as empty as possible
    /// (`f2fs_recover_inode_page`).
    pub(super) fn revive_inode(&mut self, link: &Link) -> Result<()> {
        let ino = link.footer().ino.get();
        let raw = RawInodeBlock::of(&link.block);
        let layout = raw.check(&self.sb, ino, link.addr)?;
        if !self.nat.get_mut().reserve_exact(&self.io, ino)? {
            let entry = self.nat.get_mut().get(&self.io, ino)?;
            return Err(Error::corrupt("nat_entry of a new inode", link.addr, entry.addr, "free"));
        }
        self.space.take_node(true)?;
        self.quotas.take(Owner::of(&raw.i), Amount::INODE, self.quota_time())?;
        let mut bytes = [0; BLOCK_SIZE];
        let fixed = std::mem::offset_of!(RawInode, ext);
        bytes[..fixed].copy_from_slice(&link.block[..fixed]);
        let new = RawInodeBlock::of_mut(&mut bytes);
        new.footer = RawNodeFooter::new(ino, ino, 0);
        new.footer.set_cold(raw.i.kind() != Some(FileKind::Directory));
        new.i.set_inline(raw.i.inline() & (Inline::XATTR | Inline::EXTRA_ATTR));
        new.i.size.set(0);
        new.i.blocks.set(1);
        new.i.links.set(1);
        new.i.xattr_nid.set(0);
        if let (Some(to), Some(from)) = (new.i.extra_mut(), raw.i.extra()) {
            *to = *from;
        }
        self.nat.get_mut().set(&self.io, ino, ino, NEW_ADDR)?;
        self.inodes.of(ino).nodes.insert_new(ino, ino, Block::new(bytes), layout);
        Ok(())
    }

    /// Owner, size, times and flags (`recover_inode`).
    fn recover_attributes(&mut self, ino: Nid, from: &RawInode) -> Result<()> {
        self.move_quota(ino, Owner::of(from), false)?;
        let to = self.inode_mut(ino)?;
        to.mode = from.mode;
        to.uid = from.uid;
        to.gid = from.gid;
        to.size = from.size;
        (to.atime, to.atime_nsec) = (from.atime, from.atime_nsec);
        (to.ctime, to.ctime_nsec) = (from.ctime, from.ctime_nsec);
        (to.mtime, to.mtime_nsec) = (from.mtime, from.mtime_nsec);
        to.advise = from.advise;
        to.flags = from.flags;
        to.current_depth = from.current_depth;
        to.set_inline((to.inline() - RECOVERED_INLINE) | (from.inline() & RECOVERED_INLINE));
        if let (Some(into), Some(extra)) = (to.extra_mut(), from.extra()) {
            into.projid = extra.projid;
        }
        Ok(())
    }

    /// Gives a new inode its name. Whatever has that name now was replaced before the fsync.
    fn recover_dentry(&mut self, ino: Nid, from: &RawInode) -> Result<()> {
        let (dir, name) = (from.pino.get(), from.name().to_vec());
        let naming = self.naming(dir)?;
        let is_name = matches!(naming, Naming::Encrypted { .. }) || vfs::check_name(&name).is_ok();
        if !is_name || name == b"." || name == b".." {
            let found = String::from_utf8_lossy(&name).into_owned();
            return Err(Error::corrupt("inode.i_name of a new file", ino, found, "a file's name"));
        }
        let Some(wanted) = naming.stored(&name)? else {
            return Err(Error::unsupported(
                "recovering names in encrypted, casefolded directories",
            ));
        };
        if let Some(found) = self.find_wanted(dir, &wanted)? {
            if found.ino == ino {
                return Ok(());
            }
            self.drop_name(dir, found)?;
        }
        self.inode_mut(ino)?.set_name(dir, &name);
        let kind = from.kind().unwrap_or(FileKind::Regular);
        self.add_entry(dir, &name, ino, kind)?;
        // No fsync recorded when the entry was made, but the directory's times must show that it
        // has changed. Linux uses the time of recovery too.
        self.touch_dir(dir)
    }

    /// Restores the contents of an inode block, which agrees with `layout`.
    fn recover_inode_contents(
        &mut self,
        ino: Nid,
        from: &Block,
        layout: &InodeLayout,
    ) -> Result<()> {
        self.recover_inline_xattrs(ino, from, layout)?;
        if self.recover_inline_data(ino, from, layout)? {
            return Ok(());
        }
        let first = layout.slot(0);
        let wanted = &RawInodeBlock::of(from).i.addr[first..first + layout.addrs() as usize];
        self.recover_addresses(ino, 0, wanted)
    }

    /// Restores the contents of any other node.
    fn recover_contents(&mut self, ino: Nid, link: &Link) -> Result<()> {
        let offset = link.footer().node_offset();
        match NodeKind::of(offset) {
            Some(NodeKind::Direct) => {
                let addrs = self.layout(ino)?.addr_counts();
                let first = first_index_of(offset, addrs).unwrap_or(0);
                let wanted = &RawDirectNode::of(&link.block).addr;
                self.recover_addresses(ino, first, &wanted[..addrs.node as usize])
            }
            Some(NodeKind::Xattr) => self.recover_xattr_node(ino, link),
            _ => Err(Error::corrupt("node_footer.flag", link.addr, offset, "a direct node")),
        }
    }

    /// Restores attributes kept in the inode (`f2fs_recover_inline_xattr`).
    fn recover_inline_xattrs(
        &mut self,
        ino: Nid,
        from: &Block,
        layout: &InodeLayout,
    ) -> Result<()> {
        let raw = RawInodeBlock::of(from);
        let has = raw.i.inline().contains(Inline::XATTR);
        let to = self.inode_mut(ino)?;
        to.set_inline((to.inline() - Inline::XATTR) | (raw.i.inline() & Inline::XATTR));
        if has {
            let range = layout.xattr_range();
            self.node_mut(ino, ino)?[range.clone()].copy_from_slice(&from[range]);
        }
        Ok(())
    }

    /// Restores contents kept in the inode, in the old or in the new version
    /// (`f2fs_recover_inline_data`). True if nothing is left to do for the node; false if its
    /// addresses must still be applied.
    fn recover_inline_data(
        &mut self,
        ino: Nid,
        from: &Block,
        layout: &InodeLayout,
    ) -> Result<bool> {
        let raw = RawInodeBlock::of(from);
        let (was, is) = (self.has_inline_data(ino)?, raw.i.inline().contains(Inline::DATA));
        if is {
            if !was {
                self.truncate_blocks(ino, 0)?;
            }
            let range = layout.inline_range();
            self.node_mut(ino, ino)?[range.clone()].copy_from_slice(&from[range]);
            let to = self.inode_mut(ino)?;
            to.set_inline(to.inline() | Inline::DATA | raw.i.inline() & Inline::DATA_EXIST);
        } else if was {
            self.node_mut(ino, ino)?[layout.inline_range()].fill(0);
            let to = self.inode_mut(ino)?;
            to.set_inline(to.inline() - Inline::DATA - Inline::DATA_EXIST);
        }
        Ok(is)
    }

    /// Restores attributes kept in a node of their own, by copying them to a new node
    /// (`recover_xattr_data`).
    fn recover_xattr_node(&mut self, ino: Nid, link: &Link) -> Result<()> {
        let old = self.inode(ino)?.xattr_nid.get();
        if old != 0 {
            self.free_xattr_node(ino, old)?;
        }
        let nid = self.new_node(ino, XATTR_NODE_OFFSET)?;
        self.node_mut(ino, nid)?[..FOOTER_OFFSET].copy_from_slice(&link.block[..FOOTER_OFFSET]);
        self.inode_mut(ino)?.xattr_nid.set(nid);
        Ok(())
    }

    /// Makes the node's pointers the file's blocks from `first` on.
    fn recover_addresses(&mut self, ino: Nid, first: u64, wanted: &[U32]) -> Result<()> {
        let keep_size = self.inode(ino)?.advise().contains(Advise::KEEP_SIZE);
        // Most pointers are the same as in the node's previous version.
        for Difference { index, found: from, wanted: to } in self.differing(ino, first, wanted)? {
            self.inodes.of(ino).pages.drop_range(Ino::from(ino), index..index + 1);
            if from != NULL_ADDR
                && (to == NULL_ADDR || to == NEW_ADDR)
                && let Lookup::Slot(slot) = self.lookup_slot(ino, index)?
            {
                self.free_slot(ino, slot)?;
            }
            if to == NULL_ADDR {
                continue;
            }
            let end = (index + 1) * BLOCK_SIZE as u64;
            if !keep_size && self.inode(ino)?.size.get() <= index * BLOCK_SIZE as u64 {
                self.inode_mut(ino)?.size.set(end);
            }
            self.reserve_block(ino, index)?;
            if to != NEW_ADDR {
                self.claim(ino, index, to)?;
            }
        }
        Ok(())
    }

    /// Makes block `to`, written after the checkpoint, a block of this file (`f2fs_replace_block`).
    fn claim(&mut self, ino: Nid, index: u64, to: BlockAddr) -> Result<()> {
        let Some((segno, _)) = self.sb.locate(to) else {
            let allowed = format!("{:#x}..{:#x}", self.sb.main_blkaddr, self.sb.main_end());
            return Err(Error::corrupt("fsynced node.addr", ino, format!("{to:#x}"), allowed));
        };
        if self.segments.get_mut().is_valid(to) {
            self.drop_previous_owner(to)?;
        }
        let slot = self.make_slot(ino, index)?;
        let old = self.addr_in(slot)?;
        if self.segments.get_mut().entry(segno).valid == 0 && !self.logs.get_mut().is_current(segno)
        {
            self.segments.get_mut().take(segno, LogType::WarmData);
        } else if self.segments.get_mut().entry(segno).log.is_node() {
            let found = format!("{to:#x} in a segment of nodes");
            return Err(Error::corrupt("fsynced node.addr", ino, found, "a segment of data"));
        }
        self.segments.get_mut().mark_valid(to, self.clock.elapsed())?;
        if is_data_addr(old) {
            self.logs.get_mut().invalidate(self.segments.get_mut(), old)?;
        }
        let version = self.nat.get_mut().get(&self.io, slot.nid)?.version;
        self.set_summary(to, RawSummary::data(slot.nid, version, slot.ofs_in_node))?;
        self.set_addr(ino, slot, to)
    }

    /// Takes the block from its owner at the checkpoint, which gave it up before the fsync
    /// (`check_index_in_prev_nodes`).
    fn drop_previous_owner(&mut self, addr: BlockAddr) -> Result<()> {
        let Some((segno, offset)) = self.sb.locate(addr) else { return Ok(()) };
        let summary = match self.logs.get_mut().summary_of(segno) {
            Some(current) => current.entries[offset],
            None => {
                let block = self.io.read_meta(self.sb.ssa_block(segno))?;
                RawSummaryBlock::of(&block).entries[offset]
            }
        };
        if let Some((owner, index)) = self.owner_of(addr, summary)?
            && let Lookup::Slot(slot) = self.lookup_slot(owner, index)?
        {
            self.inodes.of(owner).pages.drop_range(Ino::from(owner), index..index + 1);
            return self.free_slot(owner, slot);
        }
        let found = format!("{addr:#x}, valid but nobody's");
        Err(Error::corrupt("fsynced node.addr", segno, found, "a free block"))
    }
}
