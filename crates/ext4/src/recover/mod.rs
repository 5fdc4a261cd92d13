//! Recovery: what a power cut left in the journal goes home (`ext4_load_journal`).

mod apply;
mod fast;

use std::sync::Arc;

use drive::Drive;
use journal::{Log, Strictness, recover};
use queue::BlockQueue;
use vfs::kind::{self, Recovery, Repaired};

use crate::check::check;
use crate::error::{Error, Result};
use crate::mount::journal::JournalFile;
use crate::mount::{Ext4, MountOptions};
use crate::offline::superblock;
use crate::ondisk::features::Incompat;
use crate::ondisk::superblock::{RawSuperblock, STATE_ERRORS};
use crate::reader::{self, Reader};

/// Recovers the volume on `drive` as a mount that writes does. On a volume that can only be read,
/// the journal is replayed, and orphans stay, as after `e2fsck -E journal_only`.
pub(crate) fn run(drive: &Arc<dyn Drive>) -> Result<Recovery> {
    match in_full(drive) {
        Err(Error::Unsupported { .. }) => replay(drive),
        done => done,
    }
}

/// As [`run`], and then marks the volume as clean if a check finds no error: what e2fsck does about
/// a volume that is marked as having errors, or was not unmounted and has no journal.
pub(crate) fn run_and_settle(drive: &Arc<dyn Drive>) -> Result<Recovery> {
    let recovery = run(drive)?;
    if superblock::read(drive)?.is_clean() || !check(drive)?.findings.is_empty() {
        return Ok(recovery);
    }
    mark(drive, RawSuperblock::forget_errors)?;
    Ok(Recovery { clean: false, ..recovery })
}

/// Replays the journal of the volume on `drive`, and marks the volume as recovered. Both are
/// durable when this returns; a cut before leaves the journal as it was or closed, and the next
/// recovery ends in the same way. A journal that cannot be read back changes nothing.
fn replay(drive: &Arc<dyn Drive>) -> Result<Recovery> {
    if !superblock::read(drive)?.incompat.contains(Incompat::RECOVER) {
        return Ok(Recovery { clean: true, ..Recovery::default() });
    }
    let done = with_log(drive, |mut log| {
        if log.needs_file_system()? {
            let what = "fast commits or records of single files on a volume like this one";
            return Err(Error::unsupported(what));
        }
        Ok(recover(log, Strictness::Strict)?)
    })?;
    mark(drive, |raw| {
        raw.feature_incompat = raw.incompat().difference(Incompat::RECOVER).bits().into();
    })?;
    Ok(Recovery {
        scanned: done.transactions as u64,
        replayed: done.blocks as u64,
        ..Recovery::default()
    })
}

/// Leaves the volume on `drive` to e2fsck, which refuses its journal if that is ours, with areas or
/// records: it is replayed first. If it cannot be read back, or what a recovery needs is corrupt,
/// what is sound of its transactions goes home, as e2fsck does with its own, and records are lost.
/// Fails and changes nothing if e2fsck knows the journal.
pub(crate) fn salvage(drive: &Arc<dyn Drive>) -> kind::Result<Repaired> {
    if !has_our_log(drive)? {
        return Err(Error::usage("ext4 is repaired with e2fsck; nothing was changed").into());
    }
    let (recovery, note) = match run(drive).map_err(kind::Error::from) {
        Ok(recovery) => (recovery, "the journal was replayed".to_owned()),
        // It was the rest of the volume that ended it.
        Err(error) if error.is_corruption() && !has_our_log(drive)? => {
            (Recovery::default(), "the journal was replayed".to_owned())
        }
        Err(error) if error.is_corruption() => {
            let done = with_log(drive, |log| Ok(recover(log, Strictness::Lenient)?))?;
            let count = done.transactions;
            let lost = "records of single files are lost";
            (Recovery::default(), format!("{count} transactions of the journal replayed; {lost}"))
        }
        Err(error) => return Err(error),
    };
    superblock::edit(drive, |raw| {
        raw.feature_incompat = raw.incompat().difference(Incompat::RECOVER).bits().into();
        raw.state = STATE_ERRORS.into();
    })?;
    let notes = vec![format!("{note}; now it is for e2fsck -f")];
    Ok(Repaired { changed: true, notes, recovery, ..Repaired::default() })
}

fn has_our_log(drive: &Arc<dyn Drive>) -> Result<bool> {
    with_log(drive, |log| Ok(log.superblock().is_ours()))
}

/// Opens the journal of the volume on `drive`.
pub(crate) fn with_log<T>(
    drive: &Arc<dyn Drive>,
    job: impl FnOnce(Log<'_>) -> Result<T>,
) -> Result<T> {
    let reader = reader::open(drive.clone(), reader::CACHE)?;
    let queue = Arc::new(BlockQueue::new(drive.clone()));
    JournalFile::read(&reader)?.with_log(&queue, reader.sb.block_size, job)
}

/// The volume on `drive`, and what recovery did to show it: in memory only, the drive stays as it
/// is.
pub(crate) fn recovered(drive: &Arc<dyn Drive>) -> Result<(Reader, Recovery)> {
    let reader = reader::open(drive.clone(), reader::CACHE)?;
    if !reader.sb.incompat.contains(Incompat::RECOVER) {
        return Ok((reader, Recovery { clean: true, ..Recovery::default() }));
    }
    let over: Arc<dyn Drive> = drive::overlay(drive.clone())
        .map_err(|error| Error::unsupported(format!("recovery in memory: {error}")))?;
    let needs_mount = with_log(&over, |mut log| Ok(log.needs_file_system()?))?;
    let recovery = match needs_mount {
        true => in_full(&over).map_err(|error| match error {
            Error::Unsupported { .. } => Error::unsupported(
                "fast commits or records of single files on a volume like this one; -o ro,noload \
                 shows it without what only its journal has",
            ),
            error => error,
        })?,
        false => replay(&over)?,
    };
    Ok((reader::open(over, reader::CACHE)?, recovery))
}

/// Recovers the volume on `drive` by mounting it.
fn in_full(drive: &Arc<dyn Drive>) -> Result<Recovery> {
    let volume = Ext4::mount(drive.clone(), &MountOptions::default())?;
    let recovery = vfs::kind::Volume::recovery(&volume);
    volume.engine.unmount()?;
    Ok(recovery)
}

/// Marks the volume on `drive` as `change` says, with the right totals: while a volume is mounted,
/// only the descriptors' counts follow each change (`ext4_setup_super`). The superblock may itself
/// have been replayed.
fn mark(drive: &Arc<dyn Drive>, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
    let (blocks, inodes) = reader::open(drive.clone(), reader::CACHE)?.free()?;
    superblock::edit(drive, |raw| {
        raw.set_free_blocks_count(blocks);
        raw.free_inodes_count = inodes.into();
        change(raw);
    })?;
    Ok(())
}
