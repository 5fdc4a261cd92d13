//! A mounted F2FS: the gate of the volume, and operations that wait for the drive without the lock.

use std::sync::Arc;

use cores::{Mutex, Rank};
use drive::Drive;
use queue::BlockQueue;
use vfs::inode::{HasTurns, Turn, Turns};
use vfs::{Errno, Gate, Hold, Ino, Look};

use crate::alloc::gc::{Hands, Held};
use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::fsync::arrivals::Arrivals;
use crate::fsync::{self, Plan};
use crate::mount;
use crate::mount::engine::{Caller, Engine};
use crate::mount::faults::FaultType;
use crate::mount::iostat::IoStat;
use crate::mount::maintain::{Upkeep, Wishes};
use crate::mount::options::{Inject, MountOptions};
use crate::ondisk::Nid;
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::sit::LogType;
use crate::recover::{RecoveryReport, recover};

/// A mounted F2FS volume.
///
/// Dropping it without [`vfs::FileSystem::unmount`] is a crash: what was not durable is lost, and
/// the next mount recovers.
pub struct F2fs {
    gate: Gate<Engine>,
    queue: Arc<BlockQueue>,
    plan: &'static Plan,
    options: MountOptions,
    pub(crate) upkeep: Upkeep,
    recovery: RecoveryReport,
    turns: Arc<Turns>,
    /// The places of the fsyncs under way in the node log.
    arrivals: Arrivals,
    /// Held while discards are issued.
    pub(crate) discarding: Mutex<()>,
    /// Held for the write-back of a large file ([`crate::Knobs::min_seq_blocks`]).
    pub(crate) writing_alone: Mutex<()>,
    /// Counts of what is read and written, if enabled.
    pub(crate) iostat: Arc<IoStat>,
}

impl HasTurns for F2fs {
    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn end_of_last_turn(&self, ino: Ino) {
        if let Ok(ino) = nid(ino) {
            self.clear_up(ino);
        }
    }
}

impl F2fs {
    /// Mounts the volume on `drive`, recovering what the last fsyncs made durable.
    ///
    /// Fails if a structure that it needs is corrupt ([`Error::Corrupt`]) or requires something not
    /// built here ([`Error::Unsupported`]); the drive is then unchanged.
    ///
    /// ```
    /// use f2fs::prelude::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let drive: Arc<dyn Drive> = drive::ram(1 << 15);
    /// mkfs::format(&drive, &MkfsOptions::default())?;
    /// let fs = F2fs::mount(drive.clone(), &MountOptions::default())?;
    /// let file = fs.create(fs.root(), b"kept", 0o644, Creator::default())?.ino;
    /// fs.fsync(file, false)?;
    /// drop(fs); // a crash: it was not unmounted
    ///
    /// let fs = F2fs::mount(drive, &MountOptions::default())?;
    /// assert_eq!(fs.recovery().recovered_inodes, 1);
    /// assert!(fs.lookup(fs.root(), b"kept").is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn mount(drive: Arc<dyn Drive>, options: &MountOptions) -> Result<Self> {
        let mut volume = mount::load(drive, options)?;
        volume.load_quotas();
        let recovery = recover(&mut volume).map_err(|error| unrecoverable(&mut volume, error))?;
        volume.quotas.enforce();
        volume.part_logs()?;
        let wishes = Wishes::new(volume.knobs);
        Ok(Self {
            iostat: volume.iostat.clone(),
            queue: volume.io.queue().clone(),
            turns: volume.turns.clone(),
            plan: fsync::plan_of(options),
            upkeep: Upkeep::new("f2fs upkeep", wishes),
            options: volume.options.clone(),
            recovery,
            gate: Gate::new("f2fs volume", volume),
            arrivals: Arrivals::default(),
            discarding: Mutex::ranked(Rank::Discard, "f2fs discard", ()),
            writing_alone: Mutex::ranked(Rank::WriteBack, "f2fs write-back", ()),
        })
    }

    /// What recovery found and did when this volume was mounted.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// The options in force: those asked for, and those that the drive requires.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// The plan that fsyncs of this mount follow.
    pub fn plan(&self) -> &'static Plan {
        self.plan
    }

    /// Cleans one section, as the background cleaner would when the volume is idle. False if there
    /// was nothing worth cleaning.
    pub fn background_gc(&self) -> Result<bool> {
        if self.options.background_gc == crate::BackgroundGc::Off {
            return Ok(false);
        }
        let policy = self.lock().background_policy(false);
        self.clean_one(policy, 0, Caller::Background)
    }

    /// Writes a checkpoint without writing back file data, `F2FS_IOC_WRITE_CHECKPOINT`.
    pub fn write_checkpoint(&self) -> Result<()> {
        self.checkpoint(self.settled(), Caller::Foreground).map(drop)
    }

    /// Sections cleaned since the mount.
    pub fn cleaned_sections(&self) -> u64 {
        self.lock().stats.cleanings.iter().sum()
    }

    /// Locks the volume shared.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn look(&self) -> Look<'_, Engine> {
        self.gate.look()
    }

    /// Locks the volume shared, to change what has a lock of its own; `None` during a checkpoint.
    pub(crate) fn join(&self) -> Option<Look<'_, Engine>> {
        self.gate.join()
    }

    /// Whether the lock is contended, so that it is worthwhile to lock the volume only shared.
    pub(crate) fn is_crowded(&self) -> bool {
        self.gate.is_crowded()
    }

    /// Locks the volume exclusively, perhaps during a checkpoint: then what is in memory may not be
    /// durable, and must not change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock(&self) -> Hold<'_, Engine> {
        self.gate.hold()
    }

    /// Operations begun, to tell a quiet volume.
    pub(crate) fn operations_begun(&self) -> u64 {
        self.lock().operations.wrapping_add(self.gate.looks())
    }

    /// Locks the volume exclusively while no checkpoint is being written.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn settled(&self) -> Hold<'_, Engine> {
        self.gate.settled()
    }

    /// The volume, for a change: it is writable and has room to log the change.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn change(&self) -> Result<Hold<'_, Engine>> {
        let _span = cores::span(cores::Stage::Syscall);
        self.change_alone()
    }

    /// As [`F2fs::change`], for an operation that began with [`F2fs::own`] and takes more.
    pub(crate) fn change_alone(&self) -> Result<Hold<'_, Engine>> {
        drive::Block::stock();
        let mut volume = self.settled();
        cores::charge(cores::Stage::Inode);
        volume.operations += 1;
        if volume.faults.fires(FaultType::CHECKPOINT) {
            volume.halt(&Errno::IO.into());
        }
        volume.check_writable()?;
        volume.inodes.make_room();
        self.in_good_time(volume)
    }

    /// Writes a checkpoint if it is time for one, and makes room where it runs out.
    pub(crate) fn in_good_time<'a>(
        &'a self,
        mut volume: Hold<'a, Engine>,
    ) -> Result<Hold<'a, Engine>> {
        if volume.is_checkpoint_due() {
            volume = self.checkpoint(volume, Caller::Foreground)?;
        }
        self.balance(volume)
    }

    /// Writes a checkpoint. Others can read the volume while the drive works on it.
    pub(crate) fn checkpoint<'a>(
        &'a self,
        volume: Hold<'a, Engine>,
        caller: Caller,
    ) -> Result<Hold<'a, Engine>> {
        let mut held = Held::new(self, volume);
        held.checkpoint(Reason::Sync, caller)?;
        Ok(held.into_hold())
    }

    /// Waits for the drive. Meanwhile the volume can be read, but not changed.
    pub(crate) fn pause<'a, T>(
        &'a self,
        volume: Hold<'a, Engine>,
        work: impl FnOnce(&BlockQueue) -> T,
    ) -> (Hold<'a, Engine>, T) {
        self.gate.commit(volume, || work(&self.queue))
    }

    pub(crate) fn queue(&self) -> &BlockQueue {
        &self.queue
    }

    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Ends a call of `open`. The last one frees an inode without a name, and drops an atomic write
    /// that was not committed.
    pub(crate) fn release_inode(&self, ino: Nid) {
        let volume = self.look();
        if !volume.opens.release(ino.into()) {
            return;
        }
        let leaves_something = volume.orphans.contains(&ino) || volume.is_left_atomic(ino);
        drop(volume);
        if leaves_something {
            self.clear_up(ino);
        }
    }

    /// Drops what is left of an inode that is not open and that no operation works on.
    fn clear_up(&self, ino: Nid) {
        let mut volume = self.settled();
        let is_open = volume.opens.is_open(ino.into());
        if !is_open && volume.is_left_atomic(ino) && volume.abort_atomic(ino).is_err() {
            volume.checkpoint.flags |= CpFlags::FSCK;
        }
        if volume.orphans.contains(&ino) && volume.check_writable().is_ok() {
            volume.evict_if_unused(ino);
        }
    }

    pub(crate) fn injected(&self, fault: Inject) -> bool {
        self.options.inject.contains(fault)
    }

    /// Makes everything stable that the drive has completed, unless mounted `nobarrier`.
    pub(crate) fn flush(&self) -> Result<()> {
        if !self.options.barrier {
            return Ok(());
        }
        let _span = cores::span(cores::Stage::WaitFlush);
        let flushed =
            if self.options.flush_merge { self.queue.flush_joined() } else { self.queue.flush() };
        Ok(flushed?)
    }

    /// Waits until no other fsync or write-back of `ino` is under way.
    pub(crate) fn take_turn(&self, ino: Nid) -> Turn<'_, Self> {
        if self.injected(Inject::NO_TURN) {
            return Turn::without_waiting(self, ino.into());
        }
        Turn::take(self, ino.into())
    }

    /// As [`F2fs::take_turn`], without waiting; `None` if another one is under way.
    pub(crate) fn try_turn(&self, ino: Nid) -> Option<Turn<'_, Self>> {
        if self.injected(Inject::NO_TURN) {
            return Some(Turn::without_waiting(self, ino.into()));
        }
        Turn::try_take(self, ino.into())
    }

    /// The volume, if it is still mounted, for an operation that changes nothing.
    pub(crate) fn volume(&self) -> Result<Hold<'_, Engine>> {
        let _span = cores::span(cores::Stage::Syscall);
        self.unseen()
    }

    /// As [`F2fs::volume`], for an operation that began with [`F2fs::glance`] and did not see all
    /// it asked for.
    pub(crate) fn unseen(&self) -> Result<Hold<'_, Engine>> {
        let mut volume = self.lock();
        cores::charge(cores::Stage::Inode);
        volume.check_usable()?;
        volume.operations += 1;
        Ok(volume)
    }
}

/// A chain or an orphan that does not fit the checkpoint makes some operation fail with a plain
/// errno. A mount reports it as corruption.
fn unrecoverable(volume: &mut Engine, error: Error) -> Error {
    match error {
        Error::Posix(errno) => {
            let at = volume.logs.get_mut().next_addr(&volume.sb, LogType::WarmNode);
            Error::corrupt("recovery", at, errno, "nodes that fit the checkpoint")
        }
        other => other,
    }
}

/// F2FS numbers inodes with 32 bits; a larger number names none.
pub(crate) fn nid(ino: Ino) -> Result<Nid> {
    Nid::try_from(ino).map_err(|_| Error::Posix(Errno::NOENT))
}
