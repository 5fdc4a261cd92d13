//! A deliberately plain file system: superblock, bitmap, inode table, data, all of it written where
//! it belongs, in no order. No journal, no checksums, no recovery.
//!
//! It is the crash-testing lab's canary, and shows which rooms a file system needs to live in this
//! house. It promises what a naive user expects of fsync, and a power cut shows that it cannot keep
//! that: the name of a new file is not written with it, a pointer may reach the medium before the
//! block or the bit that belongs to it, and nothing puts that right at the next mount. Not for data
//! that anybody wants back.
//!
//! The tree of a mounted volume is a [`vfs::MemFs`]; what changed is written when somebody syncs.

#![forbid(unsafe_code)]

mod check;
mod disk;
mod ondisk;
mod survey;
mod tree;
mod volume;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive};
use queue::BlockQueue;
use vfs::kind::{self, Checked, Error, Label, Promise, Result, Technique};
use vfs::{FileKind, MemFs};
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

use disk::{Damaged, Disk, superblock};
use ondisk::{BITS, Geometry, LABEL_MAX, MAGIC, ROOT, RawInode, RawSuperblock};
use survey::Survey;

/// Everything that fsync is said to do, without the means to do it.
pub const PLAIN: &Technique = &Technique {
    name: "plain",
    title: "plainfs",
    options: "",
    promise: |drive| Promise {
        durable: true,
        intact: true,
        atomic: false,
        whole: drive.atomic_write as usize >= BLOCK_SIZE,
    },
    runs_on: |drive| drive.zones.is_none(),
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
        if queue.identify().zones.is_some() {
            return Err(Error::Usage(
                "plainfs writes in place: it needs a drive without zones".into(),
            ));
        }
        let geometry = Geometry::of(queue.identify().blocks)
            .ok_or_else(|| Error::Usage("no size for plainfs: 256 KiB to 16 TiB".into()))?;
        let now = cores::wall_clock();
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC;
        raw.blocks.set(geometry.blocks);
        raw.inodes.set(geometry.inodes);
        raw.uuid =
            *uuid::Builder::from_random_bytes(now.as_nanos().to_le_bytes()).as_uuid().as_bytes();
        let mut disk = Disk::empty(queue, geometry, raw);
        disk.bitmap = vec![0; (geometry.blocks.div_ceil(BITS) * BITS / 8) as usize];
        (0..geometry.data).for_each(|lba| disk.mark(lba, true));
        disk.table = vec![RawInode::new_zeroed(); geometry.inodes as usize];
        (geometry.table..geometry.data).for_each(|lba| disk.put(lba, Block::zeroed()));
        let time = U64::new(now.as_nanos() as u64);
        let mut root = RawInode { atime: time, mtime: time, ctime: time, ..RawInode::new_zeroed() };
        root.mode.set(FileKind::Directory.mode_bits() | 0o755);
        root.nlink.set(2);
        disk.set_inode(ROOT, root);
        disk.write()?;
        Ok(disk.mark_clean()?)
    }

    fn check_options(&self, options: &str) -> Result<String> {
        is_read_only(options).map(|read_only| if read_only { "ro" } else { "rw" }.into())
    }

    fn has_option(&self, name: &str) -> bool {
        matches!(name, "ro" | "rw")
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn kind::Volume>> {
        let read_only = is_read_only(options)?;
        let mut disk = Disk::open(&drive)?;
        let survey = Survey::new(&mut disk);
        if let Some(finding) = survey.findings.first() {
            return Err(Damaged(finding.clone()).into());
        }
        // The rest is for directories, symbolic links and indirect blocks.
        let blocks = disk.geometry.data_blocks();
        let memory = MemFs::with_capacity((blocks - blocks / 16) * BLOCK_SIZE as u64);
        let memory = memory.without_atime();
        tree::load(&mut disk, survey, &memory)?;
        Ok(Arc::new(volume::Plain::new(memory, disk, read_only)))
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked> {
        Ok(check::check(&mut Disk::open(drive)?))
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        &[PLAIN]
    }

    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label> {
        Ok(named(&Disk::open(drive)?.superblock))
    }

    fn set_label(&self, drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
        if label.len() > LABEL_MAX {
            return Err(Error::Usage(format!("a label has at most {LABEL_MAX} bytes")));
        }
        let mut disk = Disk::open(drive)?;
        disk.superblock.label = [0; LABEL_MAX];
        disk.superblock.label[..label.len()].copy_from_slice(label.as_bytes());
        disk.write()?;
        disk.flush()?;
        Ok(named(&disk.superblock))
    }
}

fn named(raw: &RawSuperblock) -> Label {
    let label = raw.label.split(|&byte| byte == 0).next().unwrap_or_default();
    Label { label: String::from_utf8_lossy(label).into_owned(), uuid: raw.uuid }
}

fn is_read_only(options: &str) -> Result<bool> {
    let mut read_only = false;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => read_only = true,
            "rw" => read_only = false,
            _ => return Err(Error::Usage(format!("{option}: plainfs has no options but ro, rw"))),
        }
    }
    Ok(read_only)
}
