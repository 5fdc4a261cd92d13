//! Figure 6.1: fio's random write with an fsync after each, one thread, 4 to 128 KiB.

use cores::Trace;
use vfs::Creator;

use super::{Kind, PROTECTED, Row, VOLATILE, on_volume};
use crate::workload::Rng;
use crate::{Error, Result, now_ns};
use f2fs::technique;
use vfs::kind::Technique;

const KIB: u64 = 1 << 10;
/// The file written to.
const FILE: u64 = 64 << 20;
/// Writes per figure.
const WRITES: u64 = 2000;
/// Sizes of a write.
const SIZES: [u64; 6] = [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB];

/// One run: writes per second, and where the time went.
pub(super) struct Ran {
    pub(super) per_second: f64,
    pub(super) trace: Trace,
}

/// Figure 6.1a.
pub(super) fn without_protection(seed: u64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES {
        let posix = random_writes(VOLATILE, technique::POSIX, size, seed)?.per_second;
        // "About 44%" below posix; not below posix, and not considerably above (section 6.3).
        let compared = [
            (technique::STRICT, "about 0.56", (0.50, 0.62)),
            (technique::OPRW, "not below 1", (0.99, 1.05)),
        ];
        for (mode, paper, (low, high)) in compared {
            let what = format!("{} KiB, {} / F2FS-posix", size / KIB, mode.title);
            let ours = random_writes(VOLATILE, mode, size, seed)?.per_second / posix;
            rows.push(Row::new(Kind::Consequence, what, paper, ours, "x").within(low, high));
        }
    }
    Ok(rows)
}

/// Figure 6.1b. With PLP the drive needs no flush, so neither side sends one.
pub(super) fn with_protection(seed: u64) -> Result<Vec<Row>> {
    let rows = SIZES.into_iter().map(|size| {
        let f2fs = random_writes(PROTECTED, technique::NOBARRIER, size, seed)?.per_second;
        let oprw = random_writes(PROTECTED, technique::OPRW_NOBARRIER, size, seed)?.per_second;
        let what = format!("{} KiB, OPRW / F2FS", size / KIB);
        let row = Row::new(Kind::Consequence, what, "1.18 to 1.42", oprw / f2fs, "x");
        Ok(row.within(1.18, 1.42))
    });
    rows.collect()
}

/// Overwrites a file of [`FILE`] bytes at random, `size` bytes and an fsync at a time.
pub(super) fn random_writes(
    drive: &str,
    mode: &'static Technique,
    size: u64,
    seed: u64,
) -> Result<Ran> {
    let footprint = 2 * FILE + WRITES * (size + 4 * KIB);
    on_volume(drive, mode, footprint, seed, |fs| {
        let file = fs.create(fs.root(), b"file", 0o644, Creator::default());
        let file = file.map_err(Error::at("create", b"file"))?.ino;
        let mut rng = Rng::new(seed, 7);
        let bytes = rng.bytes(1 << 20);
        for at in (0..FILE).step_by(bytes.len()) {
            fs.write(file, at, &bytes).map_err(Error::at("write", b"file"))?;
        }
        fs.sync().map_err(Error::at("sync", b""))?;
        cores::trace::start();
        let from = now_ns();
        for _ in 0..WRITES {
            let at = rng.below(FILE / size) * size;
            fs.write(file, at, &bytes[..size as usize]).map_err(Error::at("write", b"file"))?;
            fs.fsync(file, false).map_err(Error::at("fsync", b"file"))?;
        }
        let seconds = (now_ns() - from) as f64 / 1e9;
        let trace = cores::trace::finish();
        Ok(Ran { per_second: WRITES as f64 / seconds, trace })
    })
}
