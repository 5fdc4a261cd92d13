//! Writes on their way to the drive, and the executor of plans.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Block, Drive, Lba, Spec, Ssd, Timing};
use queue::plan::{OnTheWay, Plan, Run, Step, Writes};
use queue::{BlockQueue, Io, IoError, WriteSet};

fn block(n: u64) -> Block {
    Block::from_prefix(&n.to_le_bytes())
}

/// Runs `test` in virtual time, where a drive needs some of it.
fn on_a_drive(test: impl FnOnce(Arc<Ssd>) + 'static) {
    let profile = Profile::named("xeon-4116").expect("profile");
    let on_cores = || {
        let spec = Spec::named("zn540-noplp").expect("profile").zone_size(64, 64).zones(8, 2);
        test(Ssd::new(spec, Timing::Virtual, 1).expect("drive"));
    };
    Machine::simulated(&profile, 1).run(on_cores).expect("no deadlock");
}

fn push(set: &mut WriteSet, io: &Io, lbas: std::ops::Range<Lba>) {
    lbas.for_each(|lba| set.push(io, lba, block(lba)));
}

#[test]
fn adjacent_writes_are_one_command_within_a_zone() {
    on_a_drive(|drive| {
        let io = Io::new(Arc::new(BlockQueue::new(drive.clone())));
        let mut set = WriteSet::default();
        push(&mut set, &io, 10..14);
        push(&mut set, &io, 20..22);
        push(&mut set, &io, 62..66);
        set.submit(&io);
        set.wait(io.queue()).expect("write");
        assert_eq!((drive.stats().writes, io.written_blocks()), (4, 10));
    });
}

#[test]
fn what_is_in_flight_is_read_from_memory() {
    on_a_drive(|drive| {
        let io = Io::new(Arc::new(BlockQueue::new(drive.clone())));
        let mut set = WriteSet::default();
        push(&mut set, &io, 10..14);
        set.submit(&io);
        assert!(io.is_in_flight(13) && io.has_in_flight(0..11) && !io.has_in_flight(0..10));
        assert_eq!(io.read(12).expect("read"), block(12));
        assert_eq!(io.read_run(11, 3).expect("read").to_vec(), [11, 12, 13].map(block));
        assert_eq!(drive.stats().reads, 0);
        assert_eq!(io.read_run(9, 3).expect("read").to_vec(), [0, 10, 11].map(block));
        assert_eq!(drive.stats().reads, 1);
        set.wait(io.queue()).expect("write");
        assert!(!io.has_in_flight(0..100));
        assert_eq!(io.read(12).expect("read"), block(12));
        assert_eq!(drive.stats().reads, 2);
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Data,
    Record,
}

const PLAN: Plan<What> = Plan {
    name: "toy",
    steps: &[
        Step::Submit(What::Data),
        Step::Wait(Writes::DATA),
        Step::PreFlush,
        Step::Submit(What::Record),
        Step::Wait(Writes::META),
        Step::Flush,
    ],
    durable: true,
    data_consistent: true,
    atomic: true,
};

/// Writes a block of data and one that leads to it, and takes down what it is told to do.
struct Toy {
    io: Io,
    writes: OnTheWay,
    queue: Arc<BlockQueue>,
    done: Vec<String>,
    /// What it would rather end at.
    end_at: Option<What>,
}

impl Run for Toy {
    type Submit = What;
    type Hold = &'static str;
    type End = What;
    type Error = IoError;

    fn submit(&mut self, what: What, held: Option<&'static str>) -> Result<Option<What>, IoError> {
        self.done.push(format!("{what:?} {}", held.unwrap_or("free")));
        if self.end_at == Some(what) {
            return Ok(self.end_at);
        }
        let (set, lba) = match what {
            What::Data => (&mut self.writes.data, 10),
            What::Record => (&mut self.writes.meta, 20),
        };
        set.push(&self.io, lba, block(lba));
        set.submit(&self.io);
        Ok(None)
    }

    fn on_the_way(&mut self) -> (&mut OnTheWay, &BlockQueue) {
        (&mut self.writes, &self.queue)
    }

    fn meta_answered(&mut self, written: Result<(), IoError>) -> Result<(), IoError> {
        self.done.push("answered".into());
        written
    }

    fn pre_flush(&mut self) -> Result<(), IoError> {
        assert!(!self.io.is_in_flight(10), "data was waited for");
        self.done.push("preflush".into());
        self.queue.flush()
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.done.push("flush".into());
        self.queue.flush()
    }
}

fn run(drive: Arc<dyn Drive>, end_at: Option<What>) -> (Result<Option<What>, IoError>, String) {
    let queue = Arc::new(BlockQueue::new(drive));
    let (io, writes) = (Io::new(queue.clone()), OnTheWay::default());
    let mut toy = Toy { io, writes, queue, done: Vec::new(), end_at };
    (PLAN.run(&mut toy, Some("held")), toy.done.join(", "))
}

#[test]
fn a_plan_runs_step_by_step() {
    on_a_drive(|drive| {
        assert!(!PLAN.orders_at_recovery(), "the flush between puts data first");
        let all = "Data held, preflush, Record free, answered, flush";
        assert_eq!(run(drive.clone(), None), (Ok(None), all.into()));
        assert_eq!((drive.stats().writes, drive.stats().flushes), (2, 2));
        let part = "Data held, preflush, Record free";
        assert_eq!(run(drive, Some(What::Record)), (Ok(Some(What::Record)), part.into()));
    });
}
