//! Whole zoned devices to and from images, zone by zone up to the write pointer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use drive::{BLOCK_SIZE, Zone, ZoneKind, blkzone};
use rustix::fs::OFlags;

const STEP: u64 = 1 << 20;

/// Writes an image, which starts at `offset` of `from`, to the zoned device `to`, whose zones are
/// empty and like those of `report`, what `blkzone report` said of the original.
pub(super) fn put(from: &Path, offset: u64, report: &str, to: &Path) -> io::Result<()> {
    let image = File::open(from)?;
    // Sequential zones are written in order, so past the page cache.
    let direct = OFlags::DIRECT.bits() as i32;
    let device = OpenOptions::new().write(true).custom_flags(direct).open(to)?;
    let mut room = vec![0; STEP as usize + BLOCK_SIZE];
    let aligned = room.as_ptr().align_offset(BLOCK_SIZE);
    let buf = &mut room[aligned..][..STEP as usize];
    each_step(report, |zone, at, length| {
        let step = &mut buf[..length];
        image.read_exact_at(step, offset + at)?;
        if zone.kind == ZoneKind::Conventional && step.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        device.write_all_at(step, at)
    })
}

/// Writes what the zoned device `from` holds below its write pointers to `offset` of `to`, where
/// there are zeroes.
pub(super) fn take(from: &Path, report: &str, to: &Path, offset: u64) -> io::Result<()> {
    let device = File::open(from)?;
    let image = OpenOptions::new().write(true).open(to)?;
    let mut buf = vec![0; STEP as usize];
    each_step(report, |_, at, length| {
        let step = &mut buf[..length];
        device.read_exact_at(step, at)?;
        for (at, block) in (offset + at..).step_by(BLOCK_SIZE).zip(step.chunks(BLOCK_SIZE)) {
            if block.iter().any(|&byte| byte != 0) {
                image.write_all_at(block, at)?;
            }
        }
        Ok(())
    })
}

/// Calls `step` with start and length, in bytes, of all that lies below a write pointer.
fn each_step(
    report: &str,
    mut step: impl FnMut(&Zone, u64, usize) -> io::Result<()>,
) -> io::Result<()> {
    for zone in blkzone::parse(report).map_err(io::Error::other)? {
        let blocks = match zone.kind {
            ZoneKind::Conventional => zone.size,
            ZoneKind::SequentialWriteRequired => (zone.wp - zone.start).min(zone.capacity),
        };
        let start = zone.start * BLOCK_SIZE as u64;
        let end = start + blocks * BLOCK_SIZE as u64;
        for at in (start..end).step_by(STEP as usize) {
            step(&zone, at, STEP.min(end - at) as usize)?;
        }
    }
    Ok(())
}
