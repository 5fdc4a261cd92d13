//! Runs a workload and keeps what would survive at chosen instants.
//!
//! Survivors change at drive events only: a command arrives, a NAND program ends. The first run
//! notes when each event happens; an instant drawn from the run's time stands for the last event at
//! or before it, so a state is cut in proportion to how long it lasts. The second run is the same
//! run and takes the states.

use std::sync::Arc;

use drive::{Drive, Timing};

use super::Job;
use super::failing::Failing;
use super::watch::{Cut, CutPoints, Plan, Taken, Watch};
use crate::oracle::{Event, Oracle, Promise};
use crate::report::ZoneMap;
use crate::rig::{Kit, Medium};
use crate::workload::Rng;
use crate::workload::recorder::{FsyncSample, Recorder};
use crate::{Error, Result, machine, rig};

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

/// Runs the workload of `job` and takes the cuts.
pub fn record(job: &Job, points: CutPoints) -> Result<Recording> {
    let (drive, _) = rig::failing(&job.drive)?;
    let kit = rig::kit(&drive, job.workload.footprint())?;
    let identify = kit.identify()?;
    let scouted = run(job, &kit, Plan::Scout(points))?;
    let times = scouted.taken.times;
    let picks = match points {
        // Memory changes at once, so its events are counted and not timed.
        CutPoints::Random(cuts) if identify.pm.is_some() => {
            let numbers: Vec<u64> = (0..times.len() as u64).collect();
            random_picks(job.seed, cuts, &numbers, times.len() as u64)
        }
        CutPoints::Random(cuts) => random_picks(job.seed, cuts, &times, scouted.span_ns),
        CutPoints::Every => scouted.taken.chances.into_iter().enumerate().collect(),
    };
    let total = picks.iter().map(|(_, times)| *times as usize).sum();
    let wanted = job.pick.range(total, "cuts")?;
    let ran = run(job, &kit, Plan::Take(picks.into_iter().peekable(), wanted))?;
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

struct Ran {
    log: Vec<Event>,
    fsyncs: Vec<FsyncSample>,
    span_ns: u64,
    cleanings: u64,
    taken: Taken,
}

fn run(job: &Job, kit: &Kit, plan: Plan) -> Result<Ran> {
    machine(job.seed)?.run(|| {
        let medium = kit.make(Timing::Virtual, job.seed)?;
        let (_, nth) = rig::failing(&job.drive)?;
        let failing = match (&medium, nth) {
            (Medium::Ssd(ssd), Some(nth)) => Some(Failing::new(ssd.clone(), nth, job.seed)),
            (Medium::Pm(_), Some(_)) => {
                return Err(Error::Usage("fail=N: memory has no command that fails".into()));
            }
            (_, None) => None,
        };
        let drive: Arc<dyn Drive> = match &failing {
            Some(failing) => failing.drive(),
            None => medium.drive(),
        };
        job.make(&drive)?;
        let mounted = rig::mount(job.format, drive, &job.mount_options())?;
        let oracle = Arc::new(Oracle::new());
        let watch = Watch::new(&medium, &oracle, plan, job.seed);
        let at_return = job.promise(&kit.identify()?).at_return;
        let recorder = Recorder::new(mounted.clone(), oracle.clone()).durable(at_return);
        let (mut begun, mut cleaned_before) = (0, 0);
        let ran = job.workload.run(&recorder, job.seed, &mut || {
            begun = crate::now_ns();
            cleaned_before = mounted.cleanings();
            recorder.restart();
            watch.start(begun);
            if let Some(failing) = &failing {
                failing.arm();
            }
        });
        let ran = match &failing {
            Some(failing) => failing.judge(ran, &*mounted, job.format.habits(job.technique)),
            None => ran,
        };
        let span_ns = crate::now_ns() - begun;
        let taken = watch.end();
        ran?;
        let cleanings = mounted.cleanings() - cleaned_before;
        let fsyncs = recorder.fsyncs();
        drop(recorder);
        drop(mounted);
        let log = oracle.take_log();
        Ok(Ran { log, fsyncs, span_ns, cleanings, taken })
    })?
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
