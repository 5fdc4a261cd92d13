//! ext4 as the layers above know it: the traits of [`vfs::kind`].

use std::any::Any;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive};
use queue::BlockQueue;
use serde_json::{Map, Value};
use vfs::attributes::Attribute;
use vfs::kind::{
    self, Checked, Habits, Ioctl, Label, Promise, Recovery, Repaired, Result, Technique, Witness,
};
use vfs::record::Record;
use vfs::{Attr, Creator, FileKind, FileSystem, Ino, NewInode, Timespec};

use super::draft::ino as narrow;
use super::ioctl::ioctl;
use super::options::all_faults;
use super::{Ext4, MountOptions, dump, status};
use crate::check;
use crate::error::Error;
use crate::offline::mkfs::{self, MkfsOptions};
use crate::offline::{label, superblock};
use crate::ondisk::MAGIC;
use crate::reader::{self, Mounted};
use crate::recover::{self, recovered};

/// `data=ordered`: an fsync writes the data, then commits the journal's transaction.
const ORDERED: &Technique = &durable("ordered", "JBD2 ordered", "data=ordered");

/// `data=writeback`: as ordered, but a file may have its new blocks before these have its contents.
const WRITEBACK: &Technique = &Technique {
    promise: |drive| Promise { intact: false, ..(ORDERED.promise)(drive) },
    ..durable("writeback", "JBD2 writeback", "data=writeback")
};

/// `data=journal`: contents are in the transaction, so no drive can tear a block of them.
const DATA_JOURNAL: &Technique = &Technique {
    promise: |drive| Promise { whole: true, ..(ORDERED.promise)(drive) },
    ..durable("data-journal", "JBD2 data journal", "data=journal")
};

/// `journal=fast`: an fsync writes the data, then what has changed since the last commit, as the
/// kernel does on a volume with `fast_commit`.
const FAST: &Technique =
    &Technique { make: "fast_commit", ..durable("fast", "Fast commit", "journal=fast") };

/// `journal=ijournal`: an fsync writes the data, then a record of the file.
const IJOURNAL: &Technique = &durable("ijournal", "iJournaling", "journal=ijournal");

/// `journal=grouped`: fsyncs under way at the same time share a record.
const GROUPED: &Technique = &durable("grouped", "Grouped fsync", "journal=grouped");

/// `journal=zjournal`: as ordered, with a log per core: an fsync commits what its transaction
/// depends on.
const ZJOURNAL: &Technique = &durable("zjournal", "Z-Journal", "journal=zjournal");

/// `journal=zgrouped`: a log per core; fsyncs that meet on a core share a record.
const ZGROUPED: &Technique = &durable("zgrouped", "Z-Journal, grouped", "journal=zgrouped");

/// A technique that keeps what it has made durable, on any drive without zones.
const fn durable(name: &'static str, title: &'static str, options: &'static str) -> Technique {
    Technique {
        name,
        title,
        options,
        make: "",
        promise: |drive| Promise {
            durable: true,
            intact: true,
            atomic: false,
            whole: drive.atomic_write as usize >= BLOCK_SIZE,
            at_return: false,
        },
        runs_on: |drive| drive.zones.is_none(),
    }
}

fn block_size(word: &str) -> Result<u32> {
    let known = word.parse().ok().filter(|size| matches!(size, 1024 | 2048 | 4096));
    known.ok_or_else(|| Error::usage(format!("block_size={word}: 1024, 2048 or 4096")).into())
}

/// The fourth extended file system, on the kernel's disk format.
pub struct Format;

impl kind::Format for Format {
    fn name(&self) -> &'static str {
        "ext4"
    }

    /// By the magic number, whatever else is in the superblock.
    fn probe(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        if drive.identify().blocks == 0 {
            return Ok(false);
        }
        let raw = reader::superblock(&BlockQueue::new(drive.clone()))?;
        Ok(raw.magic.get() == MAGIC)
    }

    /// As mke2fs makes it, without `lost+found`, which e2fsck makes when it needs one: an empty
    /// volume has no names.
    fn make(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        self.make_with(drive, "")
    }

    /// `block_size=1024` or `2048` among the features are those bytes of a block.
    fn make_with(&self, drive: &Arc<dyn Drive>, features: &str) -> Result<()> {
        let mut options = MkfsOptions::default();
        for word in features.split(',') {
            match word.strip_prefix("block_size=") {
                Some(size) => options.block_size = Some(block_size(size)?),
                None => options.features.change(word)?,
            }
        }
        mkfs::format(drive, &options)?;
        let fs = Ext4::mount(drive.clone(), &MountOptions::default())?;
        fs.rmdir(fs.root(), b"lost+found")?;
        Ok(fs.unmount()?)
    }

    /// Smaller blocks of a page lie apart, unless the log has all of them in one transaction.
    fn has_whole_pages(&self, way: &Technique, features: &str) -> bool {
        way.name == DATA_JOURNAL.name || !features.contains("block_size=")
    }

    fn check_options(&self, options: &str) -> Result<String> {
        Ok(options.parse::<MountOptions>()?.to_string())
    }

    fn has_option(&self, name: &str) -> bool {
        MountOptions::has(name)
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn kind::Volume>> {
        let options: MountOptions = options.parse()?;
        if !options.read_only {
            return Ok(Arc::new(Ext4::mount(drive, &options)?));
        }
        let (reader, recovery) = match options.no_load {
            true => (reader::open(drive, reader::CACHE)?, Recovery::default()),
            false => recovered(&drive)?,
        };
        Ok(Arc::new(Mounted::new(reader, options.to_string(), recovery)?))
    }

    fn recover(&self, drive: &Arc<dyn Drive>) -> Result<Recovery> {
        Ok(recover::run_and_settle(drive)?)
    }

    /// By the superblock alone, as e2fsck decides whether to look further (`check_if_skip`).
    fn is_clean(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        Ok(superblock::read(drive)?.is_clean())
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked> {
        Ok(check::check(drive)?)
    }

    fn repaired_by(&self) -> Option<&'static str> {
        Some("e2fsck")
    }

    fn repair(&self, drive: &Arc<dyn Drive>, _: bool) -> Result<Repaired> {
        recover::salvage(drive)
    }

    fn advisable(&self) -> &'static [&'static str] {
        &["alloc=percore", "dioread_lock", "discard", "nodiscard", "record_csum"]
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        &[ORDERED, WRITEBACK, DATA_JOURNAL, FAST, IJOURNAL, GROUPED, ZJOURNAL, ZGROUPED]
    }

    fn attributes(&self) -> Vec<Attribute> {
        status::table()
    }

    fn faults(&self) -> Vec<String> {
        all_faults()
    }

    /// A commit takes along whatever other operations have changed; so does an fsync whose record
    /// cannot carry its file. Contents go to the file's map in batches, each with the size up to
    /// its end.
    fn habits(&self, technique: &Technique) -> Habits {
        Habits {
            takes_others_along: true,
            blocks_may_set_size: true,
            maps_ahead: technique == WRITEBACK,
            small_file: 0,
            writes_again: true,
        }
    }

    fn dump(
        &self,
        drive: &Arc<dyn Drive>,
        view: Option<&str>,
        which: Option<&str>,
        see: &mut dyn FnMut(Record) -> bool,
    ) -> Result<()> {
        dump::dump(drive, view, which, see)
    }

    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label> {
        Ok(label::get(drive)?)
    }

    fn set_label(&self, drive: &Arc<dyn Drive>, new: &str) -> Result<Label> {
        Ok(label::set(drive, new)?)
    }
}

impl kind::Volume for Ext4 {
    fn recovery(&self) -> Recovery {
        let replay = self.replay();
        Recovery {
            clean: replay.transactions + replay.records + replay.fast == 0 && self.orphans() == 0,
            scanned: replay.transactions,
            replayed: replay.transactions,
            skipped: 0,
            orphans: self.orphans() as u64,
        }
    }

    fn options(&self) -> String {
        self.options.to_string()
    }

    fn status(&self) -> Map<String, Value> {
        self.by_name()
    }

    fn attributes(&self) -> Vec<Attribute> {
        self.table()
    }

    fn unwritten(&self) -> u64 {
        (self.engine.budget.dirty() * BLOCK_SIZE) as u64
    }

    fn report_to(&self, witness: Witness) {
        // The first one stays.
        drop(self.engine.witness.set(witness));
        self.corrupt.iter().for_each(|error| self.engine.report(error));
    }

    fn set(&self, settings: &[(&str, &str)]) -> Result<()> {
        Ok(self.set_attributes(settings)?)
    }

    fn maintain(self: Arc<Self>) -> Box<dyn Any + Send> {
        Box::new(Ext4::maintain(&self))
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> vfs::Result<Attr> {
        let new = NewInode::plain(FileKind::Regular, perm, creator);
        Ok(self.engine.make_nameless(narrow(parent)?, new)?)
    }

    fn touch_atime(&self, ino: Ino, time: Timespec) -> vfs::Result<()> {
        Ok(self.engine.touch_atime(narrow(ino)?, time)?)
    }

    fn ioctl(&self, ino: Ino, call: Ioctl<'_>) -> vfs::Result<Vec<u8>> {
        ioctl(&self.engine, ino, call)
    }

    fn flags(&self, ino: Ino) -> vfs::Result<u32> {
        self.engine.check_usable()?;
        Ok(self.engine.flags(narrow(ino)?)?)
    }

    fn set_flags(&self, ino: Ino, flags: u32) -> vfs::Result<()> {
        self.engine.set_flags(narrow(ino)?, flags)?;
        self.inode_changed(ino)
    }

    fn project(&self, ino: Ino) -> vfs::Result<u32> {
        self.engine.check_usable()?;
        Ok(self.engine.project(narrow(ino)?)?)
    }
}
