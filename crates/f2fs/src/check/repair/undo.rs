//! The undo log: what every block held before a repair changed it, so that the repair can be taken
//! back (`e2fsck -z`, `e2undo`).
//!
//! [`Undo`] stands between engine and drive. Before a command changes a block for the first time,
//! the block's old contents go to the log and the log is made durable. Of a sequential zone the
//! whole contents and the write pointer go there at its first change: a zone can only be restored
//! by a reset and writing it again.
//!
//! The file is a header of 64 bytes and records of 32 bytes, some with a block behind them, each
//! with a checksum; a record torn by a crash ends the log, and its block was not changed yet.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use cores::Mutex;
use drive::{
    BLOCK_SIZE, Block, Blocks, Command, Completion, Drive, Identify, Output, Status, Zone,
    ZoneAction, ZoneKind, ZoneState,
};
use queue::BlockQueue;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::ondisk::crc32;

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
    /// Of a zone: its write pointer, from its start.
    written: U64,
    /// Of a zone: 1 if it was full.
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
        crc32(crc32(!0, bare.as_bytes()), data)
    }
}

/// A drive that remembers what it held.
pub struct Undo {
    below: Arc<dyn Drive>,
    identify: Identify,
    state: Mutex<State>,
}

struct State {
    log: File,
    /// Blocks, and zones by their first block, that are in the log.
    logged: BTreeSet<u64>,
    zones: BTreeSet<u64>,
    /// Completions taken while looking for others, and failures of the log.
    done: VecDeque<(u16, Completion)>,
}

impl Undo {
    /// Logs to `log`, a new file, what commands to `below` change.
    pub fn new(below: Arc<dyn Drive>, mut log: File) -> Result<Self> {
        let mut identify = below.identify().clone();
        // One command identifier of each queue is for reading old contents.
        identify.queue_depth = identify.queue_depth.saturating_sub(1);
        if identify.queue_depth == 0 {
            return Err(Error::unsupported("an undo log of a drive with one command at a time"));
        }
        let mut header = Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::new(0),
            blocks: U64::new(identify.blocks),
            reserved: [0; 32],
        };
        header.crc.set(crc32(!0, header.as_bytes()));
        log.write_all(header.as_bytes()).and_then(|()| log.sync_all()).map_err(io_error)?;
        let (logged, zones, done) = (BTreeSet::new(), BTreeSet::new(), VecDeque::new());
        let state = Mutex::new(State { log, logged, zones, done });
        Ok(Self { below, identify, state })
    }

    /// Runs a command of our own on `queue` and waits for it.
    fn run(&self, state: &mut State, queue: u16, command: Command) -> Result<Output, Status> {
        let cid = self.identify.queue_depth;
        if let Some(answer) = self.below.issue(queue, cid, command) {
            return answer.result;
        }
        while let Some(completion) = self.below.wait_for(queue, cid) {
            if completion.cid == cid {
                return completion.result;
            }
            state.done.push_back((queue, completion));
        }
        Err(Status::NotReady)
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
            state.log.sync_data().map_err(|_| Status::WriteFault)?;
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
            // What cannot be read cannot be restored, and may be written.
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
        state.log.write_all(&bytes).map_err(|_| Status::WriteFault)
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
        state.log.write_all(record.seal(&[]).as_bytes()).map_err(|_| Status::WriteFault)?;
        (start..start + written).try_for_each(|lba| self.remember_block(state, queue, lba))
    }
}

impl Drive for Undo {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let mut state = self.state.lock();
        match self.remember(&mut state, queue, &command) {
            Ok(()) => {
                if let Some(answer) = self.below.issue(queue, cid, command) {
                    state.done.push_back((queue, answer));
                }
            }
            Err(status) => state.done.push_back((queue, Completion { cid, result: Err(status) })),
        }
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        let mut state = self.state.lock();
        let at = state.done.iter().position(|(of, _)| *of == queue);
        match at.and_then(|at| state.done.remove(at)) {
            Some((_, completion)) => Some(completion),
            None => self.below.poll(queue),
        }
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.poll(queue).or_else(|| self.below.wait(queue))
    }
}

fn io_error(error: io::Error) -> Error {
    Error::usage(format!("undo log: {error}"))
}

/// What an undo put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Blocks.
    pub blocks: u64,
    /// Sequential zones, written again from their start.
    pub zones: u64,
}

/// Puts back what `log` remembers. Fails before anything is changed if the log is not one, or of a
/// drive of another size.
pub fn undo(drive: &Arc<dyn Drive>, mut log: File) -> Result<Undone> {
    let mut header = Vec::new();
    let start = size_of::<Header>() as u64;
    Read::by_ref(&mut log).take(start).read_to_end(&mut header).map_err(io_error)?;
    let queue = BlockQueue::new(Arc::clone(drive));
    check_header(&header, queue.identify().blocks)?;
    // Only now: who does not begin like a log may have no end.
    let mut records = Vec::new();
    log.read_to_end(&mut records).map_err(io_error)?;
    let mut done = Undone::default();
    let mut zones: Vec<(Zone, Vec<Block>)> = Vec::new();
    for (record, block) in Records(&records) {
        let lba = record.lba.get();
        let inside = |zone: &Zone| (zone.start..zone.start + zone.size).contains(&lba);
        match block {
            None => zones.push((zone_of(&queue, &record)?, Vec::new())),
            Some(block) => match zones.iter_mut().find(|(zone, _)| inside(zone)) {
                Some((_, contents)) => contents.push(block),
                None => {
                    let data = Blocks::from_iter([block]);
                    queue.run(Command::Write { lba, data, fua: false })?;
                    done.blocks += 1;
                }
            },
        }
    }
    for (zone, contents) in &zones {
        restore_zone(&queue, zone, contents)?;
        done.zones += 1;
    }
    queue.flush()?;
    Ok(done)
}

fn check_header(bytes: &[u8], blocks: u64) -> Result<()> {
    let Ok(header) = Header::ref_from_bytes(bytes) else {
        return Err(Error::usage("undo log: too short"));
    };
    let bare = Header { crc: U32::new(0), ..*header };
    if header.magic != MAGIC || header.crc.get() != crc32(!0, bare.as_bytes()) {
        return Err(Error::usage("undo log: not one, or damaged"));
    }
    if header.version.get() != VERSION {
        return Err(Error::usage(format!("undo log: version {}, not {VERSION}", header.version)));
    }
    if header.blocks.get() != blocks {
        let of = header.blocks;
        return Err(Error::usage(format!("undo log: of a drive of {of} blocks, not {blocks}")));
    }
    Ok(())
}

/// Records as long as they are whole.
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
fn zone_of(queue: &BlockQueue, record: &Record) -> Result<Zone> {
    let start = record.lba.get();
    let now = queue.report_zones()?.into_iter().find(|zone| zone.start == start);
    let now = now.ok_or_else(|| Error::usage("undo log: of a drive with other zones"))?;
    let state = if record.full.get() == 1 { ZoneState::Full } else { ZoneState::Closed };
    Ok(Zone { wp: start.saturating_add(record.written.get()), state, ..now })
}

fn restore_zone(queue: &BlockQueue, zone: &Zone, contents: &[Block]) -> Result<()> {
    let manage = |action| queue.run(Command::ManageZone { action, zone: Some(zone.start) });
    manage(ZoneAction::Reset)?;
    for (lba, block) in (zone.start..zone.wp).zip(contents) {
        let data = Blocks::from_iter([block.clone()]);
        queue.run(Command::Write { lba, data, fua: false })?;
    }
    let written = zone.start + contents.len() as u64;
    if zone.state == ZoneState::Full && written < zone.start + zone.capacity {
        manage(ZoneAction::Finish)?;
    }
    Ok(())
}
