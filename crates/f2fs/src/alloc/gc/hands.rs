//! How the cleaner locks the volume: as its only user, or as an exclusive holder that lets readers
//! in while the drive works.
//!
//! Either way nothing changes between two steps of the cleaner: [`Hands::wait`] keeps out changes.

use queue::{BlockQueue, WriteSet};
use vfs::Hold;

use crate::F2fs;
use crate::alloc::discard::Runs;
use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::file::writeback::WritePages;
use crate::mount::engine::{Caller, Engine};
use crate::ondisk::Nid;

/// The volume as the cleaner has locked it.
pub(crate) trait Hands {
    /// The volume itself.
    fn engine(&mut self) -> &mut Engine;

    /// Waits for the drive, while nothing changes.
    fn wait<T>(&mut self, work: impl FnOnce(&BlockQueue) -> T) -> T;

    /// Waits for `set`; a volume one of whose writes failed writes no more.
    fn finish(&mut self, mut set: WriteSet, submitted: Result<()>) -> Result<()> {
        set.submit(self.engine().io.writer());
        let waited = self.wait(|queue| set.wait(queue)).map_err(Error::from);
        waited.and(submitted).inspect_err(|error| self.engine().stop(error))
    }

    /// Writes all dirty pages of a file and waits for them.
    fn write_back(&mut self, ino: Nid) -> Result<()> {
        let (mut from, most) = (Some(0), self.engine().at_once());
        while let Some(index) = from {
            let mut set = WriteSet::default();
            let submitted = self.engine().submit_some(ino, index, most, &mut set);
            from = submitted.as_ref().ok().copied().flatten();
            self.finish_file(ino, set, submitted.map(drop))?;
        }
        Ok(())
    }

    /// Writes the pages of every file and waits for them. Fails with the first error; one of a file
    /// keeps no other from being written.
    fn write_back_all(&mut self) -> Result<()> {
        let mut written = Ok(());
        for ino in self.engine().dirty_files() {
            written = written.and(self.write_back(ino));
        }
        written
    }

    /// As [`Hands::write_back_all`], but only `most` dirty pages if there are more.
    fn write_back_some(&mut self, most: usize) -> Result<()> {
        let end = self.engine().inodes.pages().dirty().saturating_sub(most);
        let mut written = Ok(());
        for ino in self.engine().dirty_files() {
            let left = self.engine().inodes.pages().dirty().saturating_sub(end);
            if left == 0 {
                break;
            }
            let mut set = WriteSet::default();
            let submitted = self.engine().submit_some(ino, 0, left, &mut set).map(drop);
            written = written.and(self.finish_file(ino, set, submitted));
        }
        written
    }

    /// As [`Hands::finish`], for the data of a file.
    fn finish_file(&mut self, ino: Nid, set: WriteSet, submitted: Result<()>) -> Result<()> {
        self.finish(set, submitted).inspect_err(|_| {
            self.engine().write_errors.insert(ino);
        })
    }

    /// Makes moved blocks stable before anything changes. Otherwise an fsync that flushed before
    /// the move would write nodes that point to them.
    fn flush_moved(&mut self) -> Result<()> {
        if !self.engine().options.barrier {
            return Ok(());
        }
        let flushed = self.wait(BlockQueue::flush).map_err(Error::from);
        flushed.inspect_err(|error| self.engine().stop(error))
    }

    /// Writes a checkpoint.
    fn checkpoint(&mut self, reason: Reason, caller: Caller) -> Result<()> {
        let submitted = self.engine().begin_checkpoint(reason)?;
        self.engine().stats.checkpoints[caller as usize] += 1;
        let written = self.wait(|queue| submitted.commit(queue));
        self.engine().end_checkpoint(written)?;
        self.freed()
    }

    /// Discards and resets what is free, and waits until all of it can be used.
    fn discard(&mut self) -> Result<()>;

    /// A checkpoint has freed something.
    fn freed(&mut self) -> Result<()> {
        self.discard()
    }
}

impl Hands for Engine {
    fn engine(&mut self) -> &mut Engine {
        self
    }

    fn wait<T>(&mut self, work: impl FnOnce(&BlockQueue) -> T) -> T {
        work(self.io.queue())
    }

    fn discard(&mut self) -> Result<()> {
        self.discard_all()
    }
}

/// The volume locked exclusively, except that readers are let in while the drive works.
pub(crate) struct Held<'a> {
    fs: &'a F2fs,
    /// `None` only while the drive works.
    volume: Option<Hold<'a, Engine>>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(fs: &'a F2fs, volume: Hold<'a, Engine>) -> Self {
        Self { fs, volume: Some(volume) }
    }

    /// The exclusive lock again.
    pub(crate) fn into_hold(self) -> Hold<'a, Engine> {
        self.volume.expect("it is held unless the drive works")
    }
}

impl Hands for Held<'_> {
    fn engine(&mut self) -> &mut Engine {
        self.volume.as_mut().expect("it is held unless the drive works")
    }

    fn wait<T>(&mut self, work: impl FnOnce(&BlockQueue) -> T) -> T {
        let volume = self.volume.take().expect("it is held unless the drive works");
        let (volume, done) = self.fs.pause(volume, work);
        self.volume = Some(volume);
        done
    }

    fn discard(&mut self) -> Result<()> {
        if self.engine().discards.withheld() == 0 {
            return Ok(());
        }
        let fs = self.fs;
        self.wait(|_| fs.discard(Runs::NONE)).map(drop)
    }

    fn freed(&mut self) -> Result<()> {
        let engine = self.engine();
        let pending = engine.segments.get_mut().pending().count();
        let (waits, nothing) = (engine.options.discard_waits, pending == 0);
        if engine.discards.withheld() == 0 && nothing || !waits && self.fs.wake_discards() {
            return Ok(());
        }
        let (fs, runs) = (self.fs, if waits { Runs::ALL } else { Runs::SEGMENTS });
        self.wait(|_| fs.discard(runs)).map(drop)
    }
}
