//! Recovery at mount: from what the last checkpoint says to what the last fsyncs made durable
//! (`f2fs_recover_fsync_data`).
//!
//! The chain of nodes written since the checkpoint is read twice. [`chain`] finds out which inodes
//! were fsynced and how far; under OPRW it judges each node by the zones' write pointers.
//! [`replay`] applies the nodes. A checkpoint ends recovery. Until then, nothing changes to which
//! the chain leads, and the checkpoint itself is written elsewhere, so a cut during recovery leaves
//! everything as it was. Zones that an interrupted recovery wrote are emptied first ([`zone_fix`]).
//!
//! A read-only mount replays in memory only.

mod chain;
mod replay;
mod zone_fix;

use crate::alloc::gc::CHAIN_LOGS;
use crate::checkpoint::Reason;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::sit::LogType;

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last unmount was clean.
    pub clean: bool,
    /// Nodes of the chain that were read.
    pub scanned_nodes: u64,
    /// Nodes that were applied.
    pub replayed_nodes: u64,
    /// Inodes that got back what an fsync had made durable.
    pub recovered_inodes: u64,
    /// Inodes of which a node was discarded because a block to which it points never reached NAND.
    pub skipped_inodes: u64,
    /// Unlinked inodes that were open at the cut, now freed.
    pub orphans: u64,
    /// Logs moved because their zone's write pointer was elsewhere.
    pub moved_logs: u64,
    /// Zones that were reset because nothing in them counts.
    pub reset_zones: u64,
}

/// Brings a volume that was just loaded into a state in which it can be used.
pub(crate) fn recover(volume: &mut Engine) -> Result<RecoveryReport> {
    let mut report = RecoveryReport {
        clean: volume.checkpoint.flags.contains(CpFlags::UMOUNT),
        ..RecoveryReport::default()
    };
    let held = prepare(volume, &mut report)?;
    if volume.options.read_only {
        return Ok(report);
    }
    finish(volume, &mut report, &held)?;
    Ok(report)
}

/// Everything before the checkpoint. It happens in memory, except that zones to which nothing leads
/// are reset. Returns the sections that must not be written before the checkpoint.
pub(crate) fn prepare(volume: &mut Engine, report: &mut RecoveryReport) -> Result<Vec<u32>> {
    let writable = !volume.options.read_only;
    let mut held = if writable { volume.hold_unclean_sections() } else { Vec::new() };
    // Even if only in memory: fsynced files may use their numbers and blocks.
    report.orphans = volume.free_orphans();
    let reach = if volume.options.roll_forward { volume.roll_forward(report)? } else { None };
    if !writable {
        return Ok(held);
    }
    if let Some(reach) = &reach {
        report.reset_zones = volume.reset_unreached(&mut held, reach)?;
    }
    if report.scanned_nodes > 0 {
        volume.leave_chain()?;
    }
    report.moved_logs = volume.fix_log_positions(reach.as_ref())?;
    if let Some(reach) = reach.filter(|_| !report.clean) {
        volume.finish_abandoned_zones(Some(&reach))?;
    }
    Ok(held)
}

/// The checkpoint, and what can be done only after it.
pub(crate) fn finish(volume: &mut Engine, report: &mut RecoveryReport, held: &[u32]) -> Result<()> {
    // Even if there was nothing to recover. A drive that reorders may have lost the first nodes of
    // a chain and kept later ones, and new nodes of the same version would lead to them.
    volume.write_checkpoint(Reason::Sync)?;
    report.reset_zones += volume.release_sections(held)?;
    if !report.clean {
        volume.finish_abandoned_zones(None)?;
        volume.make_room()?;
    }
    Ok(())
}

impl Engine {
    /// Frees the inodes that no longer had a name when the checkpoint was written.
    ///
    /// One that cannot be read stays an orphan. That costs space but harms no other file.
    /// Otherwise, removing a damaged file would make the volume unmountable.
    fn free_orphans(&mut self) -> u64 {
        let mut freed = 0;
        for ino in self.orphans.clone() {
            match self.free_orphan(ino) {
                Ok(was_there) => freed += u64::from(was_there),
                Err(_) => self.checkpoint.flags |= CpFlags::FSCK,
            }
        }
        freed
    }

    fn free_orphan(&mut self, ino: Nid) -> Result<bool> {
        let is_there = !self.nat.get_mut().get(&self.io, ino)?.is_free();
        if is_there {
            self.inode_mut(ino)?.links.set(0);
            self.evict(ino)?;
        }
        self.orphans.remove(&ino);
        Ok(is_there)
    }

    /// Moves the logs away from the chain and its data, so that a cut during recovery cannot find
    /// them overwritten. Logs in zones are moved by their write pointers. A data log stays where it
    /// is if nothing after its head must be kept, because a nearly full volume has few free
    /// sections.
    fn leave_chain(&mut self) -> Result<()> {
        for log in CHAIN_LOGS {
            let next = self.logs.get_mut().next_addr(&self.sb, log);
            let leaves = log == LogType::WarmNode || self.segments.get_mut().has_spent_from(next);
            if leaves && !self.is_sequential(next) {
                self.logs.get_mut().start_elsewhere(self.segments.get_mut(), &self.io, log)?;
            }
        }
        Ok(())
    }
}
