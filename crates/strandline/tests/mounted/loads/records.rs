//! Records that are written again and again, anywhere in a few files, and fsynced in between: after
//! a cut each is as it was at the last fsync, or younger, and never torn.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::{Kept, Load, anchored};

const FILES: usize = 3;
const RECORDS: usize = 400;
/// Bytes of a record: no multiple and no part of a block.
const LEN: usize = 1500;
/// No record of one file touches a block of its neighbour: a block is torn from its neighbours.
const STRIDE: u64 = 4096;

/// What is known of the records of one file.
struct Records {
    written: [u32; RECORDS],
    synced: [u32; RECORDS],
}

/// All files.
pub(crate) struct Log {
    files: Vec<Records>,
    fsyncs: u64,
}

/// Works in `dir` until that fails.
pub(crate) fn work(dir: &Path, seed: u64, kept: &Kept) -> Log {
    let mut log = Log { files: Vec::new(), fsyncs: 0 };
    // The error is the cut.
    let _ = write(dir, seed, &mut log, kept);
    log
}

fn write(dir: &Path, seed: u64, log: &mut Log, kept: &Kept) -> io::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (_anchor, dir) = anchored(dir)?;
    let mut files = Vec::new();
    for name in 0..FILES {
        files.push(File::create_new(dir.join(format!("records{name}")))?);
        log.files.push(Records { written: [0; RECORDS], synced: [0; RECORDS] });
    }
    loop {
        let which = random.random_range(0..FILES);
        let (file, known) = (&files[which], &mut log.files[which]);
        for _ in 0..random.random_range(1..12) {
            let record = random.random_range(0..RECORDS);
            known.written[record] += 1;
            let bytes = contents(which, record, known.written[record]);
            file.write_all_at(&bytes, record as u64 * STRIDE)?;
        }
        let sync = if random.random_bool(0.5) { File::sync_data } else { File::sync_all };
        sync(file)?;
        known.synced = known.written;
        log.fsyncs += 1;
        kept.one_more();
    }
}

fn contents(file: usize, record: usize, version: u32) -> Vec<u8> {
    let mark = format!("{file} {record} {version}\n");
    mark.bytes().cycle().take(LEN).collect()
}

impl Load for Log {
    fn name(&self) -> &'static str {
        "records"
    }

    fn promises(&self) -> u64 {
        self.fsyncs
    }

    fn broken(&self, dir: &Path) -> Vec<String> {
        let mut broken = Vec::new();
        for (which, known) in self.files.iter().enumerate() {
            let found = fs::read(dir.join(format!("records{which}"))).unwrap_or_default();
            for record in 0..RECORDS {
                let range = known.synced[record]..=known.written[record];
                let at = record * STRIDE as usize;
                let bytes = found.get(at..).map_or(&[][..], |rest| &rest[..LEN.min(rest.len())]);
                if !range.clone().any(|version| is(bytes, which, record, version)) {
                    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]);
                    broken.push(format!("file {which}, record {record}: {start:?}, not {range:?}"));
                }
            }
        }
        broken
    }
}

/// Whether a record is of this version; nothing, or zeroes, are version 0.
fn is(bytes: &[u8], file: usize, record: usize, version: u32) -> bool {
    match version {
        0 => bytes.iter().all(|&byte| byte == 0),
        _ => bytes == contents(file, record, version),
    }
}
