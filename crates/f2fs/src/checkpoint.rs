//! Writing a checkpoint (`f2fs_write_checkpoint`): the one moment at which metadata becomes valid.
//!
//! What can tear: everything before the pack's last block is written in any order. What orders it:
//! that last block is written with a flush before it and FUA, after every earlier write has
//! completed; if any write or flush of the volume has failed, even one of another thread, the last
//! block is not written, because nodes of this checkpoint may refer to lost data. Who repairs:
//! mount takes the newer pack whose first and last block agree. Blocks that are valid in the older
//! one are not overwritten before this one is durable.

use drive::{Block, Blocks, Command, ZoneAction};
use queue::{BlockQueue, WriteSet};
use vfs::Errno;

use crate::alloc::curseg::summary_area_block;
use crate::alloc::gc::Hands;
use crate::error::{Error, Result};
use crate::mount::engine::{Caller, Engine};
use crate::mount::iostat::Moved;
use crate::mount::options::Inject;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::nat_bits;
use crate::ondisk::orphan::{ORPHANS_PER_BLOCK, RawOrphanBlock};
use crate::ondisk::sit::LogType;
use crate::ondisk::summary::{self, RawSummaryBlock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr};

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// fsync, sync, cleaning or recovery asked for it.
    Sync,
    /// The volume is being unmounted; the next mount needs no roll-forward.
    Umount,
}

/// A checkpoint being written. It no longer needs the volume.
pub(crate) struct Submitted {
    set: WriteSet,
    /// The last block and its address.
    tail: (BlockAddr, Block),
    barrier: bool,
    /// For [`BlockQueue::drain`]: failures of the drive before this mount.
    failed_before: u64,
    /// Injected: the last block without flush and FUA.
    plain: bool,
    /// Injected: the last block does not wait for what others have submitted.
    early: bool,
}

impl Submitted {
    /// Writes the last block. Before it nothing of this checkpoint counts, after it everything
    /// does.
    pub(crate) fn commit(mut self, queue: &BlockQueue) -> Result<()> {
        self.set.wait(queue)?;
        // Data that other threads' fsyncs have submitted is in this checkpoint's node blocks. If
        // such a write has failed, its owner may not have stopped the volume yet.
        if !self.early {
            queue.drain(self.failed_before)?;
        }
        let (addr, tail) = self.tail;
        let fua = self.barrier && !self.plain;
        if fua {
            queue.flush()?;
        }
        queue.run(Command::Write { lba: addr.into(), data: Blocks::from_iter([tail]), fua })?;
        Ok(())
    }
}

/// Flags that a checkpoint takes over from the one before.
const LASTING: CpFlags = CpFlags::LARGE_NAT_BITMAP
    .union(CpFlags::ERROR)
    .union(CpFlags::FSCK)
    .union(CpFlags::QUOTA_NEED_FSCK);

impl Engine {
    /// Whether the next checkpoint would differ from the last one in more than its version.
    pub(crate) fn has_changed(&mut self) -> bool {
        self.notes_corruption
            || self.inodes.nodes().changed() > 0
            || self.nat.get_mut().dirty_count() > 0
            || !self.segments.get_mut().dirty().is_empty()
            || !self.since_checkpoint.is_empty()
            || self.quotas.changed() > 0
    }

    /// Makes everything durable and marks the volume clean. Fails with the first error; one of a
    /// file keeps nothing else from the drive.
    pub(crate) fn leave(&mut self) -> Result<()> {
        let aborted = self.abort_all_atomic();
        let written = aborted.and(self.write_back_all());
        let marked = self.write_checkpoint(Reason::Umount).and_then(|()| self.flush());
        written.and(marked)
    }

    /// Makes everything stable that the drive has completed, unless mounted `nobarrier`.
    pub(crate) fn flush(&self) -> Result<()> {
        if self.options.barrier { self.io.flush() } else { Ok(()) }
    }

    /// Makes the state of the whole volume durable.
    pub(crate) fn write_checkpoint(&mut self, reason: Reason) -> Result<()> {
        self.checkpoint(reason, Caller::Foreground)
    }

    /// Submits a checkpoint except for its last block. Nothing may change until
    /// [`Engine::end_checkpoint`].
    pub(crate) fn begin_checkpoint(&mut self, reason: Reason) -> Result<Submitted> {
        self.check_writable()?;
        let _span = cores::span(cores::Stage::Checkpoint);
        let mut set = WriteSet::default();
        self.iostat.set_in_checkpoint(true);
        let submitted = self.submit_checkpoint(reason, &mut set);
        self.iostat.set_in_checkpoint(false);
        match submitted {
            Ok(tail) => Ok(Submitted {
                set,
                tail,
                barrier: self.options.barrier,
                failed_before: self.io.writer().failed_before(),
                plain: self.options.inject.contains(Inject::PLAIN_CHECKPOINT),
                early: self.options.inject.contains(Inject::EARLY_TAIL),
            }),
            Err(error) => {
                // Half a checkpoint is on the drive, and the last complete one must stay valid.
                // Writes in flight still own their blocks. They are write-back like any other if
                // the checkpoint only lacked room or could not read something.
                self.logs.get_mut().break_chain();
                set.submit(self.io.writer());
                let written = set.wait(self.io.queue()).map_err(Error::from);
                written.and(Err(error)).inspect_err(|error| match error {
                    // Of the tables, a quota file or a directory, without which no checkpoint can
                    // be written, whatever happens to a file.
                    Error::Corrupt(_) | Error::Posix(Errno::NOENT) => self.halt(error),
                    _ => self.stop(error),
                })
            }
        }
    }

    fn submit_checkpoint(&mut self, reason: Reason, set: &mut WriteSet) -> Result<(u32, Block)> {
        if self.pack_blocks() > BLOCKS_PER_SEGMENT as usize {
            return Err(Error::NoSpace);
        }
        self.settle_atimes()?;
        self.write_quotas(set)?;
        self.write_dirty_directories(set)?;
        self.write_all_dirty_nodes(set)?;
        set.submit(self.io.writer());
        // From here on no more room is needed.
        self.fill_journals(reason)?;
        self.iostat.add_blocks(Moved::FsMeta, self.io.submit_meta(set));
        self.write_pack(reason, set)
    }

    /// To be called when the checkpoint is durable or has failed.
    pub(crate) fn end_checkpoint(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Ok(()) => {
                self.after_commit();
                Ok(())
            }
            Err(error) => {
                self.stop(&error);
                Err(error)
            }
        }
    }

    /// Writes NAT and SIT entries to their tables, or to the journals in the data logs' summaries.
    /// If a block of a table cannot be read, nothing has changed.
    fn fill_journals(&mut self, reason: Reason) -> Result<()> {
        if reason == Reason::Umount {
            self.nat.get_mut().rebuild_bits(&self.io)?;
        }
        let nat_blocks =
            self.nat.get_mut().read_for_checkpoint(&self.io, reason == Reason::Sync)?;
        let sit_blocks = self.sit.read_for_checkpoint(&self.io, self.segments.get_mut())?;
        let nats = self.nat.get_mut().checkpoint(&self.io, nat_blocks);
        let hot = &mut self.logs.get_mut().get_mut(LogType::HotData).summary;
        hot.journal.fill(0);
        for (&nid, &entry) in nats {
            let fits = hot.nat_journal_mut().put(nid, entry);
            debug_assert!(
                fits,
                "the NAT keeps its journal within {}",
                summary::NAT_JOURNAL_ENTRIES
            );
        }
        let sits = self.sit.checkpoint(&self.io, self.segments.get_mut(), sit_blocks);
        let cold = &mut self.logs.get_mut().get_mut(LogType::ColdData).summary;
        cold.journal.fill(0);
        for &segno in sits {
            let fits = cold.sit_journal_mut().put(segno, self.segments.get_mut().entry(segno));
            debug_assert!(
                fits,
                "the SIT keeps its journal within {}",
                summary::SIT_JOURNAL_ENTRIES
            );
        }
        Ok(())
    }

    /// Submits the pack except for its last block, which it returns with its address.
    fn write_pack(&mut self, reason: Reason, set: &mut WriteSet) -> Result<(u32, Block)> {
        let umount = reason == Reason::Umount;
        let kbytes = self.lifetime_kbytes();
        self.logs.get_mut().get_mut(LogType::HotNode).summary.set_lifetime_kbytes(kbytes);
        let orphans = self.orphan_blocks();
        let (summaries, compact) = self.summary_blocks(umount);
        let mut flags = self.checkpoint.flags & LASTING | CpFlags::CRC_RECOVERY;
        flags.set(CpFlags::UMOUNT, umount);
        flags.set(CpFlags::COMPACT_SUM, compact);
        flags.set(CpFlags::ORPHAN_PRESENT, !orphans.is_empty());

        let header_blocks = 1 + self.sb.cp_payload as usize;
        let total = header_blocks + orphans.len() + summaries.len() + 1;
        let bits_at = nat_bits::start(&self.sb, total as u32).filter(|_| umount);
        flags.set(CpFlags::NAT_BITS, bits_at.is_some() && self.nat.get_mut().bits().is_some());
        let next = &mut self.checkpoint;
        next.version = next.version.wrapping_add(1);
        self.notes_corruption = false;
        next.flags = flags;
        // After an unmount another driver may write. A mount begins with a checkpoint of its own.
        next.ours = !umount;
        next.sealed = !umount && self.io.tears();
        next.pack_total = total as u32;
        next.start_sum = (header_blocks + orphans.len()) as u32;
        next.cursegs = LogType::ALL.map(|log| self.logs.get_mut().get(log).at);
        let used = self.space.used();
        next.valid_block_count = used.blocks;
        next.valid_node_count = used.nodes;
        next.valid_inode_count = used.inodes;
        next.free_segment_count = self.segments.get_mut().free_segments(self.logs.get_mut());
        next.next_free_nid = self.nat.get_mut().next_free_nid();
        next.elapsed_time = self.clock.elapsed();
        next.sit_bitmap.copy_from_slice(self.sit.version_bitmap());
        next.nat_bitmap.copy_from_slice(self.nat.get_mut().version_bitmap());
        let header = next.encode(&self.sb);

        self.pack = 1 - self.pack;
        let start = self.sb.cp_pack(self.pack);
        let tail = header[0].clone();
        for (i, block) in header.into_iter().chain(orphans).chain(summaries).enumerate() {
            set.push(self.io.writer(), (start + i as u32).into(), block);
        }
        if let (Some(at), Some(bits)) = (bits_at, self.nat.get_mut().bits()) {
            for (i, block) in bits.encode(&self.checkpoint).into_iter().enumerate() {
                set.push(self.io.writer(), (start + at + i as u32).into(), block);
            }
        }
        set.submit(self.io.writer());
        self.iostat.add_blocks(Moved::FsMeta, total);
        Ok((start + total as u32 - 1, tail))
    }

    /// The most blocks that a checkpoint can have.
    fn pack_blocks(&self) -> usize {
        let orphans = self.orphans.len().div_ceil(ORPHANS_PER_BLOCK);
        1 + self.sb.cp_payload as usize + orphans + LogType::ALL.len() + 1
    }

    fn orphan_blocks(&self) -> Vec<Block> {
        let inos: Vec<_> = self.orphans.iter().copied().collect();
        let count = inos.len().div_ceil(ORPHANS_PER_BLOCK) as u16;
        let blocks = inos.chunks(ORPHANS_PER_BLOCK).enumerate().map(|(i, chunk)| {
            let mut block = [0; BLOCK_SIZE];
            RawOrphanBlock::of_mut(&mut block).fill(i as u16, count, chunk);
            Block::new(block)
        });
        blocks.collect()
    }

    /// Summaries of the data logs, compact if they fit into two blocks, and at unmount also of the
    /// node logs.
    fn summary_blocks(&mut self, with_nodes: bool) -> (Vec<Block>, bool) {
        let data = [LogType::HotData, LogType::WarmData, LogType::ColdData];
        let logs = self.logs.get_mut();
        let used = data.map(|log| {
            let at = logs.get(log).at;
            if at.ssr { BLOCKS_PER_SEGMENT as usize } else { usize::from(at.blkoff) }
        });
        let full = |log| summary_area_block(&logs.get(log).summary);
        let compact = summary::compact_blocks(used.iter().sum()).is_some();
        let mut blocks = if compact {
            let logs: [&RawSummaryBlock; 3] = data.map(|log| &*logs.get(log).summary);
            summary::pack_compact(logs, used)
        } else {
            data.map(full).to_vec()
        };
        if with_nodes {
            blocks.extend([LogType::HotNode, LogType::WarmNode, LogType::ColdNode].map(full));
        }
        (blocks, compact)
    }

    /// After the checkpoint is durable: what it freed is free as soon as the drive knows.
    fn after_commit(&mut self) {
        self.io.forget_meta();
        let small = self.small_discards();
        let logs = self.logs.get_mut();
        self.segments.get_mut().set_checkpointed(small, |segno| logs.is_current(segno));
        self.cleaner.settle();
        self.logs.get_mut().begin_chain();
        self.space.begin_chain();
        self.since_checkpoint.clear();
        self.inodes.all_is_stable();
        self.last_checkpoint = cores::now();
        let freed = self.segments.get_mut().free_prefree();
        for segno in &freed {
            self.damaged_sections.remove(&self.sb.section_of(*segno));
        }
        self.withhold(&freed);
    }

    /// Resets the zone at `start`; false if the drive refused.
    pub(crate) fn reset_zone(&self, start: u32) -> bool {
        let reset = Command::ManageZone { action: ZoneAction::Reset, zone: Some(start.into()) };
        self.io.queue().run(reset).is_ok()
    }
}
