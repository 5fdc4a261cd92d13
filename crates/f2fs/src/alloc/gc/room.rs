//! How much room the logs have, and cleaning in time (`f2fs_balance_fs`).
//!
//! Invariant: between two operations there is room for all dirty data, and for what the cleaner
//! then needs to gain a section. An operation makes little dirty, so a look before each one is
//! enough. Cleaning begins earlier, and operations pay for it piece by piece.
//!
//! **The reserve for recovery.** A cut may come at any moment, also when the checkpoint has used
//! all that was counted for its nodes, and recovery cannot clean before its own checkpoint is
//! durable. So these sections are free at all times ([`Engine::sections_for_recovery`]): the last
//! checkpoint counts them as free, and nothing has been written there since.
//!
//! - One for each log that the chain lies in or leads to. Warm nodes: a node behind the chain's end
//!   would lengthen it. Data: the log's section may have been filled since the checkpoint, and the
//!   chain may lead to the one behind it. Warm and cold data are counted always, hot data if
//!   anything there, or a directory, has changed.
//! - As many more as the nodes of the chain take when recovery's checkpoint writes them again.
//! - None for the logs of hot and cold nodes. Nothing leads to what an unfinished checkpoint wrote
//!   there, so on zones the log goes on behind it or in a section that recovery has reset, and
//!   elsewhere recovery writes to the same slots.
//!
//! Where slots of used segments may be written, recovery finds room there.

use super::{Hands, PIECE, clean_piece};
use crate::checkpoint::Reason;
use crate::error::{Error, Result, is_unreadable};
use crate::inode::shards::MAX_DIRTY_NODES;
use crate::mount::engine::{Caller, Engine};
use crate::ondisk::BLOCKS_PER_SEGMENT;
use crate::ondisk::sit::LogType;

/// The most pages that an operation makes dirty, and about as many nodes. A longer write looks for
/// room from time to time.
pub(crate) const OPERATION_PAGES: usize = 64;
/// The most nodes of directories, and indirect ones, that an operation changes.
const OPERATION_NODES: usize = 8;
/// How many times the nodes of one checkpoint are written before the next.
const NODES_SHARE: u64 = 8;
/// The share of invalid blocks that may wait for a checkpoint, as a divisor.
const SPARE_SHARE: u64 = 8;
/// How many pieces of segments are cleaned for one operation before giving up.
const MAX_STEPS: u32 = 256;
/// Where room is short, an operation that finds so many dirty pages writes some of them, so that
/// none ever has to write very many: there must be room for all.
const SHORT_DIRTY_PAGES: usize = 4096;
const SHORT_SHARE_PAGES: usize = 4 * OPERATION_PAGES;
/// With so many batches left, cleaning in the background begins.
const BACKGROUND_BATCHES: u64 = 2;
/// How many pieces an operation cleans while there still is room.
const PIECES_OWED: u64 = 4;

const DATA_LOGS: [LogType; 3] = [LogType::HotData, LogType::WarmData, LogType::ColdData];
/// The logs that the chain lies in or leads to.
pub(crate) const CHAIN_LOGS: [LogType; 4] =
    [LogType::HotData, LogType::WarmData, LogType::ColdData, LogType::WarmNode];
const NODE_LOGS: [LogType; 3] = [LogType::HotNode, LogType::WarmNode, LogType::ColdNode];

/// How urgently free sections are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Not at all.
    None,
    /// They soon will be.
    Soon,
    /// The logs are about to run out.
    Now,
}

/// The most sections that `blocks` can take, to whichever of the logs with these `rooms` they go.
fn sections_for(blocks: u64, mut rooms: [u32; 3], per_section: u64) -> u64 {
    rooms.sort_unstable();
    let (mut left, mut sections) = (blocks, 0);
    for room in rooms.map(u64::from) {
        if left < room {
            return sections;
        }
        left -= room;
        sections += 1;
    }
    sections + left / per_section
}

/// Makes room if the logs are about to run out of free sections (`f2fs_balance_fs`). If no room can
/// be made, the operation itself finds out whether it still fits.
pub(crate) fn balance(hands: &mut impl Hands) -> Result<()> {
    if hands.engine().has_plenty() {
        return Ok(());
    }
    let mut moved = false;
    let made = make_some_room(hands, &mut moved);
    if moved {
        hands.flush_moved()?;
    }
    match made {
        Err(Error::NoSpace) => Ok(()),
        made => made,
    }
}

/// `moved` says whether blocks were moved that no checkpoint has made stable.
fn make_some_room(hands: &mut impl Hands, moved: &mut bool) -> Result<()> {
    // `is_stuck`: some file cannot be written, so there is always something left to write.
    let (mut paid, mut is_stuck) = (0, false);
    for _ in 0..MAX_STEPS {
        let engine = hands.engine();
        let shortage = engine.shortage();
        let now = shortage == Shortage::Now;
        let frees = engine.freeing_sections() > 0;
        if now && engine.discards.withheld() > 0 {
            hands.discard()?;
        } else if now && (frees || !is_stuck && engine.has_much_to_write()) {
            if !frees && engine.inodes.pages().dirty() > SHORT_DIRTY_PAGES {
                is_stuck = is_of_file(hands, |hands| hands.write_back_some(SHORT_SHARE_PAGES))?;
                if is_stuck {
                    continue;
                }
                // There is room for all that is dirty. It stays so, for this is more than the
                // operation makes dirty.
                break;
            }
            if !frees {
                // The checkpoint still fits now; later it might not.
                is_stuck = is_of_file(hands, Hands::write_back_all)?;
            }
            hands.checkpoint(Reason::Sync, Caller::Foreground)?;
            *moved = false;
        } else if shortage != Shortage::None {
            if !is_stuck && engine.inodes.pages().dirty() > SHORT_DIRTY_PAGES {
                is_stuck = is_of_file(hands, |hands| hands.write_back_some(SHORT_SHARE_PAGES))?;
            }
            let cleaned = clean_some(hands, shortage);
            *moved |= !matches!(cleaned, Ok(false));
            paid += 1;
            if !cleaned? || (!now && paid >= hands.engine().owed()) {
                break;
            }
        } else {
            break;
        }
    }
    if *moved {
        hands.engine().paid();
    }
    Ok(())
}

/// Writes files back by `write`. Returns whether some of them cannot be written because something
/// of theirs cannot be read: that is for their own fsyncs to tell.
fn is_of_file<H: Hands>(hands: &mut H, write: impl FnOnce(&mut H) -> Result<()>) -> Result<bool> {
    match write(hands) {
        Err(error) if is_unreadable(&error) => hands.engine().check_writable().map(|()| true),
        written => written.map(|()| false),
    }
}

/// Cleans a piece of a segment. False if there is none worth it. A section of which something
/// cannot be read does not keep the cleaner from the others (`gc_data_segment`).
fn clean_some(hands: &mut impl Hands, shortage: Shortage) -> Result<bool> {
    let Some((segno, from)) = hands.engine().next_piece(shortage) else { return Ok(false) };
    let _span = (from == 0).then(|| cores::span(cores::Stage::Gc));
    let cleaned = clean_piece(hands, segno, from, Caller::Foreground);
    let engine = hands.engine();
    match cleaned {
        Ok(next) => engine.end_piece(segno, next),
        Err(_) if engine.is_left(segno) => {}
        Err(error) => {
            engine.end_piece(segno, BLOCKS_PER_SEGMENT as usize);
            return Err(error);
        }
    }
    Ok(true)
}

impl Engine {
    /// Makes as much room as [`balance`] would over time.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let mut moved = false;
        loop {
            let shortage = self.shortage();
            if shortage == Shortage::None || !clean_some(self, shortage)? {
                return if moved { self.write_checkpoint(Reason::Sync) } else { Ok(()) };
            }
            moved = true;
            if shortage == Shortage::Now {
                balance(self)?;
            }
        }
    }

    /// Whether there is plenty of room. When the credit is low, half of the room that is left
    /// before the background cleaner would begin is reserved for changes under the shared lock. If
    /// no room is left, the reservation is taken back.
    fn has_plenty(&mut self) -> bool {
        let free = u64::from(self.segments.get_mut().free_sections());
        let room = free.saturating_sub(self.plenty(BACKGROUND_BATCHES));
        if room == 0 && self.credit.promised() > 0 {
            self.promise(0);
        } else if room > 0 && self.credit.is_low() {
            let per_section = u64::from(self.segments.get_mut().section_capacity());
            self.promise((room * per_section + self.credit.promised()) / 2);
        }
        room > 0 || free > self.plenty(1)
    }

    fn promise(&mut self, blocks: u64) {
        self.inodes.empty_purses();
        self.credit.promise(blocks);
    }

    /// With more free sections than this there is room in all logs for everything dirty and
    /// `batches` of writes besides, and would be after any cut.
    fn plenty(&mut self, batches: u64) -> u64 {
        let per_section = u64::from(self.segments.get_mut().section_capacity());
        let data = (self.dirty_pages() + OPERATION_PAGES) as u64;
        let pending = 2 * data + self.inodes.nodes().changed() as u64 + self.credit.promised();
        let room = pending / per_section + 4 * LogType::ALL.len() as u64;
        batches * self.batch(per_section) + room.max(self.knobs.fg_gc_sections)
    }

    /// How many pieces an operation moves: four times what was written since the last one did,
    /// but not more than a segment.
    fn owed(&self) -> u64 {
        let written = self.io.written_blocks() - self.cleaner.written;
        (4 * written).div_ceil(PIECE as u64).clamp(1, PIECES_OWED)
    }

    /// An operation has moved what it owed.
    fn paid(&mut self) {
        self.cleaner.written = self.io.written_blocks();
    }

    /// Whether operations will have to clean before long.
    pub(crate) fn is_nearly_short(&mut self) -> bool {
        self.shortage_at(BACKGROUND_BATCHES) != Shortage::None
    }

    fn shortage(&mut self) -> Shortage {
        self.shortage_at(1)
    }

    /// How short of room the volume is, and with how many batches left it counts as soon short.
    fn shortage_at(&mut self, batches: u64) -> Shortage {
        let free = u64::from(self.segments.get_mut().free_sections());
        let total = free + self.freeing_sections();
        let per_section = u64::from(self.segments.get_mut().section_capacity());
        let batch = batches * self.batch(per_section);
        let data = (self.dirty_pages() + OPERATION_PAGES) as u64;
        if free > self.plenty(batches) {
            return Shortage::None;
        }
        let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
        let data_rooms = DATA_LOGS.map(|log| logs.room(segments, log));
        // Also what the cleaner moves until it gains a section.
        let victim = self.cleaner.left.clone().map(|segno| segments.entry(segno).valid);
        let victim = victim.map(u64::from).sum::<u64>();
        let moved = data + if victim > 0 { victim } else { per_section };
        let floor = sections_for(data, data_rooms, per_section)
            + self.sections_for_nodes(data, per_section)
            + u64::from(moved >= data_rooms[2].into())
            + self.sections_for_recovery(per_section);
        let floor = floor.max(self.knobs.fg_gc_sections);
        if free <= floor {
            Shortage::Now
        } else if total <= floor + batch {
            Shortage::Soon
        } else {
            Shortage::None
        }
    }

    /// Sections that the next checkpoint frees, or that are to be discarded.
    fn freeing_sections(&mut self) -> u64 {
        let at = self.cleaner.left.clone().next().map(|segno| self.sb.section_of(segno));
        let withheld = self.withheld_sections();
        let segments = self.segments.get_mut();
        let moving = self
            .cleaner
            .moving
            .iter()
            .filter(|&&section| Some(section) != at && segments.section_valid(section) > 0);
        u64::from(segments.freeing_sections()) + withheld + moving.count() as u64
    }

    /// Sections for changed nodes, including those that `data` dirty pages and one cleaned segment
    /// will change.
    fn sections_for_nodes(&mut self, data: u64, per_section: u64) -> u64 {
        let coming = data as usize + BLOCKS_PER_SEGMENT as usize;
        let most = self.space.used().nodes as usize + OPERATION_PAGES;
        let sections = NODE_LOGS.map(|log| {
            let changed = self.inodes.nodes().changed_for(log);
            let nodes = match log {
                LogType::WarmNode => (changed + coming).min(most),
                // A cut in the midst of the checkpoint leaves them to recovery, which on zones
                // writes them once more behind.
                _ if self.zones.is_some() => 2 * (changed + OPERATION_NODES).min(most),
                _ => (changed + OPERATION_NODES).min(most),
            } as u64;
            let room = u64::from(self.logs.get_mut().room(self.segments.get_mut(), log));
            if nodes < room { 0 } else { 1 + (nodes - room) / per_section }
        });
        sections.iter().sum()
    }

    /// Pages that write-back or the next checkpoint writes.
    fn dirty_pages(&self) -> usize {
        self.inodes.pages().dirty() + self.quotas.changed()
    }

    fn has_much_to_write(&mut self) -> bool {
        let pending = (self.inodes.nodes().changed() + self.dirty_pages()) as u64;
        let per_section = u64::from(self.segments.get_mut().section_capacity());
        pending >= self.batch(per_section) * per_section
    }

    /// How many sections are written between two checkpoints when room is short: so many that the
    /// checkpoint's nodes hardly count, but not so many that they are missed.
    fn batch(&mut self, per_section: u64) -> u64 {
        let nodes = u64::from(self.space.used().nodes).min(MAX_DIRTY_NODES as u64);
        let wanted = (NODES_SHARE * nodes).div_ceil(per_section);
        let segments = self.segments.get_mut();
        let spare = segments.usable_blocks() - segments.valid_blocks();
        wanted.min(spare / per_section / SPARE_SHARE).max(1)
    }

    /// How many free sections recovery would need after a cut. The header has the argument.
    fn sections_for_recovery(&mut self, per_section: u64) -> u64 {
        let (nodes, logs) = (self.inodes.nodes(), self.logs.get_mut());
        if logs.ssr_allowed {
            return 0;
        }
        let chain = logs.chain_blocks() + OPERATION_PAGES as u64;
        let chain = chain.min(u64::from(self.space.used().nodes));
        let moves = |log: &&LogType| {
            matches!(log, LogType::WarmData | LogType::ColdData | LogType::WarmNode)
                || logs.get(**log).at != *self.checkpoint.curseg(**log)
                || nodes.changed_for(**log) > 0
                // These are directories' pages, and their nodes have changed too.
                || **log == LogType::HotData && nodes.changed_for(LogType::HotNode) > 0
        };
        CHAIN_LOGS.iter().filter(moves).count() as u64 + chain / per_section
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drive::{Drive, Spec, Ssd, Timing};
    use vfs::{Creator, Errno, FileSystem, Health};

    use super::*;
    use crate::F2fs;
    use crate::check::{CheckOptions, check};
    use crate::offline::mkfs::{MkfsOptions, format};

    #[test]
    fn sections_are_counted_for_the_worst_of_orders() {
        assert_eq!(sections_for(9, [10, 20, 30], 100), 0);
        assert_eq!(sections_for(10, [30, 10, 20], 100), 1);
        assert_eq!(sections_for(59, [10, 20, 30], 100), 2);
        assert_eq!(sections_for(60, [10, 20, 30], 100), 3);
        assert_eq!(sections_for(160, [10, 20, 30], 100), 4);
    }

    /// Takes every free section away, so that the logs find none when theirs are full, whatever the
    /// cleaner does. Callers get an error, nothing stops, and once the sections are back everything
    /// works.
    #[test]
    fn a_log_without_room_harms_nothing() {
        for (kind, nodes) in [("conventional-noplp", 0), ("conventional-noplp", 1), ("zn540", 0)] {
            let spec = Spec::named(kind).unwrap();
            let spec = if kind == "zn540" {
                spec.zone_size(1024, 768).zones(64, 5)
            } else {
                spec.blocks(32 << 10)
            };
            let ssd = Ssd::new(spec, Timing::Instant, 1).unwrap();
            let drive: Arc<dyn Drive> = ssd.clone();
            format(&drive, &MkfsOptions::default()).unwrap();
            let fs = F2fs::mount(drive.clone(), &"mode=lfs".parse().unwrap()).unwrap();
            let ino = fs.create(fs.root(), b"file", 0o644, Creator::default()).unwrap().ino;
            let held: Vec<u32> = {
                let mut volume = fs.lock();
                let sections = 0..volume.sb.main_sections();
                let free = sections.filter(|s| volume.segments.get_mut().is_section_free(*s));
                let free = free.collect::<Vec<_>>();
                free.iter().for_each(|section| volume.segments.get_mut().hold(*section));
                free
            };
            // So that the log of nodes ends once behind a file's last node, once in front of it.
            for _ in 0..nodes {
                fs.write(ino, 0, &[1; 4096]).unwrap();
                fs.fsync(ino, false).unwrap();
            }
            let mut page = 0;
            let failed = loop {
                let done = fs.write(ino, (1000 + page % 700) * 4096, &[page as u8; 4096]);
                if let Err(error) = done.map(drop).and_then(|()| fs.fsync(ino, false)) {
                    break error;
                }
                page += 1;
                assert!(page < 100_000, "{kind}: it never was full");
            };
            assert_eq!(failed.errno(), Errno::NOSPC, "{kind}");
            let mut volume = fs.lock();
            assert_eq!(volume.health, Health::Sound, "{kind}");
            for section in held {
                let logs: Vec<_> = volume.logs.get_mut().current().collect();
                volume.segments.get_mut().release(section, |segno| logs.contains(&segno));
            }
            drop(volume);
            fs.fsync(ino, false).unwrap();
            fs.unmount().unwrap();
            assert!(check(&drive, &CheckOptions::default()).unwrap().is_clean(), "{kind}");
        }
    }
}
