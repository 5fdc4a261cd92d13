//! The device engine on plain files: both ways into the kernel behave alike.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{BLOCK_SIZE, Block, Blocks, ZoneAction};

const BLOCKS: u64 = 512;
const ENGINES: [Engine; 2] = [Engine::Best, Engine::Syscalls];

fn image() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("disk");
    let file = File::create(&path).expect("image");
    file.set_len(BLOCKS * BLOCK_SIZE as u64).expect("room for the image");
    (dir, path)
}

fn open(path: &Path, engine: Engine) -> BlockDevice {
    let device = BlockDevice::open_with(path, Access::Write, engine).expect("opens");
    assert_eq!(device.has_rings(), engine == Engine::Best, "io_uring is refused here");
    device
}

fn run(device: &BlockDevice, command: Command) -> Result<Output, Status> {
    let completion = match device.issue(0, 7, command) {
        Some(completion) => completion,
        None => device.wait_for(0, 7).expect("in flight"),
    };
    assert_eq!(completion.cid, 7);
    completion.result
}

fn write(lba: Lba, bytes: &[u8], fua: bool) -> Command {
    let data = bytes.iter().map(|byte| Block::new([*byte; BLOCK_SIZE])).collect();
    Command::Write { lba, data, fua }
}

fn first_bytes(output: Result<Output, Status>) -> Vec<u8> {
    match output {
        Ok(Output::Data(data)) => data.iter().map(|block| block[4095]).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_is_read_and_outlives_the_device() {
    for engine in ENGINES {
        let (_dir, path) = image();
        let device = open(&path, engine);
        let many: Vec<u8> = (0..200).collect();
        run(&device, write(3, &many, false)).expect("written");
        run(&device, write(300, &[9], true)).expect("written through");
        run(&device, Command::Flush).expect("flushed");
        let read = run(&device, Command::Read { lba: 2, blocks: 256 });
        assert_eq!(first_bytes(read)[..4], [0, 0, 1, 2]);
        run(&device, Command::Discard { lba: 4, blocks: 1 }).expect("discarded");
        drop(device);
        let device = open(&path, engine);
        let read = run(&device, Command::Read { lba: 3, blocks: 3 });
        assert_eq!(first_bytes(read), [0, 0, 2]);
        assert_eq!(first_bytes(run(&device, Command::Read { lba: 300, blocks: 1 })), [9]);
    }
}

#[test]
fn wrong_commands_get_the_status_of_a_drive() {
    for engine in ENGINES {
        let (_dir, path) = image();
        let device = open(&path, engine);
        let too_long = device.identify().max_transfer + 1;
        let reset = Command::ManageZone { action: ZoneAction::Reset, zone: Some(0) };
        for (command, status) in [
            (Command::Read { lba: BLOCKS, blocks: 1 }, Status::LbaOutOfRange),
            (Command::Read { lba: BLOCKS - 1, blocks: 2 }, Status::LbaOutOfRange),
            (Command::Read { lba: Lba::MAX, blocks: 1 }, Status::LbaOutOfRange),
            (Command::Read { lba: 0, blocks: 0 }, Status::InvalidField),
            (Command::Read { lba: 0, blocks: too_long }, Status::InvalidField),
            (write(BLOCKS, &[1], false), Status::LbaOutOfRange),
            (Command::Discard { lba: 1, blocks: u64::MAX }, Status::LbaOutOfRange),
            (Command::ReportZones { lba: 0, max: 1 }, Status::InvalidOpcode),
            (Command::Append { zone: 0, data: Blocks::new(), fua: false }, Status::InvalidOpcode),
            (reset, Status::InvalidOpcode),
        ] {
            let text = format!("{command:?}");
            assert_eq!(run(&device, command).expect_err(&text), status, "{text}");
        }
        drop(device);
        let device = BlockDevice::open_with(&path, Access::Read, engine).expect("opens");
        let refused = run(&device, write(0, &[1], false));
        assert_eq!(refused.expect_err("read only"), Status::WriteProtected);
    }
}

#[test]
fn a_device_that_shrinks_fails_commands_and_hangs_none() {
    for engine in ENGINES {
        let (_dir, path) = image();
        let device = open(&path, engine);
        File::options().write(true).open(&path).and_then(|f| f.set_len(4096 * 2)).expect("cut");
        let read = run(&device, Command::Read { lba: 1, blocks: 4 });
        assert_eq!(read.expect_err("short"), Status::UnrecoveredRead);
        let read = run(&device, Command::Read { lba: 9, blocks: 1 });
        assert_eq!(read.expect_err("beyond the end"), Status::UnrecoveredRead);
    }
}

#[test]
fn one_writer_or_many_readers() {
    let (_dir, path) = image();
    let writer = BlockDevice::open(&path, Access::Write).expect("first");
    for access in [Access::Write, Access::Read] {
        let error = BlockDevice::open(&path, access).err().expect("busy").to_string();
        assert!(error.contains("in use") && !error.contains('\n'), "{error}");
    }
    BlockDevice::open(&path, Access::Inspect).expect("to look at");
    drop(writer);
    let _first = BlockDevice::open(&path, Access::Read).expect("reader");
    let _second = BlockDevice::open(&path, Access::Read).expect("another reader");
    assert!(matches!(BlockDevice::open(&path, Access::Write), Err(OpenError::Busy(_))));
}

#[test]
fn not_every_path_is_a_device() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let empty = dir.path().join("empty");
    File::create(&empty).expect("file");
    for (path, what) in [
        (dir.path().to_owned(), "neither"),
        ("/dev/null".into(), "neither"),
        (empty, "a size of 0 bytes"),
        (dir.path().join("missing"), "No such file"),
    ] {
        let error = BlockDevice::open(&path, Access::Read).err().expect("refused").to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Threads share a queue: each gets its own answers, whichever thread reaps them.
#[test]
fn threads_share_one_queue() {
    const THREADS: u16 = 6;
    for engine in ENGINES {
        let (_dir, path) = image();
        let device = Arc::new(open(&path, engine));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let device = device.clone();
                cores::spawn("client", None, move || {
                    for round in 0..200_u64 {
                        let lba = u64::from(thread) * 64 + round % 64;
                        let byte = (u64::from(thread) * 31 + round) as u8;
                        device.submit(0, thread, write(lba, &[byte], round % 16 == 0));
                        finish(&device, thread).expect("written");
                        device.submit(0, thread, Command::Read { lba, blocks: 1 });
                        assert_eq!(first_bytes(finish(&device, thread)), [byte]);
                        if round % 50 == 0 {
                            device.submit(0, thread, Command::Flush);
                            finish(&device, thread).expect("flushed");
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join();
        }
        assert!(device.wait(0).is_none() && device.poll(0).is_none());
    }
}

/// The answer of `cid`.
fn finish(device: &BlockDevice, cid: u16) -> Result<Output, Status> {
    loop {
        match device.wait_for(0, cid) {
            Some(completion) => return completion.result,
            None => cores::yield_now(),
        }
    }
}

/// The thread that submits ends before its commands do: nothing is lost.
#[test]
fn commands_outlive_the_thread_that_sent_them() {
    let (_dir, path) = image();
    let device = Arc::new(open(&path, Engine::Best));
    for round in 0..20_u8 {
        let sender = device.clone();
        cores::spawn("sender", None, move || {
            for cid in 0..64 {
                sender.submit(0, cid, write(u64::from(cid), &[round], true));
            }
            sender.submit(0, 64, Command::Flush);
        })
        .join();
        let results: Vec<Completion> = std::iter::from_fn(|| device.wait(0)).collect();
        assert_eq!(results.len(), 65);
        assert!(results.iter().all(|done| done.result.is_ok()), "{results:?}");
    }
}

/// Dropping the device waits for what is in flight.
#[test]
fn a_device_can_be_dropped_with_commands_in_flight() {
    let (_dir, path) = image();
    for round in 1..20_u8 {
        let device = open(&path, Engine::Best);
        for cid in 0..100 {
            device.submit(0, cid, write(u64::from(cid), &[round], false));
        }
        drop(device);
        let device = open(&path, Engine::Best);
        let read = run(&device, Command::Read { lba: 0, blocks: 100 });
        assert_eq!(first_bytes(read), [round; 100]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Against an array, many commands in flight that do not overlap.
    #[test]
    fn agrees_with_an_array(
        rounds in prop::collection::vec(
            (prop::collection::vec((0u64..16, 1usize..24, any::<u8>()), 1..12), any::<bool>()),
            1..8,
        )
    ) {
        for engine in ENGINES {
            let (_dir, path) = image();
            let device = open(&path, engine);
            let mut model = vec![0_u8; BLOCKS as usize];
            for (writes, flush) in &rounds {
                for (cid, (area, len, byte)) in (0..).zip(writes) {
                    let lba = (*area + u64::from(cid) * 16) * 2 % (BLOCKS - 24);
                    device.submit(0, cid, write(lba, &vec![*byte; *len], false));
                    let lba = lba as usize;
                    // Overlapping writes may land in any order: one after another, then.
                    prop_assert!(device.wait_for(0, cid).is_some_and(|done| done.result.is_ok()));
                    model[lba..lba + len].fill(*byte);
                }
                if *flush {
                    run(&device, Command::Flush).expect("flushed");
                }
                for at in (0..BLOCKS).step_by(64) {
                    device.submit(0, (at / 64) as u16, Command::Read { lba: at, blocks: 64 });
                }
                for _ in 0..BLOCKS / 64 {
                    let done = device.wait(0).expect("in flight");
                    let at = usize::from(done.cid) * 64;
                    prop_assert_eq!(&first_bytes(done.result)[..], &model[at..at + 64]);
                }
            }
        }
    }
}
