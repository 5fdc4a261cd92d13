//! The engine of a mounted volume: everything behind its gate.
//!
//! The state is plain data. Most operations on it are plain `&mut self` methods, in the files of
//! this crate by subject, and run with the volume locked exclusively; state with a lock of its own
//! changes concurrently. [`crate::F2fs`] unlocks the volume wherever an fsync waits for the drive.

use std::collections::BTreeSet;
use std::sync::Arc;

use cores::{Line, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use vfs::inode::{Opens, Turns};
use vfs::kind::Witness;
use vfs::{Clock, Errno, Health, Timespec};

use crate::alloc::credit::Credit;
use crate::alloc::curseg::Logs;
use crate::alloc::discard::Discards;
use crate::alloc::gc::Cleaner;
use crate::alloc::nat::Nat;
use crate::alloc::segments::Segments;
use crate::alloc::sit_table::SitTable;
use crate::alloc::space::Space;
use crate::alloc::zones::WritePointers;
use crate::error::{Error, Result, is_unreadable};
use crate::file::atomic_write::AtomicWrite;
use crate::inode::shards::Inodes;
use crate::mount::attributes::Knobs;
use crate::mount::faults::Faults;
use crate::mount::io::Io;
use crate::mount::iostat::IoStat;
use crate::mount::options::{MountOptions, OnError};
use crate::mount::quota::Quotas;
use crate::mount::since::SinceCheckpoint;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BlockAddr, Nid};

/// All state of a mounted volume.
pub(crate) struct Engine {
    pub(crate) sb: Arc<Superblock>,
    pub(crate) options: MountOptions,
    pub(crate) io: Io,
    /// The last durable checkpoint; while the next one is being written, that one.
    pub(crate) checkpoint: Checkpoint,
    /// The pack that holds the last durable checkpoint.
    pub(crate) pack: usize,
    /// Where the nodes are.
    pub(crate) nat: Mutex<Nat>,
    pub(crate) sit: SitTable,
    /// Which blocks are valid.
    pub(crate) segments: Mutex<Segments>,
    /// Where the next blocks go.
    pub(crate) logs: Mutex<Logs>,
    /// What the drive is to be told of.
    pub(crate) discards: Discards,
    pub(crate) space: Space,
    pub(crate) quotas: Quotas,
    pub(crate) credit: Credit,
    pub(crate) inodes: Inodes,
    pub(crate) opens: Opens,
    /// The inodes whose fsync or write-back is under way.
    pub(crate) turns: Arc<Turns>,
    /// Inodes without a name that are still open. The next mount frees those that are left.
    pub(crate) orphans: BTreeSet<Nid>,
    /// Files being written atomically.
    pub(crate) atomic_writes: FxHashMap<Nid, AtomicWrite>,
    pub(crate) since_checkpoint: SinceCheckpoint,
    pub(crate) cleaner: Cleaner,
    /// The writable attributes.
    pub(crate) knobs: Knobs,
    /// Whether it is cleaned by age (ATGC).
    pub(crate) atgc: bool,
    /// Calls that a user wants to fail.
    pub(crate) faults: Arc<Faults>,
    /// Sections that cannot be cleaned because of pinned files.
    pub(crate) pinned_sections: BTreeSet<u32>,
    /// Sections that cannot be cleaned because something there cannot be read or is corrupt. The
    /// next mount tries again.
    pub(crate) damaged_sections: BTreeSet<u32>,
    pub(crate) stats: Stats,
    pub(crate) iostat: Arc<IoStat>,
    /// Look-ups in the extent cache that missed.
    pub(crate) extent_misses: u64,
    /// KiB written to the volume before this mount.
    pub(crate) written_before: u64,
    /// Access times that are written when their inode is written for another reason (`lazytime`).
    pub(crate) lazy_atimes: FxHashMap<Nid, Timespec>,
    /// The generation of the next new inode.
    pub(crate) generations: Line,
    pub(crate) clock: Clock,
    pub(crate) zones: Option<WritePointers>,
    pub(crate) health: Health,
    /// When the last checkpoint became durable.
    pub(crate) last_checkpoint: cores::Nanos,
    /// How many operations have begun, which shows when the volume is quiet.
    pub(crate) operations: u64,
    /// Files with a failed write for which no fsync was waiting. The next fsync reports it, once
    /// (`errseq_t`).
    pub(crate) write_errors: FxHashSet<Nid>,
    /// Corruption was met that no checkpoint tells of yet.
    pub(crate) notes_corruption: bool,
    /// If set, roll-forward leaves out an inode whose nodes are damaged; otherwise it fails.
    pub(crate) repairing: bool,
    /// Reports failures that no caller learns of.
    pub(crate) witness: Option<Witness>,
}

/// Who triggered the cleaning or the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// An operation that waits for it.
    Foreground,
    /// A background thread; no operation waits for it.
    Background,
}

/// Counts since the mount, for each [`Caller`].
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) checkpoints: [u64; 2],
    pub(crate) cleanings: [u64; 2],
    /// Blocks that the cleaner has moved, including nodes.
    pub(crate) moved_blocks: [u64; 2],
}

impl Engine {
    /// Sets the writable attributes.
    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        self.logs.get_mut().ssr_threshold = knobs.ssr_threshold(&self.sb, &self.checkpoint);
        self.space.reserve(knobs.reserved_blocks);
        self.iostat.switch(knobs.iostat_enable != 0);
        self.nat.get_mut().read_ahead = knobs.ra_nid_pages as u32;
        self.faults.set(knobs.inject_rate, knobs.inject_type);
        self.knobs = knobs;
    }

    /// Fails if the volume accepts no more requests.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.health == Health::Gone { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Fails unless the volume may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.health {
            Health::Sound if !self.options.read_only => Ok(()),
            Health::Stopped if self.options.errors == OnError::Continue => Err(Errno::IO.into()),
            Health::Sound | Health::Stopped => Err(Error::ReadOnly),
            Health::Shutdown | Health::Gone => Err(Errno::IO.into()),
        }
    }

    /// Writing something failed with `error`. If a write or a flush failed, from now on nothing is
    /// written. If there was no room, or something could not be read or is corrupt, nothing was
    /// lost: all writers read and check before they change anything, and an allocation that fails
    /// changes nothing, so what was not submitted is still dirty.
    pub(crate) fn stop(&mut self, error: &Error) {
        self.note(error);
        let no_room = matches!(error, Error::NoSpace | Error::Posix(Errno::DQUOT));
        if !no_room && !is_unreadable(error) {
            self.halt(error);
        }
    }

    /// If `error` is corruption, asks for a check: the next checkpoint does so for good
    /// (`SBI_NEED_FSCK`).
    pub(crate) fn note(&mut self, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            self.note_corruption();
        }
    }

    /// As [`Engine::note`], of corruption.
    pub(crate) fn note_corruption(&mut self) {
        if !self.checkpoint.flags.contains(CpFlags::FSCK) {
            self.checkpoint.flags |= CpFlags::FSCK;
            self.notes_corruption = true;
        }
    }

    /// Memory can no longer be relied on, so nothing is written from now on
    /// (`f2fs_handle_critical_error`).
    pub(crate) fn halt(&mut self, error: &Error) {
        if self.health != Health::Sound {
            return;
        }
        self.health = Health::Stopped;
        self.report(&format!("{error}; nothing more is written"));
        if self.options.errors == OnError::Panic {
            eprintln!("f2fs: {error}; mounted errors=panic, so this ends here");
            std::process::abort();
        }
    }

    /// Reports a failure that no caller learns of.
    #[cold]
    pub(crate) fn report(&self, what: &str) {
        if let Some(witness) = &self.witness {
            witness(what);
        }
    }

    /// Whether `addr` lies in a zone that takes only sequential writes.
    pub(crate) fn is_sequential(&self, addr: BlockAddr) -> bool {
        self.zones.as_ref().is_some_and(|zones| zones.is_sequential(addr))
    }
}
