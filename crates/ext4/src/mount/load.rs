//! Mounting, first step: from a drive to a volume whose superblock and descriptors have been read
//! and checked (`ext4_fill_super`).

use std::sync::Arc;

use drive::{Block, Drive};
use journal::policy::{FAST, JBD2};
use journal::{LogSpace, Policy};
use queue::{BlockQueue, Io, WriteSet};

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::mount::journal::{Replay, log_of, replay};
use crate::mount::options::{DataMode, MountOptions};
use crate::ondisk::FsBlock;
use crate::ondisk::features::{Compat, Incompat, RoCompat};
use crate::ondisk::superblock::{RawSuperblock, STATE_CLEAN, STATE_ERRORS, Superblock};
use crate::reader;

/// What a volume may use to be changed here.
fn check_writable(sb: &Superblock) -> Result<()> {
    let incompat = Incompat::FILETYPE
        | Incompat::RECOVER
        | Incompat::EXTENTS
        | Incompat::BIT64
        | Incompat::FLEX_BG
        | Incompat::CSUM_SEED
        | Incompat::LARGEDIR;
    let ro_compat = RoCompat::SPARSE_SUPER
        | RoCompat::LARGE_FILE
        | RoCompat::HUGE_FILE
        | RoCompat::GDT_CSUM
        | RoCompat::DIR_NLINK
        | RoCompat::EXTRA_ISIZE
        | RoCompat::METADATA_CSUM
        | RoCompat::ORPHAN_PRESENT;
    let unknown = (sb.incompat - incompat).names().chain((sb.ro_compat - ro_compat).names());
    let unknown: Vec<String> = unknown.collect();
    if !unknown.is_empty() {
        return Err(Error::unsupported(format!(
            "writing with {}; mount it -o ro",
            unknown.join(", ")
        )));
    }
    let needed = Incompat::EXTENTS | Incompat::FILETYPE;
    let missing = (needed - sb.incompat).names().chain((Compat::HAS_JOURNAL - sb.compat).names());
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(format!("writing without {}; mount it -o ro", missing.join(", "))))
}

/// Replays the log and reads what a mount needs.
pub(super) fn load(drive: Arc<dyn Drive>, options: &MountOptions) -> Result<(Replay, Engine)> {
    let queue = Arc::new(BlockQueue::for_files(drive, options.queue));
    let sb = reader::valid_superblock(&queue)?;
    check_writable(&sb)?;
    reader::check_fits(&sb, &queue)?;
    let io = Arc::new(Io::sliced(queue, sb.block_size));
    let (mut replay, left) = replay(&sb, io.queue())?;
    // What is left needs an engine, which must not write records of its own, nor leave flushes out.
    let plain = MountOptions { policy: Some(&JBD2), ..MountOptions::default() };
    if !left.records.is_empty() {
        let engine = engine(&io, &plain, false)?;
        engine.read_orphans()?;
        replay.records = engine.apply_records(left.records)? as u64;
        engine.journal.close()?;
    }
    if !left.fast.is_empty() {
        let engine = engine(&io, &plain, true)?;
        engine.read_orphans()?;
        replay.fast = engine.apply_fast_commits(&left.fast)? as u64;
        engine.journal.close()?;
    }
    Ok((replay, engine(&io, options, false)?))
}

/// An engine over a volume whose log has been replayed. Its first transaction may be the one that
/// `brings_in` fast commits.
fn engine(io: &Arc<Io>, options: &MountOptions, brings_in: bool) -> Result<Engine> {
    // The log may have had another superblock and other descriptors.
    let sb = reader::valid_superblock(io.queue())?;
    let mut super_block = io.read(sb.super_block())?;
    let first = sb.super_block() + 1;
    let table: Vec<Block> = (0..u64::from(sb.desc_blocks()))
        .map(|nr| io.read(first + nr).map_err(Error::from))
        .collect::<Result<_>>()?;
    let log = log_of(&sb, io.queue(), brings_in)?;
    let policy = policy(&sb, &log, options)?;
    let journal = journal::Options { is_single: brings_in, ..options.journal(policy) };
    log.check(io, &journal)?;
    if policy.marks_log() {
        // First: on a volume that says it was unmounted in good order, others take the log for
        // corrupt.
        RawSuperblock::edit(&mut super_block.make_mut()[sb.super_byte()..], |raw| {
            raw.feature_incompat = (raw.incompat() | Incompat::RECOVER).bits().into();
        });
        force(io, sb.super_block(), super_block.clone())?;
    }
    Engine::new(sb, io.clone(), log, table, super_block, (options, journal))
}

fn force(io: &Io, at: FsBlock, block: Block) -> Result<()> {
    let mut set = WriteSet::default();
    set.push_forced(io, at, block);
    Ok(set.wait(io.queue())?)
}

/// What an fsync does on this volume.
fn policy(sb: &Superblock, log: &LogSpace, options: &MountOptions) -> Result<&'static Policy> {
    let is_for_fast = sb.compat.contains(Compat::FAST_COMMIT);
    let data = options.data.unwrap_or(DataMode::of(sb.raw.default_mount_opts.get()));
    let has_room = || log.superblock.clone().use_fast_commits();
    let no_sums = Err(Error::usage("record_csum: only with journal=ijournal, grouped or zgrouped"));
    match options.policy {
        Some(policy) if policy.name == FAST.name && !is_for_fast => {
            let what = "journal=fast on a volume made without -O fast_commit";
            Err(Error::unsupported(what))
        }
        Some(policy) if options.record_csum && !policy.can_sum() => no_sums,
        None if options.record_csum => no_sums,
        Some(policy) => Ok(policy),
        // Contents in the log need its commits (`ext4_fill_super`).
        None if is_for_fast && data != DataMode::Journal && has_room() => Ok(&FAST),
        None => Ok(&JBD2),
    }
}

impl Engine {
    /// Marks the volume as mounted, or as unmounted in good order, past the journal: before
    /// anything is logged, and when the log is empty (`ext4_commit_super`). Durable when this
    /// returns.
    pub(super) fn mark(&self, clean: bool) -> Result<()> {
        let (blocks, inodes) = (self.groups.free_blocks(), self.groups.free_inodes());
        let now = self.clock.now().secs as u32;
        let mut orphans = self.orphans.lock();
        let has_slots = orphans.has_slots();
        let block = orphans.edit_superblock(|raw| {
            let mut incompat = raw.incompat();
            incompat.set(Incompat::RECOVER, !clean);
            raw.feature_incompat = incompat.bits().into();
            raw.wtime = now.into();
            raw.set_free_blocks_count(blocks);
            raw.free_inodes_count = (inodes as u32).into();
            if self.corruptions.load() > 0 {
                raw.state = (raw.state.get() | STATE_ERRORS).into();
            }
            if clean {
                // The mount has emptied the orphan file, or left what it could not free.
                let mut ro_compat = raw.ro_compat();
                ro_compat.set(RoCompat::ORPHAN_PRESENT, has_slots);
                raw.feature_ro_compat = ro_compat.bits().into();
                raw.state = (raw.state.get() | STATE_CLEAN).into();
            } else {
                // From now on there may be attributes, and files of 2 GiB.
                raw.feature_compat = (raw.compat() | Compat::EXT_ATTR).bits().into();
                raw.feature_ro_compat = (raw.ro_compat() | RoCompat::LARGE_FILE).bits().into();
                raw.mtime = now.into();
                raw.mnt_count = raw.mnt_count.get().saturating_add(1).into();
            }
        });
        drop(orphans);
        force(&self.io, self.sb.super_block(), block)
    }

    /// Makes durable that the volume is corrupt, if it does not say so yet (`ext4_handle_error`):
    /// the next `e2fsck -p` checks it in full. The operation that has met corruption holds no lock
    /// and has changed nothing. What others have changed is committed too.
    pub(super) fn note_corruption(&self) {
        if self.notes_corruption.fetch_and(0) == 0 {
            return;
        }
        let noted = self.journal.start(1).map_err(Error::from).and_then(|mut handle| {
            let now = self.clock.now().secs as u64;
            let mut orphans = self.orphans.lock();
            let block = orphans.edit_superblock(|raw| raw.note_error(now));
            handle.create(self.sb.super_block(), (), block);
            drop((orphans, handle));
            self.commit()
        });
        noted.unwrap_or_else(|error| self.report(&error));
    }
}
