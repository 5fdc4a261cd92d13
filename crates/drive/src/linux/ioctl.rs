//! The ioctls of a block device (`linux/fs.h`) and of its zones (`linux/blkzoned.h`), each as a
//! function that is safe to call.
//!
//! Numbers and layouts are those of the headers; the tests compare them with what a C compiler
//! makes of the headers. Sectors are 512 bytes here, whatever the device's logical blocks are.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{Ioctl, c_int};

/// How many zones to ask for in one report: 32 KiB of descriptors, which fit any stack.
const REPORT_ZONES: usize = 512;

/// `struct blk_zone`, 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct BlkZone {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) wp: u64,
    pub(super) kind: u8,
    pub(super) cond: u8,
    pub(super) non_seq: u8,
    pub(super) reset: u8,
    pub(super) resv: [u8; 4],
    pub(super) capacity: u64,
    pub(super) reserved: [u8; 24],
}

/// `struct blk_zone_report` without its zones, 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct BlkZoneReport {
    sector: u64,
    nr_zones: u32,
    flags: u32,
}

/// `struct blk_zone_report` with room for a good many zones.
#[repr(C)]
struct FullReport {
    head: BlkZoneReport,
    zones: [BlkZone; REPORT_ZONES],
}

/// `struct blk_zone_range`, 16 bytes; also the argument of `BLKDISCARD`, then in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Range {
    start: u64,
    length: u64,
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<BlkZone>() == 64);
    assert!(offset_of!(BlkZone, kind) == 24);
    assert!(offset_of!(BlkZone, cond) == 25);
    assert!(offset_of!(BlkZone, reset) == 27);
    assert!(offset_of!(BlkZone, capacity) == 32);
    assert!(size_of::<BlkZoneReport>() == 16);
    assert!(offset_of!(BlkZoneReport, nr_zones) == 8);
    assert!(offset_of!(BlkZoneReport, flags) == 12);
    assert!(offset_of!(FullReport, zones) == size_of::<BlkZoneReport>());
    assert!(size_of::<Range>() == 16);
};

/// `blk_zone_report.flags`: descriptors have a capacity.
const REP_CAPACITY: u32 = 1;

/// The smallest unit of any device.
const SECTOR: u64 = 512;

const BLK: u32 = 0x12;
const BLKROGET: Ioctl = libc::_IO(BLK, 94);
const BLKALIGNOFF: Ioctl = libc::_IO(BLK, 122);
const BLKPBSZGET: Ioctl = libc::_IO(BLK, 123);
const BLKSSZGET: Ioctl = libc::_IO(BLK, 104);
const BLKGETSIZE64: Ioctl = libc::_IOR::<usize>(BLK, 114);
const BLKDISCARD: Ioctl = libc::_IO(BLK, 119);
const BLKREPORTZONE: Ioctl = libc::_IOWR::<BlkZoneReport>(BLK, 130);
const BLKRESETZONE: Ioctl = libc::_IOW::<Range>(BLK, 131);
const BLKGETZONESZ: Ioctl = libc::_IOR::<u32>(BLK, 132);
const BLKGETNRZONES: Ioctl = libc::_IOR::<u32>(BLK, 133);
const BLKOPENZONE: Ioctl = libc::_IOW::<Range>(BLK, 134);
const BLKCLOSEZONE: Ioctl = libc::_IOW::<Range>(BLK, 135);
const BLKFINISHZONE: Ioctl = libc::_IOW::<Range>(BLK, 136);

/// What to do with zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneRequest {
    Reset,
    Open,
    Close,
    Finish,
}

/// Bytes of the device.
pub(super) fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = 0_u64;
    // SAFETY: BLKGETSIZE64 writes a u64.
    unsafe { ioctl(fd, BLKGETSIZE64, &raw mut bytes) }?;
    Ok(bytes)
}

/// Bytes of a logical block.
pub(super) fn logical_block_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    int(fd, BLKSSZGET)
}

/// Bytes of a physical block, the smallest unit that the device writes atomically (Linux's
/// `sysfs-block`). If the device does not begin with a whole one, bytes of a sector.
pub(super) fn atomic_write(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let is_aligned = int(fd, BLKALIGNOFF).is_ok_and(|offset| offset == 0);
    if is_aligned { int(fd, BLKPBSZGET) } else { Ok(SECTOR) }
}

/// Whether the device refuses writes.
pub(super) fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, BLKROGET)? != 0)
}

/// Sectors in a zone, 0 for a device without zones.
pub(super) fn zone_sectors(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut sectors = 0_u32;
    // SAFETY: BLKGETZONESZ writes a u32.
    unsafe { ioctl(fd, BLKGETZONESZ, &raw mut sectors) }?;
    Ok(sectors)
}

/// How many zones there are.
pub(super) fn zone_count(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut count = 0_u32;
    // SAFETY: BLKGETNRZONES writes a u32.
    unsafe { ioctl(fd, BLKGETNRZONES, &raw mut count) }?;
    Ok(count)
}

/// Tells the device that the contents of a range of bytes are no longer needed.
pub(super) fn discard(fd: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    let mut range = Range { start, length };
    // SAFETY: BLKDISCARD reads two u64.
    unsafe { ioctl(fd, BLKDISCARD, &raw mut range) }
}

/// Does `request` to the zones in a range of sectors.
pub(super) fn manage_zones(
    fd: BorrowedFd<'_>,
    request: ZoneRequest,
    start: u64,
    length: u64,
) -> io::Result<()> {
    let number = match request {
        ZoneRequest::Reset => BLKRESETZONE,
        ZoneRequest::Open => BLKOPENZONE,
        ZoneRequest::Close => BLKCLOSEZONE,
        ZoneRequest::Finish => BLKFINISHZONE,
    };
    let mut range = Range { start, length };
    // SAFETY: all four read a struct blk_zone_range.
    unsafe { ioctl(fd, number, &raw mut range) }
}

/// Up to `max` zones from the one that holds `sector`, fewer if there are no more.
pub(super) fn report_zones(
    fd: BorrowedFd<'_>,
    sector: u64,
    max: usize,
) -> io::Result<Vec<BlkZone>> {
    let mut zones = Vec::new();
    let mut at = sector;
    while zones.len() < max {
        let some = report_some(fd, at, max - zones.len())?;
        let Some(last) = some.last() else { break };
        let next = last.start.checked_add(last.len).filter(|next| *next > at);
        zones.extend_from_slice(&some);
        // If a zone did not advance the report, it would be requested again for ever.
        at = next.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    }
    Ok(zones)
}

fn report_some(fd: BorrowedFd<'_>, sector: u64, max: usize) -> io::Result<Vec<BlkZone>> {
    let nr_zones = max.min(REPORT_ZONES) as u32;
    let head = BlkZoneReport { sector, nr_zones, flags: 0 };
    let mut report = Box::new(FullReport { head, zones: [BlkZone::default(); REPORT_ZONES] });
    // SAFETY: BLKREPORTZONE reads the head and writes it and up to `nr_zones` zones behind it.
    let answer = unsafe { ioctl(fd, BLKREPORTZONE, &raw mut *report) };
    match answer {
        // After the last zone, some drivers answer with no zones, others with an error.
        Err(error) if sector > 0 && error.raw_os_error() == Some(libc::EINVAL) => {
            return if sector >= size(fd)? / 512 { Ok(Vec::new()) } else { Err(error) };
        }
        answer => answer?,
    }
    let found = (report.head.nr_zones as usize).min(nr_zones as usize);
    let mut zones = report.zones[..found].to_vec();
    if report.head.flags & REP_CAPACITY == 0 {
        // Linux before 5.9: a zone can be written up to its end.
        zones.iter_mut().for_each(|zone| zone.capacity = zone.len);
    }
    Ok(zones)
}

/// An ioctl that answers with an `int`.
fn int(fd: BorrowedFd<'_>, number: Ioctl) -> io::Result<u64> {
    let mut value: c_int = 0;
    // SAFETY: the callers' ioctls write an int.
    unsafe { ioctl(fd, number, &raw mut value) }?;
    u64::try_from(value).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// # Safety
///
/// `number` reads and writes no more than `T`.
unsafe fn ioctl<T>(fd: BorrowedFd<'_>, number: Ioctl, argument: *mut T) -> io::Result<()> {
    loop {
        // SAFETY: by the caller; the descriptor is open.
        if unsafe { libc::ioctl(fd.as_raw_fd(), number, argument) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `linux/blkzoned.h` and `linux/fs.h` come to, printed by a C program on x86-64.
    #[test]
    fn numbers_are_those_of_the_headers() {
        let ours = [
            BLKROGET,
            BLKALIGNOFF,
            BLKPBSZGET,
            BLKSSZGET,
            BLKGETSIZE64,
            BLKDISCARD,
            BLKREPORTZONE,
            BLKRESETZONE,
            BLKGETZONESZ,
            BLKGETNRZONES,
            BLKOPENZONE,
            BLKCLOSEZONE,
            BLKFINISHZONE,
        ];
        let headers = [
            0x125e,
            0x127a,
            0x127b,
            0x1268,
            0x8008_1272,
            0x1277,
            0xc010_1282,
            0x4010_1283,
            0x8004_1284,
            0x8004_1285,
            0x4010_1286,
            0x4010_1287,
            0x4010_1288,
        ];
        assert_eq!(ours, headers);
    }

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::tempfile().expect("temporary file");
        let fd = std::os::fd::AsFd::as_fd(&file);
        let errors = [
            size(fd).map(drop),
            report_zones(fd, 0, 1).map(drop),
            manage_zones(fd, ZoneRequest::Reset, 0, 8),
            discard(fd, 0, 4096),
        ];
        for error in errors {
            assert_eq!(error.expect_err("not a device").raw_os_error(), Some(libc::ENOTTY));
        }
    }
}
