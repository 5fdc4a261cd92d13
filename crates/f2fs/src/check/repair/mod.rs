//! Repair: the check's walk says what every structure should be; here it becomes so.
//!
//! A repair is a mount. From what the walk found, it makes the volume in memory that a sound
//! checkpoint would have led to (`engine`). Mended nodes and directory blocks are dirty in it
//! (`apply`), roll-forward replays what fsyncs left, and one checkpoint ends it. So a repair has
//! the guarantees of a mount: blocks are written out of place, and a cut at any moment leaves
//! either the damaged volume as it was, for the next repair, or the repaired one. Only summaries
//! (SSA) are written in place; each is right for both.
//!
//! If something is missing, blocks to which nothing points are searched for it (`search`), and the
//! walk starts over with what was found. Without any checkpoint, everything is found in that way.

mod apply;
mod engine;
mod rescue;
mod search;

use std::sync::Arc;

use drive::{Block, Command, Drive};
use queue::BlockQueue;

use crate::alloc::gc::Hands;
use crate::check::{CheckOptions, Checker, Finding, Hints, Mend, Place, Search, View, check};
use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::mount::devices::check_complete;
use crate::mount::engine::Engine;
use crate::mount::options::MountOptions;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags, Selected};
use crate::ondisk::superblock::{COPIES, Features, RawSuperblock, Superblock};
use crate::recover::{self, RecoveryReport};

pub use drive::undo::{Undo, Undone, undo};

/// How many repairs to try. Each may put right what the one before has exposed.
const MAX_PASSES: u32 = 4;
/// Features of volumes that a repair cannot keep right.
const BEYOND: Features = Features::COMPRESSION.union(Features::RO);

/// How to repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// How many findings are kept; the rest are only counted.
    pub max_findings: usize,
    /// Rebuild NAT, SIT, SSA and checkpoint from the node blocks, whatever is there.
    pub rescue: bool,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self { max_findings: CheckOptions::default().max_findings, rescue: false }
    }
}

/// Changes besides those in the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Inodes put into `lost+found`, and their names there.
    pub reconnected: Vec<(u32, String)>,
    /// Blocks copied because two files claimed them.
    pub copied_blocks: u64,
    /// Superblock copies written.
    pub superblocks: u32,
    /// Nodes found without the help of the NAT.
    pub found_nodes: u64,
    /// The chain of fsynced nodes did not fit the volume and was left out.
    pub dropped_chain: bool,
    /// There was no checkpoint, or none should be used.
    pub rescued: bool,
}

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What was wrong.
    pub findings: Vec<Finding>,
    /// How many more findings there were than are kept.
    pub omitted: u64,
    /// What is still wrong.
    pub left: Vec<Finding>,
    /// What else was changed.
    pub changes: Changes,
    /// What roll-forward did.
    pub recovery: RecoveryReport,
    /// How many checkpoints with repairs were written.
    pub passes: u32,
}

/// Repairs the volume on `drive`. An error means that nothing could be done: there is no
/// superblock, a feature that this crate does not know, a drive that fails, or no space. The volume
/// is then as it was.
pub fn repair(drive: &Arc<dyn Drive>, options: &RepairOptions) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    let queue = BlockQueue::new(Arc::clone(drive));
    let sb = mend_superblocks(&queue, &mut report)?;
    let beyond = sb.features & BEYOND;
    if !beyond.is_empty() {
        return Err(Error::unsupported(format!("repairing volumes with {beyond:?}")));
    }
    let mut rescue = options.rescue;
    for _ in 0..MAX_PASSES {
        let mut checker = survey(drive, &sb, options, rescue, &mut report)?;
        if !rescue && report.passes == 0 {
            check_packs(&mut checker);
        }
        rescue = false;
        let is_sound = checker.report.is_clean() && checker.volume.has_sit;
        if is_sound && (report.passes > 0 || checker.report.clean_unmount) {
            break;
        }
        report.omitted += checker.report.omitted;
        report.findings.append(&mut checker.report.findings);
        commit(drive, &mut checker, &mut report)?;
        report.passes += 1;
    }
    let after = check(drive, &CheckOptions { max_findings: options.max_findings })?;
    report.left = after.findings;
    if report.left.is_empty() && sb.has_errors {
        clear_errors(&queue)?;
    }
    Ok(report)
}

/// Reports a checkpoint that a mount would not take although the repair starts from it. A new one
/// is then needed.
fn check_packs(checker: &mut Checker) {
    let volume = &checker.volume;
    if !volume.has_sit {
        return;
    }
    let mounted = Checkpoint::select(&volume.sb, |addr| volume.read(addr));
    let found = match mounted {
        Ok(mounted) if mounted.checkpoint.version == volume.cp.version => return,
        Ok(mounted) => format!("damaged; a mount takes version {:#x}", mounted.checkpoint.version),
        Err(error) => error.to_string(),
    };
    let (pack, allowed) = (volume.pack, format!("version {:#x}", volume.cp.version));
    checker.add(Finding::new(Place::Checkpoint { pack }, "header", found, allowed));
}

/// Makes both copies of the superblock equal to the sound one.
fn mend_superblocks(queue: &BlockQueue, report: &mut RepairReport) -> Result<Superblock> {
    let read = |addr: u32| Ok(queue.read_block(addr.into())?);
    let (sb, used) = Superblock::select(read)?;
    check_complete(&sb, queue.identify())?;
    let good = read(used)?;
    for copy in COPIES.into_iter().filter(|&copy| copy != used) {
        let place = Place::Superblock { copy };
        let finding = match read(copy).and_then(|block| Superblock::parse(&block, copy)) {
            Ok(other) if other == sb => continue,
            Ok(_) => Finding::new(place, "geometry", "another", "as in the other copy"),
            Err(error) => place.finding(error),
        };
        report.findings.push(finding);
        write_superblock(queue, copy, RawSuperblock::of(&good).to_block())?;
        report.changes.superblocks += 1;
    }
    Ok(sb)
}

/// Writes one copy. It is durable before the other one is touched.
fn write_superblock(queue: &BlockQueue, copy: u32, block: Block) -> Result<()> {
    queue.flush()?;
    let data = drive::Blocks::from_iter([block]);
    queue.run(Command::Write { lba: copy.into(), data, fua: true })?;
    Ok(())
}

/// Clears the errors that the superblock remembers, since they are repaired.
fn clear_errors(queue: &BlockQueue) -> Result<()> {
    for copy in COPIES.into_iter().rev() {
        let block = queue.read_block(copy.into())?;
        let mut raw = RawSuperblock::of(&block).clone();
        raw.s_stop_reason.fill(0);
        raw.s_errors.fill(0);
        raw.seal();
        write_superblock(queue, copy, raw.to_block())?;
    }
    Ok(())
}

/// Walks the volume until what is missing has been found, or has been looked for everywhere.
fn survey(
    drive: &Arc<dyn Drive>,
    sb: &Superblock,
    options: &RepairOptions,
    rescue: bool,
    report: &mut RepairReport,
) -> Result<Checker> {
    let selected = if rescue { None } else { select(drive, sb)? };
    let Some(selected) = selected else {
        report.changes.rescued = true;
        return rescue_survey(drive, sb, options);
    };
    let mut hints = Hints::default();
    loop {
        let queue = BlockQueue::new(Arc::clone(drive));
        let volume = View::new(queue, sb.clone(), selected.clone(), true)?;
        let mut checker = walk(volume, options, hints.clone());
        let wanted = checker.mend.as_ref().map_or(Search::None, |mend| mend.wanted);
        if wanted <= hints.depth {
            report.changes.found_nodes += hints.nodes.len() as u64;
            return Ok(checker);
        }
        hints = if hints.depth == Search::None {
            search::strays(&mut checker)
        } else {
            search::everything(&mut checker, hints)?
        };
    }
}

fn walk(volume: View, options: &RepairOptions, hints: Hints) -> Checker {
    let mut checker = Checker::new(volume, &CheckOptions { max_findings: options.max_findings });
    checker.mend = Some(Mend::new(hints));
    checker.run();
    checker
}

/// The newest usable checkpoint. A read error cannot be repaired.
fn select(drive: &Arc<dyn Drive>, sb: &Superblock) -> Result<Option<Selected>> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let read = |addr: u32| Ok(queue.read_block(addr.into())?);
    match Checkpoint::select_any(sb, read) {
        Ok(selected) => Ok(Some(selected)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Without a checkpoint: uses every node block there is, the newest of each number.
fn rescue_survey(
    drive: &Arc<dyn Drive>,
    sb: &Superblock,
    options: &RepairOptions,
) -> Result<Checker> {
    let volume = |version| {
        let queue = BlockQueue::new(Arc::clone(drive));
        let checkpoint = rescue::checkpoint(queue.identify().blocks, sb, version)?;
        View::new(queue, sb.clone(), Selected { checkpoint, pack: 1 }, false)
    };
    let mut checker =
        Checker::new(volume(1)?, &CheckOptions { max_findings: options.max_findings });
    let hints = search::everything(&mut checker, Hints::default())?;
    let version = u64::from(hints.version) + 1;
    let mut checker = walk(volume(version)?, options, hints);
    let place = Place::Checkpoint { pack: 0 };
    checker.add(Finding::new(place, "checkpoint", "none to use", "one, from the nodes found"));
    Ok(checker)
}

/// Makes the volume what the walk says it should be, with one checkpoint.
fn commit(drive: &Arc<dyn Drive>, checker: &mut Checker, report: &mut RepairReport) -> Result<()> {
    let mut options = MountOptions { discard: false, ..MountOptions::default() };
    let first = prepare(drive, checker, &options);
    let (mut volume, mut recovery, held) = match first {
        Err(Error::Corrupt(_) | Error::Posix(_)) => {
            // The fsynced nodes do not fit the volume as the walk found it.
            report.changes.dropped_chain = true;
            options.roll_forward = false;
            prepare(drive, checker, &options)?
        }
        other => other?,
    };
    let Some(mend) = &checker.mend else { return Ok(()) };
    volume.copy_shared_blocks(mend, &mut report.changes)?;
    volume.add_missing_names(&mend.names)?;
    volume.reconnect(&mend.lost, &mut report.changes)?;
    volume.write_back_all()?;
    recover::finish(&mut volume, &mut recovery, &held)?;
    volume.write_checkpoint(Reason::Umount)?;
    volume.io.flush()?;
    if report.passes == 0 {
        report.recovery = recovery;
    }
    Ok(())
}

/// The mended volume, after as much recovery as can be done in memory.
fn prepare(
    drive: &Arc<dyn Drive>,
    checker: &mut Checker,
    options: &MountOptions,
) -> Result<(Engine, RecoveryReport, Vec<u32>)> {
    let mut volume = engine::volume_of(drive, checker, options.clone())?;
    if let Some(mend) = &checker.mend {
        volume.put_mended_blocks(mend)?;
        volume.put_mended_quotas(mend)?;
    }
    let clean = volume.checkpoint.flags.contains(CpFlags::UMOUNT);
    let mut recovery = RecoveryReport { clean, ..RecoveryReport::default() };
    let held = recover::prepare(&mut volume, &mut recovery)?;
    Ok((volume, recovery, held))
}
