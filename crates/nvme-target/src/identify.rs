//! Identify (NVMe base 2.0, section 5.17; NVM command set 1.0 and ZNS 1.1, section 4.1.5): 4096
//! bytes each, most of them zero. Offsets are those of the specifications' figures.

use drive::Drive as _;

use crate::command::{Sqe, Status};
use crate::controller::{Controller, Kind, MAX_ENTRIES, MAX_EVENT_REQUESTS, ZONES_CHANGED};
use crate::namespace::Namespace;
use crate::pdu::IN_CAPSULE;
use crate::subsystem::{DISCOVERY_NQN, Subsystem};

/// Bytes of each answer.
pub(crate) const LEN: usize = 4096;

const CSI_NVM: u8 = 0;
const CSI_ZONED: u8 = 2;
/// Asks about all namespaces.
const BROADCAST: u32 = u32::MAX;

/// 4096 bytes, set field by field.
struct Page(Vec<u8>);

impl Page {
    fn new() -> Self {
        Self(vec![0; LEN])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Text, padded with blanks.
    fn text(&mut self, at: usize, len: usize, text: &str) {
        let printable = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
        let padded: Vec<u8> = printable.chain(std::iter::repeat(b' ')).take(len).collect();
        self.put(at, &padded);
    }

    /// Text that ends with a zero.
    fn name(&mut self, at: usize, len: usize, name: &str) {
        self.put(at, &name.as_bytes()[..name.len().min(len - 1)]);
    }

    /// Little-endian numbers in a row, as many as fit.
    fn list<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.take(LEN / N).flatten().collect();
        bytes.resize(LEN, 0);
        bytes
    }
}

/// Answers Identify.
pub(crate) fn identify(
    sqe: &Sqe,
    subsystem: &Subsystem,
    controller: &Controller,
) -> Result<Vec<u8>, Status> {
    let (cns, csi) = (sqe.cdw10.get() as u8, (sqe.cdw11.get() >> 24) as u8);
    let nsid = sqe.nsid.get();
    if controller.kind == Kind::Discovery {
        return match cns {
            0x01 => Ok(describe_discovery(subsystem, controller)),
            _ => Err(Status::INVALID_FIELD),
        };
    }
    let visible =
        |namespace: &&Namespace| namespace.zones.is_none() || controller.all_command_sets();
    let active = || subsystem.namespaces.iter().filter(visible);
    let one = || active().find(|known| known.nsid == nsid).ok_or(Status::INVALID_NAMESPACE);
    let of_set = |csi| move |known: &&Namespace| known.zones.is_some() == (csi == CSI_ZONED);
    let list = |of: &dyn Fn(&&Namespace) -> bool| {
        if nsid >= 0xffff_fffe {
            return Err(Status::INVALID_NAMESPACE);
        }
        let behind = active().filter(of).map(|known| known.nsid).filter(|known| *known > nsid);
        Ok(Page::list(behind.map(u32::to_le_bytes)))
    };
    match cns {
        0x00 if nsid == BROADCAST => Ok(of_all()),
        0x00 | 0x11 => one().map(|known| of_namespace(known, subsystem)),
        0x01 => Ok(describe(subsystem, controller)),
        0x02 | 0x10 => list(&|_| true),
        0x03 => one().map(descriptors),
        0x05 | 0x1b if csi == CSI_NVM => one().and_then(|known| match known.zones {
            None => Ok(Page::new().0),
            Some(_) => Err(Status::INVALID_FIELD),
        }),
        0x05 | 0x1b if csi == CSI_ZONED => one().and_then(of_zoned),
        0x06 if csi == CSI_NVM => Ok(of_nvm_controller(subsystem)),
        // Zone append is limited only by the longest transfer.
        0x06 if csi == CSI_ZONED => Ok(Page::new().0),
        0x07 | 0x1a if matches!(csi, CSI_NVM | CSI_ZONED) => list(&of_set(csi)),
        0x08 => one().map(|known| independent(known, subsystem)),
        0x13 => {
            let from = (sqe.cdw10.get() >> 16) as u16;
            let all = subsystem.controllers();
            let storage = all.iter().filter(|known| known.kind == Kind::Storage);
            let ids: Vec<u16> = storage.map(|known| known.id).filter(|id| *id >= from).collect();
            let count = u16::try_from(ids.len().min(LEN / 2 - 1)).unwrap_or(0);
            Ok(Page::list(std::iter::once(count).chain(ids).map(u16::to_le_bytes)))
        }
        // Combinations of command sets: there is one, with both.
        0x1c => {
            Ok(Page::list(std::iter::once(1_u64 << CSI_NVM | 1 << CSI_ZONED).map(u64::to_le_bytes)))
        }
        _ => Err(Status::INVALID_FIELD),
    }
}

/// What controllers of both subsystems have in common.
fn common(subsystem: &Subsystem, controller: &Controller) -> Page {
    let mut page = Page::new();
    page.text(4, 20, &subsystem.serial);
    page.text(64, 8, env!("CARGO_PKG_VERSION"));
    page.u8(77, subsystem.transfer_shift);
    page.u16(78, controller.id);
    page.u32(80, 0x0002_0000);
    page.u8(259, MAX_EVENT_REQUESTS as u8 - 1);
    // Effects log, and reading log pages from an offset.
    page.u8(261, 1 << 1 | 1 << 2);
    // Keep alive in steps of 100 ms.
    page.u16(320, 10);
    page.u16(514, MAX_ENTRIES + 1);
    // SGLs, also with an offset in the capsule.
    page.u32(536, 1 | 1 << 20);
    page
}

fn describe(subsystem: &Subsystem, controller: &Controller) -> Vec<u8> {
    let mut page = common(subsystem, controller);
    let model = subsystem.units.first().map_or("", |unit| &unit.ssd().identify().model);
    page.text(24, 40, &format!("Strandline {model}"));
    // Whether the subsystem has several controllers.
    page.u8(76, u8::from(subsystem.options.shared) << 1);
    page.u32(92, ZONES_CHANGED);
    page.u8(111, 1);
    // Abort commands at once, counted from 0.
    page.u8(258, 3);
    // One firmware slot, read only.
    page.u8(260, 1 << 1 | 1);
    // Temperatures of warning and of danger, in Kelvin.
    page.u16(266, 343);
    page.u16(268, 353);
    page.u8(512, 0x66);
    page.u8(513, 0x44);
    page.u32(516, subsystem.namespaces.len() as u32);
    // Compare, Dataset Management, Write Zeroes, Verify.
    page.u16(520, 1 | 1 << 2 | 1 << 3 | 1 << 7);
    // A write cache, flushed one namespace at a time.
    let cached = subsystem.units.iter().any(|unit| unit.ssd().identify().volatile_cache);
    page.u8(525, u8::from(cached) | 2 << 1);
    page.u32(540, subsystem.namespaces.len() as u32);
    page.name(768, 256, &subsystem.options.nqn);
    page.u32(1792, (64 + IN_CAPSULE as u32) / 16);
    page.u32(1796, 1);
    // Data block descriptors: one.
    page.u8(1803, 1);
    // The most power the drive draws, in hundredths of a watt.
    page.u16(2048, 1000);
    page.0
}

fn describe_discovery(subsystem: &Subsystem, controller: &Controller) -> Vec<u8> {
    let mut page = common(subsystem, controller);
    page.text(24, 40, "Strandline discovery");
    page.u8(111, 2);
    page.u8(261, 1 << 2);
    page.name(768, 256, DISCOVERY_NQN);
    page.u32(1792, (64 + IN_CAPSULE as u32) / 16);
    page.u32(1796, 1);
    page.u8(1803, 1);
    page.0
}

/// What is the same for every namespace: the format.
fn of_all() -> Vec<u8> {
    let mut page = Page::new();
    page.put(128, &[0, 0, 12, 0]);
    page.0
}

fn of_namespace(namespace: &Namespace, subsystem: &Subsystem) -> Vec<u8> {
    let mut page = Page(of_all());
    page.u64(0, namespace.blocks);
    page.u64(8, namespace.capacity());
    page.u64(16, namespace.capacity());
    page.u8(30, u8::from(subsystem.options.shared));
    // Deallocated blocks read as zeroes; Write Zeroes may deallocate.
    page.u8(33, if namespace.zones.is_none() { 1 | 1 << 3 } else { 0 });
    page.u8(99, u8::from(is_read_only(namespace, subsystem)));
    page.put(104, &namespace.guid);
    page.0
}

fn is_read_only(namespace: &Namespace, subsystem: &Subsystem) -> bool {
    subsystem.units.get(namespace.unit).is_some_and(|unit| unit.ssd().identify().read_only)
}

/// Identification descriptors: type, length, two reserved bytes, value.
fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut page = Page::new();
    page.put(0, &[2, 16, 0, 0]);
    page.put(4, &namespace.guid);
    page.put(20, &[3, 16, 0, 0]);
    page.put(24, &namespace.guid);
    let csi = if namespace.zones.is_some() { CSI_ZONED } else { CSI_NVM };
    page.put(40, &[4, 1, 0, 0, csi]);
    page.0
}

/// ZNS 1.1, 4.1.5.1.
fn of_zoned(namespace: &Namespace) -> Result<Vec<u8>, Status> {
    let zones = namespace.zones.ok_or(Status::INVALID_FIELD)?;
    let mut page = Page::new();
    // Reads may cross zones.
    page.u16(2, 1);
    let limit = |limit: Option<u32>| limit.map_or(u32::MAX, |limit| limit.saturating_sub(1));
    page.u32(4, limit(zones.max_active));
    page.u32(8, limit(zones.max_open));
    page.u64(2816, zones.size);
    Ok(page.0)
}

/// NVM command set 1.0, 4.1.5.2: limits. Those that are sizes are powers of two blocks.
fn of_nvm_controller(subsystem: &Subsystem) -> Vec<u8> {
    let mut page = Page::new();
    page.u8(0, subsystem.transfer_shift);
    page.u8(1, subsystem.transfer_shift);
    page.0
}

/// NVMe base 2.0, 5.17.2.8: everything that does not depend on the command set.
fn independent(namespace: &Namespace, subsystem: &Subsystem) -> Vec<u8> {
    let mut page = Page::new();
    page.u8(1, u8::from(subsystem.options.shared));
    page.u8(8, u8::from(is_read_only(namespace, subsystem)));
    // Ready.
    page.u8(14, 1);
    page.0
}
