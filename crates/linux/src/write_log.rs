//! The log that the kernel's `dm-log-writes` keeps of all writes to a disk, and the disks that a
//! power cut at some moment could have left.
//!
//! Format: Documentation/admin-guide/device-mapper/log-writes.rst and the structures in
//! drivers/md/dm-log-writes.c: a super block, then for each write a sector that describes it and
//! its data. Everything is in sectors of the size the super block gives.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// What a disk writes whole or not at all.
const BLOCK: usize = 4096;

/// A log, read as far as the kernel said it goes.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where on the disk, in bytes.
    at: u64,
    /// How much, in bytes.
    length: u64,
    flags: u64,
    /// Where its data is in the log.
    data: u64,
}

impl WriteLog {
    /// Opens the log in the image of the log's disk.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 0)?;
        let magic = word(&sector, 0);
        if (magic, word(&sector, 1)) != (MAGIC, 1) {
            return Err(io::Error::other(format!("no write log of version 1: {magic:#x}")));
        }
        let (count, size) = (word(&sector, 2), word(&sector, 3) & 0xffff_ffff);
        let mut entries = Vec::new();
        let mut at = size;
        for _ in 0..count {
            file.read_exact_at(&mut sector[..32], at)?;
            let [start, length, flags] = [0, 1, 2].map(|n| word(&sector, n));
            let entry = Entry { at: start * size, length: length * size, flags, data: at + size };
            at = entry.data + if flags & DISCARD == 0 { entry.length } else { 0 };
            entries.push(entry);
        }
        Ok(Self { file, entries })
    }

    /// The number of writes, flushes and discards.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Brings `disk` from its state before the log to one that a loss of power after `count`
    /// entries can leave: with a seed, each block written behind the last flush is there or not as
    /// chance has it; without one, all are.
    pub fn replay(&self, count: usize, seed: Option<u64>, disk: &File) -> io::Result<()> {
        let entries = &self.entries[..count];
        let flushed = entries.iter().rposition(|entry| entry.flags & FLUSH != 0).unwrap_or(0);
        let mut chance = seed.map(Xoshiro256PlusPlus::seed_from_u64);
        for (number, entry) in entries.iter().enumerate() {
            let safe = number <= flushed || entry.flags & FUA != 0;
            if entry.flags & DISCARD != 0 || entry.length == 0 {
                continue;
            }
            let mut data = vec![0; entry.length as usize];
            self.file.read_exact_at(&mut data, entry.data)?;
            for (at, block) in (entry.at..).step_by(BLOCK).zip(data.chunks(BLOCK)) {
                let kept = chance.as_mut().is_none_or(|chance| safe || chance.random_bool(0.5));
                if kept {
                    disk.write_all_at(block, at)?;
                }
            }
        }
        Ok(())
    }
}

fn word(sector: &[u8], index: usize) -> u64 {
    sector[index * 8..][..8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
