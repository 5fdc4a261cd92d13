//! An open device: what it is, and those commands that are system calls rather than ring entries.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock};
use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev2};
use smallvec::SmallVec;

use super::errno::{Way, status_of};
use super::ioctl::{self, ZoneRequest};
use super::sysfs::Sysfs;
use super::zones::{self, SECTORS_PER_BLOCK};
use super::{Access, OpenError};
use crate::patience::patiently;
use crate::{BLOCK_SIZE, Block, Blocks, Identify, Lba, Output, Status, Zone, ZoneAction, ZoneKind};

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// The most blocks in one command: 1 MiB, and as many iovecs, well below `IOV_MAX`.
const MAX_TRANSFER: u64 = 256;
/// Commands in flight on one queue.
const QUEUE_DEPTH: u16 = 128;
/// More queues than this are not worth their memory.
const MAX_QUEUES: usize = 8;

/// A block device, or a file that is read and written as one.
pub(super) struct Device {
    file: File,
    /// The file of a loop device, locked as the device is.
    _looped: Option<File>,
    path: PathBuf,
    kind: Kind,
    pub(super) identify: Identify,
    /// Which zones take only sequential writes; empty without zones.
    sequential: Box<[bool]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Block,
    File,
}

impl Device {
    /// Opens `path` and asks what it is.
    pub(super) fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        let (file, kind, metadata) = open_kind(path, access)?;
        let looped = match (kind, access) {
            (Kind::Block, Access::Read | Access::Write) => {
                lock_looped(&Sysfs::of(metadata.rdev()), access)?
            }
            _ => None,
        };
        let mut device = Self {
            file,
            _looped: looped,
            path: path.to_owned(),
            kind,
            identify: Identify {
                model: String::new(),
                blocks: 0,
                queues: u16::try_from(cores::core_count().clamp(1, MAX_QUEUES)).unwrap_or(1),
                queue_depth: QUEUE_DEPTH,
                max_transfer: MAX_TRANSFER as u32,
                volatile_cache: true,
                fua: true,
                // A file promises no more.
                atomic_write: 512,
                discard: access == Access::Write,
                discard_zeroes: kind == Kind::File,
                read_only: access != Access::Write,
                zones: None,
                joined: Vec::new(),
                pm: None,
            },
            sequential: Box::default(),
        };
        match kind {
            Kind::Block => device.describe_block(&Sysfs::of(metadata.rdev()))?,
            Kind::File => {
                device.identify.model = "file".into();
                device.set_size(metadata.len(), 512)?;
            }
        }
        Ok(device)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn describe_block(&mut self, sysfs: &Sysfs) -> Result<(), OpenError> {
        let size = ioctl::size(self.fd()).map_err(OpenError::io(&self.path))?;
        let sector = ioctl::logical_block_size(self.fd()).map_err(OpenError::io(&self.path))?;
        self.set_size(size, sector)?;
        let name = || self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.identify.model = sysfs.text("device/model").unwrap_or_else(name);
        let transfer = sysfs.number("queue/max_sectors_kb").unwrap_or(u64::MAX) * 1024;
        self.identify.max_transfer = (transfer / BLOCK_BYTES).clamp(1, MAX_TRANSFER) as u32;
        self.identify.volatile_cache =
            sysfs.text("queue/write_cache").is_none_or(|cache| cache != "write through");
        let atomic = ioctl::atomic_write(self.fd()).map_err(OpenError::io(&self.path))?;
        self.identify.atomic_write = atomic.min(BLOCK_BYTES) as u32;
        self.identify.read_only |= ioctl::is_read_only(self.fd()).unwrap_or(false);
        self.identify.discard &= sysfs.number("queue/discard_max_bytes") != Some(0);
        self.describe_zones(sysfs)
    }

    /// Logical blocks of 512 bytes or 4 KiB both make whole 4 KiB blocks. A remainder at the end is
    /// not used, as with `mkfs.f2fs`.
    fn set_size(&mut self, bytes: u64, sector: u64) -> Result<(), OpenError> {
        if !(512..=BLOCK_BYTES).contains(&sector) {
            let what = format!("logical blocks of {sector} bytes; 512 to 4096 can be used");
            return Err(self.unusable(what));
        }
        self.identify.blocks = bytes / BLOCK_BYTES;
        if self.identify.blocks == 0 {
            return Err(self.unusable(format!("a size of {bytes} bytes")));
        }
        Ok(())
    }

    fn describe_zones(&mut self, sysfs: &Sysfs) -> Result<(), OpenError> {
        let model = sysfs.text("queue/zoned");
        // Without sysfs the kernel still reports the size of a zone. A host-aware device takes
        // random writes anywhere, and is used in that way.
        let zoned = match model.as_deref() {
            Some(model) => model == "host-managed",
            None => ioctl::zone_sectors(self.fd()).is_ok_and(|sectors| sectors > 0),
        };
        if !zoned {
            return Ok(());
        }
        if sysfs.partition {
            return Err(self.unusable("a partition of a zoned device; use the whole device".into()));
        }
        let granularity = sysfs.number("queue/zone_write_granularity").unwrap_or(0);
        if granularity > BLOCK_BYTES {
            return Err(self.unusable(format!("zones that are written {granularity} bytes a time")));
        }
        let found = self.report(0, u32::MAX).map_err(OpenError::io(&self.path))?;
        let expected = ioctl::zone_count(self.fd()).map_err(OpenError::io(&self.path))?;
        if found.len() != expected as usize {
            let found = found.len();
            return Err(self.unusable(format!("{expected} zones, of which it reports {found}")));
        }
        let (open, active) = (sysfs.limit("queue/max_open_zones"), "queue/max_active_zones");
        let geometry = zones::geometry(&found, open, sysfs.limit(active));
        let geometry = geometry.map_err(|what| self.unusable(what.into()))?;
        self.sequential =
            found.iter().map(|zone| zone.kind == ZoneKind::SequentialWriteRequired).collect();
        self.identify.zones = Some(geometry);
        Ok(())
    }

    fn unusable(&self, what: String) -> OpenError {
        OpenError::Unusable { path: self.path.clone(), what }
    }

    /// Whether writes at `lba` must be sequential.
    pub(super) fn is_sequential(&self, lba: Lba) -> bool {
        let Some(geometry) = &self.identify.zones else { return false };
        let zone = usize::try_from(lba / geometry.size).ok();
        zone.and_then(|zone| self.sequential.get(zone)).copied().unwrap_or(false)
    }

    /// Reads, and returns when that is done.
    pub(super) fn read_now(&self, lba: Lba, blocks: u32) -> Result<Output, Status> {
        let mut data: Blocks = (0..blocks).map(|_| Block::unspecified()).collect();
        let mut slices: SmallVec<[IoSliceMut<'_>; 4]> =
            data.iter_mut().map(|block| IoSliceMut::new(block.make_mut())).collect();
        let read = retry(|| preadv(self.fd(), &mut slices, lba * BLOCK_BYTES));
        let read = read.map_err(|error| self.failure(&error, Way::Read, lba, blocks.into()))?;
        drop(slices);
        let all = read == data.len() * BLOCK_SIZE;
        if all { Ok(Output::Data(data)) } else { Err(Status::UnrecoveredRead) }
    }

    /// Writes, and returns when that is done. After a short write the rest is written, too: only
    /// that tells why it was short (a full host ends a write at the last block it has room for).
    pub(super) fn write_now(
        &self,
        mut lba: Lba,
        mut data: &[Block],
        fua: bool,
    ) -> Result<Output, Status> {
        let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        loop {
            let slices: SmallVec<[IoSlice<'_>; 4]> =
                data.iter().map(|block| IoSlice::new(block.bytes())).collect();
            let written = retry(|| pwritev2(self.fd(), &slices, lba * BLOCK_BYTES, flags));
            let blocks = data.len() as u64;
            let written = written.map_err(|error| self.failure(&error, Way::Write, lba, blocks))?;
            match written / BLOCK_SIZE {
                whole if whole == data.len() => return Ok(Output::Done),
                0 => return Err(Status::WriteFault),
                whole => (lba, data) = (lba + whole as u64, &data[whole..]),
            }
        }
    }

    /// Flushes, and returns when that is done.
    pub(super) fn flush_now(&self) -> Result<Output, Status> {
        retry(|| fdatasync(self.fd())).map_err(|error| self.failure(&error, Way::Write, 0, 0))?;
        Ok(Output::Done)
    }

    /// Discards, and returns when that is done.
    pub(super) fn discard_now(&self, lba: Lba, blocks: u64) -> Result<Output, Status> {
        let (start, length) = (lba * BLOCK_BYTES, blocks * BLOCK_BYTES);
        let discarded = match self.kind {
            Kind::Block => ioctl::discard(self.fd(), start, length),
            Kind::File => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                retry(|| fallocate(self.fd(), flags, start, length))
            }
        };
        discarded.map_err(|error| self.failure(&error, Way::Write, lba, blocks))?;
        Ok(Output::Done)
    }

    /// Zones from the one that holds `lba`.
    pub(super) fn report_now(&self, lba: Lba, max: u32) -> Result<Output, Status> {
        let zones = self.report(lba, max);
        zones.map(Output::Zones).map_err(|error| status_of(&error, Way::Read))
    }

    fn report(&self, lba: Lba, max: u32) -> io::Result<Vec<Zone>> {
        let raw = ioctl::report_zones(self.fd(), lba * SECTORS_PER_BLOCK, max as usize)?;
        let zones: Result<Vec<Zone>, _> = raw.iter().map(zones::zone).collect();
        zones.map_err(|what| io::Error::new(ErrorKind::InvalidData, what))
    }

    /// Changes the state of one zone, or of all that `action` applies to.
    pub(super) fn manage_now(
        &self,
        action: ZoneAction,
        zone: Option<Lba>,
    ) -> Result<Output, Status> {
        let size = self.identify.zones.ok_or(Status::InvalidOpcode)?.size;
        let (first, max) = zone.map_or((0, u32::MAX), |zone| (zone, 1));
        let Output::Zones(zones) = self.report_now(first, max)? else { return Ok(Output::Done) };
        let meant = |of: &&Zone| match zone {
            Some(start) => of.start == start,
            None => action.selects(of.state),
        };
        let request = match action {
            ZoneAction::Open => ZoneRequest::Open,
            ZoneAction::Close => ZoneRequest::Close,
            ZoneAction::Finish => ZoneRequest::Finish,
            ZoneAction::Reset => ZoneRequest::Reset,
            // Linux has no ioctl for it.
            ZoneAction::Offline => return Err(Status::InvalidOpcode),
        };
        for zone in zones.iter().filter(meant) {
            // A conventional zone has no states; the kernel's answer to that is an I/O error.
            if zone.kind == ZoneKind::Conventional {
                return Err(Status::InvalidZoneStateTransition);
            }
            let sectors = |blocks: u64| blocks * SECTORS_PER_BLOCK;
            let (start, length) = (sectors(zone.start), sectors(zone.size.min(size)));
            ioctl::manage_zones(self.fd(), request, start, length)
                .map_err(|error| self.failure(&error, Way::Write, zone.start, zone.size))?;
        }
        Ok(Output::Done)
    }

    /// The status of a command that failed in the kernel with `error`. The kernel gives no reason
    /// for an I/O error, but the device's state often tells it.
    pub(super) fn failure(&self, error: &io::Error, way: Way, lba: Lba, blocks: u64) -> Status {
        let status = status_of(error, way);
        if !matches!(status, Status::WriteFault | Status::UnrecoveredRead) {
            return status;
        }
        if self.kind == Kind::Block && !ioctl::size(self.fd()).is_ok_and(|bytes| bytes > 0) {
            return Status::NotReady;
        }
        self.zone_failure(way, lba, blocks).unwrap_or(status)
    }

    /// The status for what the state of the zone at `lba` forbids.
    fn zone_failure(&self, way: Way, lba: Lba, blocks: u64) -> Option<Status> {
        use crate::ZoneState::{Full, Offline, ReadOnly};
        if blocks == 0 || !self.is_sequential(lba) {
            return None;
        }
        let zone = self.report(lba, 1).ok()?.into_iter().next()?;
        match (zone.state, way) {
            (Offline, _) => Some(Status::ZoneOffline),
            (_, Way::Read) => None,
            (ReadOnly, _) => Some(Status::ZoneReadOnly),
            (Full, _) => Some(Status::ZoneFull),
            _ if zone.wp != lba => Some(Status::ZoneInvalidWrite),
            _ => None,
        }
    }
}

/// Opens the file or device at `path`, as [`Device::open`] does, and tells its size in bytes.
pub(super) fn open_raw(path: &Path, access: Access) -> Result<(File, u64), OpenError> {
    let (file, kind, metadata) = open_kind(path, access)?;
    let bytes = match kind {
        Kind::Block => ioctl::size(file.as_fd()).map_err(OpenError::io(path))?,
        Kind::File => metadata.len(),
    };
    Ok((file, bytes))
}

fn open_kind(path: &Path, access: Access) -> Result<(File, Kind, Metadata), OpenError> {
    let metadata = std::fs::metadata(path).map_err(OpenError::io(path))?;
    let kind = match metadata.file_type() {
        kind if kind.is_block_device() => Kind::Block,
        kind if kind.is_file() => Kind::File,
        _ => return Err(OpenError::Kind(path.to_owned())),
    };
    let file = match kind {
        Kind::Block => open_block(path, access)?,
        Kind::File => open_file(path, access)?,
    };
    Ok((file, kind, metadata))
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// The kernel gives a block device to one holder of `O_EXCL` at a time; a mount is one. A reader
/// only makes sure that there is no such holder, and then shares the device with other readers by
/// `flock`. That also tells udev not to touch it while it is written.
fn open_block(path: &Path, access: Access) -> Result<File, OpenError> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write).custom_flags(libc::O_DIRECT | flags);
        options.open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => OpenError::Busy(path.to_owned()),
            _ => OpenError::Io { path: path.to_owned(), source: error },
        })
    };
    let file = match access {
        Access::Write => patiently(is_busy, || open(libc::O_EXCL))?,
        Access::Read => {
            drop(patiently(is_busy, || open(libc::O_EXCL))?);
            open(0)?
        }
        Access::Inspect => return open(0),
    };
    lock(&file, path, access)?;
    Ok(file)
}

/// Locks the file that all of a loop device is in, so that nobody uses that by its own name. What
/// has a part of a file may share it with other parts.
fn lock_looped(sysfs: &Sysfs, access: Access) -> Result<Option<File>, OpenError> {
    let is_part = sysfs.partition
        || ["loop/offset", "loop/sizelimit"].iter().any(|name| sysfs.number(name) != Some(0));
    let path = sysfs.text("loop/backing_file").filter(|_| !is_part).map(PathBuf::from);
    // It may have been deleted, or be one that this user cannot open.
    let Some((path, file)) = path.and_then(|path| File::open(&path).ok().map(|file| (path, file)))
    else {
        return Ok(None);
    };
    lock(&file, &path, access)?;
    Ok(Some(file))
}

/// If a file system has no direct I/O, the file goes through its cache. A flush covers that as
/// well.
fn open_file(path: &Path, access: Access) -> Result<File, OpenError> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write).custom_flags(flags).open(path)
    };
    let file = match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0),
        opened => opened,
    };
    let file = file.map_err(OpenError::io(path))?;
    if access != Access::Inspect {
        lock(&file, path, access)?;
    }
    Ok(file)
}

fn lock(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let how = match access {
        Access::Write => FlockOperation::NonBlockingLockExclusive,
        Access::Read | Access::Inspect => FlockOperation::NonBlockingLockShared,
    };
    patiently(is_busy, || match flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Busy(path.to_owned())),
        Err(error) => Err(OpenError::Io { path: path.to_owned(), source: error.into() }),
    })
}

fn is_busy(error: &OpenError) -> bool {
    matches!(error, OpenError::Busy(_))
}
