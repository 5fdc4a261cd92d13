//! A drive watched while a workload runs on it, and what would survive at moments of that run.
//!
//! A moment is an event of the drive: a command arrives, or a NAND program ends. Between events
//! nothing changes.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::IntoIter;

use cores::Mutex;
use drive::pm::{Domain, Pending, Pm};
use drive::{
    Command, Drive, DriveState, Event, EventKind, Moment, Ssd, Timing, ZoneAction, ZoneGeometry,
};

use super::Job;
use crate::oracle::Oracle;
use crate::report::{ZoneMap, ZoneMark};
use crate::rig::{Left, Medium};
use crate::workload::Rng;

/// Survivors drawn for each event whose outcome depends on chance.
const CHANCES: u64 = 3;

/// Which instants of a run are cut.
#[derive(Clone, Copy, Debug)]
pub enum CutPoints {
    /// So many, uniformly over the run's time.
    Random(usize),
    /// Every event; one that leaves to chance what survives, several times.
    Every,
}

/// What NAND holds at one instant, and how far the oracle was.
pub struct Cut {
    /// Number of the cut in its campaign.
    pub index: usize,
    /// Nanoseconds since the workload started.
    pub at_ns: u64,
    /// Events of the oracle before it.
    pub position: usize,
    /// Number of the earliest cut that left the same state: nothing became durable since.
    pub(super) like: usize,
    state: Left,
}

impl Cut {
    /// A cut that stands for a state of the medium, at no particular time.
    pub fn of_state(index: usize, position: usize, state: impl Into<Left>) -> Self {
        Self { index, at_ns: 0, position, like: index, state: state.into() }
    }

    /// What the medium has.
    pub fn state(&self) -> &Left {
        &self.state
    }

    /// Whether the other left just the same, and nothing became durable between them.
    pub fn is_like(&self, other: &Self) -> bool {
        self.like == other.like
    }

    /// Blocks of a zone; 0 without zones.
    pub fn zone_size(&self) -> u64 {
        let zones = self.state.ssd().and_then(|state| state.identify().zones);
        zones.map_or(0, |zones| zones.size)
    }

    /// The medium with its power back, timed by the current virtual machine.
    pub fn power_on(&self, job: &Job) -> Medium {
        self.state.power_on(Timing::Virtual, job.seed ^ self.like as u64)
    }
}

/// The zones of a drive that was at `base`, was sent these commands, and is left with `state`.
pub(crate) fn zones_at<'a>(
    base: &DriveState,
    state: &DriveState,
    sent: impl Iterator<Item = &'a Command>,
) -> Option<ZoneMap> {
    let mut pointers = Pointers::new(state.identify().zones);
    pointers.offsets.iter_mut().zip(base.write_pointers()).for_each(|(at, wp)| *at = wp);
    sent.for_each(|command| pointers.follow(command));
    pointers.map(0, state)
}

/// The stream of random numbers that chooses cuts of a run as it goes.
const LIVE: u64 = 7;

/// What a watch of a run is for.
pub(super) enum Plan {
    /// Note when the events are, and what these points need to know of them.
    Scout(CutPoints),
    /// Take survivors at these events, so many at each, and keep those of these numbers.
    Take(Peekable<IntoIter<(usize, u64)>>, Range<usize>),
    /// Take so many while it runs.
    Live(Live),
}

/// The number of events is not known beforehand, so cuts are chosen by a reservoir: after any
/// number of events, each was kept with the same odds.
pub(super) struct Live {
    points: CutPoints,
    /// Survivors drawn per event.
    draws: u64,
    rng: Rng,
}

impl Live {
    /// Where cut `index` goes among those `kept` so far, if it is taken.
    fn slot(&mut self, index: usize, kept: usize) -> Option<usize> {
        match self.points {
            CutPoints::Random(most) if kept >= most => {
                Some(self.rng.below(index as u64 + 1) as usize).filter(|slot| *slot < most)
            }
            _ => Some(kept),
        }
    }
}

/// What was seen.
#[derive(Default)]
pub(super) struct Taken {
    /// When the events are.
    pub(super) times: Vec<u64>,
    /// How many survivors are to be drawn at each event.
    pub(super) chances: Vec<u64>,
    pub(super) cuts: Vec<Cut>,
    /// The zones of the drive with most in its buffer, and how much that is.
    pub(super) zone_map: Option<(u64, ZoneMap)>,
}

/// A moment, of which chance decides what survives.
enum Instant<'a> {
    Ssd(&'a Moment<'a>),
    Pm(&'a Pending, Domain),
}

impl Instant<'_> {
    fn survivors(&self, seed: u64) -> Left {
        match self {
            Self::Ssd(moment) => Left::Ssd(moment.survivors(seed)),
            Self::Pm(pending, domain) => Left::Pm(pending.pick(cores::splitmix64(seed)), *domain),
        }
    }
}

/// Watches a medium until it ends.
pub struct Watch {
    medium: Medium,
    /// The observer of persistent memory.
    pm: Option<Arc<Mutex<Watcher>>>,
    started: Arc<AtomicU64>,
    /// Protects what the watcher hands over when it is dropped.
    slot: Arc<Mutex<Taken>>,
}

impl Watch {
    /// For a run that cannot be repeated. All events count the same: the clock does not measure how
    /// long a state lasts, because an emulated machine is slow and its drive is not.
    pub fn live(ssd: &Arc<Ssd>, oracle: &Arc<Oracle>, points: CutPoints, seed: u64) -> Self {
        let identify = ssd.identify();
        let by_chance = identify.volatile_cache && identify.zones.is_none();
        let draws = if by_chance { CHANCES } else { 1 };
        let live = Live { points, draws, rng: Rng::new(seed, LIVE) };
        Self::new(&Medium::Ssd(ssd.clone()), oracle, Plan::Live(live), seed)
    }

    pub(super) fn new(medium: &Medium, oracle: &Arc<Oracle>, plan: Plan, seed: u64) -> Self {
        let started = Arc::new(AtomicU64::new(u64::MAX));
        let slot = Arc::new(Mutex::instrument("cuts taken", Taken::default()));
        let zones = match medium {
            Medium::Ssd(ssd) => ssd.identify().zones,
            Medium::Pm(_) => None,
        };
        let mut watcher = Watcher {
            oracle: oracle.clone(),
            started: started.clone(),
            plan,
            seen: 0,
            next: 0,
            last: None,
            seed,
            pointers: Pointers::new(zones),
            taken: Taken::default(),
            slot: slot.clone(),
        };
        let medium = medium.clone();
        let pm = match &medium {
            Medium::Ssd(ssd) => {
                ssd.observe(Box::new(move |event, moment| watcher.see(event, moment)));
                None
            }
            Medium::Pm(pm) => {
                let watcher = Arc::new(Mutex::instrument("cuts of memory", watcher));
                let (to, domain) = (watcher.clone(), pm.info().domain);
                pm.observe(Arc::new(move |pending| to.lock().see_pm(&pending, domain)));
                Some(watcher)
            }
        };
        Self { medium, pm, started, slot }
    }

    /// From `now` on the power may fail.
    pub fn start(&self, now: u64) {
        self.started.store(now, Ordering::Release);
    }

    /// The cuts of a live run, in order of time.
    pub fn cuts(self) -> Vec<Cut> {
        let mut cuts = self.end().cuts;
        cuts.sort_by_key(|cut| cut.index);
        for at in 1..cuts.len() {
            let (before, cut) = (&cuts[at - 1], &cuts[at]);
            cuts[at].like = if before.state.is_same(&cut.state) { before.like } else { cut.index };
        }
        cuts
    }

    pub(super) fn end(self) -> Taken {
        // Dropping the observer hands over what it took.
        match (&self.medium, self.pm) {
            (Medium::Ssd(ssd), _) => drop(ssd.unobserve()),
            (Medium::Pm(pm), watcher) => {
                pm.observe(Arc::new(|_| ()));
                if let Some(watcher) = watcher {
                    // After the last call has returned.
                    watcher.lock().see_pm(&pm.pending(), pm.info().domain);
                }
            }
        }
        std::mem::take(&mut *self.slot.lock())
    }
}

/// The drive's observer. It runs under the drive's lock, so it touches nothing but its own and
/// atomics, and gives away what it took when it is dropped.
struct Watcher {
    oracle: Arc<Oracle>,
    started: Arc<AtomicU64>,
    plan: Plan,
    /// Events since the start.
    seen: usize,
    /// Number of the next cut.
    next: usize,
    /// What the one before it left, and the number of the first that left that.
    last: Option<(usize, Left)>,
    seed: u64,
    pointers: Pointers,
    taken: Taken,
    slot: Arc<Mutex<Taken>>,
}

impl Watcher {
    fn see(&mut self, event: &Event<'_>, moment: &Moment<'_>) {
        self.at(event.at, &Instant::Ssd(moment));
        if let EventKind::Command { command, .. } = event.kind {
            self.pointers.follow(command);
        }
    }

    fn see_pm(&mut self, pending: &Pending, domain: Domain) {
        self.at(crate::now_ns(), &Instant::Pm(pending, domain));
    }

    fn at(&mut self, now: u64, moment: &Instant<'_>) {
        let started = self.started.load(Ordering::Acquire);
        if started != u64::MAX {
            let at_ns = now.saturating_sub(started);
            match &mut self.plan {
                Plan::Scout(points) => {
                    self.taken.times.push(at_ns);
                    if matches!(points, CutPoints::Every) {
                        self.taken.chances.push(chances(self.seed, moment));
                    }
                }
                Plan::Take(picks, wanted) => {
                    if let Some((_, times)) = picks.next_if(|(event, _)| *event == self.seen) {
                        let wanted = wanted.clone();
                        (0..times).for_each(|_| self.take(at_ns, &wanted, moment));
                    }
                }
                Plan::Live(live) => {
                    for _ in 0..live.draws {
                        let (index, kept) = (self.next, &mut self.taken.cuts);
                        self.next += 1;
                        let Some(slot) = live.slot(index, kept.len()) else { continue };
                        let cut = draw(&self.oracle, self.seed, index, at_ns, moment);
                        match kept.get_mut(slot) {
                            Some(old) => *old = cut,
                            None => kept.push(cut),
                        }
                    }
                }
            }
            self.seen += 1;
        }
    }

    fn take(&mut self, at_ns: u64, wanted: &Range<usize>, moment: &Instant<'_>) {
        let index = self.next;
        self.next += 1;
        let mut cut = draw(&self.oracle, self.seed, index, at_ns, moment);
        let before = self.last.take().filter(|(_, before)| before.is_same(&cut.state));
        cut.like = before.map_or(index, |(like, _)| like);
        self.last = Some((cut.like, cut.state.clone()));
        if !wanted.contains(&index) {
            return;
        }
        if let Some(state) = cut.state.ssd() {
            let buffered = self.pointers.buffered(state);
            if self.taken.zone_map.as_ref().is_none_or(|(most, _)| buffered > *most) {
                let map = self.pointers.map(at_ns, state);
                self.taken.zone_map = map.map(|map| (buffered, map));
            }
        }
        self.taken.cuts.push(cut);
    }
}

/// What survives a moment, as chance has it for cut `index`.
fn draw(oracle: &Oracle, seed: u64, index: usize, at_ns: u64, moment: &Instant<'_>) -> Cut {
    let state = moment.survivors(seed.wrapping_add(index as u64));
    // Taken after the state: anything acknowledged by then was already durable in it.
    let position = oracle.position();
    Cut { index, at_ns, position, like: index, state }
}

/// How many survivors to draw at this moment.
fn chances(seed: u64, moment: &Instant<'_>) -> u64 {
    let one = moment.survivors(seed);
    let is_other = |n| !moment.survivors(seed.wrapping_add(n)).is_same(&one);
    if (1..=CHANCES).any(is_other) { CHANCES } else { 1 }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *self.slot.lock() = std::mem::take(&mut self.taken);
    }
}

/// Where the host believes the write pointers to be.
struct Pointers {
    geometry: Option<ZoneGeometry>,
    offsets: Vec<u64>,
}

impl Pointers {
    fn new(geometry: Option<ZoneGeometry>) -> Self {
        let zones = geometry.map_or(0, |g| g.count as usize);
        Self { geometry, offsets: vec![0; zones] }
    }

    fn follow(&mut self, command: &Command) {
        let Some(geometry) = self.geometry else { return };
        let place = |lba: u64| ((lba / geometry.size) as usize, lba % geometry.size);
        match command {
            Command::Write { lba, data, .. } => {
                let (zone, offset) = place(*lba);
                if let Some(pointer) = self.offsets.get_mut(zone) {
                    *pointer = offset + data.len() as u64;
                }
            }
            Command::Append { zone, data, .. } => {
                if let Some(pointer) = self.offsets.get_mut(place(*zone).0) {
                    *pointer += data.len() as u64;
                }
            }
            Command::ManageZone { action: ZoneAction::Reset, zone } => match zone {
                None => self.offsets.fill(0),
                Some(lba) => {
                    if let Some(pointer) = self.offsets.get_mut(place(*lba).0) {
                        *pointer = 0;
                    }
                }
            },
            _ => {}
        }
    }

    fn zones(&self, state: &DriveState) -> Vec<ZoneMark> {
        let Some(geometry) = self.geometry else { return Vec::new() };
        let pointers = self.offsets.iter().zip(state.write_pointers()).enumerate();
        pointers
            .skip(geometry.conventional as usize)
            .map(|(zone, (&wp_zns, wp_nand))| ZoneMark {
                zone: zone as u32,
                capacity: geometry.capacity,
                wp_zns: wp_zns.max(wp_nand),
                wp_nand,
            })
            .filter(|mark| mark.wp_zns > 0)
            .collect()
    }

    fn buffered(&self, state: &DriveState) -> u64 {
        self.zones(state).iter().map(|z| z.wp_zns - z.wp_nand).sum()
    }

    fn map(&self, at_ns: u64, state: &DriveState) -> Option<ZoneMap> {
        self.geometry?;
        let mut zones = self.zones(state);
        zones.retain(|z| z.wp_nand < z.capacity);
        Some(ZoneMap { at_ns, zones })
    }
}

#[cfg(test)]
mod tests {
    use drive::{Block, Blocks, Spec};

    use super::*;

    /// Cuts of a drive that is sent twenty writes, by `points`.
    fn cuts(points: CutPoints) -> Vec<usize> {
        let spec = Spec::named("conventional-noplp").expect("profile").blocks(1024);
        let ssd = Ssd::new(spec, Timing::Instant, 1).expect("drive");
        let watch = Watch::live(&ssd, &Arc::new(Oracle::new()), points, 1);
        let write = |lba| {
            let data = Blocks::from_iter([Block::new([7; drive::BLOCK_SIZE])]);
            ssd.submit(0, 0, Command::Write { lba, data, fua: false });
            drop(ssd.wait(0));
        };
        write(0);
        watch.start(cores::now());
        (1..21).for_each(write);
        watch.cuts().iter().map(|cut| cut.index).collect()
    }

    #[test]
    fn live_cuts_are_of_the_events_since_the_start() {
        let all = cuts(CutPoints::Every);
        assert!(all.len() >= 20 * CHANCES as usize, "{}", all.len());
        assert_eq!(all, (0..all.len()).collect::<Vec<_>>());
        let some = cuts(CutPoints::Random(10));
        assert!(some.len() == 10 && some.is_sorted_by(|one, next| one < next), "{some:?}");
        assert!(some.iter().any(|index| *index >= 30), "not only the first: {some:?}");
        assert_eq!(cuts(CutPoints::Random(1000)), all);
    }
}
