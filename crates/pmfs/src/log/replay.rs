//! Reading a log: every entry up to the tail, in order.

use drive::pm::Pm;

use super::Log;
use crate::ondisk::extent::parse_map;
use crate::ondisk::log::{Entry, LINES, NEXT_AT, TAIL_AT, Tail};
use crate::ondisk::superblock::Layout;
use crate::ondisk::{BLOCK, Corrupt};

/// Reads the log to which the word at `slot_at` points, and shows its entries with their versions.
pub(crate) fn replay(
    pm: &dyn Pm,
    layout: &Layout,
    slot_at: u64,
    mut see: impl FnMut(u64, Entry),
) -> Result<Log, Corrupt> {
    let mut log = Log::new(slot_at);
    let Some(first) = parse_map(slot_at, pm.load(slot_at), layout)? else { return Ok(log) };
    let head = first * BLOCK;
    let tail = Tail::parse(head, pm.load(head + TAIL_AT), layout)?;
    let mut page = [0; BLOCK as usize];
    let mut block = first;
    loop {
        let at = block * BLOCK;
        let wrong = |what, found, allowed| Corrupt { structure: "log", at, what, found, allowed };
        // It cannot be longer than there are blocks, so a circle ends here.
        if log.pages.len() as u64 > layout.blocks {
            return Err(wrong("next page", block, "no circle"));
        }
        log.pages.push(block);
        pm.read(at, &mut page);
        let is_last = block == tail.block;
        let end = if is_last { tail.lines } else { LINES };
        let mut line = 1;
        while line < end {
            let Some((entry, version, lines)) = Entry::parse(at, &page, line, layout)? else {
                line = LINES;
                break;
            };
            log.version = log.version.max(version);
            line += lines;
            see(version, entry);
        }
        if line != end {
            return Err(wrong("line of the tail", end, "the end of an entry"));
        }
        if is_last {
            log.lines = end;
            log.cleaned = log.pages.len();
            return Ok(log);
        }
        let next = parse_map(at, pm.load(at + NEXT_AT), layout)?;
        block = next.ok_or_else(|| wrong("next page", 0, "a block, before the tail"))?;
    }
}
