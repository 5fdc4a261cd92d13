//! F2FS as a subject.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive, Lba};
use f2fs::check::{CheckOptions, Finding, check};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::ondisk::node::RawNodeFooter;
use f2fs::{F2fs, MountOptions};
use vfs::{Errno, Ino, InodeFlags};

use super::{Fault, Habits, Mounted, PageAt, Recovery, Subject, Volume};
use crate::{Error, Result};

/// How long the cleaner sleeps if it should clean all the time: the shortest setting.
const CLEAN_EVERY_MS: &str = "1";

/// F2FS, made with the defaults of `mkfs.f2fs`.
pub struct F2fsSubject;

fn volume(step: &'static str) -> impl FnOnce(f2fs::Error) -> Error {
    move |error| match error {
        f2fs::Error::Usage(message) => Error::Usage(message.into()),
        error => Error::Volume { step, message: error.to_string() },
    }
}

impl Volume for F2fs {
    fn cleanings(&self) -> u64 {
        self.cleaned_sections()
    }

    fn clean(&self) -> vfs::Result<()> {
        match self.garbage_collect(true).map_err(vfs::Error::from) {
            Err(error) if error.errno() == Errno::NODATA => Ok(()),
            cleaned => cleaned,
        }
    }

    fn maintain(self: Arc<Self>, clean: bool) -> vfs::Result<Box<dyn Any>> {
        if clean {
            self.set_tunable("gc_urgent_sleep_time", CLEAN_EVERY_MS)?;
            self.set_tunable("gc_urgent", "1")?;
        }
        Ok(Box::new(F2fs::maintain(&self)))
    }

    fn flags(&self, ino: Ino) -> vfs::Result<InodeFlags> {
        Ok(InodeFlags::from_bits_truncate(self.inode_flags(ino)?))
    }

    fn set_flags(&self, ino: Ino, flags: InodeFlags) -> vfs::Result<()> {
        Ok(self.set_inode_flags(ino, flags.bits())?)
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> vfs::Result<bool> {
        Ok(self.pages(ino, range, see)?)
    }
}

impl Subject for F2fsSubject {
    fn name(&self) -> &'static str {
        "f2fs"
    }

    fn format(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        format(drive, &MkfsOptions::default()).map(drop).map_err(volume("mkfs"))
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Mounted> {
        let options: MountOptions = options.parse().map_err(volume("mount"))?;
        let fs = F2fs::mount(drive, &options).map_err(volume("mount"))?;
        let report = fs.recovery();
        let recovery = Recovery {
            clean: report.clean,
            scanned: report.scanned_nodes,
            replayed: report.replayed_nodes,
            skipped: report.skipped_inodes,
            orphans: report.orphans,
        };
        Ok(Mounted { fs: Arc::new(fs), recovery })
    }

    fn node(&self, block: &Block, lba: Lba, ino: Ino) -> Option<&'static str> {
        let (footer, ino) = (RawNodeFooter::of(block), u32::try_from(ino).ok()?);
        let at = u32::try_from(lba).ok()?;
        footer.check(footer.nid.get(), ino, at).ok()?;
        Some(match (footer.is_inode(), footer.is_fsync()) {
            (true, true) => "the inode with the mark of the fsync",
            (true, false) => "the inode",
            (false, true) => "a direct node with the mark of the fsync",
            (false, false) => "a node",
        })
    }

    /// An fsync may be a checkpoint, which makes everything durable. Roll-forward takes each node
    /// as it finds it, and makes the file as long as the blocks it points to (`recover_data`).
    /// Small contents are in the inode.
    fn habits(&self) -> Habits {
        let small_file = BLOCK_SIZE as u64;
        Habits { takes_others_along: true, blocks_may_set_size: true, small_file }
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Vec<Fault>> {
        let report = check(drive, &CheckOptions::default()).map_err(volume("check"))?;
        // "above": blocks the volume counts as valid lie above the zone's write pointer.
        let fault = |finding: &Finding| Fault {
            text: finding.to_string(),
            data_only: finding.what == "write pointer" && finding.allowed.starts_with("above "),
        };
        Ok(report.findings.iter().map(fault).collect())
    }
}
