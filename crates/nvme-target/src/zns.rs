//! Zone Management Send and Receive (ZNS command set 1.1, sections 3.4.3 and 3.4.2): parsing them,
//! and the bytes of a report.

use drive::{Lba, Zone, ZoneAction, ZoneState};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::command::{Sqe, Status};
use crate::namespace::Namespace;

/// Bytes of a report's header, and of each zone descriptor.
const DESCRIPTOR: usize = 64;
/// How many zones to ask the drive for at once.
const STEP: u32 = 4096;

/// Zone Management Send: the action, and the drive's address of the zone; `None` selects all.
pub(crate) fn parse_send(
    sqe: &Sqe,
    namespace: &Namespace,
) -> Result<(ZoneAction, Option<Lba>), Status> {
    let cdw13 = sqe.cdw13.get();
    let action = match cdw13 & 0xff {
        1 => ZoneAction::Close,
        2 => ZoneAction::Finish,
        3 => ZoneAction::Open,
        4 => ZoneAction::Reset,
        5 => ZoneAction::Offline,
        // Set Zone Descriptor Extension, 10h: there are no extensions.
        _ => return Err(Status::INVALID_FIELD),
    };
    if cdw13 >> 8 & 1 != 0 {
        return Ok((action, None));
    }
    let zone = namespace.locate(sqe.cdw10_11(), 1).ok_or(Status::LBA_RANGE)?;
    Ok((action, Some(zone)))
}

/// A zone report being put together.
pub(crate) struct Report {
    /// The drive's address of the next zone to ask for, and of the namespace's end.
    next: Lba,
    end: Lba,
    base: Lba,
    zone_size: u64,
    filter: Option<ZoneState>,
    /// Count only the zones that are returned.
    partial: bool,
    count: u64,
    bytes: Vec<u8>,
    length: usize,
}

impl Report {
    /// Zone Management Receive.
    pub(crate) fn parse(sqe: &Sqe, namespace: &Namespace, most: usize) -> Result<Self, Status> {
        let cdw13 = sqe.cdw13.get();
        let filter = match cdw13 >> 8 & 0xff {
            0 => None,
            1 => Some(ZoneState::Empty),
            2 => Some(ZoneState::ImplicitlyOpen),
            3 => Some(ZoneState::ExplicitlyOpen),
            4 => Some(ZoneState::Closed),
            5 => Some(ZoneState::Full),
            6 => Some(ZoneState::ReadOnly),
            7 => Some(ZoneState::Offline),
            _ => return Err(Status::INVALID_FIELD),
        };
        // Extended reports, 1, need descriptor extensions.
        if cdw13 & 0xff != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let zones = namespace.zones.ok_or(Status::INVALID_OPCODE)?;
        let first = namespace.locate(sqe.cdw10_11(), 1).ok_or(Status::LBA_RANGE)?;
        let length = (sqe.cdw12.get() as usize).saturating_add(1).saturating_mul(4);
        if !(DESCRIPTOR..=most).contains(&length) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self {
            next: first - first % zones.size,
            end: namespace.first + namespace.blocks,
            base: namespace.first,
            zone_size: zones.size,
            filter,
            partial: cdw13 >> 16 & 1 != 0,
            count: 0,
            bytes: vec![0; DESCRIPTOR],
            length,
        })
    }

    /// How many bytes the host asked for.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    fn has_room(&self) -> bool {
        self.bytes.len() + DESCRIPTOR <= self.length
    }

    /// What to ask the drive for next. `None` when the report is complete.
    pub(crate) fn wants(&self) -> Option<(Lba, u32)> {
        let done = self.next >= self.end || (self.partial && !self.has_room());
        let room = ((self.length - self.bytes.len().min(self.length)) / DESCRIPTOR) as u64;
        let enough = if self.filter.is_none() && self.partial { room } else { u64::MAX };
        (!done).then(|| (self.next, enough.clamp(1, STEP.into()) as u32))
    }

    /// Adds what the drive answered.
    pub(crate) fn add(&mut self, zones: &[Zone]) {
        let Some(last) = zones.last() else {
            self.next = self.end;
            return;
        };
        self.next = last.start.saturating_add(self.zone_size);
        for zone in zones.iter().filter(|zone| self.filter.is_none_or(|of| of == zone.state)) {
            if self.has_room() {
                let descriptor = self.describe(zone);
                self.bytes.extend_from_slice(&descriptor);
            } else if self.partial {
                break;
            }
            self.count += 1;
        }
    }

    fn describe(&self, zone: &Zone) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        // Sequential write required, as every zone of the namespace is.
        bytes[0] = 2;
        bytes[1] = (zone.state as u8) << 4;
        // A write pointer without a meaning is all ones.
        let wp = match zone.state {
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => u64::MAX,
            _ => zone.wp - self.base,
        };
        for (at, value) in [(8, zone.capacity), (16, zone.start - self.base), (24, wp)] {
            bytes[at..at + 8].copy_from_slice(U64::new(value).as_bytes());
        }
        bytes
    }

    /// The bytes for the host.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[..8].copy_from_slice(U64::new(self.count).as_bytes());
        self.bytes.resize(self.length, 0);
        self.bytes
    }
}
