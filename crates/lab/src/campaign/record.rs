//! Runs a workload and keeps what would survive at chosen instants.
//!
//! Survivors change at drive events only: a command arrives, a NAND program ends. The first run
//! notes when each event is; an instant drawn from the run's time stands for the last event at or
//! before it, so a state is cut in proportion to how long it lasts. The second run is the same run
//! and takes the states.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use drive::{
    Command, Drive, DriveState, Event as DriveEvent, EventKind, Identify, Moment, Spec, Ssd,
};
use drive::{Timing, ZoneAction, ZoneGeometry};

use super::Job;
use crate::oracle::{Event, Oracle, Promise};
use crate::recorder::{FsyncSample, Recorder};
use crate::report::{ZoneMap, ZoneMark};
use crate::workload::Rng;
use crate::{Error, Result, machine, rig};

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
    state: DriveState,
}

impl Cut {
    /// A cut that stands for a state of the drive, at no particular time.
    pub(crate) fn of_state(index: usize, position: usize, state: DriveState) -> Self {
        Self { index, at_ns: 0, position, like: index, state }
    }

    /// What the drive says of itself.
    pub fn identify(&self) -> &Identify {
        self.state.identify()
    }

    /// The drive with its power back, timed by the current virtual machine.
    pub fn power_on(&self, job: &Job) -> Arc<Ssd> {
        Ssd::power_on(self.state.clone(), Timing::Virtual, job.seed ^ self.like as u64)
    }
}

/// A run and its cuts, in order of time.
pub struct Recording {
    /// All the workload did.
    pub log: Vec<Event>,
    /// The cuts that are to be judged.
    pub cuts: Vec<Cut>,
    /// How many there are in all.
    pub total: usize,
    /// Every fsync.
    pub fsyncs: Vec<FsyncSample>,
    /// From `started` to the end of the workload, nanoseconds.
    pub span_ns: u64,
    /// Drive events in that time.
    pub events: usize,
    /// Sections cleaned in that time.
    pub cleanings: u64,
    /// What the mode promises on this drive.
    pub promise: Promise,
    /// The drive at the cut with most in its buffer.
    pub zone_map: Option<ZoneMap>,
}

impl Recording {
    /// A run of which one cut is asked for.
    pub(crate) fn of_cut(
        log: Vec<Event>,
        cut: Cut,
        total: usize,
        promise: Promise,
        zone_map: Option<ZoneMap>,
    ) -> Self {
        let (fsyncs, cuts) = (Vec::new(), vec![cut]);
        let (span_ns, events, cleanings) = (0, 0, 0);
        Self { log, cuts, total, fsyncs, span_ns, events, cleanings, promise, zone_map }
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

/// Runs the workload of `job` and takes the cuts.
pub fn record(job: &Job, points: CutPoints) -> Result<Recording> {
    let spec = rig::unkind(&job.drive, job.workload.footprint())?;
    let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
    let scouted = run(job, &spec, Plan::Scout(points))?;
    let times = scouted.taken.times;
    let picks = match points {
        CutPoints::Random(cuts) => random_picks(job.seed, cuts, &times, scouted.span_ns),
        CutPoints::Every => scouted.taken.chances.into_iter().enumerate().collect(),
    };
    let total = picks.iter().map(|(_, times)| *times as usize).sum();
    let wanted = job.pick.range(total, "cuts")?;
    let ran = run(job, &spec, Plan::Take(picks, wanted))?;
    Ok(Recording {
        log: ran.log,
        cuts: ran.taken.cuts,
        total,
        fsyncs: ran.fsyncs,
        span_ns: ran.span_ns,
        events: times.len(),
        cleanings: ran.cleanings,
        promise: job.promise(&identify),
        zone_map: ran.taken.zone_map.map(|(_, map)| map),
    })
}

/// Events to take and how often, in order.
fn random_picks(seed: u64, cuts: usize, times: &[u64], span_ns: u64) -> Vec<(usize, u64)> {
    let mut rng = Rng::new(seed, 6);
    let mut picks: Vec<(usize, u64)> = Vec::new();
    let mut events: Vec<usize> = (0..cuts)
        .map(|_| {
            let at = rng.below(span_ns.max(1));
            times.partition_point(|&t| t <= at).saturating_sub(1)
        })
        .collect();
    events.sort_unstable();
    for event in events {
        match picks.last_mut() {
            Some((last, times)) if *last == event => *times += 1,
            _ => picks.push((event, 1)),
        }
    }
    picks
}

enum Plan {
    /// Notes when the events are, and what these points need to know about them.
    Scout(CutPoints),
    /// Takes survivors at these, and keeps those with these numbers.
    Take(Vec<(usize, u64)>, Range<usize>),
}

#[derive(Default)]
struct Taken {
    times: Vec<u64>,
    /// How many survivors are to be drawn at each event.
    chances: Vec<u64>,
    cuts: Vec<Cut>,
    zone_map: Option<(u64, ZoneMap)>,
}

struct Ran {
    log: Vec<Event>,
    fsyncs: Vec<FsyncSample>,
    span_ns: u64,
    cleanings: u64,
    taken: Taken,
}

fn run(job: &Job, spec: &Spec, plan: Plan) -> Result<Ran> {
    machine(job.seed)?.run(|| {
        let ssd = rig::new_drive(spec, Timing::Virtual, job.seed)?;
        let drive: Arc<dyn Drive> = ssd.clone();
        rig::make(job.format, &drive)?;
        let mounted = rig::mount(job.format, drive, &job.mount_options())?;
        let oracle = Arc::new(Oracle::new());
        let started = Arc::new(AtomicU64::new(u64::MAX));
        let slot = Arc::new(Mutex::new(Taken::default()));
        let every = matches!(plan, Plan::Scout(CutPoints::Every));
        let (picks, wanted) = match plan {
            Plan::Scout(_) => (None, 0..0),
            Plan::Take(picks, wanted) => (Some(picks.into_iter().peekable()), wanted),
        };
        let mut watcher = Watcher {
            oracle: oracle.clone(),
            started: started.clone(),
            every,
            picks,
            wanted,
            seen: 0,
            next: 0,
            last: None,
            seed: job.seed,
            pointers: Pointers::new(ssd.identify().zones),
            taken: Taken::default(),
            slot: slot.clone(),
        };
        ssd.observe(Box::new(move |event, moment| watcher.see(event, moment)));
        let recorder = Recorder::new(mounted.clone(), oracle.clone());
        let (mut begun, mut cleaned_before) = (0, 0);
        let ran = job.workload.run(&recorder, job.seed, &mut || {
            begun = crate::now_ns();
            cleaned_before = mounted.cleanings();
            recorder.restart();
            started.store(begun, Ordering::Release);
        });
        let span_ns = crate::now_ns() - begun;
        // Dropping the observer hands over what it took.
        drop(ssd.unobserve());
        ran?;
        let cleanings = mounted.cleanings() - cleaned_before;
        let fsyncs = recorder.fsyncs();
        drop(recorder);
        drop(mounted);
        let taken = std::mem::take(&mut *slot.lock());
        let log = oracle.take_log();
        Ok(Ran { log, fsyncs, span_ns, cleanings, taken })
    })?
}

/// The drive's observer. It runs under the drive's lock, so it touches only its own data and
/// atomics, and hands over its results when it is dropped.
struct Watcher {
    oracle: Arc<Oracle>,
    started: Arc<AtomicU64>,
    /// Whether every event is cut; then it is noted whether the outcome depends on chance.
    every: bool,
    picks: Option<std::iter::Peekable<std::vec::IntoIter<(usize, u64)>>>,
    wanted: Range<usize>,
    seen: usize,
    /// Number of the next cut.
    next: usize,
    /// What the previous cut left, and the number of the first cut that left that.
    last: Option<(usize, DriveState)>,
    seed: u64,
    pointers: Pointers,
    taken: Taken,
    slot: Arc<Mutex<Taken>>,
}

impl Watcher {
    fn see(&mut self, event: &DriveEvent<'_>, moment: &Moment<'_>) {
        let started = self.started.load(Ordering::Acquire);
        if started != u64::MAX {
            let at_ns = event.at.saturating_sub(started);
            match &mut self.picks {
                None => {
                    self.taken.times.push(at_ns);
                    if self.every {
                        self.taken.chances.push(chances(self.seed, moment));
                    }
                }
                Some(picks) => {
                    if let Some((_, times)) = picks.next_if(|(event, _)| *event == self.seen) {
                        self.take(at_ns, times, moment);
                    }
                }
            }
            self.seen += 1;
        }
        if let EventKind::Command { command, .. } = event.kind {
            self.pointers.follow(command);
        }
    }

    fn take(&mut self, at_ns: u64, times: u64, moment: &Moment<'_>) {
        for _ in 0..times {
            let index = self.next;
            self.next += 1;
            let state = moment.survivors(self.seed.wrapping_add(index as u64));
            let buffered = self.pointers.buffered(&state);
            let most = self.taken.zone_map.as_ref().map(|(most, _)| *most);
            if self.wanted.contains(&index) && most.is_none_or(|most| buffered > most) {
                self.taken.zone_map = self.pointers.map(at_ns, &state).map(|map| (buffered, map));
            }
            let position = self.oracle.position();
            let before = self.last.take().filter(|(_, before)| before.is_same(&state));
            let like = before.map_or(index, |(like, _)| like);
            self.last = Some((like, state.clone()));
            if self.wanted.contains(&index) {
                self.taken.cuts.push(Cut { index, at_ns, position, like, state });
            }
        }
    }
}

/// How many survivors to draw at this moment.
fn chances(seed: u64, moment: &Moment<'_>) -> u64 {
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
    use super::*;

    #[test]
    fn an_instant_stands_for_the_event_before_it() {
        // The state between the events at 10 and 990 lasts almost all of the run.
        let picks = random_picks(1, 1000, &[0, 10, 990], 1000);
        let of = |event| picks.iter().find(|(e, _)| *e == event).map_or(0, |(_, n)| *n);
        assert!(of(1) > 900, "{picks:?}");
        assert_eq!(picks.iter().map(|(_, n)| n).sum::<u64>(), 1000);
    }
}
