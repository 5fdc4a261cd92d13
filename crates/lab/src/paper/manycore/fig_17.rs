//! Figure 17: 4 KiB random reads of a Samsung 983 ZET through libaio, pvsync2, io_uring and SPDK,
//! by the number of jobs.
//!
//! The drive is the emulated 983 ZET and the machine a virtual one. What an interface costs is put
//! together from a table of CPU costs, each with its source, so how many jobs it needs follows from
//! them. The study tells neither the queue depth nor the processor. So libaio runs at a depth at
//! which one job has enough under way for the drive's peak, as io_uring and SPDK do, and also with
//! one read at a time, fio's default. pvsync2 makes one at a time in any case.
//!
//! An interrupt is charged for every completion: NVMe drivers do not coalesce them unless told to.
//! A job has a core to itself, so polling takes nothing from others, and in the model it may sleep
//! until the completion is there and then pay for one look.

use std::sync::Arc;

use cores::{Machine, Nanos, Profile};
use drive::{BLOCK_SIZE, Block, Command, Drive, Ssd, Timing};

use super::{Kind, Row};
use crate::workload::Rng;
use crate::{CAMPAIGN_MACHINE, Error, Result, now_ns, rig};

/// The drive.
const DRIVE: &str = "983-zet";
/// Its specified random reads per second.
const PEAK: f64 = 750_000.0;
/// An interface that reaches this share of it has reached the peak.
const REACHED: f64 = 0.97;
/// What is read, in blocks: enough for every die.
const BLOCKS: u64 = 16 << 10;
/// Reads at a time where one job makes several.
const DEPTH: u16 = 128;
/// Reads of a job.
const READS: u64 = 2_000;
/// Cores of the machine, and the most jobs.
const CORES: usize = 12;
/// Numbers of jobs in the drawing.
const JOBS: [usize; 5] = [1, 2, 4, 8, CORES];
/// How much the costs are varied.
const VARIED: [f64; 2] = [0.5, 1.5];
/// The drive with a random read of 12 us and of 20 us, the ends of what its maker says.
const OTHER_DRIVES: [(&str, &str); 2] = [
    ("reads of 12 us", "983-zet:firmware_read_ns=2500"),
    ("reads of 20 us", "983-zet:firmware_read_ns=10500"),
];

/// The parts of which interfaces are put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Program,
    Crossing,
    Submit,
    Complete,
    Interrupt,
    Aio,
    Ring,
    Spdk,
    Look,
    Wake,
    Switch,
}

/// A cost: its name, nanoseconds, and the source.
type Cost = (Part, &'static str, Nanos, &'static str);

/// CPU time per read, or per what the name says.
const COSTS: [Cost; 11] = [
    // Two clocks, a random place, counting.
    (Part::Program, "load generator", 300, "estimate"),
    (Part::Crossing, "system call", 351, "XRP, OSDI '22, Table 1"),
    // The read call, the bio, and the NVMe driver.
    (Part::Submit, "submission", 691, "XRP: 199 + 379 + 113"),
    (Part::Complete, "completion", 300, "estimate"),
    (Part::Interrupt, "interrupt", 900, "estimate"),
    (Part::Aio, "iocb and event", 300, "estimate"),
    (Part::Ring, "ring entries", 100, "estimate"),
    // 1739K/s on one core, less the load generator.
    (Part::Spdk, "SPDK's driver", 275, "Axboe, linux-block, 2019-01-16"),
    (Part::Look, "empty poll", 50, "estimate"),
    (Part::Wake, "wake-up", 2000, "estimate: profile xeon-4116"),
    (Part::Switch, "context switch", 1500, "estimate: profile xeon-4116"),
];

/// The drive and the costs of one run.
#[derive(Clone, Copy)]
struct Setting {
    drive: &'static str,
    costs: [Nanos; COSTS.len()],
    seed: u64,
}

impl Setting {
    fn table(seed: u64) -> Self {
        Self { drive: DRIVE, costs: COSTS.map(|(_, _, ns, _)| ns), seed }
    }

    /// With one cost multiplied, or another drive, each with its name.
    fn variations(self) -> Vec<(String, Self)> {
        let mut all = Vec::new();
        for (which, (_, name, ..)) in COSTS.iter().enumerate() {
            for by in VARIED {
                let mut varied = self;
                varied.costs[which] = (varied.costs[which] as f64 * by) as Nanos;
                all.push((format!("{name} {:+.0}%", 100.0 * (by - 1.0)), varied));
            }
        }
        for (name, drive) in OTHER_DRIVES {
            all.push((name.to_owned(), Self { drive, ..self }));
        }
        all
    }

    fn of(&self, parts: &[Part]) -> Nanos {
        let named = COSTS.iter().zip(self.costs).filter(|(cost, _)| parts.contains(&cost.0));
        named.map(|(_, ns)| ns).sum()
    }
}

/// What an interface pays for.
#[derive(Clone, Copy)]
struct Interface {
    name: &'static str,
    depth: u16,
    /// For each read handed over.
    read: &'static [Part],
    /// For each batch handed over.
    batch: &'static [Part],
    /// For each completion.
    completion: &'static [Part],
    /// For each time it collects completions.
    collect: &'static [Part],
    /// For each time it slept until there were some.
    slept: &'static [Part],
}

use Part::{Aio, Complete, Crossing, Interrupt, Look, Program, Ring, Spdk, Submit, Switch, Wake};

/// fio hands reads over one by one to libaio, and takes all completions there are.
const LIBAIO: Interface = Interface {
    name: "libaio",
    depth: DEPTH,
    read: &[Program, Crossing, Submit, Aio],
    batch: &[],
    completion: &[Interrupt, Complete],
    collect: &[Crossing],
    slept: &[Wake, Switch],
};
const LIBAIO_ONE: Interface = Interface { name: "libaio, one at a time", depth: 1, ..LIBAIO };
const PVSYNC2: Interface = Interface {
    name: "pvsync2, polled",
    depth: 1,
    read: &[Program, Crossing, Submit],
    batch: &[],
    completion: &[Complete],
    collect: &[Look],
    slept: &[],
};
/// One call hands over and collects.
const IO_URING: Interface = Interface {
    name: "io_uring",
    depth: DEPTH,
    read: &[Program, Submit, Ring],
    batch: &[Crossing],
    completion: &[Interrupt, Complete],
    collect: &[],
    slept: &[Wake, Switch],
};
const IO_URING_POLLED: Interface = Interface {
    name: "io_uring, polled",
    completion: &[Complete],
    collect: &[Look],
    slept: &[],
    ..IO_URING
};
const SPDK: Interface = Interface {
    name: "SPDK-like",
    depth: DEPTH,
    read: &[Program, Spdk],
    batch: &[],
    completion: &[],
    collect: &[Look],
    slept: &[],
};

impl Interface {
    /// Reads per second of so many jobs.
    fn reads_per_s(self, jobs: usize, setting: Setting) -> Result<f64> {
        let profile = Profile::named(CAMPAIGN_MACHINE).map_err(|e| Error::Usage(e.to_string()))?;
        let spec = rig::spec(setting.drive, BLOCKS * BLOCK_SIZE as u64)?;
        let seed = setting.seed;
        Machine::simulated(&profile, seed).run(|| {
            let drive = rig::new_drive(&spec, Timing::Virtual, seed)?;
            fill(&drive, BLOCKS)?;
            let began = now_ns();
            let threads: Vec<_> = (0..jobs)
                .map(|job| {
                    let drive = drive.clone();
                    let rng = Rng::new(seed, job as u64);
                    let run = move || self.job(&drive, job as u16, &setting, rng);
                    cores::spawn("fig-17", Some(job), run)
                })
                .collect();
            threads.into_iter().for_each(cores::JoinHandle::join);
            let seconds = (now_ns() - began) as f64 / 1e9;
            Ok((jobs as u64 * READS) as f64 / seconds)
        })?
    }

    /// One job: hands over what it may, then collects what is done, sleeping or polling if nothing
    /// is.
    fn job(&self, drive: &Ssd, queue: u16, setting: &Setting, mut rng: Rng) {
        let (mut started, mut done) = (0, 0);
        let mut free: Vec<u16> = (0..self.depth).collect();
        while done < READS {
            if started < READS && !free.is_empty() {
                cores::spend(setting.of(self.batch));
            }
            while started < READS
                && let Some(cid) = free.pop()
            {
                cores::spend(setting.of(self.read));
                let lba = rng.below(BLOCKS);
                drive.submit(queue, cid, Command::Read { lba, blocks: 1 });
                started += 1;
            }
            let before = free.len();
            free.extend(std::iter::from_fn(|| drive.poll(queue)).map(|done| done.cid));
            let mut paid = setting.of(self.collect);
            if free.len() == before {
                free.extend(drive.wait(queue).map(|done| done.cid));
                paid += setting.of(self.slept);
            }
            let taken = (free.len() - before) as u64;
            cores::spend(paid + taken * setting.of(self.completion));
            done += taken;
        }
    }

    /// The fewest jobs with which the peak is reached, if a job per core is enough.
    fn jobs_for_peak(self, setting: Setting) -> Result<Option<usize>> {
        for jobs in 1..=CORES {
            if self.reads_per_s(jobs, setting)? >= REACHED * PEAK {
                return Ok(Some(jobs));
            }
        }
        Ok(None)
    }

    /// The share of the peak that a job per core reaches.
    fn most(self, setting: Setting) -> Result<f64> {
        Ok(self.reads_per_s(CORES, setting)? / PEAK)
    }
}

/// Writes the first `blocks` blocks, so that reads of them go to the dies.
pub(super) fn fill(drive: &Arc<Ssd>, blocks: u64) -> Result<()> {
    let most = u64::from(drive.identify().max_transfer);
    let block = Block::from_prefix(b"983 ZET");
    let writes = (0..blocks).step_by(most as usize).map(|lba| {
        let data = std::iter::repeat_n(block.clone(), most.min(blocks - lba) as usize).collect();
        Command::Write { lba, data, fua: false }
    });
    for command in writes.chain([Command::Flush]) {
        drive.submit(0, 0, command);
        if let Some(Err(status)) = drive.wait_for(0, 0).map(|done| done.result) {
            return Err(Error::Usage(format!("the drive answers: {status}")));
        }
    }
    Ok(())
}

/// What is compared with the study.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    spdk: Option<usize>,
    io_uring: Option<usize>,
    libaio: Option<usize>,
    libaio_one: f64,
    pvsync2: f64,
}

impl Found {
    fn with(setting: Setting) -> Result<Self> {
        Ok(Self {
            spdk: SPDK.jobs_for_peak(setting)?,
            io_uring: IO_URING.jobs_for_peak(setting)?,
            libaio: LIBAIO.jobs_for_peak(setting)?,
            libaio_one: LIBAIO_ONE.most(setting)?,
            pvsync2: PVSYNC2.most(setting)?,
        })
    }

    /// The study's statements as far as they hold at some depth, and an order it does not give.
    fn holds(&self) -> [(&'static str, bool); 5] {
        let before = |one: Option<usize>, other: Option<usize>| {
            one.is_some_and(|one| other.is_none_or(|other| one < other))
        };
        [
            ("SPDK-like before io_uring", before(self.spdk, self.io_uring)),
            ("io_uring with two jobs", self.io_uring == Some(2)),
            ("io_uring before libaio", before(self.io_uring, self.libaio)),
            ("libaio, one at a time, never", self.libaio_one < REACHED),
            ("pvsync2 never", self.pvsync2 < REACHED),
        ]
    }
}

pub(super) fn run(seed: u64) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = COSTS
        .iter()
        .map(|&(_, what, ns, source)| Row::new(Kind::Input, what, source, ns as f64, "ns"))
        .collect();
    let setting = Setting::table(seed);
    for interface in [SPDK, IO_URING_POLLED, IO_URING, LIBAIO, LIBAIO_ONE, PVSYNC2] {
        for jobs in JOBS {
            let what = format!("{}, jobs: {jobs}", interface.name);
            let ours = interface.reads_per_s(jobs, setting)? / 1e3;
            let row = |kind, paper| Row::new(kind, what.clone(), paper, ours, "KIOPS");
            rows.push(match (jobs, interface.name) {
                // PhotonLibOS's documentation, file I/O performance: depth 128, one busy core; the
                // lower of libaio's is fio's, the higher and io_uring's its own program's. The
                // estimates among the costs were chosen to come out there.
                (1, "libaio") => {
                    row(Kind::Input, "279 and 346 (Photon)").within(279.0 * 0.9, 346.0 * 1.1)
                }
                (1, "io_uring") => row(Kind::Input, "433 (Photon)").near(433.0, 0.1),
                _ => row(Kind::Consequence, ""),
            });
        }
    }
    rows.extend(statements(setting)?);
    Ok(rows)
}

/// What the study says, each figure with the least and the most that comes out if one cost is half
/// as much or half as much again or the drive another, and in how many of these cases each
/// statement holds.
fn statements(setting: Setting) -> Result<Vec<Row>> {
    let found = Found::with(setting)?;
    let variations = setting.variations().into_iter();
    let cases: Result<Vec<(String, Found)>> =
        variations.map(|(name, setting)| Ok((name, Found::with(setting)?))).collect();
    let cases = cases?;
    let row = |what: &str, paper: &str, figure: &dyn Fn(&Found) -> f64| {
        let all = || cases.iter().map(|(_, found)| figure(found));
        let range = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let row = Row::new(Kind::Consequence, what, paper, figure(&found), "");
        Row { range: Some(range), ..row }
    };
    // One more than there are cores stands for never.
    let jobs = |jobs: Option<usize>| jobs.unwrap_or(CORES + 1) as f64;
    let never = |row: Row| row.within(0.0, REACHED);
    let (most, deepest) = (LIBAIO.most(setting)?, deepest_below_peak(setting)?);
    let kind = Kind::Consequence;
    let mut rows = vec![
        row("SPDK-like, jobs for the peak", "1", &|found| jobs(found.spdk)).near(1.0, 0.0),
        row("io_uring, jobs for the peak", "2", &|found| jobs(found.io_uring)).near(2.0, 0.0),
        row("libaio, jobs for the peak", "never", &|found| jobs(found.libaio)),
        never(Row::new(kind, "libaio, a job per core: share of the peak", "below 1", most, "")),
        never(row("the same, one at a time", "below 1", &|found| found.libaio_one)),
        Row::new(kind, "libaio's greatest depth below the peak", "", f64::from(deepest), ""),
        never(row("pvsync2, a job per core", "below 1", &|found| found.pvsync2)),
    ];
    for (n, (statement, _)) in found.holds().into_iter().enumerate() {
        let lost = cases.iter().filter(|(_, found)| !found.holds()[n].1);
        let lost: Vec<&str> = lost.map(|(case, _)| case.as_str()).collect();
        let held = (cases.len() - lost.len()) as f64;
        let paper = match lost.is_empty() {
            true => String::new(),
            false => format!("not: {}", lost.join(", ")),
        };
        let what = format!("of {} cases, {statement}", cases.len());
        rows.push(Row::new(Kind::Consequence, what, paper, held, ""));
    }
    Ok(rows)
}

/// How many reads at a time libaio's jobs may make, one per core, and stay below the peak.
fn deepest_below_peak(setting: Setting) -> Result<u16> {
    for depth in 1..DEPTH {
        if (Interface { depth, ..LIBAIO }).most(setting)? >= REACHED {
            return Ok(depth - 1);
        }
    }
    Ok(DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_reach_the_peak_in_the_studys_order_because_of_what_they_cost() {
        let table = Setting::table(1);
        let found = Found::with(table).expect("it runs");
        assert!(found.holds().iter().all(|(_, holds)| *holds), "{found:?}");
        assert_eq!((found.spdk, found.io_uring), (Some(1), Some(2)), "{found:?}");
        // Without the kernel's part io_uring does what SPDK does.
        let costs = COSTS.map(|(part, _, ns, _)| {
            let kernel = matches!(part, Crossing | Submit | Interrupt | Complete);
            if kernel { 0 } else { ns }
        });
        let free = Setting { costs, ..table };
        assert_eq!(IO_URING.jobs_for_peak(free).expect("it runs"), Some(1));
    }

    #[test]
    fn the_drive_does_what_its_maker_says() {
        let free = Setting { costs: [0; COSTS.len()], ..Setting::table(1) };
        let most = SPDK.most(free).expect("it runs");
        assert!((REACHED..=1.01).contains(&most), "{most} of the peak");
        for (drive, us) in [(DRIVE, 16.0), (OTHER_DRIVES[0].1, 12.0), (OTHER_DRIVES[1].1, 20.0)] {
            let alone = LIBAIO_ONE.reads_per_s(1, Setting { drive, ..free }).expect("it runs");
            assert!((1e6 / alone - us).abs() < 0.5, "{drive}: {} us", 1e6 / alone);
        }
    }
}
