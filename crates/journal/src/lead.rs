//! Who commits what: the lead of areas, and which transactions a run closes.
//!
//! The first caller that needs a transaction durable *leads* its area: it closes and commits the
//! transaction in its own thread. Callers that need the same one, or a later one, wait for the end
//! of that run.
//!
//! Where there are several areas, a caller that wants T durable needs T's *closure* durable: all
//! transactions that T names and that are not valid, all that those name, and so on. Some of them
//! are committed; the rest is running, or another thread commits it. The closure of a running
//! transaction grows until it is closed, so the caller computes it, takes leads and gates, computes
//! it again, and gives all up if it has grown. Where many cores share blocks it may grow each time,
//! so the last attempt takes the leads of all areas: then it cannot grow.
//!
//! Leads are taken in the order of areas, and given up before more are wanted: a thread that has
//! one never waits for a lower one.

use smallvec::SmallVec;

use crate::area::Area;
use crate::batch::{BatchTime, PATIENCE};
use crate::chain::Frontier;
use crate::error::{Error, Result};
use crate::transaction::{Closing, Id};
use crate::{Client, Journal};

/// How often a run takes the leads of a closure, before it takes those of all areas.
const ATTEMPTS: usize = 3;

/// What a run is to make durable.
pub(crate) enum Scope {
    /// This transaction's commit block, whether it counts or not.
    One(Id),
    /// These and all that they depend on.
    Closure(Frontier),
}

/// How a run ends if it does not commit.
pub(crate) enum End {
    /// Another run has made everything durable.
    Done,
    /// The data alone needs a flush.
    Flush,
}

/// The areas that a run leads.
pub(crate) struct Lead<'j, C: Client> {
    journal: &'j Journal<C>,
    areas: SmallVec<[&'j Area<C::Kind>; 1]>,
    /// Another run was waited for whose last flush had not begun.
    covered: bool,
    /// Of an fsync, which waits for others.
    batch: Option<BatchTime>,
}

impl<'j, C: Client> Lead<'j, C> {
    pub(crate) fn new(journal: &'j Journal<C>, is_fsync: bool) -> Self {
        let batch = journal.options.batch.filter(|_| is_fsync);
        Self { journal, areas: SmallVec::new(), covered: false, batch }
    }

    /// Takes the lead of what `scope` has and other runs do not make durable, and closes it.
    pub(crate) fn close(&mut self, scope: &Scope) -> Result<Vec<Closing<C::Kind>>, Stop> {
        let mut wanted = match scope {
            Scope::One(id) => {
                self.take(&[*id].into_iter().collect())?;
                let closed = self.journal.close_running(&self.areas, None);
                return Self::some(closed.unwrap_or_default());
            }
            Scope::Closure(wanted) => wanted.clone(),
        };
        let mut attempts = 0;
        loop {
            self.journal.foresee(&mut wanted);
            match attempts < ATTEMPTS {
                true => self.take(&wanted)?,
                false => self.take_all(&mut wanted)?,
            }
            // What was committed while leads were waited for may name more.
            let mut known = wanted.clone();
            self.journal.chain.close(&mut known);
            let has_all = known.as_slice() == wanted.as_slice();
            wanted = known;
            if has_all
                && let Some(closed) = self.journal.close_running(&self.areas, Some(&mut wanted))
            {
                return Self::some(closed);
            }
            self.give_up(|_| None);
            attempts += 1;
        }
    }

    fn some(closed: Vec<Closing<C::Kind>>) -> Result<Vec<Closing<C::Kind>>, Stop> {
        if closed.is_empty() { Err(Stop::End(End::Flush)) } else { Ok(closed) }
    }

    /// Takes the leads of those that are not committed, or waits until they are.
    fn take(&mut self, wanted: &Frontier) -> Result<(), Stop> {
        for id in wanted.iter() {
            let Some(area) = self.journal.areas.get(usize::from(id.area)) else { continue };
            if area.lead(id, self.batch, &mut self.covered)? {
                self.areas.push(area);
            }
        }
        if !self.areas.is_empty() || !self.is_valid(wanted) { Ok(()) } else { Err(self.done()) }
    }

    /// Takes the leads of all areas, and wants all that is running there, unless what it wanted has
    /// been committed meanwhile.
    fn take_all(&mut self, wanted: &mut Frontier) -> Result<(), Stop> {
        if self.is_valid(wanted) {
            return Err(self.done());
        }
        for area in &self.journal.areas {
            let mut running = area.id(*area.gate.read());
            while !area.lead(running, None, &mut self.covered)? {
                running = area.id(*area.gate.read());
            }
            self.areas.push(area);
            // Who leads an area alone closes its transactions.
            wanted.add(area.id(*area.gate.read()));
        }
        Ok(())
    }

    fn is_valid(&self, wanted: &Frontier) -> bool {
        self.journal.chain.are_valid(wanted)
    }

    /// Others have committed all of it.
    fn done(&self) -> Stop {
        Stop::End(if self.covered { End::Done } else { End::Flush })
    }

    /// Whether it leads any area.
    pub(crate) fn is_leading(&self) -> bool {
        !self.areas.is_empty()
    }

    /// From here on data of others may be too late for the run's last flush.
    pub(crate) fn begin_last_flush(&self) {
        self.areas.iter().for_each(|area| area.turns.lock().flushing = true);
    }

    /// Ends the lead of each area, after a note of what came of it.
    pub(crate) fn give_up(&mut self, note: impl Fn(&Area<C::Kind>) -> Option<crate::Tid>) {
        for area in std::mem::take(&mut self.areas) {
            if let Some(committed) = note(area) {
                let mut turns = area.turns.lock();
                turns.committed = committed;
                turns.batch.end(self.batch.is_some());
            }
            area.stop_leading();
        }
    }
}

impl<C: Client> Journal<C> {
    /// Adds to `wanted` all that its transactions depend on now. More may come until the running
    /// ones of them are closed.
    fn foresee(&self, wanted: &mut Frontier) {
        let mut seen = Frontier::default();
        loop {
            self.chain.close(wanted);
            let new: SmallVec<[Id; 4]> = wanted.iter().filter(|id| !seen.has(*id)).collect();
            if new.is_empty() {
                return;
            }
            let mut named = Frontier::default();
            for id in new {
                seen.add(id);
                let Some(area) = self.areas.get(usize::from(id.area)) else { continue };
                let running = area.running.lock();
                if running.tid == id.tid {
                    named.extend(&running.marks.named);
                }
            }
            self.chain.want(wanted, &named);
        }
    }
}

/// Why nothing is closed.
pub(crate) enum Stop {
    End(End),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<K> Area<K> {
    /// Takes the lead, unless `id` is committed or another run commits it. Such a run *covers* our
    /// data if its last flush had not begun when we came: whether that run or a later one commits
    /// our transaction, the flush of that one comes after our data.
    ///
    /// With `batch`, waits for other callers before it takes the lead.
    pub(crate) fn lead(
        &self,
        id: Id,
        batch: Option<BatchTime>,
        covered: &mut bool,
    ) -> Result<bool> {
        let came = batch.map(|time| (cores::now(), time));
        let mut turns = self.turns.lock();
        let (mut is_in_time, mut may_poll) = (false, true);
        while !turns.committed.reaches(id.tid) {
            if turns.failed.is_some() {
                return Err(Error::Aborted);
            }
            let until = came.and_then(|(came, time)| turns.batch.wait_until(came, time));
            if !turns.leading && until.is_none_or(|until| until <= cores::now()) {
                turns.leading = true;
                turns.batch.begin();
                return Ok(true);
            }
            is_in_time |= !turns.flushing;
            let waiting = turns.batch.wait(may_poll);
            match until.filter(|_| !turns.leading) {
                until if waiting.polls => {
                    let end = cores::now() + PATIENCE;
                    let end = until.map_or(end, |until| until.min(end));
                    // What comes after the wait for others, a commit, is another wait.
                    may_poll = self.ended.poll(&mut turns, end) || until.is_some();
                }
                Some(until) => drop(self.ended.wait_until(&mut turns, until)),
                None => self.ended.wait(&mut turns),
            }
            turns.batch.waited(&waiting);
        }
        *covered |= is_in_time;
        Ok(false)
    }

    /// Ends the lead.
    pub(crate) fn stop_leading(&self) {
        let mut turns = self.turns.lock();
        (turns.leading, turns.flushing) = (false, false);
        drop(turns);
        self.ended.notify_all();
    }
}
