//! Committing: one run of the policy's plan (`jbd2_journal_commit_transaction`).
//!
//! `lead` says who runs it, and for which transactions.
//!
//! What a cut may leave at each step: before the commit block is durable, recovery ends ahead of
//! this transaction. `PreFlush` makes sure that everything the commit block vouches for, the log's
//! blocks and the ordered data, is durable before it. The images stay in memory and in the log
//! until a checkpoint has them home.

use cores::Stage;
use queue::plan::{OnTheWay, Run};
use queue::{BlockQueue, IoError};
use vfs::Ino;

use crate::area::{Area, Ring};
use crate::chain::Frontier;
use crate::error::{Error, Result};
use crate::inject::Inject;
use crate::lead::{End, Lead, Scope, Stop};
use crate::ondisk::commit::Link;
use crate::policy::Submit;
use crate::transaction::{Closing, Id, Logged, validate};
use crate::{Client, Journal};

impl<C: Client> Journal<C> {
    /// Makes a transaction durable. The caller must have no handle, and hold no lock that one with
    /// a handle may wait for.
    pub fn commit(&self, id: Id) -> Result<()> {
        self.run(Of::Changes, Scope::Closure([id].into_iter().collect()))
    }

    /// Makes the dirty data of `ino` durable, and the transaction that changed it last, if one has.
    pub fn fsync(&self, ino: Ino, changed: Option<Id>) -> Result<()> {
        self.run(Of::File(ino), Scope::Closure(changed.into_iter().collect()))
    }

    /// Makes everything durable that handles have changed, and data that has been written.
    pub fn commit_all(&self) -> Result<()> {
        let all = self.areas.iter().map(|area| area.id(*area.gate.read()));
        self.run(Of::Volume, Scope::Closure(all.collect()))
    }

    /// Ends a full transaction. Where there are several areas, it need not be valid then: its area
    /// waits for no other.
    pub(crate) fn make_place(&self, full: Id) -> Result<()> {
        self.run(Of::Changes, Scope::One(full))
    }

    fn run(&self, of: Of, scope: Scope) -> Result<()> {
        cores::may_sleep();
        let mut run = Commit {
            journal: self,
            of,
            scope,
            lead: Lead::new(self, matches!(of, Of::File(_))),
            writes: OnTheWay::default(),
            closing: Vec::new(),
            logged: Vec::new(),
        };
        let done = self.plan.run(&mut run, None);
        run.end(done)
    }
}

/// What a run makes durable besides transactions.
#[derive(Clone, Copy)]
enum Of {
    /// Nothing.
    Changes,
    /// The dirty data of a file, which it submits.
    File(Ino),
    /// Data of all files, which its caller has written.
    Volume,
}

/// A commit under way.
struct Commit<'j, C: Client> {
    journal: &'j Journal<C>,
    of: Of,
    scope: Scope,
    lead: Lead<'j, C>,
    writes: OnTheWay,
    /// Transactions that are not logged, or never will be where there is no log.
    closing: Vec<Closing<C::Kind>>,
    logged: Vec<Logged<C::Kind>>,
}

impl<C: Client> Commit<'_, C> {
    fn close(&mut self) -> Result<Option<End>> {
        match self.lead.close(&self.scope) {
            Ok(closed) => {
                self.closing = closed;
                Ok(None)
            }
            Err(Stop::End(end)) => Ok(Some(end)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn log(&mut self) -> Result<()> {
        let (io, inject) = (&self.journal.io, self.journal.options.inject);
        for closing in std::mem::take(&mut self.closing) {
            let (area, ring) = self.journal.logging(closing.id);
            self.journal.keep_in_one_piece(area, ring)?;
            self.logged.push(closing.log(area, ring, io, &mut self.writes.meta, inject));
        }
        Ok(())
    }

    fn commit(&mut self, forced: bool) {
        // A forced block is a write and a flush of its own.
        let forced = forced && !self.inject(Inject::DROP_FLUSH);
        for logged in &self.logged {
            let (_, ring) = self.journal.logging(logged.closed.id);
            let link = self.journal.link(&logged.closed);
            logged.commit(ring, &self.journal.io, &mut self.writes.meta, link.as_ref(), forced);
        }
    }

    fn home(&mut self) {
        for (buffer, block) in self.closing.iter().flat_map(|closing| &closing.images) {
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
                self.lead.give_up(|_| None);
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
                if self.lead.is_leading() {
                    self.journal.abort(&error);
                    self.lead.give_up(|_| None);
                }
                Err(error)
            }
        }
    }

    /// The commit blocks are durable.
    fn committed(&mut self) {
        let mut new: Vec<(Id, Frontier)> = Vec::new();
        for Logged { closed, start, blocks, .. } in self.logged.drain(..) {
            let (area, _) = self.journal.logging(closed.id);
            let committed = closed.committed(start, blocks);
            new.push((committed.id, committed.named.clone()));
            let mut log = area.log.lock();
            log.logging = None;
            log.next = committed.id.tid.next();
            log.committed.push_back(committed);
        }
        let mut last = new.iter().map(|(id, _)| *id).collect::<Frontier>();
        self.journal.settle(new);
        // Where there is no log, they have been written in place.
        for closed in self.closing.drain(..) {
            let id = closed.id;
            closed.committed(0, 0).went_home();
            self.journal.chain.committed([(id, Frontier::default())].into_iter());
            self.journal.client.committed(id);
            last.add(id);
        }
        self.lead.give_up(|area| last.of(area.index));
    }

    fn flush_data(&self) -> Result<()> {
        let has_data = !matches!(self.of, Of::Changes);
        let needs_flush = has_data && !self.inject(Inject::DROP_FLUSH);
        if needs_flush { self.journal.flush() } else { Ok(()) }
    }

    fn inject(&self, what: Inject) -> bool {
        self.journal.options.inject.contains(what)
    }
}

impl<C: Client> Run for Commit<'_, C> {
    type Submit = Submit;
    type Hold = ();
    type End = End;
    type Error = Error;

    fn submit(&mut self, what: Submit, _: Option<()>) -> Result<Option<End>> {
        match what {
            Submit::Data => {
                if let Of::File(ino) = self.of {
                    let _span = cores::span(Stage::FsyncPrepare);
                    let journal = self.journal;
                    journal.client.submit_data(ino, &journal.io, &mut self.writes.data)?;
                    self.writes.data.submit(&journal.io);
                }
            }
            Submit::Close => return self.close(),
            Submit::Log => self.log()?,
            Submit::Commit { forced } => self.commit(forced),
            Submit::Home => self.home(),
        }
        Ok(None)
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, self.journal.io.queue())
    }

    fn pre_flush(&mut self) -> Result<()> {
        let ordered = self.logged.iter().flat_map(|logged| &logged.closed.ordered);
        ordered.into_iter().try_for_each(|pending| pending.wait())?;
        if self.inject(Inject::PLAIN_COMMIT) {
            return Ok(());
        }
        if self.journal.is_forced {
            self.lead.begin_last_flush();
        }
        self.journal.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.lead.begin_last_flush();
        if self.inject(Inject::DROP_FLUSH) { Ok(()) } else { self.journal.flush() }
    }
}

impl<C: Client> Journal<C> {
    pub(crate) fn flush(&self) -> Result<()> {
        let _span = cores::span(Stage::WaitFlush);
        self.io.queue().flush_joined().map_err(|error: IoError| error.into())
    }
}

impl<C: Client> Journal<C> {
    /// The area that logs `id`, and its log.
    fn logging(&self, id: Id) -> (&Area<C::Kind>, &Ring) {
        let area = &self.areas[usize::from(id.area)];
        (area, area.ring.as_ref().expect("a plan logs only where there is a log"))
    }

    /// What the commit block of a transaction says of others, where there are several areas.
    fn link(&self, closed: &Closing<C::Kind>) -> Option<Link> {
        self.tails.as_ref()?;
        let is_dropped = self.options.inject.contains(Inject::DROP_CHAIN);
        let marks = if is_dropped { Vec::new() } else { closed.named.iter().collect() };
        Some(Link { stamp: closed.stamp, marks })
    }

    /// These transactions are committed. Brings about what follows for those that are valid now.
    fn settle(&self, committed: Vec<(Id, Frontier)>) {
        // One at a time, so a valid transaction names valid ones only, for every reader. To the
        // end: the client takes the transactions of an area before one that it hears of for
        // durable, and must not while an old image is on its way to a block that they freed.
        let _turn = self.settling.lock();
        let mut settled = Vec::new();
        for id in self.chain.committed(committed.into_iter()) {
            let (area, _) = self.logging(id);
            let Some((stamp, buffers, revoked)) = area.log.lock().images(id) else { continue };
            validate(stamp, &buffers, &revoked);
            settled.push((id, revoked));
        }
        for (id, _) in &settled {
            self.logging(*id).0.log.lock().validate(*id);
        }
        for (id, revoked) in settled {
            if revoked.iter().any(|buffer| buffer.lock().homing) {
                // An old image is on its way to a block that may be used again now.
                self.homing.wait();
            }
            self.client.committed(id);
        }
    }

    /// Stops all areas.
    pub(crate) fn abort(&self, error: &Error) {
        for area in &self.areas {
            area.abort(error);
        }
    }
}
