//! The undo log: what every block held before it was changed, so that a repair can be taken back
//! (`e2fsck -z`, `e2undo`).
//!
//! [`Undo`] is a drive that remembers. Before a command changes a block for the first time, the
//! block's old contents are logged and the log is made durable. At the first change of a sequential
//! zone, its whole contents and its write pointer are logged, because a zone can only be restored
//! by resetting and rewriting it. Of persistent memory a block is logged before the first store to
//! it.
//!
//! The file is a header of 64 bytes and records of 32 bytes, some of them followed by a block, each
//! with a checksum. A record torn by a crash ends the log; its block had not been changed yet.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use cores::Mutex;
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::media::write_failure;
use crate::pm::{Pm, PmUndo};
use crate::{
    BLOCK_SIZE, Block, Blocks, Command, Completion, Drive, Identify, Lba, Output, Status, Zone,
    ZoneAction, ZoneKind, ZoneState,
};

const MAGIC: [u8; 16] = *b"strandline undo\n";
const VERSION: u32 = 1;

/// First bytes of the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 16],
    version: U32,
    crc: U32,
    /// Size of the drive in blocks.
    blocks: U64,
    reserved: [u8; 32],
}
const _: () = assert!(size_of::<Header>() == 64);

/// One record; a block follows unless it is a zone's.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Record {
    kind: U32,
    /// Over the other fields and the block.
    crc: U32,
    /// Block, or first block of the zone.
    lba: U64,
    /// For a zone: its write pointer, counted from its start.
    written: U64,
    /// For a zone: 1 if it was full.
    full: U64,
}
const _: () = assert!(size_of::<Record>() == 32);

const KIND_BLOCK: u32 = 1;
const KIND_ZONE: u32 = 2;

impl Record {
    fn seal(mut self, data: &[u8]) -> Self {
        self.crc.set(self.checksum(data));
        self
    }

    fn checksum(&self, data: &[u8]) -> u32 {
        let bare = Self { crc: U32::new(0), ..*self };
        checksum(&[bare.as_bytes(), data])
    }
}

/// The CRC-32 of all `parts`, not inverted at the end.
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    !hasher.finalize()
}

/// Why no log can be made, or why one cannot be used to restore a drive.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The file could not be read or written.
    #[error("undo log: {0}")]
    File(#[from] io::Error),
    /// The file does not begin like a log.
    #[error("not an undo log, or damaged")]
    NotALog,
    /// The log is of another version of this format.
    #[error("undo log: version {0}, not {VERSION}")]
    Version(u32),
    /// The log is of a drive of another size.
    #[error("undo log: of a drive of {log} blocks, not {drive}")]
    OtherSize {
        /// Blocks of the drive for which the log was made.
        log: u64,
        /// Blocks of this drive.
        drive: u64,
    },
    /// The log is of a drive with other zones.
    #[error("undo log: of a drive with other zones")]
    OtherZones,
    /// The drive takes only one command at a time, and the log needs one for itself.
    #[error("not supported: an undo log of a drive with one command at a time")]
    OneCommand,
    /// A command to the drive failed.
    #[error("block {lba:#x}: {status}")]
    Drive {
        /// First block that it was for.
        lba: Lba,
        /// What the drive said.
        status: Status,
    },
}

/// A drive that remembers its earlier contents.
///
/// ```
/// use std::sync::Arc;
///
/// use drive::undo::{Undo, undo};
/// use drive::{Block, Command, Drive};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// let below: Arc<dyn Drive> = drive::ram(64);
/// let drive = Undo::new(below.clone(), std::fs::File::create_new(&path)?)?;
/// let data = [Block::from_prefix(b"repaired")].into_iter().collect();
/// drive.submit(0, 0, Command::Write { lba: 3, data, fua: false });
/// drive.wait(0);
///
/// assert_eq!(undo(&below, std::fs::File::open(&path)?)?.blocks, 1);
/// # Ok(())
/// # }
/// ```
pub struct Undo {
    log: Arc<Log>,
    /// The drive's persistent memory, if it has one, which remembers as well.
    pm: Option<Arc<dyn Pm>>,
}

/// What is remembered of a drive.
pub(crate) struct Log {
    below: Arc<dyn Drive>,
    identify: Identify,
    /// Held while a command is submitted and the blocks that it changes are logged.
    state: Mutex<State>,
}

struct State {
    log: File,
    /// A store could not be logged, so none is done any more.
    failed: bool,
    /// Blocks in the log, and zones by their first block.
    logged: BTreeSet<u64>,
    zones: BTreeSet<u64>,
    /// Completions taken while looking for others, and failures of the log.
    done: Done,
}

/// Completions other than the expected ones, by queue.
type Done = VecDeque<(u16, Completion)>;

impl Undo {
    /// Logs what commands to `below` change, in the new file `log`.
    pub fn new(below: Arc<dyn Drive>, mut log: File) -> Result<Self, UndoError> {
        let mut identify = below.identify().clone();
        // One command identifier of each queue is for reading old contents.
        identify.queue_depth = identify.queue_depth.saturating_sub(1);
        if identify.queue_depth == 0 {
            return Err(UndoError::OneCommand);
        }
        let mut header = Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::new(0),
            blocks: U64::new(identify.blocks),
            reserved: [0; 32],
        };
        header.crc.set(checksum(&[header.as_bytes()]));
        log.write_all(header.as_bytes())?;
        log.sync_all()?;
        let (logged, zones, done) = (BTreeSet::new(), BTreeSet::new(), Done::new());
        let state = State { log, failed: false, logged, zones, done };
        let pm = below.pm();
        let log = Arc::new(Log { below, identify, state: Mutex::named("undo log", state) });
        let pm = pm.map(|pm| PmUndo::new(pm, log.clone()) as Arc<dyn Pm>);
        Ok(Self { log, pm })
    }
}

impl Log {
    /// Logs the blocks of so many bytes of the drive's memory. False if they must not be changed,
    /// since this or an earlier one could not be logged.
    pub(crate) fn keep(&self, at: u64, len: u64) -> bool {
        let mut state = self.state.lock();
        let (first, block) = (at / BLOCK_SIZE as u64, BLOCK_SIZE as u64);
        let change = Command::Discard { lba: first, blocks: (at + len).div_ceil(block) - first };
        state.failed = state.failed || self.remember(&mut state, 0, &change).is_err();
        !state.failed
    }

    /// Runs a command of our own on `queue` and waits for it.
    fn run(&self, state: &mut State, queue: u16, command: Command) -> Result<Output, Status> {
        run(&*self.below, queue, self.identify.queue_depth, command, &mut state.done)
    }

    /// Logs what `command` is about to change.
    fn remember(&self, state: &mut State, queue: u16, command: &Command) -> Result<(), Status> {
        let before = (state.logged.len(), state.zones.len());
        match command {
            Command::Write { lba, data, .. } => {
                self.remember_range(state, queue, *lba, data.len() as u64)?;
            }
            Command::Discard { lba, blocks } => {
                self.remember_range(state, queue, *lba, *blocks)?;
            }
            Command::Append { zone, .. } => self.remember_zone(state, queue, *zone)?,
            Command::ManageZone { action: ZoneAction::Reset | ZoneAction::Finish, zone } => {
                match zone {
                    Some(zone) => self.remember_zone(state, queue, *zone)?,
                    None => return Err(Status::InvalidField),
                }
            }
            Command::ManageZone { .. }
            | Command::Read { .. }
            | Command::Flush
            | Command::ReportZones { .. } => {}
        }
        if before != (state.logged.len(), state.zones.len()) {
            state.log.sync_data().map_err(write_failure)?;
        }
        Ok(())
    }

    fn remember_range(
        &self,
        state: &mut State,
        queue: u16,
        lba: u64,
        blocks: u64,
    ) -> Result<(), Status> {
        let end = lba.checked_add(blocks).filter(|end| *end <= self.identify.blocks);
        for lba in lba..end.ok_or(Status::LbaOutOfRange)? {
            match self.identify.zones {
                Some(zones) if lba / zones.size >= u64::from(zones.conventional) => {
                    self.remember_zone(state, queue, lba / zones.size * zones.size)?;
                }
                _ => self.remember_block(state, queue, lba)?,
            }
        }
        Ok(())
    }

    fn remember_block(&self, state: &mut State, queue: u16, lba: u64) -> Result<(), Status> {
        if !state.logged.insert(lba) {
            return Ok(());
        }
        let read = self.run(state, queue, Command::Read { lba, blocks: 1 });
        let Ok(Output::Data(blocks)) = read else {
            // What cannot be read cannot be restored, but it may be written.
            return Ok(());
        };
        let block = blocks.first().cloned().unwrap_or_else(Block::zeroed);
        let record = Record {
            kind: U32::new(KIND_BLOCK),
            crc: U32::new(0),
            lba: U64::new(lba),
            written: U64::new(0),
            full: U64::new(0),
        };
        let bytes = [record.seal(&block[..]).as_bytes(), &block[..]].concat();
        state.log.write_all(&bytes).map_err(write_failure)
    }

    fn remember_zone(&self, state: &mut State, queue: u16, start: u64) -> Result<(), Status> {
        if !state.zones.insert(start) {
            return Ok(());
        }
        let report = self.run(state, queue, Command::ReportZones { lba: start, max: 1 })?;
        let Output::Zones(zones) = report else { return Err(Status::InvalidField) };
        let zone = zones.into_iter().find(|zone| zone.start == start);
        let zone = zone.ok_or(Status::InvalidField)?;
        if zone.kind == ZoneKind::Conventional {
            return self.remember_range(state, queue, start, zone.size);
        }
        let full = zone.state == ZoneState::Full;
        let written = if full { zone.capacity } else { zone.wp.saturating_sub(start) };
        let record = Record {
            kind: U32::new(KIND_ZONE),
            crc: U32::new(0),
            lba: U64::new(start),
            written: U64::new(written),
            full: U64::new(full.into()),
        };
        state.log.write_all(record.seal(&[]).as_bytes()).map_err(write_failure)?;
        (start..start + written).try_for_each(|lba| self.remember_block(state, queue, lba))
    }
}

impl Drive for Undo {
    fn identify(&self) -> &Identify {
        &self.log.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let mut state = self.log.state.lock();
        match self.log.remember(&mut state, queue, &command) {
            Ok(()) => {
                if let Some(answer) = self.log.below.issue(queue, cid, command) {
                    state.done.push_back((queue, answer));
                }
            }
            Err(status) => state.done.push_back((queue, Completion { cid, result: Err(status) })),
        }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        let mut state = self.log.state.lock();
        let at = state.done.iter().position(|(of, _)| *of == queue);
        match at.and_then(|at| state.done.remove(at)) {
            Some((_, completion)) => Some(completion),
            None => self.log.below.poll(queue),
        }
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.poll(queue).or_else(|| self.log.below.wait(queue))
    }

    fn pm(&self) -> Option<Arc<dyn Pm>> {
        self.pm.clone()
    }
}

/// Runs one command and waits for it. Completions of other commands go to `others`.
fn run(
    drive: &dyn Drive,
    queue: u16,
    cid: u16,
    command: Command,
    others: &mut Done,
) -> Result<Output, Status> {
    if let Some(answer) = drive.issue(queue, cid, command) {
        return answer.result;
    }
    while let Some(completion) = drive.wait_for(queue, cid) {
        if completion.cid == cid {
            return completion.result;
        }
        others.push_back((queue, completion));
    }
    Err(Status::NotReady)
}

/// How much an undo restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Blocks.
    pub blocks: u64,
    /// Sequential zones, which were rewritten from their start.
    pub zones: u64,
}

/// Restores what `log` remembers. If the file is not a log, or is one of a drive of another size,
/// it fails before it changes anything.
pub fn undo(drive: &Arc<dyn Drive>, mut log: File) -> Result<Undone, UndoError> {
    let mut header = Vec::new();
    let start = size_of::<Header>() as u64;
    Read::by_ref(&mut log).take(start).read_to_end(&mut header)?;
    check_header(&header, drive.identify().blocks)?;
    // Read only now, because a file that does not begin like a log may be endless.
    let mut records = Vec::new();
    log.read_to_end(&mut records)?;
    let mut done = Undone::default();
    let mut zones: Vec<(Zone, Vec<Block>)> = Vec::new();
    for (record, block) in Records(&records) {
        let lba = record.lba.get();
        let inside = |zone: &Zone| (zone.start..zone.start + zone.size).contains(&lba);
        match block {
            None => zones.push((zone_of(drive, &record)?, Vec::new())),
            Some(block) => match zones.iter_mut().find(|(zone, _)| inside(zone)) {
                Some((_, contents)) => contents.push(block),
                None => {
                    restore(drive, lba, block)?;
                    done.blocks += 1;
                }
            },
        }
    }
    for (zone, contents) in &zones {
        restore_zone(drive, zone, contents)?;
        done.zones += 1;
    }
    alone(drive, 0, Command::Flush)?;
    Ok(done)
}

/// Runs one command, for block `lba`, on a drive that does nothing else.
fn alone(drive: &Arc<dyn Drive>, lba: Lba, command: Command) -> Result<Output, UndoError> {
    run(drive, 0, 0, command, &mut Done::new()).map_err(|status| UndoError::Drive { lba, status })
}

fn check_header(bytes: &[u8], blocks: u64) -> Result<(), UndoError> {
    let header = Header::ref_from_bytes(bytes).map_err(|_| UndoError::NotALog)?;
    let bare = Header { crc: U32::new(0), ..*header };
    if header.magic != MAGIC || header.crc.get() != checksum(&[bare.as_bytes()]) {
        return Err(UndoError::NotALog);
    }
    if header.version.get() != VERSION {
        return Err(UndoError::Version(header.version.get()));
    }
    if header.blocks.get() != blocks {
        return Err(UndoError::OtherSize { log: header.blocks.get(), drive: blocks });
    }
    Ok(())
}

/// The records of a log, as long as they are whole.
struct Records<'a>(&'a [u8]);

impl Iterator for Records<'_> {
    type Item = (Record, Option<Block>);

    fn next(&mut self) -> Option<Self::Item> {
        let (record, rest) = Record::read_from_prefix(self.0).ok()?;
        let len = if record.kind.get() == KIND_BLOCK { BLOCK_SIZE } else { 0 };
        let data = rest.get(..len)?;
        if record.crc.get() != record.checksum(data) {
            return None;
        }
        self.0 = &rest[len..];
        Some((record, (len > 0).then(|| Block::from_prefix(data))))
    }
}

/// The zone as it was.
fn zone_of(drive: &Arc<dyn Drive>, record: &Record) -> Result<Zone, UndoError> {
    let start = record.lba.get();
    if drive.identify().zones.is_none() {
        return Err(UndoError::OtherZones);
    }
    let report = alone(drive, start, Command::ReportZones { lba: start, max: 1 })?;
    let Output::Zones(zones) = report else { return Err(UndoError::OtherZones) };
    let now = zones.into_iter().find(|zone| zone.start == start).ok_or(UndoError::OtherZones)?;
    let state = if record.full.get() == 1 { ZoneState::Full } else { ZoneState::Closed };
    Ok(Zone { wp: start.saturating_add(record.written.get()), state, ..now })
}

fn restore(drive: &Arc<dyn Drive>, lba: Lba, block: Block) -> Result<(), UndoError> {
    let data = Blocks::from_iter([block]);
    alone(drive, lba, Command::Write { lba, data, fua: false }).map(drop)
}

fn restore_zone(drive: &Arc<dyn Drive>, zone: &Zone, contents: &[Block]) -> Result<(), UndoError> {
    let start = zone.start;
    let manage = |action| alone(drive, start, Command::ManageZone { action, zone: Some(start) });
    manage(ZoneAction::Reset)?;
    for (lba, block) in (start..zone.wp).zip(contents) {
        restore(drive, lba, block.clone())?;
    }
    let written = start + contents.len() as u64;
    if zone.state == ZoneState::Full && written < start + zone.capacity {
        manage(ZoneAction::Finish)?;
    }
    Ok(())
}
