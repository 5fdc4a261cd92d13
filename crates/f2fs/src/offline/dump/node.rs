//! Nodes, by number or by address, and what any block of the volume is.

use super::{Dump, Record, Shape, Value};
use crate::error::{Error, Result};
use crate::ondisk::inode::{RawInode, RawInodeBlock};
use crate::ondisk::node::{NodeKind, RawDirectNode, RawNodeFooter};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummaryBlock;
use crate::ondisk::{BLOCK_SIZE, BlockAddr, Nid, is_data_addr};

impl Dump {
    /// The address and the block of node `nid`, by the NAT.
    pub(super) fn node_block(&mut self, nid: Nid) -> Result<(BlockAddr, drive::Block)> {
        let volume = self.volume()?;
        if !volume.sb.is_node_id(nid) {
            let last = volume.sb.max_nid().saturating_sub(1);
            return Err(Error::usage(format!("{nid}: the numbers of nodes are 3 to {last}")));
        }
        let addr = volume.nat(nid)?.addr;
        if !is_data_addr(addr) {
            return Err(Error::usage(format!("there is no node {nid}: its address is {addr:#x}")));
        }
        Ok((addr, self.read(addr)?))
    }

    /// Node `nid`, inode or not.
    pub fn node(&mut self, nid: Nid) -> Result<Record> {
        let (addr, block) = self.node_block(nid)?;
        let mut record = self.node_record(&block);
        record.fields.insert(0, ("blkaddr".into(), addr.into()));
        let footer = RawNodeFooter::of(&block);
        if let Err(error) = footer.check(nid, footer.ino.get(), addr) {
            record.complain(&error);
        } else if let (true, Some(sb)) = (footer.is_inode(), &self.sb)
            && let Err(error) = RawInodeBlock::of(&block).check(sb, nid, addr)
        {
            record.complain(&error);
        }
        Ok(record)
    }

    /// Inode `ino`.
    pub fn inode(&mut self, ino: Nid) -> Result<Record> {
        let record = self.node(ino)?;
        match record.what.as_ref() {
            "Inode" => Ok(record),
            what => Err(Error::usage(format!("node {ino} is no inode: {what}"))),
        }
    }

    /// What block `addr` is, and as much of its contents as can be told.
    pub fn block(&mut self, addr: BlockAddr) -> Result<Record> {
        let blocks = self.queue.identify().blocks;
        if u64::from(addr) >= blocks {
            let last = blocks.saturating_sub(1);
            return Err(Error::usage(format!("{addr:#x}: the drive's blocks are 0 to {last:#x}")));
        }
        let block = self.read(addr)?;
        let mut record = match self.main_block(addr, &block) {
            Some(record) => record,
            None => Record::new("Block", Shape::Structure),
        };
        record.fields.insert(0, ("blkaddr".into(), addr.into()));
        record.fields.insert(1, ("area".into(), self.area(addr).into()));
        Ok(record)
    }

    fn area(&self, addr: BlockAddr) -> &'static str {
        let Some(sb) = &self.sb else { return "unknown: there is no superblock" };
        match addr {
            0 | 1 => "superblock",
            _ if addr < sb.cp_blkaddr => "unused",
            _ if addr < sb.sit_blkaddr => "checkpoint",
            _ if addr < sb.nat_blkaddr => "SIT",
            _ if addr < sb.ssa_blkaddr => "NAT",
            _ if addr < sb.main_blkaddr => "SSA",
            _ if sb.in_main(addr) => "main",
            _ => "behind the volume",
        }
    }

    /// A block of the main area: its segment says to whom it belongs, and a node says so itself.
    fn main_block(&mut self, addr: BlockAddr, block: &drive::Block) -> Option<Record> {
        let (segno, offset) = self.sb.as_ref()?.locate(addr)?;
        let mut sit = None;
        let _best_effort = self.sit(segno..segno + 1, &mut |row| {
            sit = Some(row);
            true
        });
        let kind = sit.as_ref().and_then(|row| row.get("seg_type").cloned());
        let is_node = match kind {
            Some(Value::Number(kind)) => {
                LogType::from_raw(kind as u16).is_some_and(LogType::is_node)
            }
            _ => RawNodeFooter::of(block).nid.get() != 0,
        };
        let mut record =
            if is_node { self.node_record(block) } else { Record::new("Data", Shape::Structure) };
        record.put("segno", segno).put("offset", offset as u64);
        if let Some(Value::Bytes(map)) = sit.as_ref().and_then(|row| row.get("valid_map")) {
            record.put("valid", u64::from(crate::ondisk::bits::msb::test(map, offset)));
        }
        if let Some(kind) = kind {
            record.put("seg_type", kind);
        }
        match self.volume().and_then(|volume| volume.summary(segno)) {
            Ok(Some(summary)) => {
                let owner = &RawSummaryBlock::of(&summary).entries[offset];
                record.put("summary.nid", owner.nid).put("summary.version", owner.version);
                record.put("summary.ofs_in_node", owner.ofs_in_node);
            }
            Ok(None) => {}
            Err(error) => {
                record.complain(&error);
            }
        }
        Some(record)
    }

    fn node_record(&self, block: &[u8; BLOCK_SIZE]) -> Record {
        let footer = RawNodeFooter::of(block);
        let mut record = if footer.is_inode() {
            let mut record = Record::new("Inode", Shape::Structure);
            inode_fields(&mut record, &RawInodeBlock::of(block).i);
            record
        } else {
            let what = match NodeKind::of(footer.node_offset()) {
                Some(NodeKind::Direct) => "Direct node",
                Some(NodeKind::Indirect) => "Indirect node",
                Some(NodeKind::DoubleIndirect) => "Double indirect node",
                Some(NodeKind::Xattr) => "Xattr node",
                Some(NodeKind::Inode) | None => "Node",
            };
            let mut record = Record::new(what, Shape::Structure);
            for (i, addr) in RawDirectNode::of(block).addr.iter().enumerate() {
                if addr.get() != 0 && what != "Xattr node" {
                    record.put(format!("addr[{i}]"), *addr);
                }
            }
            record
        };
        record.put("footer.nid", footer.nid).put("footer.ino", footer.ino);
        record.put("footer.flag", footer.flag).put("footer.ofs", footer.node_offset());
        record.put("footer.cp_ver", footer.cp_ver);
        record.put("footer.next_blkaddr", footer.next_blkaddr);
        record
    }
}

macro_rules! inode {
    ($record:expr, $raw:expr; $($name:ident),* $(,)?) => {
        $($record.put(concat!("i_", stringify!($name)), $raw.$name);)*
    };
}

fn inode_fields(record: &mut Record, i: &RawInode) {
    inode!(record, i;
        mode, advise, uid, gid, links, size, blocks, atime, atime_nsec, ctime, ctime_nsec, mtime,
        mtime_nsec, generation, current_depth, xattr_nid, flags, inline, pino, dir_level, namelen);
    record.put("i_name", String::from_utf8_lossy(i.name()).into_owned());
    let mut extent = Record::new("i_ext", Shape::Row);
    extent.put("fofs", i.ext.fofs).put("blkaddr", i.ext.blk).put("len", i.ext.len);
    record.put("i_ext", Value::Record(extent));
    let mut extra_slots = 0;
    if let Some(extra) = i.extra() {
        let isize = extra.extra_isize.get();
        extra_slots = usize::from(isize / 4).min(9);
        record.put("i_extra_isize", isize);
        // Only what the inode has.
        if isize >= 4 {
            record.put("i_inline_xattr_size", extra.inline_xattr_size);
        }
        if isize >= 8 {
            record.put("i_projid", extra.projid);
        }
        if isize >= 12 {
            record.put("i_inode_checksum", extra.inode_checksum);
        }
        if isize >= 24 {
            record.put("i_crtime", extra.crtime).put("i_crtime_nsec", extra.crtime_nsec);
        }
        if isize >= 36 {
            record.put("i_compr_blocks", extra.compr_blocks);
            record.put("i_compress_algorithm", extra.compress_algorithm);
            record.put("i_log_cluster_size", extra.log_cluster_size);
            record.put("i_compress_flag", extra.compress_flag);
        }
    }
    for (slot, addr) in i.addr.iter().enumerate().skip(extra_slots) {
        if addr.get() != 0 {
            record.put(format!("i_addr[{slot:#x}]"), *addr);
        }
    }
    for (slot, nid) in i.nid.iter().enumerate() {
        record.put(format!("i_nid[{slot}]"), *nid);
    }
}
