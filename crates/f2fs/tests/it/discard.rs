//! The drive is told what is free while others go on writing: never of a block that has been
//! written since.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cores::{Machine, Mutex, Profile};
use drive::{
    Command, Completion, Drive, Fault, FaultOn, Identify, Lba, Ssd, Status, Timing, ZoneAction,
};
use f2fs::{F2fs, MountOptions};
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{Kind, findings, mount_on};

const THREADS: u64 = 3;
const ROUNDS: u64 = 150;
/// The drive is told of what is free while the volume is in use.
const BUSY: &str = "mode=lfs,cache=2m,discard_idle_interval=0,min_discard_issue_time=1,\
                    mid_discard_issue_time=1,max_discard_request=64";
const EARLY: &str = "mode=lfs,cache=2m,inject=early-reuse";
const PAGE: usize = 4096;
/// Pages written at once.
const RUN: u64 = 64;

/// Sees which commands are under way at the same time.
struct Watch {
    below: Fault<Arc<Ssd>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Blocks being written, and blocks being discarded or reset, by queue and command.
    writes: BTreeMap<(u16, u16), Range<Lba>>,
    discards: BTreeMap<(u16, u16), Range<Lba>>,
    /// How many blocks were discarded or reset.
    discarded: u64,
    /// Blocks that were written and discarded at the same time.
    clashes: Vec<Range<Lba>>,
}

impl Seen {
    fn begin(&mut self, key: (u16, u16), blocks: Range<Lba>, is_write: bool) {
        let (own, other) = match is_write {
            true => (&mut self.writes, &self.discards),
            false => (&mut self.discards, &self.writes),
        };
        let meets = |other: &&Range<Lba>| other.start < blocks.end && blocks.start < other.end;
        self.clashes.extend(other.values().find(meets).cloned());
        if !is_write {
            self.discarded += blocks.end - blocks.start;
        }
        own.insert(key, blocks);
    }
}

impl Watch {
    fn file(&self, queue: u16, completion: Option<Completion>) -> Option<Completion> {
        let completion = completion?;
        let mut seen = self.seen.lock();
        seen.writes.remove(&(queue, completion.cid));
        seen.discards.remove(&(queue, completion.cid));
        Some(completion)
    }
}

impl Drive for Watch {
    fn identify(&self) -> &Identify {
        self.below.identify()
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let zone = self.identify().zones.map_or(0, |zones| zones.size);
        let seen = match &command {
            Command::Write { lba, data, .. } => Some((*lba..*lba + data.len() as u64, true)),
            Command::Discard { lba, blocks } => Some((*lba..*lba + *blocks, false)),
            Command::ManageZone { action: ZoneAction::Reset, zone: Some(start) } => {
                Some((*start..*start + zone, false))
            }
            _ => None,
        };
        if let Some((blocks, is_write)) = seen {
            self.seen.lock().begin((queue, cid), blocks, is_write);
        }
        self.below.submit(queue, cid, command);
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.file(queue, self.below.poll(queue))
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.file(queue, self.below.wait(queue))
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.file(queue, self.below.wait_for(queue, cid))
    }
}

/// What page `index` of file `me` holds after `round`.
fn page(me: u64, index: u64, round: u64) -> [u8; PAGE] {
    let mut page = [me as u8 + 1; PAGE];
    page[..8].copy_from_slice(&index.to_le_bytes());
    page[8..16].copy_from_slice(&round.to_le_bytes());
    page
}

/// Where a run of `round` begins in a file of `pages`.
fn place(me: u64, round: u64, pages: u64) -> u64 {
    (round * 7919 + me * 104_729) % (pages / RUN) * RUN
}

fn overwrite(fs: &F2fs, file: Ino, me: u64, pages: u64) {
    for round in 1..=ROUNDS {
        let first = place(me, round, pages);
        let run: Vec<u8> = (first..first + RUN).flat_map(|at| page(me, at, round)).collect();
        fs.write(file, first * PAGE as u64, &run).unwrap();
        match round % 4 {
            0 => fs.sync().unwrap(),
            _ => fs.fsync(file, false).unwrap(),
        }
    }
}

/// Overwrites a volume that is 90% full, on a drive that refuses the `refused`-th discard or reset.
/// What was seen, and the pages that are wrong.
fn run(kind: Kind, options: &'static str, seed: u64, refused: Option<u64>) -> (Seen, u64) {
    let profile = Profile::named("xeon-4116").unwrap();
    let machine = Machine::simulated(&profile, seed).preempted();
    machine
        .run(move || {
            let below = kind.formatted_at(seed, Timing::Virtual);
            let faulty = Fault::new(below.clone());
            let drive = Arc::new(Watch { below: faulty, seen: Mutex::new(Seen::default()) });
            let fs = Arc::new(mount_on(drive.clone(), options));
            let pages = fs.statfs().unwrap().blocks * 9 / 10 / THREADS / RUN * RUN;
            let create = |me: u64| {
                let name = format!("file {me}");
                fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
            };
            let files: Vec<Ino> = (0..THREADS).map(create).collect();
            for (me, &file) in (0..).zip(&files) {
                for first in (0..pages).step_by(RUN as usize) {
                    let run: Vec<u8> =
                        (first..first + RUN).flat_map(|at| page(me, at, 0)).collect();
                    fs.write(file, first * PAGE as u64, &run).unwrap();
                }
            }
            fs.sync().unwrap();
            if let Some(n) = refused {
                drive.below.fail_nth(FaultOn::Other, n, Status::InvalidField);
            }
            let upkeep = fs.maintain();
            let threads = (0..).zip(&files).map(|(me, &file)| {
                let fs = fs.clone();
                cores::spawn("writer", Some(me as usize), move || overwrite(&fs, file, me, pages))
            });
            threads.collect::<Vec<_>>().into_iter().for_each(cores::JoinHandle::join);
            upkeep.stop();
            fs.unmount().unwrap();
            assert!(!drive.below.is_armed(), "nothing was refused");

            // Where blocks are lost, so may be what the mount needs.
            let Ok(fs) = F2fs::mount(below.clone(), &MountOptions::default()) else {
                return (std::mem::take(&mut *drive.seen.lock()), u64::MAX);
            };
            let mut wrong = 0;
            for (me, &file) in (0..).zip(&files) {
                let mut last = vec![0; pages as usize];
                for round in 1..=ROUNDS {
                    let first = place(me, round, pages) as usize;
                    last[first..first + RUN as usize].fill(round);
                }
                let mut found = [0; PAGE];
                for (index, round) in (0..).zip(last) {
                    let read = fs.read(file, index * PAGE as u64, &mut found);
                    wrong += u64::from(read.is_err() || found != page(me, index, round));
                }
            }
            if wrong == 0 {
                fs.unmount().unwrap();
                assert_eq!(findings(&below.power_off()), "");
            }
            (std::mem::take(&mut *drive.seen.lock()), wrong)
        })
        .unwrap()
}

#[test]
fn what_is_being_discarded_is_not_written() {
    for kind in Kind::ALL {
        for seed in 0..3 {
            let (seen, wrong) = run(kind, BUSY, seed, None);
            assert!(seen.discarded > 0, "{kind:?}, seed {seed}: nothing was discarded");
            assert_eq!(seen.clashes, [], "{kind:?}, seed {seed}");
            assert_eq!(wrong, 0, "{kind:?}, seed {seed}: pages lost");
        }
    }
}

/// A discard is a hint; a zone that cannot be reset is not used again.
#[test]
fn what_the_drive_refuses_harms_nothing() {
    for kind in Kind::ALL {
        for refused in [0, 7] {
            let (seen, wrong) = run(kind, BUSY, refused, Some(refused));
            assert_eq!(seen.clashes, [], "{kind:?}, command {refused}");
            assert_eq!(wrong, 0, "{kind:?}, command {refused}: pages lost");
        }
    }
}

/// A log that has a segment before the drive knows that it was free loses what it writes there.
#[test]
fn what_is_used_too_early_is_noticed() {
    let noticed = (0..20).any(|seed| {
        let (seen, wrong) = run(Kind::Conventional, EARLY, seed, None);
        !seen.clashes.is_empty() || wrong > 0
    });
    assert!(noticed, "no seed noticed it");
}
