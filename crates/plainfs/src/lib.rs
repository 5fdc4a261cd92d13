//! A deliberately plain file system: a superblock, a map of what is in use, inodes, data, all of it
//! written where it belongs, in no order. No journal, no checksums, no recovery.
//!
//! It is the crash-testing lab's canary, and shows which modules a file system needs to be one of
//! Strandline's. It promises what a naive user expects of fsync, and a power cut shows that it
//! breaks the promise: the name of a new file is not written with it, the map may reach the medium
//! before the blocks it refers to, and the next mount does not repair that. Not for real data.
//!
//! The tree of a mounted volume is a [`vfs::MemFs`]; changes are written on `sync` and `fsync`.

#![forbid(unsafe_code)]

mod disk;
mod load;
mod ondisk;
mod store;
mod volume;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive};
use queue::BlockQueue;
use vfs::MemFs;
use vfs::kind::{self, Checked, Error, Label, Promise, Result, Technique};
use vfs::options::{Options, Row};
use zerocopy::FromZeros;

use disk::{Disk, damaged, superblock};
use load::Loaded;
use ondisk::{BLOCKS_MIN, MAGIC, RawSuperblock};

/// Everything that fsync is said to do, without the means to do it.
pub const PLAIN: &Technique = &Technique {
    name: "plain",
    title: "plainfs",
    options: "",
    make: "",
    promise: |drive| Promise {
        durable: true,
        intact: true,
        atomic: false,
        whole: drive.atomic_write as usize >= BLOCK_SIZE,
        at_return: false,
    },
    runs_on: |drive| drive.zones.is_none(),
};

/// They set whether the mount is read-only.
const OPTIONS: Options<bool> = Options {
    of: "plainfs",
    table: &[&Row::words(&[("ro", true), ("rw", false)], |read_only| read_only)],
};

/// The plain file system.
pub struct Format;

impl kind::Format for Format {
    fn name(&self) -> &'static str {
        "plainfs"
    }

    fn probe(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        Ok(superblock(&BlockQueue::new(drive.clone()))?.is_some())
    }

    fn make(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        let queue = Arc::new(BlockQueue::new(drive.clone()));
        let identify = queue.identify();
        if identify.zones.is_some() || identify.blocks < BLOCKS_MIN {
            return Err(Error::Usage("plainfs needs 256 KiB or more, and no zones".into()));
        }
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC;
        raw.blocks.set(identify.blocks);
        let mut disk = disk::empty(queue, raw)?;
        (1..disk.data.start).for_each(|lba| disk.put(lba, Block::zeroed()));
        store::store_all(&mut disk, &MemFs::new())?;
        disk.write(true)?;
        Ok(disk.flush()?)
    }

    fn check_options(&self, options: &str) -> Result<String> {
        is_read_only(options).map(|read_only| if read_only { "ro" } else { "rw" }.into())
    }

    fn has_option(&self, name: &str) -> bool {
        OPTIONS.has(name)
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn kind::Volume>> {
        let read_only = is_read_only(options)?;
        let mut disk = Disk::open(&drive)?;
        let loaded = Loaded::new(&mut disk)?;
        if let Some(finding) = loaded.wrong {
            return Err(damaged(finding));
        }
        Ok(Arc::new(volume::Plain::new(loaded.memory, disk, read_only)))
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked> {
        let mut disk = Disk::open(drive)?;
        let loaded = Loaded::new(&mut disk)?;
        Ok(Checked {
            findings: loaded.findings,
            clean_unmount: disk.superblock.clean == 1,
            summary: format!("{} inodes", loaded.inodes.len()),
            rows: Vec::new(),
        })
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        &[PLAIN]
    }

    /// It has neither label nor UUID.
    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label> {
        Disk::open(drive).map(|_| Label { label: String::new(), uuid: [0; 16] })
    }
}

fn is_read_only(options: &str) -> Result<bool> {
    let mut read_only = false;
    OPTIONS.set_list(&mut read_only, options)?;
    Ok(read_only)
}
