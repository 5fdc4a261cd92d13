//! The block layer over emulated drives.

use std::sync::Arc;

use drive::{
    Block, Blocks, Command, Drive, Fault, FaultOn, Output, Spec, Ssd, Status, Timing, ram,
};
use queue::{BlockQueue, IoError, Options, Verb, ZoneOrder};

fn block(n: u64) -> Block {
    Block::from_prefix(&n.to_le_bytes())
}

fn blocks(range: std::ops::Range<u64>) -> Blocks {
    range.map(block).collect()
}

/// 16 zones of 64 blocks, the first two conventional.
fn zoned(timing: Timing) -> Arc<Ssd> {
    let spec = Spec::named("zn540-noplp").expect("profile").zone_size(64, 60).zones(16, 2);
    Ssd::new(spec, timing, 1).expect("drive")
}

#[test]
fn reads_what_was_written_and_splits_what_is_long() -> Result<(), IoError> {
    let queue = BlockQueue::new(ram(4096));
    queue.write_blocks(7, blocks(0..1000), false)?;
    queue.flush()?;
    assert_eq!(queue.read_blocks(7, 1000)?, blocks(0..1000));
    assert_eq!(queue.read_block(8)?, block(1));
    queue.discard(7, 2)?;
    assert_eq!(queue.read_blocks(7, 3)?.to_vec(), [0, 0, 2].map(block));
    assert!(queue.report_zones()?.is_empty());
    Ok(())
}

#[test]
fn an_error_says_what_where_and_why() {
    let queue = BlockQueue::new(zoned(Timing::Instant));
    let error = queue.write_blocks(129, [block(1)].as_slice(), false).expect_err("not at wp");
    let said = "write of 1 block(s) at block 0x81 failed: zone invalid write";
    assert_eq!((error.to_string().as_str(), error.errno()), (said, 5));
    let error = queue.read_blocks(16 * 64 - 1, 2).expect_err("beyond the end");
    assert_eq!((error.verb, error.status), (Verb::Read, Status::LbaOutOfRange));
    let all_or_first = queue.read_blocks(16 * 64 - 100, 200).expect_err("split, the end beyond");
    assert_eq!(all_or_first.status, Status::LbaOutOfRange);
}

#[test]
fn many_more_tickets_than_tags() -> Result<(), IoError> {
    for timing in [Timing::Instant, Timing::Paced] {
        let spec = Spec::named("conventional-noplp").expect("profile").blocks(4096);
        let queue = BlockQueue::new(Ssd::new(spec, timing, 1).expect("drive"));
        let tickets: Vec<_> =
            (0..1000).map(|lba| queue.write(lba, [block(lba)].as_slice(), false)).collect();
        for ticket in tickets.into_iter().rev() {
            queue.wait(ticket)?;
        }
        assert_eq!(queue.read_blocks(0, 1000)?, blocks(0..1000));
    }
    Ok(())
}

/// Two zones side by side, several writes each, none waited for before the last.
#[test]
fn writes_to_a_zone_keep_their_order() -> Result<(), IoError> {
    for (timing, lock) in [(Timing::Instant, true), (Timing::Paced, true), (Timing::Paced, false)] {
        let free = Options { zone_order: ZoneOrder::Free, ..Options::default() };
        let drive = zoned(timing);
        let queue = if lock { BlockQueue::new(drive) } else { BlockQueue::with(drive, free) };
        let mut tickets = Vec::new();
        for at in 0..20 {
            for zone in [2, 5] {
                tickets.push(queue.write(zone * 64 + at * 3, blocks(at..at + 3), false));
            }
        }
        for ticket in tickets.into_iter().rev() {
            queue.wait(ticket)?;
        }
        let zones = queue.report_zones()?;
        assert_eq!((zones[2].wp, zones[5].wp), (3 * 64, 6 * 64), "full zones report their end");
        assert_eq!(queue.read_blocks(5 * 64 + 57, 3)?, blocks(19..22));
    }
    Ok(())
}

#[test]
fn a_detached_command_is_carried_out_and_forgotten() -> Result<(), IoError> {
    let queue = BlockQueue::new(zoned(Timing::Paced));
    for at in 0..10 {
        queue.detach(queue.write(128 + at, [block(at)].as_slice(), false));
    }
    queue.drain(0).expect("no write failed");
    assert_eq!(queue.report_zones()?[2].wp, 138, "all are done");
    queue.wait(queue.write(138, [block(10)].as_slice(), false))?;
    assert_eq!(queue.read_blocks(128, 11)?, blocks(0..11));
    Ok(())
}

#[test]
fn try_wait_does_not_sleep_and_does_finish() -> Result<(), IoError> {
    let queue = BlockQueue::new(zoned(Timing::Paced));
    let mut ticket = queue.write(128, [block(1)].as_slice(), true);
    let mut tries = 0u64;
    loop {
        match queue.try_wait(ticket) {
            Ok(result) => break drop(result?),
            Err(again) => ticket = again,
        }
        tries += 1;
    }
    assert!(tries > 0, "a forced write takes a NAND program's time");
    Ok(())
}

/// Six threads on few tags, in zones two of them share, each of which reads back what it wrote.
fn crowd(timing: Timing) -> u64 {
    let spec = Spec::named("conventional-noplp").expect("profile").blocks(1 << 16);
    let queue = Arc::new(BlockQueue::new(Ssd::new(spec, timing, 3).expect("drive")));
    let threads: Vec<_> = (0..6u64)
        .map(|thread| {
            let queue = Arc::clone(&queue);
            cores::spawn("writer", Some(thread as usize), move || {
                for at in 0..150 {
                    let lba = thread * 1000 + at;
                    let tickets: Vec<_> = (0..thread + 1)
                        .map(|n| queue.write(lba + n * 200, [block(lba)].as_slice(), false))
                        .collect();
                    tickets.into_iter().for_each(|ticket| drop(queue.wait(ticket).expect("write")));
                    if at % 50 == 0 {
                        queue.flush().expect("flush");
                    }
                    assert_eq!(queue.read_block(lba).expect("read"), block(lba));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(cores::JoinHandle::join);
    cores::now()
}

#[test]
fn threads_share_a_drive() {
    crowd(Timing::Instant);
    crowd(Timing::Paced);
}

#[test]
fn virtual_threads_share_a_drive_the_same_way_each_time() {
    let profile = cores::Profile::named("xeon-4116").expect("profile");
    let run = |seed| {
        let machine = cores::Machine::simulated(&profile, seed);
        machine.run(|| crowd(Timing::Virtual)).expect("no deadlock")
    };
    assert_eq!(run(1), run(1));
}

/// Writers of one zone wait for each other's turn: none may sleep for ever.
#[test]
fn virtual_threads_share_a_zone() {
    let profile = cores::Profile::named("xeon-4116").expect("profile");
    let machine = cores::Machine::simulated(&profile, 1);
    let written = machine.run(|| {
        let spec = Spec::named("zn540-noplp").expect("profile").zone_size(4096, 4096).zones(4, 0);
        let queue = Arc::new(BlockQueue::new(Ssd::new(spec, Timing::Virtual, 1).expect("drive")));
        let next = Arc::new(cores::Mutex::new(0u64));
        let writer = |core| {
            let (queue, next) = (Arc::clone(&queue), Arc::clone(&next));
            cores::spawn("writer", Some(core), move || {
                for _ in 0..100 {
                    let mut next = next.lock();
                    let ticket = queue.write(*next, [block(*next)].as_slice(), false);
                    *next += 1;
                    drop(next);
                    queue.wait(ticket).expect("in order");
                }
            })
        };
        let threads: Vec<_> = (0..8).map(writer).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        queue.read_blocks(0, 800).expect("read")
    });
    assert_eq!(written.expect("no deadlock"), blocks(0..800));
}

#[test]
fn appends_say_where_they_went() -> Result<(), IoError> {
    let queue = BlockQueue::new(zoned(Timing::Paced));
    let tickets: Vec<_> = (0..10)
        .map(|n| queue.submit(Command::Append { zone: 192, data: blocks(n..n + 1), fua: false }))
        .collect();
    for (n, ticket) in (0..).zip(tickets) {
        let Output::Appended(lba) = queue.wait(ticket)? else { panic!("no address") };
        assert_eq!(queue.read_block(lba)?, block(n));
    }
    queue.finish_zone(192)?;
    let full = queue.write_blocks(202, blocks(0..1), false).expect_err("full");
    assert_eq!((full.status, full.errno()), (Status::ZoneFull, 28));
    queue.reset_zone(192)?;
    queue.write_blocks(192, blocks(5..6), true)?;
    assert_eq!(queue.drive().identify().zones.map(|zones| zones.count), Some(16));
    Ok(())
}

/// A commit refers to blocks that other threads have submitted, and learns that one never came,
/// whether its owner has asked, will ask or never does.
#[test]
fn draining_tells_of_every_write_that_failed() {
    for on in [FaultOn::Write, FaultOn::Flush, FaultOn::Read, FaultOn::Other] {
        for detached in [false, true] {
            let drive = Arc::new(Fault::new(zoned(Timing::Paced)));
            let queue = BlockQueue::new(drive.clone());
            let before = queue.failures();
            drive.fail_nth(on, 0, Status::WriteFault);
            let tickets = [
                queue.write(3, [block(1)].as_slice(), false),
                queue.submit(Command::Flush),
                queue.submit(Command::Read { lba: 9, blocks: 1 }),
                queue.submit(Command::Discard { lba: 20, blocks: 1 }),
            ];
            let mut kept = Vec::new();
            for ticket in tickets {
                if detached { queue.detach(ticket) } else { kept.push(ticket) }
            }
            let drained = queue.drain(before).map_err(|error| error.verb);
            let expected = match on {
                FaultOn::Write | FaultOn::WriteOrFlush => Err(Verb::Write),
                FaultOn::Flush => Err(Verb::Flush),
                FaultOn::Read | FaultOn::Other => Ok(()),
            };
            assert_eq!(drained, expected, "{on:?}, detached {detached}");
            kept.into_iter().for_each(|ticket| drop(queue.wait(ticket)));
            assert_eq!(queue.drain(before).map_err(|error| error.verb), expected, "it stays so");
            assert!(queue.drain(queue.failures()).is_ok(), "for new callers");
        }
    }
}
