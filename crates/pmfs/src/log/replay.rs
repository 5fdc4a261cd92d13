//! Reading a log: every entry up to the tail, in order.

use drive::pm::{LINE, Pm};
use rustc_hash::FxHashSet;

use super::Log;
use super::cores::CoreLogs;
use crate::ondisk::extent::parse_map;
use crate::ondisk::inode::{CORES_AT, LOG_AT};
use crate::ondisk::log::{Entry, LINES, NEXT_AT, TAIL_AT, Tail};
use crate::ondisk::superblock::Layout;
use crate::ondisk::{BLOCK, Corrupt};

/// Reads the log to which the word at `slot_at` points, and shows its entries with their versions.
/// `met` are the pages of this inode's logs, each of which is read once.
pub(crate) fn replay(
    pm: &dyn Pm,
    layout: &Layout,
    slot_at: u64,
    met: &mut FxHashSet<u64>,
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
        if !met.insert(block) {
            return Err(wrong("page", block, "in one log, once"));
        }
        log.pages.push(block);
        let is_last = block == tail.block;
        let end = if is_last { tail.lines } else { LINES };
        // What is behind the tail means nothing.
        pm.read(at, &mut page[..(end * LINE) as usize]);
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

/// Reads all logs of the inode at `inode_at`, and shows their entries in the order in which they
/// count, and whether each is from the log of a core.
pub(crate) fn replay_all(
    pm: &dyn Pm,
    layout: &Layout,
    inode_at: u64,
    see: &mut dyn FnMut(bool, Entry),
) -> Result<(Log, Option<CoreLogs>), Corrupt> {
    let (slot_at, mut met) = (inode_at + LOG_AT, FxHashSet::default());
    if pm.load(inode_at + CORES_AT) == 0 {
        return Ok((replay(pm, layout, slot_at, &mut met, |_, entry| see(false, entry))?, None));
    }
    let mut all = Vec::new();
    let own = |version, entry| all.push((version, false, entry));
    let mut log = replay(pm, layout, slot_at, &mut met, own)?;
    let of_core = |version, entry| all.push((version, true, entry));
    let cores = CoreLogs::load(pm, layout, inode_at, &mut met, of_core)?;
    log.version = log.version.max(cores.as_ref().map_or(0, |(_, version)| *version));
    // Those of one call have one version or ascending ones, and keep their order.
    all.sort_by_key(|(version, ..)| *version);
    all.into_iter().for_each(|(_, is_of_core, entry)| see(is_of_core, entry));
    Ok((log, cores.map(|(cores, _)| cores)))
}
