//! One node: found through the NAT, checked by its footer, claimed. When mending, a node that the
//! NAT has lost is looked for among unreferenced blocks, and a damaged footer is reconstructed if
//! enough witnesses agree on what it was.

use drive::Block;

use super::segments::{Claim, Owner};
use super::{Checker, Place, Remedy, Search};
use crate::error::{Error, Result};
use crate::inode::node_cache::log_of;
use crate::ondisk::nat::NatEntry;
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::{BlockAddr, NEW_ADDR, Nid, bits};

/// Bits of `node_footer.flag` below the node offset.
const FLAG_BITS: u32 = 7;

impl Checker {
    /// Marks a node number as reached; `false`, with a finding, if it is out of range or was
    /// reached before.
    pub(super) fn reach(&mut self, nid: Nid) -> bool {
        if !self.volume.sb.is_node_id(nid) {
            let allowed = format!("3..{}", self.volume.sb.max_nid());
            self.find(Place::Node { nid }, "number", nid, allowed);
            return false;
        }
        if bits::lsb::set(&mut self.nids_reached, nid as usize) {
            self.find(Place::Node { nid }, "parents", "several", "one");
            return false;
        }
        true
    }

    /// Whether a node of this number was reached.
    pub(super) fn is_reached_node(&self, nid: Nid) -> bool {
        bits::lsb::test(&self.nids_reached, nid as usize)
    }

    /// Claims and reads node `nid`, which must be the one at `node_offset` of inode `ino`.
    pub(super) fn open_node(
        &mut self,
        nid: Nid,
        ino: Nid,
        node_offset: u32,
    ) -> Option<(NatEntry, Block)> {
        let (nat, block) = self.locate_node(nid, ino, node_offset)?;
        let nat = self.claim_node(nid, ino, nat, &block)?;
        Some((nat, block))
    }

    /// The block of node `nid` and its address, without claiming it.
    pub(super) fn locate_node(
        &mut self,
        nid: Nid,
        ino: Nid,
        node_offset: u32,
    ) -> Option<(NatEntry, Block)> {
        let looked_up = self.volume.nat(nid);
        let looked_up = self.keep(|| Place::Nat { nid }, looked_up);
        let nat = if self.mending() { looked_up.unwrap_or_default() } else { looked_up? };
        if let Some(block) = self.changed_node(nid) {
            return Some((nat, block));
        }
        let error = match self.probe(nat.addr, nid, ino, node_offset) {
            Ok(block) => {
                if nat.ino != ino {
                    self.find(Place::Nat { nid }, "ino", nat.ino, ino);
                    self.set_nat(nid, NatEntry { ino, ..nat });
                }
                return Some((nat, block));
            }
            Err(error) => error,
        };
        if let Some(found) = self.find_elsewhere(nid, ino, node_offset, nat) {
            return Some(found);
        }
        self.add(Self::node_place(nid, ino).finding(error));
        let mended = self.searched(Search::Strays);
        let mended = mended.then(|| self.mend_footer(nat, nid, ino, node_offset)).flatten();
        if mended.is_none() {
            self.want(Search::Everything);
        }
        mended.map(|block| (nat, block))
    }

    /// The block at `addr`, if it is node `nid` at `node_offset` of inode `ino`.
    pub(super) fn probe(
        &self,
        addr: BlockAddr,
        nid: Nid,
        ino: Nid,
        node_offset: u32,
    ) -> Result<Block> {
        let sb = &self.volume.sb;
        if !sb.in_main(addr) {
            let allowed = format!("{:#x}..{:#x}", sb.main_blkaddr, sb.main_end());
            return Err(Error::corrupt(
                "nat_entry.block_addr",
                addr,
                format!("{addr:#x}"),
                allowed,
            ));
        }
        let block = self.volume.read(addr)?;
        let footer = RawNodeFooter::of(&block);
        footer.check(nid, ino, addr)?;
        if footer.node_offset() != node_offset {
            let (found, allowed) = (footer.node_offset(), node_offset);
            return Err(Error::corrupt("node_footer.flag, offset", addr, found, allowed));
        }
        Ok(block)
    }

    /// Node `nid` in the place where a search has found it. The NAT will point there.
    fn find_elsewhere(
        &mut self,
        nid: Nid,
        ino: Nid,
        node_offset: u32,
        nat: NatEntry,
    ) -> Option<(NatEntry, Block)> {
        let hint = *self.mend.as_ref()?.hints.nodes.get(&nid)?;
        let block = self.probe(hint.addr, nid, ino, node_offset).ok()?;
        let found = NatEntry { version: nat.version, ino, addr: hint.addr };
        let show = |addr: BlockAddr| format!("{addr:#x}");
        if self.volume.has_sit {
            self.find(Place::Nat { nid }, "block_addr", show(nat.addr), show(hint.addr));
            self.remedy(Remedy::Found);
        }
        self.set_nat(nid, found);
        Some((found, block))
    }

    /// The block that the NAT names, with its footer corrected, if two witnesses besides the NAT
    /// say that it is this node: fields of the footer, or the segment's summary.
    fn mend_footer(
        &mut self,
        nat: NatEntry,
        nid: Nid,
        ino: Nid,
        node_offset: u32,
    ) -> Option<Block> {
        if !self.volume.sb.in_main(nat.addr) || self.is_reached(nat.addr) {
            return None;
        }
        let mut block = self.volume.read(nat.addr).ok()?;
        let summary = self.summary_of(nat.addr, true).is_some_and(|s| s.nid.get() == nid);
        let footer = RawNodeFooter::of_mut(block.make_mut());
        let same_nid = footer.nid.get() == nid;
        let same_ino = footer.ino.get() == ino;
        let same_offset = footer.node_offset() == node_offset;
        let believed = same_nid && (same_ino || same_offset && summary) || same_ino && summary;
        if !believed {
            return None;
        }
        let bits = footer.flag.get() & FLAG_BITS;
        let (cp_ver, next) = (footer.cp_ver, footer.next_blkaddr);
        *footer = RawNodeFooter::new(nid, ino, node_offset);
        footer.flag.set(footer.flag.get() | bits);
        (footer.cp_ver, footer.next_blkaddr) = (cp_ver, next);
        self.put_node(nid, ino, block.clone());
        Some(block)
    }

    /// Claims the block of a node. When mending, a node gets another block if its own belongs to
    /// another owner or lies among data: the NAT entry then says that the node has not been written
    /// yet.
    pub(super) fn claim_node(
        &mut self,
        nid: Nid,
        ino: Nid,
        nat: NatEntry,
        block: &Block,
    ) -> Option<NatEntry> {
        let owner = Owner::node(nid, log_of(RawNodeFooter::of(block)));
        let claim = if nat.addr == NEW_ADDR { Claim::Taken } else { self.claim(nat.addr, owner) };
        if claim == Claim::Granted {
            self.report.nodes += 1;
            return Some(nat);
        }
        if !self.mending() {
            return None;
        }
        self.remedy(Remedy::Rewritten);
        self.report.nodes += 1;
        self.report.blocks += 1;
        let moved = NatEntry { addr: NEW_ADDR, ino, ..nat };
        self.set_nat(nid, moved);
        self.put_node(nid, ino, block.clone());
        Some(moved)
    }
}
