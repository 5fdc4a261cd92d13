//! Once its tables have grown, the block layer allocates nothing for a command, whichever way that
//! goes. The drive below and the data do not count.

use std::sync::Arc;

use drive::{Block, Blocks, Command, Completion, Drive, Identify, Memory, Spec, Ssd, Timing};
use queue::{BlockQueue, Options, Scheduler, Ticket, ZoneOrder};

/// A drive whose own allocations are not counted.
struct Uncounted<D>(D);

impl<D: Drive> Uncounted<D> {
    fn do_it<R>(&self, act: impl FnOnce(&D) -> R) -> R {
        let mut result = None;
        allocation_counter::opt_out(|| result = Some(act(&self.0)));
        result.expect("it was done")
    }
}

impl<D: Drive> Drive for Uncounted<D> {
    fn identify(&self) -> &Identify {
        self.0.identify()
    }
    fn submit(&self, queue: u16, cid: u16, command: Command) {
        self.do_it(|drive| drive.submit(queue, cid, command));
    }
    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        self.do_it(|drive| drive.issue(queue, cid, command))
    }
    fn answers_at_once(&self) -> bool {
        self.0.answers_at_once()
    }
    fn poll(&self, queue: u16) -> Option<Completion> {
        self.do_it(|drive| drive.poll(queue))
    }
    fn wait(&self, queue: u16) -> Option<Completion> {
        self.do_it(|drive| drive.wait(queue))
    }
    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.do_it(|drive| drive.wait_for(queue, cid))
    }
}

/// Writes and reads, some of them held by a plug, several under way at a time; all in the first 64
/// blocks from `start` on, once.
fn round(queue: &BlockQueue, start: u64, block: &Block) {
    let data = || Blocks::from_iter([block.clone()]);
    let mut plug = queue.plug();
    for at in (start..start + 64).step_by(4) {
        let plugged = |lba| Command::Write { lba, data: data(), fua: false };
        let tickets: [Ticket; 4] = [
            queue.write(at, data(), false),
            plug.submit(plugged(at + 1)),
            plug.submit(plugged(at + 2)),
            queue.write(at + 3, data(), true),
        ];
        for ticket in tickets {
            queue.wait(ticket).expect("write");
        }
        queue.flush_joined().expect("flush");
        assert_eq!(queue.read_block(at + 1).expect("read"), *block);
    }
}

/// Fails if a second round of commands allocates, or the first does not: then nothing is counted.
fn check(queue: &BlockQueue, what: &str) {
    let (zone, block) = (128, Block::from_prefix(b"steady"));
    let counts = [(); 2].map(|()| {
        if queue.identify().zones.is_some() {
            queue.reset_zone(zone).expect("reset");
        }
        allocation_counter::measure(|| round(queue, zone, &block)).count_total
    });
    assert!(counts[0] > 0 && counts[1] == 0, "{what}: {counts:?} allocations");
}

/// On one core throughout: another has other hardware queues, with tables of their own.
#[test]
fn no_command_allocates_once_the_tables_have_grown() {
    cores::spawn("caller", Some(0), check_all).join();
}

fn check_all() {
    let conventional = || Spec::named("conventional-noplp").expect("profile").blocks(4096);
    let zoned = || Spec::named("zn540-noplp").expect("profile").zone_size(64, 64).zones(16, 0);
    let ssd = |spec, timing| Uncounted(Ssd::new(spec, timing, 1).expect("drive"));
    let drives = || -> [(&str, Arc<dyn Drive>); 5] {
        [
            ("instant", Arc::new(ssd(conventional(), Timing::Instant))),
            ("paced", Arc::new(ssd(conventional(), Timing::Paced))),
            ("zones, instant", Arc::new(ssd(zoned(), Timing::Instant))),
            ("zones, paced", Arc::new(ssd(zoned(), Timing::Paced))),
            ("at once", Arc::new(Uncounted(Memory::ramdisk_mq(4096, 2, 8)))),
        ]
    };
    for (name, drive) in drives() {
        check(&BlockQueue::new(drive), name);
    }
    for scheduler in [Scheduler::None, Scheduler::MqDeadline] {
        for zone_order in [ZoneOrder::WriteLock, ZoneOrder::WritePlug] {
            for fua in [false, true] {
                for (name, drive) in drives() {
                    let options = Options { scheduler, zone_order, fua, ..Options::default() };
                    check(&BlockQueue::with(drive, options), &format!("{name}, {options:?}"));
                }
            }
        }
    }
}
