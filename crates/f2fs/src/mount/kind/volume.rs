//! A mounted F2FS, as [`vfs::kind::Volume`] has it.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};
use vfs::attributes::Attribute;
use vfs::kind::{self, Atomic, Defragmented, Ioctl, PageAt, Recovery, Shutdown, Witness};
use vfs::{Attr, Creator, Errno, Ino, Result, Timespec};

use super::ioctl::ioctl;
use crate::F2fs;
use crate::ondisk::BLOCK_SIZE;

/// How long the cleaner sleeps if it should clean all the time: the shortest setting.
const CLEAN_EVERY_MS: &str = "1";

impl kind::Volume for F2fs {
    fn recovery(&self) -> Recovery {
        F2fs::recovery(self).into()
    }

    fn options(&self) -> String {
        F2fs::options(self).to_string()
    }

    fn status(&self) -> Map<String, Value> {
        F2fs::status(self).by_name()
    }

    fn attributes(&self) -> Vec<Attribute> {
        F2fs::attributes(self)
    }

    fn unwritten(&self) -> u64 {
        let dirty = self.lock().inodes.pages().dirty() as u64;
        (dirty + self.queue().blocks_lost()) * BLOCK_SIZE as u64
    }

    fn report_to(&self, witness: Witness) {
        self.lock().witness = Some(witness);
    }

    fn set(&self, settings: &[(&str, &str)]) -> kind::Result<()> {
        Ok(self.set_tunables(settings)?)
    }

    fn maintain(self: Arc<Self>) -> Box<dyn Any + Send> {
        Box::new(F2fs::maintain(&self))
    }

    fn clean(&self) -> Result<()> {
        // Only the background's cleaning goes by age.
        let sync = !self.lock().atgc;
        match self.garbage_collect(sync).map_err(vfs::Error::from) {
            Err(error) if error.errno() == Errno::NODATA => Ok(()),
            cleaned => cleaned,
        }
    }

    fn clean_always(&self) -> kind::Result<()> {
        self.set(&[("gc_urgent_sleep_time", CLEAN_EVERY_MS)])?;
        self.set(&[("gc_urgent", "1")])
    }

    fn cleanings(&self) -> u64 {
        self.cleaned_sections()
    }

    fn shut_down(&self, how: Shutdown) -> Result<()> {
        Ok(self.shutdown(how)?)
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        Ok(F2fs::tmpfile(self, parent, perm, creator)?)
    }

    fn touch_atime(&self, ino: Ino, time: Timespec) -> Result<()> {
        Ok(F2fs::touch_atime(self, ino, time)?)
    }

    fn flags(&self, ino: Ino) -> Result<u32> {
        Ok(self.inode_flags(ino)?)
    }

    fn set_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        Ok(self.set_inode_flags(ino, flags)?)
    }

    fn project(&self, ino: Ino) -> Result<u32> {
        Ok(self.project_id(ino)?)
    }

    fn set_project(&self, ino: Ino, project: u32) -> Result<()> {
        Ok(self.set_project_id(ino, project)?)
    }

    fn atomic_write(&self, ino: Ino, step: Atomic) -> Result<()> {
        match step {
            Atomic::Start => self.start_atomic_write(ino)?,
            Atomic::Commit => self.commit_atomic_write(ino)?,
            Atomic::Abort => self.abort_atomic_write(ino)?,
        }
        Ok(())
    }

    fn ioctl(&self, ino: Ino, call: Ioctl<'_>) -> Result<Vec<u8>> {
        ioctl(self, ino, call)
    }

    fn defragment(&self, ino: Ino) -> Result<Defragmented> {
        Ok(self.defragment_file(ino)?)
    }

    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        Ok(F2fs::pages(self, ino, range, see)?)
    }
}
