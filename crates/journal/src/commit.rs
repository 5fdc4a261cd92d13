//! Committing: one run of the policy's plan (`jbd2_journal_commit_transaction`).
//!
//! The first caller who wants a transaction durable *leads*: it closes and commits the transaction
//! in its own thread. Others who want the same, or what is behind it, wait for the end of that run.
//!
//! What a cut may leave at each step: before the commit block is durable, recovery ends ahead of
//! this transaction. `PreFlush` makes sure that everything the commit block vouches for, the log's
//! blocks and the ordered data, is durable before it. The images stay in memory and in the log
//! until a checkpoint has them home.

use cores::Stage;
use queue::plan::{OnTheWay, Run};
use queue::{BlockQueue, IoError};
use vfs::Ino;

use crate::area::Area;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::policy::Submit;
use crate::transaction::{Closing, Id, Logged};
use crate::{Client, Journal, Tid};

impl<C: Client> Journal<C> {
    /// Makes a transaction durable. The caller must have no handle, and hold no lock that one with
    /// a handle may wait for.
    pub fn commit(&self, id: Id) -> Result<()> {
        self.run(None, Some(id))
    }

    /// Makes the dirty data of `ino` durable, and the transaction that changed it last, if one has.
    pub fn fsync(&self, ino: Ino, changed: Option<Id>) -> Result<()> {
        self.run(Some(ino), changed)
    }

    /// Makes everything durable that handles have changed, but no data.
    pub fn commit_all(&self) -> Result<()> {
        self.areas.iter().try_for_each(|area| {
            let tid = *area.gate.read();
            self.commit(Id { area: area.index, tid })
        })
    }

    fn run(&self, ino: Option<Ino>, id: Option<Id>) -> Result<()> {
        cores::may_sleep();
        let area = id.and_then(|id| self.areas.get(usize::from(id.area)));
        let mut run = Commit {
            journal: self,
            area: area.unwrap_or_else(|| self.area()),
            ino,
            target: id.map(|id| id.tid),
            leads: false,
            writes: OnTheWay::default(),
            state: State::Open,
        };
        let done = self.plan.run(&mut run, None);
        run.end(done)
    }
}

/// How a run ends if it does not commit.
enum End {
    /// Another run has made everything durable.
    Done,
    /// The data alone needs a flush.
    Flush,
}

/// How far the transaction is.
enum State<K> {
    Open,
    Closing(Closing<K>),
    Logged(Logged<K>),
}

/// A commit under way.
struct Commit<'j, C: Client> {
    journal: &'j Journal<C>,
    area: &'j Area<C::Kind>,
    ino: Option<Ino>,
    target: Option<Tid>,
    leads: bool,
    writes: OnTheWay,
    state: State<C::Kind>,
}

impl<C: Client> Commit<'_, C> {
    /// Takes the lead, unless another run makes the transaction durable.
    fn lead(&mut self) -> Result<Option<End>> {
        let mut turns = self.area.turns.lock();
        let is_done = |committed: Tid| self.target.is_none_or(|target| committed.reaches(target));
        if turns.failed.is_some() {
            return Err(Error::Aborted);
        }
        if is_done(turns.committed) {
            return Ok(Some(End::Flush));
        }
        // Our data may have come after the last flush of the run under way. Whether that run or a
        // later one commits our transaction, a later one may have found nothing to commit, and so
        // not flushed.
        let is_late = turns.flushing;
        while turns.leading {
            self.area.ended.wait(&mut turns);
            if turns.failed.is_some() {
                return Err(Error::Aborted);
            }
            if is_done(turns.committed) {
                return Ok(Some(if is_late { End::Flush } else { End::Done }));
            }
        }
        (turns.leading, self.leads) = (true, true);
        Ok(None)
    }

    fn close(&mut self) -> Result<Option<End>> {
        if let Some(end) = self.lead()? {
            return Ok(Some(end));
        }
        match self.journal.close_running(self.area) {
            Some(closing) => {
                self.state = State::Closing(closing);
                Ok(None)
            }
            None => Ok(Some(End::Flush)),
        }
    }

    fn home(&mut self, closing: &Closing<C::Kind>) {
        for (buffer, block) in &closing.images {
            self.writes.meta.push(&self.journal.io, buffer.lba, block.clone());
        }
        self.writes.meta.submit(&self.journal.io);
    }

    /// Ends the run.
    fn end(mut self, done: Result<Option<End>>) -> Result<()> {
        match done {
            Ok(None) => {
                self.committed();
                Ok(())
            }
            Ok(Some(end)) => {
                self.stop_leading(|_| {});
                match end {
                    End::Done => Ok(()),
                    End::Flush => self.flush_data(),
                }
            }
            Err(error) => {
                let OnTheWay { data, meta } = &mut self.writes;
                for set in [data, meta] {
                    set.submit(&self.journal.io);
                    let _ = set.wait(self.journal.io.queue());
                }
                if self.leads {
                    self.stop_leading(|turns| turns.failed = Some(error.clone()));
                }
                Err(error)
            }
        }
    }

    /// The transaction is durable.
    fn committed(&mut self) {
        let (logged, is_logged) = match std::mem::replace(&mut self.state, State::Open) {
            State::Open => return,
            State::Logged(logged) => (logged, true),
            State::Closing(closed) => (Logged { closed, start: 0, blocks: 0, commit_at: 0 }, false),
        };
        let id = logged.closed.id;
        let (committed, revoked) = logged.committed();
        if is_logged {
            let mut log = self.area.log.lock();
            log.logging = None;
            log.next = id.tid.next();
            log.committed.push_back(committed);
        } else {
            committed.went_home();
        }
        if revoked.iter().any(|buffer| buffer.lock().homing) {
            // An old image is on its way to a block that may be used again now.
            self.area.wait_while(|turns| turns.homing);
        }
        self.journal.client.committed(id);
        self.stop_leading(|turns| turns.committed = id.tid);
    }

    fn stop_leading(&mut self, note: impl FnOnce(&mut crate::area::Turns)) {
        if std::mem::take(&mut self.leads) {
            let mut turns = self.area.turns.lock();
            (turns.leading, turns.flushing) = (false, false);
            note(&mut turns);
            drop(turns);
            self.area.ended.notify_all();
        }
    }

    fn flush_data(&self) -> Result<()> {
        let needs_flush = self.ino.is_some() && !self.inject(Inject::DROP_FLUSH);
        if needs_flush { self.journal.flush() } else { Ok(()) }
    }

    fn inject(&self, what: Inject) -> bool {
        self.journal.options.inject.contains(what)
    }

    /// From here on data of others may be too late for the run's last flush.
    fn begin_last_flush(&self) {
        if self.leads {
            self.area.turns.lock().flushing = true;
        }
    }
}

impl<C: Client> Run for Commit<'_, C> {
    type Submit = Submit;
    type Hold = ();
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, _: Option<()>) -> Result<Option<End>> {
        let journal = self.journal;
        match (what, std::mem::replace(&mut self.state, State::Open)) {
            (Submit::Data, state) => {
                self.state = state;
                if let Some(ino) = self.ino {
                    let _span = cores::span(Stage::FsyncPrepare);
                    journal.client.submit_data(ino, &journal.io, &mut self.writes.data)?;
                    self.writes.data.submit(&journal.io);
                }
            }
            (Submit::Close, _) => return self.close(),
            (Submit::Log, State::Closing(closing)) => {
                let Some(ring) = &self.area.ring else { return Ok(None) };
                let (io, inject) = (&journal.io, journal.options.inject);
                let logged = closing.log(self.area, ring, io, &mut self.writes.meta, inject);
                self.state = State::Logged(logged);
            }
            (Submit::Commit { forced }, State::Logged(logged)) => {
                if let Some(ring) = &self.area.ring {
                    // A forced block is a write and a flush of its own.
                    let forced = forced && !self.inject(Inject::DROP_FLUSH);
                    logged.commit(ring, &journal.io, &mut self.writes.meta, forced);
                }
                self.state = State::Logged(logged);
            }
            (Submit::Home, State::Closing(closing)) => {
                self.home(&closing);
                self.state = State::Closing(closing);
            }
            (Submit::Log | Submit::Commit { .. } | Submit::Home, _) => {
                unreachable!("a plan closes, logs and commits in this order")
            }
        }
        Ok(None)
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, self.journal.io.queue())
    }

    fn pre_flush(&mut self) -> Result<()> {
        if let State::Logged(Logged { closed, .. }) = &self.state {
            closed.ordered.iter().try_for_each(|pending| pending.wait())?;
        }
        if self.inject(Inject::PLAIN_COMMIT) {
            return Ok(());
        }
        if self.journal.is_forced {
            self.begin_last_flush();
        }
        self.journal.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.begin_last_flush();
        if self.inject(Inject::DROP_FLUSH) { Ok(()) } else { self.journal.flush() }
    }
}

impl<C: Client> Journal<C> {
    pub(crate) fn flush(&self) -> Result<()> {
        let _span = cores::span(Stage::WaitFlush);
        self.io.queue().flush_joined().map_err(|error: IoError| error.into())
    }
}
