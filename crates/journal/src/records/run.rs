//! One run of a record's plan.

use cores::Stage;
use drive::Block;
use queue::BlockQueue;
use queue::plan::{OnTheWay, Run};
use vfs::Ino;

use super::{Records, Slot, Source};
use crate::chain::Frontier;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::ondisk::header::Tid;
use crate::ondisk::record::{Entry, Record};
use crate::policy::grouped::{Member, Part};
use crate::policy::{Holds, Submit};
use crate::transaction::Id;
use crate::{Client, Journal};

/// A number of transactions that no run comes to: the record counts for ever.
const LATE: u32 = 1 << 20;

impl<C: Client> Journal<C> {
    /// Makes `ino` durable: by a record, alone or in a group, by a fast commit, or by a commit of
    /// the transaction that `changed` returns, if these cannot carry the change. No other thread
    /// may fsync the file meanwhile; the caller must have no handle and hold no lock.
    pub fn fsync_by_record<S: Source>(
        &self,
        ino: Ino,
        source: &S,
        changed: impl FnOnce() -> Option<Id>,
    ) -> Result<(), S::Error> {
        if let Some(fast) = &self.fast {
            return self.fsync_fast(fast, ino, source, changed);
        }
        let Some(records) = &self.records else {
            source.write_data(ino)?;
            return Ok(self.fsync(ino, changed())?);
        };
        cores::may_sleep();
        let is_grouped = records.how.holds != Holds::File;
        let member = is_grouped.then(|| records.groups().join(ino));
        let mut run = RecordRun {
            journal: self,
            records,
            source,
            ino,
            member,
            data: Ok(()),
            writes: OnTheWay::default(),
            record: None,
            carried: Vec::new(),
            full: Frontier::default(),
        };
        let one_flush = records.how.one_flush.as_ref().filter(|_| self.options.record_csum);
        let ordered = if self.is_forced { &records.how.forced } else { &records.how.plan };
        let done = one_flush.unwrap_or(ordered).run(&mut run, None);
        let full = std::mem::take(&mut run.full);
        let (data, done) = run.end(done);
        data?;
        if done? {
            records.counts.fsyncs.fetch_add(1);
            return Ok(());
        }
        let changed = changed();
        records.counts.fallen_back.fetch_add(u64::from(changed.is_some()));
        self.fsync(ino, changed)?;
        // Other areas may be younger, and records of theirs take the room.
        Ok(full.iter().try_for_each(|id| self.commit(id))?)
    }
}

/// How a run ends without a record of its own.
enum End {
    /// Another caller's record has the file, or has it not.
    Joined(Result<bool>),
    /// There is nothing that a record can carry.
    Nothing,
}

struct RecordRun<'a, C: Client, S: Source> {
    journal: &'a Journal<C>,
    records: &'a Records,
    source: &'a S,
    ino: Ino,
    /// This caller in its group.
    member: Option<Member<'a>>,
    /// How writing the file's data ended. A failure concerns this file only.
    data: Result<(), S::Error>,
    writes: OnTheWay,
    record: Option<(Slot, Vec<Block>, Block)>,
    /// Files that the record makes durable.
    carried: Vec<Ino>,
    /// What must become valid before there is room for another record.
    full: Frontier,
}

impl<C: Client, S: Source> RecordRun<'_, C, S> {
    fn inject(&self, what: Inject) -> bool {
        self.journal.options.inject.contains(what)
    }

    /// Closes the group, or waits for the caller who does; then the record is made.
    fn close(&mut self) -> Result<Option<End>> {
        let files = match &self.member {
            None => vec![self.ino],
            Some(member) => match member.close(self.data.is_ok()) {
                Part::Lead(files) => files,
                Part::Carried(done) => {
                    let has_it = done.map(|files| files.contains(&self.ino));
                    return Ok(Some(End::Joined(has_it)));
                }
            },
        };
        let _span = cores::span(Stage::Journal);
        // Numbered before anything is looked at: of two inodes that had the same name, the one that
        // had it later began its fsync after the other was looked at.
        let sub = self.records.subs.fetch_add(1);
        let mut record = Record { sub, entries: Vec::new() };
        for ino in &files {
            let known = record.entries.len();
            let is_left_out = self.inject(Inject::SPLIT_GROUP) && *ino != self.ino;
            if is_left_out || self.source.record(*ino, &mut record.entries) {
                self.carried.push(*ino);
            } else {
                record.entries.truncate(known);
            }
        }
        let inject = self.journal.options.inject;
        let are_valid = |of: &Frontier| self.journal.chain.are_valid(of);
        let slot = match record.entries.is_empty() {
            true => Err(Frontier::default()),
            false => self.records.reserve(&record, are_valid, inject),
        };
        let (slot, ring) = match (slot, &self.journal.area().ring) {
            (Ok(slot), Some(ring)) => (slot, ring),
            (slot, _) => {
                self.full = slot.err().unwrap_or_default();
                self.carried.clear();
                return Ok(Some(End::Nothing));
            }
        };
        if self.inject(Inject::RECORD_LATE) {
            for Entry { of, .. } in &mut record.entries {
                of.tid = Tid(of.tid.0.wrapping_add(LATE));
            }
        }
        if self.inject(Inject::SKIP_SUMS) {
            record.entries.iter_mut().for_each(|entry| entry.sums.clear());
        } else if self.journal.options.record_csum
            && record.entries.iter().any(|entry| entry.needs_flush)
        {
            // All data has been completed, and other callers of a group wait for this one.
            self.flush_record()?;
        }
        let (blocks, commit) = record.emit(ring.size, ring.seed);
        self.records.counts.runs.fetch_add(1);
        self.records.counts.blocks.fetch_add(blocks.len() as u64 + 1);
        self.record = Some((slot, blocks, commit));
        Ok(None)
    }

    fn log(&mut self) {
        let (Some((slot, blocks, _)), Some(ring)) = (&self.record, &self.journal.area().ring)
        else {
            return;
        };
        for (block, n) in blocks.iter().zip(0..) {
            let lba = self.records.lba(ring, *slot, n);
            self.writes.meta.push(&self.journal.io, lba, block.clone());
        }
        self.writes.meta.submit(&self.journal.io);
    }

    fn commit(&mut self, forced: bool) {
        let (Some((slot, blocks, commit)), Some(ring)) = (&self.record, &self.journal.area().ring)
        else {
            return;
        };
        let lba = self.records.lba(ring, *slot, blocks.len() as u32);
        if forced {
            self.writes.meta.push_forced(&self.journal.io, lba, commit.clone());
        } else {
            self.writes.meta.push(&self.journal.io, lba, commit.clone());
            self.writes.meta.submit(&self.journal.io);
        }
    }

    /// A flush of its own for each record: this is what the paper counts. Groups of several cores
    /// share them.
    fn flush_record(&self) -> Result<()> {
        if self.records.how.holds == Holds::CoresGroup {
            return self.journal.flush();
        }
        let _span = cores::span(Stage::WaitFlush);
        Ok(self.journal.io.queue().flush()?)
    }

    /// Ends the run, and the group that it led: how the data was written, and whether a record has
    /// the file.
    fn end(mut self, done: Result<Option<End>>) -> (Result<(), S::Error>, Result<bool>) {
        let outcome = match done {
            Ok(Some(End::Joined(outcome))) => return (self.data, outcome),
            Ok(Some(End::Nothing)) => Ok(Vec::new()),
            Ok(None) => Ok(std::mem::take(&mut self.carried)),
            Err(error) => {
                let OnTheWay { data, meta } = &mut self.writes;
                for set in [data, meta] {
                    set.submit(&self.journal.io);
                    let _ = set.wait(self.journal.io.queue());
                }
                self.journal.abort(&error);
                Err(error)
            }
        };
        if let Some((slot, ..)) = self.record {
            self.records.release(slot);
        }
        if let Some(member) = &self.member {
            member.end(outcome.clone());
        }
        (self.data, outcome.map(|carried| carried.contains(&self.ino)))
    }
}

impl<C: Client, S: Source> Run for RecordRun<'_, C, S> {
    type Submit = Submit;
    type Hold = ();
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, _: Option<()>) -> Result<Option<End>> {
        match what {
            Submit::Data => self.data = self.source.write_data(self.ino),
            // A file whose data is not there gets no record.
            Submit::Close if self.data.is_err() && self.member.is_none() => {
                return Ok(Some(End::Nothing));
            }
            Submit::Close => return self.close(),
            Submit::Log => self.log(),
            Submit::Commit { forced } => self.commit(forced && !self.inject(Inject::DROP_FLUSH)),
            Submit::Home => unreachable!("a record has no home"),
        }
        Ok(None)
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, self.journal.io.queue())
    }

    fn pre_flush(&mut self) -> Result<()> {
        if self.inject(Inject::PLAIN_COMMIT) { Ok(()) } else { self.flush_record() }
    }

    fn flush(&mut self) -> Result<()> {
        if self.inject(Inject::DROP_FLUSH) { Ok(()) } else { self.flush_record() }
    }
}
