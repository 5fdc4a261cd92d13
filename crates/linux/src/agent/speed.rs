//! Random 4 KiB overwrite and fsync, by our engine on a device and by system calls on a mounted
//! file system: the same file, the same places, the same number of times.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use drive::linux::{Access, BlockDevice};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vfs::Creator;
use vfs::kind::Format;

use super::Done;

const PAGE: u64 = 4096;
const FILE_PAGES: u64 = 4096;

/// Operations per second of our engine on the volume on `device`.
pub(super) fn ours(device: &Path, options: &str, ops: u64) -> Done<f64> {
    let device = Arc::new(BlockDevice::open(device, Access::Write)?);
    let fs = f2fs::Format.mount(device, options)?;
    let file = fs.create(fs.root(), b"file", 0o644, Creator::default())?.ino;
    let rate = measure(
        ops,
        |at, data| Ok(fs.write(file, at, data).map(drop)?),
        || Ok(fs.fsync(file, false)?),
    )?;
    fs.unmount()?;
    Ok(rate)
}

/// Operations per second on the new file `path` of a mounted file system.
pub(super) fn theirs(path: &Path, ops: u64) -> Done<f64> {
    let file = File::create_new(path)?;
    measure(ops, |at, data| Ok(file.write_all_at(data, at)?), || Ok(file.sync_all()?))
}

fn measure(
    ops: u64,
    write: impl Fn(u64, &[u8]) -> Done<()>,
    sync: impl Fn() -> Done<()>,
) -> Done<f64> {
    for page in 0..FILE_PAGES {
        write(page * PAGE, &[1; PAGE as usize])?;
    }
    sync()?;
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let start = cores::now();
    for op in 0..ops {
        write(chance.random_range(0..FILE_PAGES) * PAGE, &[op as u8; PAGE as usize])?;
        sync()?;
    }
    Ok(ops as f64 * 1e9 / (cores::now() - start) as f64)
}
