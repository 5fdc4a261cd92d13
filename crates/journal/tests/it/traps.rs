//! Bugs of JBD2 and of its other implementations, one by one.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Fault, FaultOn, Ssd, Status};
use journal::ondisk::commit;
use journal::{Error, Inject, Journal, LogSpace, Options, Strictness, Superblock, Tid};

use crate::client::{
    self, DRIVE_BLOCKS, HOME, LOG_BLOCKS, Raw, Store, Value, io, log_block, read, recover,
    superblock,
};
use crate::explorer::{self, Tape};

/// A copy of what a drive has.
fn copy(drive: &Ssd) -> Arc<Ssd> {
    let copy = drive::ram(DRIVE_BLOCKS);
    for (lba, block) in explorer::contents(drive, DRIVE_BLOCKS) {
        let data = std::iter::once(block).collect();
        drive::Drive::submit(&*copy, 0, 0, drive::Command::Write { lba, data, fua: false });
        drive::Drive::wait_for(&*copy, 0, 0);
    }
    copy
}

/// Transactions of one block each, which looks like the commit block of a transaction to come, at
/// the place in the ring where recovery will look for that. Whether recovery is ever misled.
fn is_misled(inject: Inject) -> bool {
    let drive = drive::ram(DRIVE_BLOCKS);
    let superblock = Superblock::new(BLOCK_SIZE as u32, LOG_BLOCKS, [9; 16]);
    let (io, seed) = (io(drive.clone()), superblock.seed());
    let first = Block::from_prefix(&superblock.emit());
    io.queue().write_blocks(log_block(0).unwrap(), [first].as_slice(), false).unwrap();
    let space = LogSpace { superblock, blocks: Box::new(log_block) };
    let options = Options { inject, ..Options::default() };
    let journal = Journal::open(io, space, options, Raw).unwrap();
    let mut misled = false;
    for number in 1..60 {
        // Three blocks each in a ring of 32: ten transactions later, the log ends ahead of it.
        let mut image = Block::unspecified();
        let time = std::time::Duration::from_secs(1 << 40);
        commit::emit(image.make_mut(), Tid(number + 11), time, None, Some(seed));
        let mut handle = journal.start(1).unwrap();
        handle.create(HOME, (), image.clone());
        let id = handle.id();
        assert_eq!(id.tid, Tid(number));
        drop(handle);
        journal.commit(id).unwrap();
        let cut = client::io(copy(&drive));
        recover(&cut, Strictness::Strict).unwrap();
        misled |= client::superblock(&cut).unwrap().sequence() != Tid(number + 2);
        misled |= cut.read(HOME).unwrap() != image;
    }
    misled
}

#[test]
fn blocks_that_look_like_the_logs_own_are_escaped() {
    assert!(!is_misled(Inject::empty()));
    assert!(is_misled(Inject::SKIP_ESCAPE), "the mistake is not found");
}

#[test]
fn a_block_logged_again_after_its_revoke_counts() {
    let drive = drive::ram(DRIVE_BLOCKS);
    let store = Store::make(drive.clone(), Options::default());
    store.journal.commit(store.put(&[2, 3], &[], 1).unwrap()).unwrap();
    let mut handle = store.journal.start(4).unwrap();
    handle.forget(HOME + 2);
    handle.forget(HOME + 3);
    handle.create(HOME + 2, (), Block::zeroed());
    client::put(&mut handle, 2, 7).unwrap();
    let id = handle.id();
    drop(handle);
    store.journal.commit(id).unwrap();
    let cut = io(copy(&drive));
    recover(&cut, Strictness::Strict).unwrap();
    let found = read(&cut).unwrap();
    assert_eq!((found[2], found[3]), (Value::Table(7), Value::Zero));
}

#[test]
fn a_cut_during_recovery_is_recovered_from() {
    let first = explorer::drive(DRIVE_BLOCKS);
    let store = Store::make(first.clone(), Options::default());
    for value in 1..9 {
        let id = store.put(&[value as usize, 0, 9], &[], value).unwrap();
        store.journal.commit(id).unwrap();
    }
    let drive = explorer::drive(DRIVE_BLOCKS);
    let before = explorer::contents(&first, DRIVE_BLOCKS);
    let fill = io(drive.clone());
    for (lba, block) in &before {
        fill.queue().write_blocks(*lba, [block.clone()].as_slice(), false).unwrap();
    }
    let tape = Tape::on(&drive);
    let io = io(drive);
    recover(&io, Strictness::Strict).unwrap();
    let whole = read(&io).unwrap();
    assert_eq!(whole[..3], [Value::Table(8), Value::Table(1), Value::Table(2)]);
    let judge = |drive: &Arc<Ssd>, _: usize| {
        let io = client::io(drive.clone());
        recover(&io, Strictness::Strict).map_err(|error| error.to_string())?;
        if read(&io)? == whole { Ok(()) } else { Err("another state".to_owned()) }
    };
    let (states, failures) = tape.explore(DRIVE_BLOCKS, before, &judge);
    assert!(failures.is_empty() && states > 100, "{} of {states}", failures.len());
}

#[test]
fn numbers_go_on_after_unmount_and_across_their_wrap() {
    let drive = drive::ram(DRIVE_BLOCKS);
    let begin = Tid(u32::MAX - 4);
    let set = |superblock: &mut Superblock| superblock.set_tail(None, begin);
    let mut store = Store::made_with(io(drive.clone()), Options::default(), set);
    let mut last = begin;
    for round in 1..6 {
        for value in 0..4 {
            let value = round * 10 + value;
            let id = store.put(&[1, 4, 5], &[], value).unwrap();
            store.journal.commit(id).unwrap();
            assert!(id.tid == begin || id.tid.is_after(last));
            last = id.tid;
            let cut = io(copy(&drive));
            recover(&cut, Strictness::Strict).unwrap();
            assert_eq!(read(&cut).unwrap()[4], Value::Table(value));
        }
        store.journal.close().unwrap();
        let found = superblock(&store.io).unwrap();
        assert_eq!((found.start(), found.sequence()), (None, last.next()));
        assert_eq!(recover(&store.io, Strictness::Strict).unwrap().blocks, 0);
        store = Store::open(store.io.clone(), found, Options::default()).unwrap();
    }
    assert!(begin.0 > last.0, "the numbers have wrapped");
}

#[test]
fn a_home_write_that_fails_leaves_the_tail_and_stops_the_journal() {
    let ram = drive::ram(DRIVE_BLOCKS);
    let fault = Arc::new(Fault::new(ram.clone()));
    let store = Store::make(fault.clone(), Options::default());
    store.journal.commit(store.put(&[6, 7], &[], 5).unwrap()).unwrap();
    fault.fail_range(FaultOn::Write, HOME + 7..HOME + 8, Status::WriteFault);
    let (before, mut failed) = (superblock(&store.io).unwrap(), None);
    for value in 6..40 {
        let done = store.put(&[6], &[], value).and_then(|id| store.journal.commit(id));
        failed = failed.or(done.err());
    }
    assert!(matches!(failed, Some(Error::Io(_))), "{failed:?}");
    assert!(matches!(store.put(&[1], &[], 1), Err(Error::Aborted)));
    assert!(store.journal.close().is_err());
    fault.clear();
    let after = superblock(&store.io).unwrap();
    assert_eq!((after.start(), after.sequence()), (before.start(), before.sequence()));
    recover(&store.io, Strictness::Strict).unwrap();
    let found = read(&store.io).unwrap();
    assert_eq!(found[7], Value::Table(5));
    assert!(matches!(found[6], Value::Table(value) if value > 5));
}

#[test]
fn what_changes_of_the_superblock_lies_in_one_sector() {
    let mut superblock = Superblock::new(BLOCK_SIZE as u32, LOG_BLOCKS, [9; 16]);
    let before = superblock.emit();
    superblock.set_tail(Some(17), Tid(0x0102_0304));
    let after = superblock.emit();
    let differ: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
    assert!(differ.len() > 4 && differ.iter().all(|at| *at < 512), "{differ:?}");
}

#[test]
fn credits_end_where_the_log_does() {
    let store = Store::make(drive::ram(DRIVE_BLOCKS), Options::default());
    // A quarter of the ring's 32 blocks.
    let refused = store.journal.start(9).err();
    assert!(matches!(refused, Some(Error::TooLarge { wanted: 9, max: 8 })), "{refused:?}");
    let mut handle = store.journal.start(5).unwrap();
    let tid = handle.id().tid;
    assert!(handle.extend(3) && !handle.extend(1));
    for block in 0..8 {
        client::put(&mut handle, block, 1).unwrap();
    }
    assert_eq!(handle.credits(), 0);
    handle.restart(2).unwrap();
    assert!(handle.id().tid.is_after(tid), "the full transaction was committed");
    client::put(&mut handle, 8, 2).unwrap();
    drop(handle);
    store.journal.close().unwrap();
    let found = read(&store.io).unwrap();
    assert_eq!((found[7], found[8]), (Value::Table(1), Value::Table(2)));
}

#[test]
fn a_commit_waits_for_ordered_data_and_fails_without() {
    let store = Store::make(drive::ram(DRIVE_BLOCKS), Options::default());
    let mut handle = store.journal.start(1).unwrap();
    let ordered = handle.order();
    client::put(&mut handle, 1, 1).unwrap();
    let id = handle.id();
    drop(handle);
    ordered.end(Ok(()));
    store.journal.commit(id).unwrap();
    let mut handle = store.journal.start(1).unwrap();
    let lost = handle.order();
    client::put(&mut handle, 1, 2).unwrap();
    let id = handle.id();
    drop((handle, lost));
    assert!(store.journal.commit(id).is_err());
    recover(&store.io, Strictness::Strict).unwrap();
    assert_eq!(read(&store.io).unwrap()[1], Value::Table(1));
}
