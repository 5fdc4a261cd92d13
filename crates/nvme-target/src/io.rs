//! I/O commands of the NVM and Zoned Namespace command sets, turned into the drive's.
//!
//! A command becomes a [`Task`]: a series of commands to the drive, each of which follows from the
//! answer to the one before. Nearly all tasks are done after the first. The order of checks is that
//! of NVM command set 1.0, section 3, and ZNS 1.1, section 2.1.1.5; the drive makes those of zones.

use drive::{BLOCK_SIZE, Block, Blocks, Command, Lba, Output, ZoneAction};
use smallvec::SmallVec;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::command::{Sqe, Status};
use crate::namespace::Namespace;
use crate::zns::{self, Report};

/// Opcodes.
pub(crate) mod opcode {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const COMPARE: u8 = 0x05;
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(crate) const VERIFY: u8 = 0x0c;
    pub(crate) const ZONE_SEND: u8 = 0x79;
    pub(crate) const ZONE_RECEIVE: u8 = 0x7a;
    pub(crate) const ZONE_APPEND: u8 = 0x7d;
}

/// A range of Dataset Management, 16 bytes.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Range {
    _attributes: U32,
    blocks: U32,
    lba: U64,
}

/// Bytes of the most ranges that a command can have.
const RANGES: usize = 256 * size_of::<Range>();

/// Data for the host.
pub(crate) enum Data {
    None,
    Blocks(Blocks),
    Bytes(Vec<u8>),
}

impl Data {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Blocks(blocks) => blocks.len() * BLOCK_SIZE,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The answer to a command.
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) result: u64,
    pub(crate) data: Data,
}

impl Answer {
    pub(crate) fn done() -> Self {
        Self::with(0)
    }

    pub(crate) fn with(result: u64) -> Self {
        Self { status: Status::SUCCESS, result, data: Data::None }
    }

    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self { data: Data::Bytes(bytes), ..Self::done() }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self { status, ..Self::done() }
    }
}

/// What a task does next.
pub(crate) enum Next {
    Command(Command),
    Done(Answer),
}

enum Work {
    Flush,
    Read,
    Write { lba: Lba, fua: bool },
    Append { zone: Lba, fua: bool },
    Compare,
    Verify,
    Deallocate { wanted: bool, ranges: SmallVec<[(Lba, u64); 1]> },
    Manage { action: ZoneAction, zone: Option<Lba> },
    Report(Report),
}

/// A command of a host, while the drive works on it.
pub(crate) struct Task {
    /// Which drive.
    pub(crate) unit: usize,
    op: Work,
    lba: Lba,
    blocks: u32,
    /// What is left to write.
    data: Blocks,
    stripe: Option<u64>,
    first: Lba,
    size: u64,
}

/// What limits a command.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Longest transfer, in blocks.
    pub(crate) transfer: u32,
    /// Every write is forced, because the host turned the write cache off.
    pub(crate) force: bool,
}

impl Task {
    /// What `sqe` asks of `namespace`, checked as far as that is possible without its data.
    pub(crate) fn parse(sqe: &Sqe, namespace: &Namespace, limits: Limits) -> Result<Self, Status> {
        let mut task = Self {
            unit: namespace.unit,
            op: Work::Flush,
            lba: 0,
            blocks: 0,
            data: Blocks::new(),
            stripe: namespace.stripe,
            first: namespace.first,
            size: namespace.blocks,
        };
        let zoned =
            matches!(sqe.opcode, opcode::ZONE_SEND | opcode::ZONE_RECEIVE | opcode::ZONE_APPEND);
        if zoned && namespace.zones.is_none() {
            return Err(Status::INVALID_OPCODE);
        }
        let fua = sqe.cdw12.get() >> 30 & 1 != 0 || limits.force;
        match sqe.opcode {
            opcode::FLUSH => {}
            opcode::DATASET_MANAGEMENT => {
                task.blocks = (sqe.cdw10.get() & 0xff) + 1;
                // It is only a hint, and only a reset empties a sequential zone.
                let wanted = sqe.cdw11.get() >> 2 & 1 != 0 && namespace.zones.is_none();
                task.op = Work::Deallocate { wanted, ranges: SmallVec::new() };
            }
            opcode::ZONE_SEND => {
                let (action, zone) = zns::parse_send(sqe, namespace)?;
                task.op = Work::Manage { action, zone };
            }
            opcode::ZONE_RECEIVE => {
                let most = limits.transfer as usize * BLOCK_SIZE;
                task.op = Work::Report(Report::parse(sqe, namespace, most)?);
            }
            _ => {
                (task.lba, task.blocks) = range(sqe, namespace, limits)?;
                task.op = match sqe.opcode {
                    opcode::READ => Work::Read,
                    opcode::WRITE => Work::Write { lba: task.lba, fua },
                    opcode::ZONE_APPEND => Work::Append { zone: task.lba, fua },
                    opcode::COMPARE => Work::Compare,
                    opcode::VERIFY => Work::Verify,
                    opcode::WRITE_ZEROES => task.zeroes(sqe, namespace, fua),
                    _ => return Err(Status::INVALID_OPCODE),
                };
            }
        }
        Ok(task)
    }

    fn zeroes(&mut self, sqe: &Sqe, namespace: &Namespace, fua: bool) -> Work {
        let deallocate = sqe.cdw12.get() >> 25 & 1 != 0;
        if deallocate && namespace.zones.is_none() {
            let ranges = SmallVec::from_elem((self.lba, self.blocks.into()), 1);
            self.blocks = 0;
            return Work::Deallocate { wanted: true, ranges };
        }
        self.data = (0..self.blocks).map(|_| Block::zeroed()).collect();
        Work::Write { lba: self.lba, fua }
    }

    /// How many of the `offered` bytes the host has to send.
    pub(crate) fn takes(&self, offered: usize) -> usize {
        match &self.op {
            Work::Write { .. } if !self.data.is_empty() => 0,
            Work::Write { .. } | Work::Append { .. } | Work::Compare => {
                self.blocks as usize * BLOCK_SIZE
            }
            // Linux sends room for the most ranges, however many there are.
            Work::Deallocate { .. } => {
                let needed = self.blocks as usize * size_of::<Range>();
                if self.blocks > 0 { offered.clamp(needed, RANGES) } else { 0 }
            }
            _ => 0,
        }
    }

    /// How many bytes the host wants.
    pub(crate) fn gives(&self) -> usize {
        match &self.op {
            Work::Read => self.blocks as usize * BLOCK_SIZE,
            Work::Report(report) => report.length(),
            _ => 0,
        }
    }

    /// Begins, with the data from the host.
    pub(crate) fn start(&mut self, data: Blocks) -> Next {
        if let Work::Deallocate { ranges, wanted } = &mut self.op
            && self.blocks > 0
        {
            let bytes = data.first().map_or(&[][..], |block| &block.bytes()[..]);
            match parse_ranges(bytes, self.blocks as usize, self.first, self.size) {
                Ok(parsed) if *wanted => *ranges = parsed,
                Ok(_) => {}
                Err(status) => return Next::Done(status.into()),
            }
        } else if self.data.is_empty() {
            self.data = data;
        }
        self.next()
    }

    fn next(&mut self) -> Next {
        let (lba, blocks) = (self.lba, self.blocks);
        Next::Command(match &mut self.op {
            Work::Flush => Command::Flush,
            Work::Read | Work::Compare | Work::Verify => Command::Read { lba, blocks },
            Work::Write { lba, fua } => {
                let at = *lba;
                let left = self.stripe.map_or(u64::MAX, |stripe| stripe - at % stripe);
                let count = self.data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                *lba += count as u64;
                let data = if count == self.data.len() {
                    std::mem::take(&mut self.data)
                } else {
                    self.data.drain(..count).collect()
                };
                Command::Write { lba: at, data, fua: *fua }
            }
            Work::Append { zone, fua } => {
                Command::Append { zone: *zone, data: std::mem::take(&mut self.data), fua: *fua }
            }
            Work::Deallocate { ranges, .. } => match ranges.pop() {
                Some((lba, blocks)) => Command::Discard { lba, blocks },
                None => return Next::Done(Answer::done()),
            },
            Work::Manage { action, zone } => Command::ManageZone { action: *action, zone: *zone },
            Work::Report(report) => match report.wants() {
                Some((lba, max)) => Command::ReportZones { lba, max },
                None => return Next::Done(self.reported()),
            },
        })
    }

    /// The report, as far as it has come.
    fn reported(&mut self) -> Answer {
        match std::mem::replace(&mut self.op, Work::Flush) {
            Work::Report(report) => Answer::bytes(report.finish()),
            _ => Answer::done(),
        }
    }

    /// Continues with the drive's answer.
    pub(crate) fn after(mut self, result: Result<Output, drive::Status>) -> (Option<Self>, Next) {
        let output = match result {
            Ok(output) => output,
            Err(status) => return (None, Next::Done(Status::from(status).into())),
        };
        let answer = match (&mut self.op, output) {
            (Work::Read, Output::Data(blocks)) => {
                Answer { data: Data::Blocks(blocks), ..Answer::done() }
            }
            (Work::Compare, Output::Data(blocks)) if blocks != self.data => Status::COMPARE.into(),
            (Work::Append { .. }, Output::Appended(lba)) => {
                Answer::with(lba.saturating_sub(self.first))
            }
            (Work::Report(report), Output::Zones(zones)) => {
                report.add(&zones);
                if report.wants().is_some() {
                    return self.again();
                }
                self.reported()
            }
            (Work::Write { .. }, _) if !self.data.is_empty() => return self.again(),
            (Work::Deallocate { ranges, .. }, _) if !ranges.is_empty() => return self.again(),
            _ => Answer::done(),
        };
        (None, Next::Done(answer))
    }

    fn again(mut self) -> (Option<Self>, Next) {
        let next = self.next();
        (Some(self), next)
    }
}

/// The drive's address for a command's range, and the range's length.
fn range(sqe: &Sqe, namespace: &Namespace, limits: Limits) -> Result<(Lba, u32), Status> {
    let blocks = (sqe.cdw12.get() & 0xffff) + 1;
    if blocks > limits.transfer {
        return Err(Status::INVALID_FIELD);
    }
    let lba = namespace.locate(sqe.cdw10_11(), blocks.into()).ok_or(Status::LBA_RANGE)?;
    Ok((lba, blocks))
}

/// The ranges of Dataset Management, the first one last.
fn parse_ranges(
    bytes: &[u8],
    count: usize,
    first: Lba,
    size: u64,
) -> Result<SmallVec<[(Lba, u64); 1]>, Status> {
    let (ranges, _) =
        <[Range]>::ref_from_prefix_with_elems(bytes, count).map_err(|_| Status::SGL_LENGTH)?;
    let inside = |range: &Range| {
        let (lba, blocks) = (range.lba.get(), u64::from(range.blocks.get()));
        let end = lba.checked_add(blocks).filter(|end| *end <= size);
        end.map(|_| (lba, blocks)).ok_or(Status::LBA_RANGE)
    };
    let mut parsed: SmallVec<[(Lba, u64); 1]> = SmallVec::new();
    for range in ranges.iter().rev() {
        let (lba, blocks) = inside(range)?;
        if blocks > 0 {
            parsed.push((first + lba, blocks));
        }
    }
    Ok(parsed)
}
