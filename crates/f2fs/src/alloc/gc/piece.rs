//! Finds the valid blocks of a piece of a segment without holding the volume's lock while the drive
//! works: its summary, and for each block the table block, the nodes and the inode that refer to
//! it, are read ahead (as in the phases of `gc_data_segment`).

use std::collections::BTreeSet;

use drive::{Block, Command, Output};
use queue::BlockQueue;

use super::{Hands, PIECE};
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::summary::{RawSummary, RawSummaryBlock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, bits};

/// The valid blocks of a piece, [`PIECE`] at most.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) is_node: bool,
    pub(super) blocks: Vec<Owned>,
    /// The block of the segment to go on with.
    pub(super) next: usize,
}

/// A valid block, and whose it is.
pub(super) struct Owned {
    pub(super) addr: BlockAddr,
    pub(super) summary: RawSummary,
    /// File and block, or file and node, once they are known.
    pub(super) owner: Option<(Nid, u64)>,
}

impl Engine {
    /// The blocks of `segno` from block `from` on. A segment that a log has begun to reuse
    /// meanwhile stays: its summary is the log's.
    fn piece(&mut self, segno: SegNo, from: usize) -> Result<Piece> {
        let end = BLOCKS_PER_SEGMENT as usize;
        let segments = self.segments.get_mut();
        let mut piece = Piece { next: end, ..Piece::default() };
        if segments.entry(segno).valid == 0 || self.logs.get_mut().is_current(segno) {
            return Ok(piece);
        }
        segments.set_victim(segno);
        let entry = segments.entry(segno);
        let at = self.sb.ssa_block(segno);
        let block = self.io.read_meta(at)?;
        let summary = RawSummaryBlock::of(&block);
        summary.check_type(entry.log, at)?;
        piece.is_node = entry.log.is_node();
        let mut next = from;
        while let Some(n) = bits::msb::next_one(&entry.map, next, end) {
            if piece.blocks.len() == PIECE {
                piece.next = next;
                break;
            }
            next = n + 1;
            let addr = self.sb.seg_start(segno) + n as u32;
            piece.blocks.push(Owned { addr, summary: summary.entries[n], owner: None });
        }
        Ok(piece)
    }

    /// Finds the owners of a piece's blocks, as far as they are cached.
    fn look_in_memory(&mut self, segno: SegNo, from: usize, piece: &mut Option<Piece>) {
        if piece.is_none() {
            *piece = self.piece(segno, from).ok();
        }
        let Some(Piece { is_node, blocks, .. }) = piece else { return };
        for block in blocks.iter_mut().filter(|block| block.owner.is_none()) {
            let owner = if *is_node {
                self.node_owner(block.summary.nid.get())
            } else {
                self.owner_of(block.addr, block.summary)
            };
            block.owner = owner.ok().flatten();
        }
    }

    /// A node's inode. The node is cached afterwards.
    fn node_owner(&mut self, nid: Nid) -> Result<Option<(Nid, u64)>> {
        let ino = self.nat.get_mut().get(&self.io, nid)?.ino;
        self.node(ino, nid)?;
        Ok(Some((ino, nid.into())))
    }
}

/// Finds what the piece of `segno` from block `from` on holds. A damaged block is reported when it
/// is moved.
pub(super) fn look_up(hands: &mut impl Hands, segno: SegNo, from: usize) -> Result<Piece> {
    let mut piece = None;
    loop {
        let engine = hands.engine();
        engine.io.begin_list();
        engine.look_in_memory(segno, from, &mut piece);
        let lacking = engine.io.end_list();
        let asked = lacking.len();
        let read = hands.wait(|queue| read_all(queue, lacking));
        let engine = hands.engine();
        // A block that cannot be read is read again by its user, which gets the error.
        let is_done = read.len() < asked || asked == 0;
        engine.io.keep_ahead(read);
        if is_done {
            return piece.map_or_else(|| engine.piece(segno, from), Ok);
        }
    }
}

/// Reads blocks side by side. Those that cannot be read are left out.
pub(crate) fn read_all(queue: &BlockQueue, addrs: BTreeSet<BlockAddr>) -> Vec<(BlockAddr, Block)> {
    let submit = |addr: BlockAddr| {
        let ticket = queue.submit(Command::Read { lba: addr.into(), blocks: 1 });
        (addr, ticket)
    };
    let tickets: Vec<_> = addrs.into_iter().map(submit).collect();
    let read = tickets.into_iter().filter_map(|(addr, ticket)| match queue.wait(ticket) {
        Ok(Output::Data(blocks)) => blocks.into_iter().next().map(|block| (addr, block)),
        _ => None,
    });
    read.collect()
}
