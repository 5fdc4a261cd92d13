//! What belongs to an inode: a directory's entries, and a file's extents.
//!
//! A tree of nodes that contains a circle ends here because of its depth, three, and because no
//! file has more blocks than the volume.

use super::{Dump, Emit, Record, Shape, Value};
use crate::error::{Error, Result};
use crate::ondisk::dentry::Dentries;
use crate::ondisk::inode::{Inline, RawInodeBlock};
use crate::ondisk::node::{AddrCounts, RawDirectNode, RawIndirectNode};
use crate::ondisk::{ADDRS_PER_BLOCK, BlockAddr, NULL_ADDR, Nid, is_data_addr};

/// The nodes of a file, and what is wrong with them, during a walk.
struct Walk<'a> {
    /// Index of the next block.
    index: u64,
    /// How many more slots may be visited: as many as the volume has room for.
    budget: u64,
    addrs: AddrCounts,
    visit: &'a mut dyn FnMut(Seen) -> bool,
}

/// What a walk comes by.
enum Seen {
    /// Block of the file and its address.
    Block(u64, BlockAddr),
    /// A node that cannot be read.
    Bad(Nid, Error),
}

impl Dump {
    /// Runs of blocks that lie side by side, as in `dump.f2fs -M`.
    pub fn extents(&mut self, ino: Nid, emit: Emit<'_>) -> Result<()> {
        let mut run: Option<(u64, BlockAddr, u64)> = None;
        let mut go_on = true;
        let row = |(index, addr, len): (u64, BlockAddr, u64)| {
            let mut row = Record::new("extent", Shape::Row);
            row.put("fofs", index).put("blkaddr", addr).put("len", len);
            row
        };
        self.walk(ino, &mut |seen| {
            match seen {
                Seen::Block(index, addr) => match &mut run {
                    Some((first, start, len))
                        if *first + *len == index
                            && u64::from(*start) + *len == u64::from(addr) =>
                    {
                        *len += 1;
                    }
                    _ => {
                        go_on = run.take().is_none_or(|run| emit(row(run)));
                        run = Some((index, addr, 1));
                    }
                },
                Seen::Bad(nid, error) => {
                    let mut bad = Record::new("extent", Shape::Row);
                    bad.put("nid", nid).complain(&error);
                    go_on = emit(bad);
                }
            }
            go_on
        })?;
        if let (true, Some(run)) = (go_on, run) {
            emit(row(run));
        }
        Ok(())
    }

    /// Entries of directory `ino`, in the order in which they lie in its blocks.
    pub fn dir(&mut self, ino: Nid, emit: Emit<'_>) -> Result<()> {
        let (addr, block) = self.node_block(ino)?;
        let sb = self.volume()?.sb.clone();
        let layout = RawInodeBlock::of(&block).check(&sb, ino, addr)?;
        let inode = &RawInodeBlock::of(&block).i;
        if inode.inline().contains(Inline::DENTRY) {
            let area = block.get(layout.inline_range()).unwrap_or_default();
            let entries = Dentries::new(layout.inline_dentries(), area, ino);
            slots(&entries, 0, addr, emit);
            return Ok(());
        }
        let mut blocks = Vec::new();
        self.walk(ino, &mut |seen| {
            blocks.push(seen);
            true
        })?;
        for seen in blocks {
            let go_on = match seen {
                Seen::Block(index, addr) => match self.read(addr) {
                    Ok(block) => {
                        let entries = Dentries::block(&block, ino);
                        slots(&entries, index, addr, emit)
                    }
                    Err(error) => emit(bad_entry(index, &error)),
                },
                Seen::Bad(nid, error) => {
                    let mut row = Record::new("dir_entry", Shape::Row);
                    row.put("nid", nid).complain(&error);
                    emit(row)
                }
            };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    /// Visits the addresses of `ino`'s blocks, except holes.
    fn walk(&mut self, ino: Nid, visit: &mut dyn FnMut(Seen) -> bool) -> Result<()> {
        let (addr, block) = self.node_block(ino)?;
        let sb = self.volume()?.sb.clone();
        let raw = RawInodeBlock::of(&block);
        let layout = raw.check(&sb, ino, addr)?;
        if raw.i.inline().intersects(Inline::DATA | Inline::DENTRY) {
            return Ok(());
        }
        let budget = u64::from(sb.main_blocks()) + 2 * u64::from(ADDRS_PER_BLOCK);
        let addrs = layout.addr_counts();
        let mut walk = Walk { index: 0, budget, addrs, visit };
        for slot in 0..layout.addrs() as usize {
            if !walk.address(raw.i.addr[layout.slot(slot)].get()) {
                return Ok(());
            }
        }
        for (nid, depth) in raw.i.nid.iter().zip([0, 0, 1, 1, 2]) {
            if !self.walk_node(nid.get(), depth, &mut walk) {
                break;
            }
        }
        Ok(())
    }

    /// Visits what is below node `nid`, `depth` levels above the direct nodes.
    fn walk_node(&mut self, nid: Nid, depth: u32, walk: &mut Walk<'_>) -> bool {
        let covered = walk.addrs.coverage(depth + 1);
        if nid == 0 {
            walk.index += covered;
            return true;
        }
        let block = match self.node_block(nid) {
            Ok((_, block)) => block,
            Err(error) => {
                walk.index += covered;
                return (walk.visit)(Seen::Bad(nid, error));
            }
        };
        if depth == 0 {
            let mut addrs = RawDirectNode::of(&block).addr.iter().take(walk.addrs.node as usize);
            return addrs.all(|addr| walk.address(addr.get()));
        }
        let children = &RawIndirectNode::of(&block).nid;
        children.iter().all(|child| self.walk_node(child.get(), depth - 1, walk))
    }
}

impl Walk<'_> {
    fn address(&mut self, addr: BlockAddr) -> bool {
        let index = self.index;
        self.index += 1;
        if addr == NULL_ADDR || !is_data_addr(addr) {
            return true;
        }
        self.budget = self.budget.saturating_sub(1);
        self.budget > 0 && (self.visit)(Seen::Block(index, addr))
    }
}

/// Shows the entries of one block of a directory. False if nothing more is to be shown.
fn slots(entries: &Dentries<'_>, index: u64, addr: BlockAddr, emit: Emit<'_>) -> bool {
    let mut from = 0;
    loop {
        let entry = match entries.next(from) {
            Ok(Some(entry)) => entry,
            Ok(None) => return true,
            Err(error) => return emit(bad_entry(index, &error)),
        };
        from = entry.next_slot();
        let mut row = Record::new("dir_entry", Shape::Row);
        row.put("block", index).put("blkaddr", addr).put("slot", entry.slot as u64);
        row.put("hash_code", entry.hash).put("ino", entry.ino);
        row.put("name_len", entry.name.len() as u64).put("file_type", format!("{:?}", entry.kind));
        row.put("name", Value::Text(String::from_utf8_lossy(entry.name).into_owned()));
        if !emit(row) {
            return false;
        }
    }
}

fn bad_entry(index: u64, error: &Error) -> Record {
    let mut row = Record::new("dir_entry", Shape::Row);
    row.put("block", index).complain(error);
    row
}
