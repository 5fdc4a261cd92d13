//! Fast commits: what has changed since the last commit, written behind the log.
//!
//! The caller leads the area as for a commit, so none is under way: a fast commit counts on top of
//! the last transaction only. It writes down the changes with the area's gate closed, so no
//! operation is in it by half, and opens the gate before it writes.
//!
//! The first one on top of a transaction has one block: of a first one that is torn, kernels say
//! that the journal is corrupt (`ext4_fc_replay_scan` answers `-EFSBADCRC` before there is a tail).
//! Later ones that are torn end the area there and here. The last block of the area stays empty,
//! since kernels that find no end read one block too far.

use std::ops::Range;
use std::sync::Arc;

use cores::{Mutex, Rank, Stage};
use drive::Block;
use queue::BlockQueue;
use queue::plan::{OnTheWay, Run};
use vfs::Ino;

use super::{Counts, Source};
use crate::area::Area;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::ondisk::fast;
use crate::ondisk::header::Tid;
use crate::ondisk::superblock::Superblock;
use crate::policy::{Recording, Submit};
use crate::transaction::{Id, Pending};
use crate::{Client, Journal};

/// The area for fast commits.
pub(crate) struct Fast {
    how: &'static Recording,
    blocks: Range<u32>,
    /// Bytes of a block.
    size: usize,
    /// The transaction that was running, and blocks used on top of the one before.
    used: Mutex<(Tid, u32)>,
    pub(super) counts: Counts,
}

impl Fast {
    /// The area of the log with this superblock, which says from now on that there is one.
    pub(crate) fn new(how: &'static Recording, superblock: &mut Superblock) -> Result<Self> {
        if !superblock.use_fast_commits() {
            return Err(Error::unsupported("fast commits in a journal as short as this one"));
        }
        let mut blocks = superblock.fast_commit_area();
        blocks.end -= 1;
        let used = Mutex::ranked(Rank::Log, "fast commit area", (Tid(0), 0)).keyed(1 << 32);
        let size = superblock.block_size() as usize;
        Ok(Self { how, blocks, size, used, counts: Counts::default() })
    }

    /// The blocks that say `changes`, and where they go; `None` if there is no room, or
    /// a block has none for one of them. The caller leads, so blocks are written in the order of
    /// their places.
    fn place(&self, tid: Tid, changes: &[fast::Change]) -> Option<(u32, Vec<Block>)> {
        let mut used = self.used.lock();
        if used.0 != tid {
            *used = (tid, 0);
        }
        let is_first = used.1 == 0;
        let blocks = fast::emit(changes, tid, is_first, self.size)?;
        let most = if is_first { 1 } else { self.blocks.len() - used.1 as usize };
        let at = self.blocks.start + used.1;
        (blocks.len() <= most).then(|| {
            used.1 += blocks.len() as u32;
            (at, blocks)
        })
    }
}

impl<C: Client> Journal<C> {
    /// As [`Journal::fsync_by_record`], by a fast commit.
    pub(super) fn fsync_fast<S: Source>(
        &self,
        fast: &Fast,
        ino: Ino,
        source: &S,
        changed: impl FnOnce() -> Option<Id>,
    ) -> Result<(), S::Error> {
        cores::may_sleep();
        source.write_data(ino)?;
        let changed = changed();
        let mut run = FastRun {
            journal: self,
            fast,
            source,
            changed,
            leads: false,
            writes: OnTheWay::default(),
            blocks: Vec::new(),
            at: 0,
            ordered: Vec::new(),
        };
        let plan = if self.is_forced { &fast.how.forced } else { &fast.how.plan };
        let done = plan.run(&mut run, None);
        match run.end(done)? {
            None | Some(End::Covered) => {
                fast.counts.fsyncs.fetch_add(changed.is_some().into());
                Ok(())
            }
            Some(End::Commit) => {
                fast.counts.fallen_back.fetch_add(1);
                Ok(self.fsync(ino, changed)?)
            }
        }
    }
}

/// How a run ends without a fast commit.
enum End {
    /// What has changed is durable, and so is the data.
    Covered,
    /// A commit is needed.
    Commit,
}

struct FastRun<'a, C: Client, S> {
    journal: &'a Journal<C>,
    fast: &'a Fast,
    source: &'a S,
    /// The transaction that changed the file last.
    changed: Option<Id>,
    leads: bool,
    writes: OnTheWay,
    blocks: Vec<Block>,
    at: u32,
    /// Data that must be on the drive before what has changed is.
    ordered: Vec<Arc<Pending>>,
}

impl<C: Client, S: Source> FastRun<'_, C, S> {
    fn inject(&self, what: Inject) -> bool {
        self.journal.options.inject.contains(what)
    }

    fn area(&self) -> &Area<C::Kind> {
        self.journal.area()
    }

    /// Writes down what has changed, unless a commit has it or has to have it.
    fn close(&mut self) -> Result<Option<End>> {
        let Some(id) = self.changed else { return self.covered() };
        if !self.inject(Inject::FC_LATE) {
            if !self.area().lead(id, None, &mut false)? {
                return self.covered();
            }
            self.leads = true;
        }
        let journal = self.journal;
        let area = journal.area();
        area.check()?;
        let gate = area.gate.write();
        let _span = cores::span(Stage::Journal);
        // Recovery does not look behind a log that was closed in good order.
        let is_open = area.log.lock().superblock.as_ref().is_some_and(|sb| sb.start().is_some());
        let changes = if is_open { self.source.changes(*gate) } else { None };
        let Some(changes) = changes else { return Ok(Some(End::Commit)) };
        if changes.is_empty() {
            drop(gate);
            return self.covered();
        }
        let Some((at, blocks)) = self.fast.place(*gate, &changes) else {
            self.source.not_recorded();
            return Ok(Some(End::Commit));
        };
        self.ordered = area.running.lock().ordered.clone();
        drop(gate);
        self.fast.counts.runs.fetch_add(1);
        self.fast.counts.blocks.fetch_add(blocks.len() as u64);
        (self.at, self.blocks) = (at, blocks);
        Ok(None)
    }

    /// The data alone is not durable yet.
    fn covered(&self) -> Result<Option<End>> {
        if !self.inject(Inject::DROP_FLUSH) {
            self.journal.flush()?;
        }
        Ok(Some(End::Covered))
    }

    /// Submits blocks of the commit, from `first` on.
    fn write(&mut self, blocks: Range<usize>, forced: bool) {
        let Some(ring) = &self.journal.area().ring else { return };
        let io = &self.journal.io;
        for n in blocks {
            let lba = ring.lba(self.at + n as u32);
            match forced {
                true => self.writes.meta.push_forced(io, lba, self.blocks[n].clone()),
                false => self.writes.meta.push(io, lba, self.blocks[n].clone()),
            }
        }
        self.writes.meta.submit(io);
    }

    fn end(mut self, done: Result<Option<End>>) -> Result<Option<End>> {
        if let Err(error) = &done {
            self.writes.meta.submit(&self.journal.io);
            let _ = self.writes.meta.wait(self.journal.io.queue());
            self.journal.abort(error);
        }
        if self.leads {
            self.area().stop_leading();
        }
        done
    }
}

impl<C: Client, S: Source> Run for FastRun<'_, C, S> {
    type Submit = Submit;
    type Hold = ();
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, _: Option<()>) -> Result<Option<End>> {
        let last = self.blocks.len().saturating_sub(1);
        match what {
            // It was written first: its extents are among the changes.
            Submit::Data => {}
            Submit::Close => return self.close(),
            Submit::Log => self.write(0..last, false),
            Submit::Commit { forced } => {
                let forced = forced && !self.inject(Inject::DROP_FLUSH);
                self.write(last..self.blocks.len(), forced);
            }
            Submit::Home => unreachable!("a fast commit has no home"),
        }
        Ok(None)
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, self.journal.io.queue())
    }

    fn pre_flush(&mut self) -> Result<()> {
        self.ordered.iter().try_for_each(|pending| pending.wait())?;
        if self.inject(Inject::PLAIN_COMMIT) { Ok(()) } else { self.journal.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        if self.inject(Inject::DROP_FLUSH) { Ok(()) } else { self.journal.flush() }
    }
}
