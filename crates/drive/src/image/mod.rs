//! Emulated drives in files: raw bytes in `NAME`, and what the drive knows about itself in
//! `NAME.zones`.
//!
//! `NAME` holds exactly what NAND holds, so other programs read it as they would read the drive. A
//! file without `NAME.zones` is a plain drive of its size. Zone states reach `NAME.zones` when they
//! must be durable (flush, forced write, reset, finish, power-off). On a drive that loses nothing
//! with its power, they also do at each write, after its bytes. So a process that dies leaves what
//! a drive leaves when its power fails. If the host's own power fails, only what was flushed is
//! safe.

mod zones_file;

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::blkzone::{self, ReportError};
use crate::patience::patiently;
use crate::ssd::SavedZone;
use crate::{
    BLOCK_SIZE, DriveState, FileMedia, Media, ProfileError, Spec, Ssd, Timing, Zone, ZoneState,
};
use zones_file::ZonesFile;

const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;

/// Why a file is not a drive, or cannot become one.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory, a device, a socket.
    #[error("{}: not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It has not even one block.
    #[error("{}: size {size} is less than a block of 4096 bytes", path.display())]
    Size {
        /// Which file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// Another process has it open.
    #[error("{}: in use by another process", .0.display())]
    Busy(PathBuf),
    /// The file beside the image cannot be understood.
    #[error("{}: line {line}: {what}", path.display())]
    Zones {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Image and zones file do not belong together.
    #[error("{}: holds {found} bytes, but its .zones file describes {expected}", path.display())]
    Mismatch {
        /// Which file.
        path: PathBuf,
        /// Size of the image in bytes.
        found: u64,
        /// Size it should have.
        expected: u64,
    },
    /// No drive can be made like this.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A zone report that cannot be understood.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A drive that cannot be emulated.
    #[error("zone report: {0}")]
    Geometry(&'static str),
}

/// The file beside `image` that holds its zones.
pub fn zones_path(image: &Path) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(".zones");
    name.into()
}

/// Makes a new drive in `path`, which must not exist. The file is sparse. A RAM profile without
/// zones makes a plain file.
pub fn create(path: &Path, spec: &Spec) -> Result<(), ImageError> {
    let blocks = DriveState::new(spec.clone())?.identify().blocks;
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(at(path))?;
    file.set_len(blocks.saturating_mul(BLOCK_BYTES)).map_err(at(path))?;
    if is_plain(spec) {
        return Ok(());
    }
    beside(path, spec, &[])
}

/// Writes the zones file of a new drive. If that fails, removes the drive again.
fn beside(path: &Path, spec: &Spec, zones: &[SavedZone]) -> Result<(), ImageError> {
    ZonesFile::write_new(&zones_path(path), spec, zones).inspect_err(|_| remove(path))
}

/// Removes what could not be completed. The error to report is why that failed.
fn remove(path: &Path) {
    drop(std::fs::remove_file(path));
}

/// Opens the drive in `path`. Another process can have it open only if both only read.
pub fn open(path: &Path, read_only: bool, timing: Timing) -> Result<Arc<Ssd>, ImageError> {
    let metadata = std::fs::metadata(path).map_err(at(path))?;
    if !metadata.is_file() {
        return Err(ImageError::NotAFile(path.to_owned()));
    }
    let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(at(path))?;
    lock(&file, path, read_only)?;
    let size = file.metadata().map_err(at(path))?.len();
    // A copy of a partition of 512-byte sectors may have a remainder, which is not used.
    let blocks = size / BLOCK_BYTES;
    if blocks == 0 {
        return Err(ImageError::Size { path: path.to_owned(), size });
    }
    let beside = zones_path(path);
    let known = beside.try_exists().map_err(at(&beside))?;
    let (spec, zones, log) = if known {
        let (spec, zones) = zones_file::read(&beside)?;
        let log = if read_only { None } else { Some(ZonesFile::reopen(&beside, &spec, &zones)?) };
        (spec, zones, log)
    } else {
        (Spec::named("ram")?.blocks(blocks), Vec::new(), None)
    };
    let mut state = DriveState::new(spec)?;
    let expected = state.identify.blocks.saturating_mul(BLOCK_BYTES);
    if known && expected != size {
        return Err(ImageError::Mismatch { path: path.to_owned(), found: size, expected });
    }
    state.identify.read_only = read_only;
    state.identify.volatile_cache = true;
    state.media = Media::File(Arc::new(FileMedia::new(file, blocks)));
    state.zones = zones;
    let log = log.map(|log| Box::new(log) as Box<dyn crate::ssd::ZoneLog>);
    Ok(Arc::new(Ssd::with_log(state, timing, 0, log)))
}

/// Makes an emulated drive in `path` from a raw dump of a zoned drive and the text that `blkzone
/// report` printed for it. Open zones come back closed, as after any power cycle. The report does
/// not tell the drive's zone limits, so the copy has none.
pub fn import(raw: &Path, report: &str, path: &Path) -> Result<(), ImageError> {
    let zones = blkzone::parse(report)?;
    let (spec, saved) = from_report(&zones)?;
    let expected = spec.identify()?.blocks.saturating_mul(BLOCK_BYTES);
    let found = std::fs::metadata(raw).map_err(at(raw))?.len();
    if found != expected {
        return Err(ImageError::Mismatch { path: raw.to_owned(), found, expected });
    }
    let from = File::open(raw).map_err(at(raw))?;
    let to = OpenOptions::new().write(true).create_new(true).open(path).map_err(at(path))?;
    copy(&from, &to, expected).map_err(at(path)).inspect_err(|_| remove(path))?;
    beside(path, &spec, &saved)
}

/// Copies `len` bytes, leaving holes where there are only zeroes.
fn copy(mut from: &File, mut to: &File, len: u64) -> io::Result<()> {
    to.set_len(len)?;
    let mut piece = vec![0; 64 * BLOCK_SIZE];
    for offset in (0..len).step_by(piece.len()) {
        let piece = &mut piece[..(len - offset).min(64 * BLOCK_BYTES) as usize];
        from.read_exact(piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            to.seek(SeekFrom::Start(offset))?;
            to.write_all(piece)?;
        }
    }
    to.sync_all()
}

/// The specification of a drive that reported `zones`, and those zones as they are without power.
pub(crate) fn from_report(zones: &[Zone]) -> Result<(Spec, Vec<SavedZone>), ImageError> {
    let sequential = |zone: &&Zone| zone.state != ZoneState::NotWritePointer;
    let conventional = zones.iter().take_while(|zone| !sequential(zone)).count();
    let first = zones.first().ok_or(ImageError::Geometry("no zones"))?;
    let capacity = zones.get(conventional).map_or(first.size, |zone| zone.capacity);
    if zones.iter().any(|zone| zone.size != first.size) {
        return Err(ImageError::Geometry("zones of different sizes"));
    }
    let behind = zones.get(conventional..).unwrap_or_default();
    if !behind.iter().all(|zone| sequential(&zone)) {
        return Err(ImageError::Geometry("conventional zones behind sequential ones"));
    }
    if behind.iter().any(|zone| zone.capacity != capacity) {
        return Err(ImageError::Geometry("zones of different capacities"));
    }
    let too_many = |_| ImageError::Geometry("too many zones");
    let count = u32::try_from(zones.len()).map_err(too_many)?;
    let conventional = u32::try_from(conventional).map_err(too_many)?;
    let spec = Spec::named("zn540")?
        .zone_size(first.size, capacity)
        .zones(count, conventional)
        .limits(None, None);
    Ok((spec, zones.iter().map(|zone| saved(zone, capacity)).collect()))
}

fn saved(zone: &Zone, capacity: u64) -> SavedZone {
    let wp = zone.wp.saturating_sub(zone.start).min(capacity);
    let state =
        match zone.state {
            ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen | ZoneState::Closed => {
                if wp == 0 { ZoneState::Empty } else { ZoneState::Closed }
            }
            state => state,
        };
    let wp = if state == ZoneState::NotWritePointer { 0 } else { wp };
    SavedZone { state, wp, sealed: state == ZoneState::Full }
}

fn is_plain(spec: &Spec) -> bool {
    spec.profile().write_through() && matches!(spec.identify(), Ok(id) if id.zones.is_none())
}

fn lock(file: &File, path: &Path, shared: bool) -> Result<(), ImageError> {
    patiently(
        |error| matches!(error, ImageError::Busy(_)),
        || match if shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(ImageError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(at(path)(error)),
        },
    )
}

fn at(path: &Path) -> impl Fn(io::Error) -> ImageError + '_ {
    |source| ImageError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
