//! Bad input to the engine: corruption, truncation, full and failing drives. One clear error, the
//! right errno, no panic, no hang, nothing durable lost.

mod commands;
mod corruption;
mod full;
mod half_way;
mod images;
mod promises;
mod zones;

use std::sync::Arc;

use drive::{Drive, Spec, Ssd, Timing};
use f2fs::mkfs::format;
use f2fs::{F2fs, MountOptions};
use vfs::{Errno, FileSystem, Ino};

use crate::fuzz_body::{self, Base, bases};
use crate::harness::{Kind, mkfs_options};

fn options(text: &str) -> MountOptions {
    text.parse().unwrap()
}

fn try_mount(drive: impl Drive + 'static, text: &str) -> Result<F2fs, f2fs::Error> {
    F2fs::mount(Arc::new(drive), &options(text))
}

/// The errno and the line of a mount that must fail.
fn refusal(drive: impl Drive + 'static, text: &str) -> (Errno, String) {
    match try_mount(drive, text) {
        Ok(_) => panic!("the mount succeeded"),
        Err(error) => (error.errno(), error.to_string()),
    }
}

fn read_all(fs: &F2fs, ino: Ino) -> vfs::Result<Vec<u8>> {
    let mut contents = vec![0; fs.getattr(ino)?.size as usize];
    let len = fs.read(ino, 0, &mut contents)?;
    contents.truncate(len);
    Ok(contents)
}

fn base(kind: fuzz_body::Kind) -> &'static Base {
    bases().iter().find(|base| base.kind == kind).unwrap()
}

fn small_drive(kind: Kind) -> Arc<Ssd> {
    let spec = match kind {
        Kind::Conventional => kind.spec().blocks(16 * 1024),
        Kind::Zoned => kind.spec().zones(32, 5),
    };
    formatted(spec)
}

fn formatted(spec: Spec) -> Arc<Ssd> {
    let drive = Ssd::new(spec, Timing::Instant, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &mkfs_options()).unwrap();
    drive
}
