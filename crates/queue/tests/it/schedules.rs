//! The block layer in schedules that no clock would make, over a drive that answers in any order.
//! Every run is a seed; a failure prints it with the setting.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::{Machine, Profile};
use drive::{Block, Blocks, Command, FaultOn, Memory, Output, Spec, Ssd, Status, Timing};
use queue::{BlockQueue, Linux, Options, Scheduler, Ticket, ZoneOrder};

const SEEDS: u64 = 30;
const THREADS: u64 = 6;
const ROUNDS: u64 = 12;

fn block(n: u64) -> Block {
    Block::from_prefix(&n.to_le_bytes())
}

fn blocks(range: std::ops::Range<u64>) -> Blocks {
    range.map(block).collect()
}

/// Every way of setting up that changes a path through the block layer.
fn settings() -> impl Iterator<Item = Options> {
    let schedulers = [Scheduler::None, Scheduler::MqDeadline];
    let orders = [ZoneOrder::WriteLock, ZoneOrder::WritePlug];
    schedulers.into_iter().flat_map(move |scheduler| {
        orders.into_iter().flat_map(move |zone_order| {
            [(None, false, true), (Some(3), false, false), (Some(2), true, true)].map(
                |(nr_requests, polled, fua)| {
                    let (linux, nr_hw_queues) =
                        if polled { (Linux::V4, Some(2)) } else { (Linux::V6, None) };
                    Options { nr_requests, nr_hw_queues, scheduler, zone_order, polled, fua, linux }
                },
            )
        })
    })
}

/// Runs `test` on a preempted machine for every setting, with a few seeds.
fn explore(test: fn(Options, u64)) {
    explore_seeds(test, 0..SEEDS);
}

fn explore_seeds(test: fn(Options, u64), seeds: Range<u64>) {
    let profile = Profile::named("xeon-4116").expect("profile");
    for options in settings() {
        for seed in seeds.clone() {
            let machine = Machine::simulated(&profile, seed).preempted();
            let run = std::panic::AssertUnwindSafe(|| machine.run(|| test(options, seed)));
            match std::panic::catch_unwind(run) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => panic!("seed {seed}, {options:?}: {error}"),
                Err(_) => panic!("seed {seed}, {options:?}"),
            }
        }
    }
}

fn on_threads(job: impl Fn(u64) + Clone + Send + 'static) {
    let spawn = |thread| {
        let job = job.clone();
        cores::spawn("caller", Some(thread as usize), move || job(thread))
    };
    let threads: Vec<_> = (0..THREADS).map(spawn).collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
}

/// What was submitted is either a request of its own or part of one, and all requests were sent
/// and answered.
fn adds_up(queue: &BlockQueue, submitted: u64) {
    let mut all = queue::QueueStats::default();
    queue.stats().into_iter().for_each(|stats| all += stats);
    assert_eq!(all.submitted, submitted, "{all:?}");
    assert_eq!((all.sent + all.merged, all.answered), (all.submitted, all.sent), "{all:?}");
}

/// Threads that write neighbouring blocks through plugs, read them back, force some, detach some.
fn crowd(options: Options, seed: u64) {
    let spec = Spec::named("conventional-noplp").expect("profile").blocks(1 << 16).unkind();
    let drive = Ssd::new(spec, Timing::Virtual, seed).expect("drive");
    let queue = Arc::new(BlockQueue::with(drive.clone(), options));
    let submitted = Arc::new(AtomicU64::new(0));
    let (shared, count) = (queue.clone(), submitted.clone());
    on_threads(move |thread| {
        for round in 0..ROUNDS {
            let first = thread * 1000 + round * 16;
            let mut plug = shared.plug();
            let write = |lba: u64| Command::Write {
                lba,
                data: blocks(lba..lba + 2),
                fua: (lba / 2 + seed).is_multiple_of(5),
            };
            // Even pairs forwards, then odd ones backwards: merges at both ends.
            let pairs = (0..8).step_by(2).chain((0..8).step_by(2).map(|pair| 7 - pair));
            let tickets: Vec<Ticket> =
                pairs.map(|pair| plug.submit(write(first + 2 * pair))).collect();
            if (seed + round).is_multiple_of(2) {
                drop(plug);
            }
            for ticket in tickets.into_iter().rev() {
                shared.wait(ticket).expect("write");
            }
            let mut plug = shared.plug();
            let reads: Vec<_> = (0..4)
                .map(|n| (first + 4 * n, Command::Read { lba: first + 4 * n, blocks: 4 }))
                .map(|(lba, read)| (lba, plug.submit(read)))
                .collect();
            drop(plug);
            for (lba, ticket) in reads {
                let Ok(Output::Data(data)) = shared.wait(ticket) else { panic!("no data") };
                assert_eq!(data, blocks(lba..lba + 4), "block {lba}");
            }
            shared.detach(shared.write(first + 500, blocks(0..1), false));
            count.fetch_add(8 + 4 + 1, Ordering::Relaxed);
        }
    });
    queue.drain(0).expect("no write failed");
    let flushes = drive.stats().flushes;
    adds_up(&queue, submitted.load(Ordering::Relaxed) + flushes);
    assert!(options.fua || flushes > 0, "a forced write without FUA needs a flush");
}

#[test]
fn what_threads_write_they_read_in_every_schedule() {
    explore(crowd);
}

/// Writers that share zones; the drive refuses a write that is not at the write pointer.
fn zones(options: Options, seed: u64) {
    let spec = Spec::named("zn540-noplp").expect("profile").zone_size(512, 512).zones(4, 0);
    let drive = Ssd::new(spec.unkind(), Timing::Virtual, seed).expect("drive");
    let queue = Arc::new(BlockQueue::with(drive, options));
    let next: Arc<Vec<_>> = Arc::new((0..2).map(|_| cores::Mutex::new(0u64)).collect());
    let shared = queue.clone();
    on_threads(move |thread| {
        let zone = thread % 2;
        for round in 0..ROUNDS {
            let mut next = next[zone as usize].lock();
            let mut plug = shared.plug();
            let tickets: Vec<_> = (0..3)
                .map(|_| {
                    let lba = zone * 512 + *next;
                    *next += 1;
                    let data = blocks(lba..lba + 1);
                    plug.submit(Command::Write { lba, data, fua: false })
                })
                .collect();
            drop(plug);
            drop(next);
            if round.is_multiple_of(3) {
                tickets.into_iter().for_each(|ticket| shared.detach(ticket));
            } else {
                tickets.into_iter().for_each(|ticket| drop(shared.wait(ticket).expect("in order")));
            }
        }
    });
    queue.drain(0).expect("no write failed");
    let written = THREADS / 2 * ROUNDS * 3;
    for zone in [0, 512] {
        let read = queue.read_blocks(zone, written as u32).expect("read");
        assert_eq!(read, blocks(zone..zone + written));
    }
}

#[test]
fn zones_are_written_in_order_in_every_schedule() {
    explore(zones);
}

/// A request that fails fails all that were merged into it, and no other.
#[test]
fn all_who_share_a_request_hear_that_it_failed() {
    let spec = Spec::named("conventional-noplp").expect("profile").blocks(4096);
    let profile = Profile::named("xeon-4116").expect("profile");
    let run = || {
        let drive = drive::Fault::new(Ssd::new(spec, Timing::Virtual, 1).expect("drive"));
        drive.fail_range(FaultOn::Write, 11..12, Status::WriteFault);
        let queue = BlockQueue::with(Arc::new(drive), Options::default());
        let mut plug = queue.plug();
        let write = |lba| Command::Write { lba, data: blocks(lba..lba + 1), fua: false };
        let tickets = [10, 12, 11, 20].map(|lba| plug.submit(write(lba)));
        drop(plug);
        tickets.map(|ticket| queue.wait(ticket).map(drop).map_err(|error| error.lba))
    };
    let answers = Machine::simulated(&profile, 1).run(run).expect("no deadlock");
    // 11 joined the newest it could, which was 12.
    assert_eq!(answers, [Ok(()), Err(12), Err(11), Ok(())]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let profile = Profile::named("xeon-4116").expect("profile");
    let run = |seed, options| {
        let timed = || {
            crowd(options, seed);
            cores::now()
        };
        Machine::simulated(&profile, seed).run(timed).expect("no deadlock")
    };
    for options in settings() {
        assert_eq!(run(1, options), run(1, options), "{options:?}");
    }
}

/// Threads write, wait and join a flush; whatever the power then leaves has what they wrote.
fn flushes(options: Options, seed: u64) {
    let spec = Spec::named("conventional-noplp").expect("profile").blocks(4096).unkind();
    let drive = Ssd::new(spec, Timing::Virtual, seed).expect("drive");
    let queue = Arc::new(BlockQueue::with(drive.clone(), options));
    on_threads(move |thread| {
        for round in 0..ROUNDS {
            let lba = thread * 100 + round;
            queue.wait(queue.write(lba, blocks(lba..lba + 1), false)).expect("write");
            queue.flush_joined().expect("flush");
            let left = drive::Ssd::power_on(drive.survivors(round), Timing::Instant, 0);
            let mut kept = false;
            left.look(&mut std::iter::once(lba), &mut |data| kept = *data == block(lba));
            assert!(kept, "block {lba} was flushed");
        }
    });
}

#[test]
fn a_joined_flush_covers_what_was_done_before_it_in_every_schedule() {
    explore(flushes);
}

/// Threads on two hardware queues of a drive that answers at once, with fewer tags than threads:
/// with and without plugs, and polled, where a request keeps its tag until somebody looks.
fn at_once(options: Options, seed: u64) {
    let drive = Memory::ramdisk_mq(1 << 16, 2, 2);
    let options = Options { scheduler: Scheduler::None, nr_requests: None, ..options };
    let queue = Arc::new(BlockQueue::with(drive, options));
    let submitted = Arc::new(AtomicU64::new(0));
    let (shared, count) = (queue.clone(), submitted.clone());
    on_threads(move |thread| {
        for round in 0..2 * ROUNDS {
            let lba = thread * 1000 + round * 8;
            let write = |lba: u64| {
                let data = blocks(lba..lba + 1);
                Command::Write { lba, data, fua: false }
            };
            if options.polled {
                let mut next = write(lba);
                let ticket = loop {
                    match shared.try_submit(next) {
                        Ok(ticket) => break ticket,
                        Err(back) => next = back,
                    }
                    cores::yield_now();
                };
                shared.wait(ticket).expect("write");
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                let mut plug = shared.plug();
                let tickets = [0, 1, 3, 2].map(|n| plug.submit(write(lba + n)));
                if (seed + round).is_multiple_of(2) {
                    drop(plug);
                }
                tickets.into_iter().for_each(|ticket| drop(shared.wait(ticket).expect("write")));
                shared.detach(shared.plug().submit(write(lba + 4)));
                shared.wait(shared.write(lba + 5, blocks(5..6), false)).expect("write");
                count.fetch_add(6, Ordering::Relaxed);
            }
            assert_eq!(shared.read_block(lba).expect("read"), block(lba));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    queue.drain(0).expect("no write failed");
    adds_up(&queue, submitted.load(Ordering::Relaxed));
}

#[test]
fn a_drive_that_answers_at_once_does_so_in_every_schedule() {
    explore(at_once);
}

/// How many of the schedules of `test` fail.
fn failures(options: Options, test: fn(Options, u64)) -> usize {
    let profile = Profile::named("xeon-4116").expect("profile");
    let fails = |seed: &u64| {
        let machine = Machine::simulated(&profile, *seed).preempted();
        let run = std::panic::AssertUnwindSafe(|| machine.run(|| test(options, *seed)));
        !matches!(std::panic::catch_unwind(run), Ok(Ok(())))
    };
    (0..SEEDS).filter(fails).count()
}

/// The canary: if nobody keeps the order of a zone's writes, threads that run each other's
/// software queues mix it up, and the drive refuses a write.
#[test]
fn without_an_order_the_schedules_find_a_zone_out_of_order() {
    let options = Options { zone_order: ZoneOrder::Free, ..Options::default() };
    assert!(failures(options, zones) > 0);
    assert_eq!(failures(Options::default(), zones), 0);
}

/// 10,000 schedules and more of each of the tests above.
#[test]
#[ignore = "long: make test-all"]
fn many_schedules() {
    let settings = settings().count() as u64;
    for test in [crowd, zones, flushes, at_once] {
        explore_seeds(test, SEEDS..SEEDS + 10_000_u64.div_ceil(settings));
    }
}
