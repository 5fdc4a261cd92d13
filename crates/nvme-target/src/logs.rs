//! Get Log Page (NVMe base 2.0, section 5.16).

use crate::command::{Sqe, Status};
use crate::controller::{Controller, Kind};
use crate::discovery;
use crate::io::opcode;
use crate::subsystem::Subsystem;

const SUPPORTED: u8 = 0x00;
const ERRORS: u8 = 0x01;
const HEALTH: u8 = 0x02;
const FIRMWARE: u8 = 0x03;
const CHANGED_NAMESPACES: u8 = 0x04;
const EFFECTS: u8 = 0x05;
const DISCOVERY: u8 = 0x70;
const CHANGED_ZONES: u8 = 0xbf;

/// How many bytes the host asks for, and from where.
fn window(sqe: &Sqe) -> (usize, u64) {
    let dwords = u64::from(sqe.cdw10.get() >> 16) | u64::from(sqe.cdw11.get() & 0xffff) << 16;
    let offset = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
    (usize::try_from((dwords + 1) * 4).unwrap_or(usize::MAX), offset)
}

/// Answers Get Log Page.
pub(crate) fn page(
    sqe: &Sqe,
    subsystem: &Subsystem,
    controller: &Controller,
) -> Result<Vec<u8>, Status> {
    let (length, offset) = window(sqe);
    if length > subsystem.transfer() as usize * drive::BLOCK_SIZE || offset % 4 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    // All logs here are indexed only by bytes.
    if sqe.cdw14.get() >> 23 & 1 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let retain = sqe.cdw10.get() >> 15 & 1 != 0;
    let whole = match (controller.kind, sqe.cdw10.get() as u8) {
        (Kind::Discovery, DISCOVERY) => discovery::log(subsystem, controller.local),
        (Kind::Discovery, SUPPORTED) => supported(&[SUPPORTED, DISCOVERY]),
        (Kind::Storage, SUPPORTED) => supported(&[
            SUPPORTED,
            ERRORS,
            HEALTH,
            FIRMWARE,
            CHANGED_NAMESPACES,
            EFFECTS,
            CHANGED_ZONES,
        ]),
        (Kind::Storage, ERRORS) => vec![0; 64],
        (Kind::Storage, HEALTH) => health(subsystem),
        (Kind::Storage, FIRMWARE) => firmware(),
        // Namespaces come and go only with the server.
        (Kind::Storage, CHANGED_NAMESPACES) => vec![0; 4096],
        (Kind::Storage, EFFECTS) => effects((sqe.cdw14.get() >> 24) as u8)?,
        (Kind::Storage, CHANGED_ZONES) => changed_zones(sqe, subsystem, controller, retain)?,
        _ => return Err(Status::INVALID_LOG_PAGE),
    };
    let from = usize::try_from(offset).ok().filter(|from| *from <= whole.len());
    let from = from.ok_or(Status::INVALID_FIELD)?;
    let end = whole.len().min(from.saturating_add(length));
    Ok(padded(whole[from..end].to_vec(), length))
}

fn padded(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.resize(length, 0);
    bytes
}

/// 256 dwords. Bit 0 says that the page exists.
fn supported(pages: &[u8]) -> Vec<u8> {
    let known = |page: u8| u32::from(pages.contains(&page)).to_le_bytes();
    (0..=u8::MAX).flat_map(known).collect()
}

/// NVMe base 2.0, 5.16.1.3: 512 bytes; counts are 16 bytes long.
fn health(subsystem: &Subsystem) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    // 27 degrees; all spare blocks are left, none are used; warn below a tenth.
    put(1, &300_u16.to_le_bytes());
    put(3, &[100, 10, 0]);
    let stats: Vec<_> = subsystem.units.iter().map(|unit| unit.ssd().stats()).collect();
    let sum = |count: fn(&drive::Stats) -> u64| -> u128 {
        stats.iter().map(|stats| u128::from(count(stats))).sum()
    };
    // Data in units of 1,000 times 512 bytes.
    let units = |blocks: u128| (blocks * 8).div_ceil(1000).to_le_bytes();
    put(32, &units(sum(|stats| stats.blocks_read)));
    put(48, &units(sum(|stats| stats.blocks_written)));
    put(64, &sum(|stats| stats.reads).to_le_bytes());
    put(80, &sum(|stats| stats.writes + stats.appends).to_le_bytes());
    // Power cycles, and unsafe shutdowns: every one since the server began was a cut.
    let cuts = u128::from(subsystem.cuts());
    put(112, &(1 + cuts).to_le_bytes());
    put(144, &cuts.to_le_bytes());
    bytes
}

/// Slot 1 is active, and holds this version.
fn firmware() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[0] = 1;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let len = version.len().min(8);
    bytes[8..8 + len].copy_from_slice(&version[..len]);
    bytes
}

/// NVMe base 2.0, 5.16.1.6: 256 dwords for admin commands, 256 for those of a command set.
fn effects(command_set: u8) -> Result<Vec<u8>, Status> {
    const SUPPORTED: u32 = 1;
    const CHANGES_CONTENTS: u32 = 1 << 1;
    let mut all = [0_u32; 1024];
    for admin in [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f] {
        all[admin] = SUPPORTED;
    }
    let mut io = |opcode: u8, effects: u32| all[256 + usize::from(opcode)] = effects;
    for opcode in [opcode::READ, opcode::COMPARE, opcode::VERIFY, opcode::FLUSH] {
        io(opcode, SUPPORTED);
    }
    for opcode in [opcode::WRITE, opcode::WRITE_ZEROES, opcode::DATASET_MANAGEMENT] {
        io(opcode, SUPPORTED | CHANGES_CONTENTS);
    }
    match command_set {
        0 => {}
        2 => {
            io(opcode::ZONE_RECEIVE, SUPPORTED);
            io(opcode::ZONE_SEND, SUPPORTED | CHANGES_CONTENTS);
            io(opcode::ZONE_APPEND, SUPPORTED | CHANGES_CONTENTS);
        }
        _ => return Err(Status::INVALID_FIELD),
    }
    Ok(all.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// ZNS 1.1, 4.1.4.2: the number, then the first blocks of up to 511 zones. FFFFh: more than fit.
fn changed_zones(
    sqe: &Sqe,
    subsystem: &Subsystem,
    controller: &Controller,
    retain: bool,
) -> Result<Vec<u8>, Status> {
    let nsid = sqe.nsid.get();
    let namespace = subsystem.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
    if namespace.zones.is_none() {
        return Err(Status::INVALID_FIELD);
    }
    let zones = controller.changed_zones(nsid, retain);
    let fit = zones.len() <= 511;
    let count = if fit { zones.len() as u16 } else { u16::MAX };
    let mut bytes = vec![0; 8];
    bytes[..2].copy_from_slice(&count.to_le_bytes());
    if fit {
        bytes.extend(zones.into_iter().flat_map(u64::to_le_bytes));
    }
    Ok(padded(bytes, 4096))
}
