//! The scheduler `mq-deadline` (block/mq-deadline.c): reads and writes in batches, each in the
//! order of addresses from where the last one ended; but what has waited past its deadline goes
//! first, and writes are not passed over for ever.
//!
//! With [`crate::ZoneOrder::WriteLock`] a write to a sequential zone stays here while another one
//! is under way there. One lock protects all of it, for every core and every hardware queue, as in
//! Linux.

use std::sync::atomic::{AtomicBool, Ordering};

use cores::{Mutex, Nanos, Rank};
use drive::{Command, Lba};

use crate::request::{Limits, Request};

/// Requests of a batch (`fifo_batch`).
const BATCH: u32 = 16;
/// How often reads may go first while writes wait (`writes_starved`).
const WRITES_STARVED: u32 = 2;
/// After so long a request goes first (`read_expire`, `write_expire`).
const EXPIRE: [Nanos; 2] = [500_000_000, 5_000_000_000];

const READS: usize = 0;
const WRITES: usize = 1;

struct Entry {
    lba: Lba,
    /// Counts requests in the order in which they came.
    number: u64,
    expires: Nanos,
    request: Request,
}

#[derive(Default)]
struct State {
    /// Reads and writes, each in the order of addresses.
    sorted: [Vec<Entry>; 2],
    number: u64,
    /// The batch: what it consists of, and how many more it may have.
    direction: usize,
    left: u32,
    /// Where reads and writes go on.
    position: [Lba; 2],
    starved: u32,
}

/// The requests of a drive that have not been sent.
pub(crate) struct MqDeadline {
    /// Protects the requests, their order and the batch under way.
    state: Mutex<State>,
    /// Zones with a write under way.
    locked: Box<[AtomicBool]>,
}

impl MqDeadline {
    pub(crate) fn new(zones: usize) -> Self {
        Self {
            state: Mutex::ranked(Rank::Requests, "mq-deadline", State::default()),
            locked: (0..zones).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Takes a request; true if it was merged with one that is here.
    pub(crate) fn insert(&self, request: Request, limits: Limits) -> bool {
        let (direction, lba) = match &request.command {
            Command::Write { lba, .. } => (WRITES, *lba),
            Command::Read { lba, .. } => (READS, *lba),
            _ => (READS, 0),
        };
        let mut state = self.state.lock();
        state.number += 1;
        let number = state.number;
        let sorted = &mut state.sorted[direction];
        let at = sorted.partition_point(|entry| entry.lba <= lba);
        let mut request = request;
        if let Some(before) = at.checked_sub(1).and_then(|before| sorted.get_mut(before)) {
            match before.request.merge(request, limits) {
                None => return true,
                Some(back) => request = back,
            }
        }
        if let Some(behind) = sorted.get_mut(at) {
            match behind.request.merge(request, limits) {
                None => {
                    behind.lba = lba;
                    return true;
                }
                Some(back) => request = back,
            }
        }
        let expires = cores::now().saturating_add(EXPIRE[direction]);
        sorted.insert(at, Entry { lba, number, expires, request });
        false
    }

    /// Takes out the request to send next (`dd_dispatch_request`).
    pub(crate) fn next(&self) -> Option<Request> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut found = None;
        if state.left > 0 {
            let direction = state.direction;
            found = self.following(&state.sorted[direction], state.position[direction]);
        }
        if found.is_none() {
            state.direction = self.choose(state)?;
            state.left = BATCH;
            found = self.first(&state.sorted[state.direction], state.position[state.direction]);
        }
        let sorted = &mut state.sorted[state.direction];
        let mut at = found?;
        // A zone is written from its beginning on, also after a reset (`deadline_from_pos`).
        let lane = sorted[at].request.lane;
        while lane.is_some() && at > 0 && sorted[at - 1].request.lane == lane {
            at -= 1;
        }
        let entry = sorted.remove(at);
        state.position[state.direction] = entry.lba;
        state.left -= 1;
        if let Some(zone) = entry.request.lane {
            self.locked[zone as usize].store(true, Ordering::Relaxed);
        }
        Some(entry.request)
    }

    /// A write to `zone` has completed.
    pub(crate) fn unlock(&self, zone: u32) {
        if let Some(locked) = self.locked.get(zone as usize) {
            locked.store(false, Ordering::Relaxed);
        }
    }

    /// Whether reads or writes are next.
    fn choose(&self, state: &mut State) -> Option<usize> {
        let writes = state.sorted[WRITES].iter().any(|entry| self.may_go(entry));
        if state.sorted[READS].is_empty() {
            state.starved = 0;
            return writes.then_some(WRITES);
        }
        if writes && state.starved >= WRITES_STARVED {
            state.starved = 0;
            return Some(WRITES);
        }
        state.starved += u32::from(writes);
        Some(READS)
    }

    /// With what a batch begins: the oldest if it has expired or nothing follows `position`.
    fn first(&self, sorted: &[Entry], position: Lba) -> Option<usize> {
        let ready = sorted.iter().enumerate().filter(|(_, entry)| self.may_go(entry));
        let (oldest, entry) = ready.min_by_key(|(_, entry)| entry.number)?;
        if entry.expires <= cores::now() {
            return Some(oldest);
        }
        Some(self.following(sorted, position).unwrap_or(oldest))
    }

    fn following(&self, sorted: &[Entry], position: Lba) -> Option<usize> {
        let from = sorted.partition_point(|entry| entry.lba < position);
        let behind = sorted.iter().skip(from).position(|entry| self.may_go(entry))?;
        Some(from + behind)
    }

    fn may_go(&self, entry: &Entry) -> bool {
        let locked = |zone: u32| self.locked[zone as usize].load(Ordering::Relaxed);
        !entry.request.lane.is_some_and(locked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Part, Parts};

    const LIMITS: Limits = Limits { max_transfer: 1, zone_blocks: None };

    fn request(lba: Lba, write: bool, lane: Option<u32>) -> Request {
        let command = if write {
            let data = std::iter::once(drive::Block::zeroed()).collect();
            Command::Write { lba, data, fua: false }
        } else {
            Command::Read { lba, blocks: 1 }
        };
        let parts = Parts::from_elem(Part { slot: 0, blocks: 1 }, 1);
        Request { command, queue: 0, tag: None, lane, parts }
    }

    /// Addresses in the order in which they are sent; a write is negative.
    fn order(scheduler: &MqDeadline) -> Vec<i64> {
        let sent = std::iter::from_fn(|| scheduler.next());
        let told = |request: Request| match request.command {
            Command::Read { lba, .. } => lba as i64,
            Command::Write { lba, .. } => -(lba as i64),
            other => panic!("{other:?}"),
        };
        sent.map(told).collect()
    }

    #[test]
    fn addresses_go_up_and_writes_wait_for_two_batches_of_reads() {
        let scheduler = MqDeadline::new(0);
        for lba in (1..=60).rev() {
            scheduler.insert(request(lba, false, None), LIMITS);
        }
        scheduler.insert(request(7, true, None), LIMITS);
        let sent = order(&scheduler);
        let reads: Vec<_> = sent.iter().copied().filter(|lba| *lba > 0).collect();
        assert!(reads.is_sorted() && reads.len() == 60, "{sent:?}");
        assert_eq!(sent[2 * BATCH as usize], -7, "{sent:?}");
    }

    #[test]
    fn what_has_expired_goes_first() {
        let profile = cores::Profile::named("uniform-1").expect("profile");
        let run = || {
            let scheduler = MqDeadline::new(0);
            scheduler.insert(request(50, false, None), LIMITS);
            assert_eq!(order(&scheduler), [50]);
            scheduler.insert(request(9, false, None), LIMITS);
            cores::sleep(EXPIRE[READS]);
            scheduler.insert(request(60, false, None), LIMITS);
            scheduler.state.lock().left = 0;
            order(&scheduler)
        };
        let sent = cores::Machine::simulated(&profile, 1).run(run).expect("no deadlock");
        assert_eq!(sent, [9, 60]);
    }

    #[test]
    fn a_zone_has_one_write_under_way() {
        let scheduler = MqDeadline::new(2);
        for lba in [3, 2, 1] {
            scheduler.insert(request(lba, true, Some(0)), LIMITS);
        }
        scheduler.insert(request(100, true, Some(1)), LIMITS);
        assert_eq!(order(&scheduler), [-1, -100]);
        scheduler.unlock(0);
        assert_eq!(order(&scheduler), [-2]);
    }
}
