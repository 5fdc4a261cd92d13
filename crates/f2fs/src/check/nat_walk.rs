//! The node address table from end to end: which node numbers are in use, and what nat_bits say
//! about them.

use drive::Block;

use super::{Checker, Place, Search};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::nat::{self, NatEntry, RawNatBlock};
use crate::ondisk::nat_bits::{self, NatBits};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::RawSummaryBlock;
use crate::ondisk::{BLOCKS_PER_SEGMENT, bits};

/// The address that the NAT has for the two reserved node numbers.
const RESERVED_ADDR: u32 = 1;

impl Checker {
    /// Reads the whole NAT, then the journal, which overrides it.
    pub(super) fn scan_nat(&mut self) {
        let nat_bits = self.read_nat_bits();
        let mut counted = NatBits::new(&self.volume.sb);
        for index in 0..self.volume.sb.nat_blocks() {
            let addr = nat::block_addr(&self.volume.sb, &self.volume.cp.nat_bitmap, index);
            let read = self.volume.read(addr);
            let place = || Place::Block { addr: addr.into() };
            let Some(block) = self.keep(place, read) else {
                self.want(Search::Everything);
                continue;
            };
            let used = if block == Block::zeroed() { 0 } else { self.scan_block(index, &block) };
            counted.look_at(index, &block);
            if let Some(nat_bits) = &nat_bits {
                self.check_nat_bits(nat_bits, index, used);
            }
        }
        self.volume.nat_bits = Some(counted);
        self.scan_journal();
        self.check_reserved();
    }

    /// Notes the used entries of table block `index`; returns how many there are.
    fn scan_block(&mut self, index: u32, block: &Block) -> usize {
        let first = index * nat::ENTRIES_PER_BLOCK as u32;
        let raw = RawNatBlock::of(block);
        let used = (first..).zip(&raw.entries).filter(|(_, e)| e.block_addr.get() != 0);
        used.map(|(nid, _)| bits::lsb::set(&mut self.nids_used, nid as usize)).count()
    }

    fn scan_journal(&mut self) {
        let Some(block) = self.volume.open_summaries[LogType::HotData.index()].clone() else {
            return;
        };
        let journal = RawSummaryBlock::of(&block).nat_journal();
        for entry in &journal.entries[..journal.len()] {
            let nid = entry.nid.get() as usize;
            if entry.entry.block_addr.get() == 0 {
                bits::lsb::clear(&mut self.nids_used, nid);
            } else {
                bits::lsb::set(&mut self.nids_used, nid);
            }
        }
    }

    /// Numbers 0, 1 and 2 belong to no file.
    fn check_reserved(&mut self) {
        for nid in 0..self.volume.sb.root_ino {
            let looked_up = self.volume.nat(nid);
            let Some(entry) = self.keep(|| Place::Nat { nid }, looked_up) else { continue };
            let allowed = if nid == 0 { 0 } else { RESERVED_ADDR };
            if entry.addr != allowed {
                self.find(Place::Nat { nid }, "block_addr", entry.addr, allowed);
                self.set_nat(nid, NatEntry { version: 0, ino: nid, addr: allowed });
            }
            bits::lsb::clear(&mut self.nids_used, nid as usize);
        }
    }

    /// nat_bits, if the checkpoint has them and they are its own.
    fn read_nat_bits(&mut self) -> Option<NatBits> {
        let (sb, cp) = (&self.volume.sb, &self.volume.cp);
        if !cp.flags.contains(CpFlags::NAT_BITS) {
            return None;
        }
        let start = nat_bits::start(sb, cp.pack_total)?;
        let pack = sb.cp_pack(self.volume.pack);
        let mut bytes = Vec::new();
        for offset in start..BLOCKS_PER_SEGMENT {
            let read = self.volume.read(pack + offset);
            let place = || Place::Block { addr: u64::from(pack + offset) };
            bytes.extend_from_slice(self.keep(place, read)?.bytes());
        }
        let found = NatBits::decode(&self.volume.sb, &self.volume.cp, &bytes);
        // Linux writes them when it unmounts. Other checkpoints keep the flag, but the nat_bits
        // then belong to an older one and a mount ignores them.
        if found.is_none() && self.volume.cp.flags.contains(CpFlags::UMOUNT) {
            let place = Place::Block { addr: u64::from(pack + start) };
            self.find(place, "nat_bits", "another checkpoint's", "this checkpoint's");
        }
        found
    }

    fn check_nat_bits(&mut self, nat_bits: &NatBits, index: u32, used: usize) {
        // Number 0 is never used, but is counted as if it were.
        let used = if index == 0 { used + 1 } else { used };
        for (what, map, allowed) in [
            ("nat_bits full", &nat_bits.full, used == nat::ENTRIES_PER_BLOCK),
            ("nat_bits empty", &nat_bits.empty, used == 0),
        ] {
            let found = bits::lsb::test(map, index as usize);
            if found != allowed {
                let nid = index * nat::ENTRIES_PER_BLOCK as u32;
                self.find(Place::Nat { nid }, what, found, allowed);
            }
        }
    }
}
