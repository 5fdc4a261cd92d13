//! Mixtures of old and new: what is torn, what is lost and what is garbage.

use drive::{BLOCK_SIZE, Block};
use vfs::kind::Habits;
use vfs::{FileSystem, MemFs};

use super::super::event::{Event, Meta, ROOT};
use super::super::{Damage, Memo, Model, verify};
use super::{A, GARBAGE, History, LOST, TORN, create, file, rename, truncate, write};

/// Whether an fsync of another file may make durable what is under way in this one depends on the
/// file system.
#[test]
fn what_is_taken_along_is_no_half_of_an_fsync_where_that_is_the_way() {
    let with = |takes_others_along| {
        let model = Model::new(Habits { takes_others_along, ..Habits::default() });
        let mut history = History { model };
        let meta = Meta { perm: 0o600, ..Meta::default() };
        let synced = |obj| Event::SyncEnd { obj, call: None, times: None };
        for event in [
            create("a"),
            write(A, 0, 1),
            write(A, 1, 1),
            create("b"),
            synced(None),
            truncate(A, 1),
            synced(Some(2)),
            Event::SetMeta { obj: A, meta },
            Event::SyncBegin { obj: Some(A) },
        ] {
            history.begin(event);
        }
        history
    };
    // The size is new, the mode old.
    let found = |way| with(way).damage(&[("a", &[1]), ("b", &[])]);
    assert_eq!([true, false].map(found), [None, TORN]);
}

#[test]
fn a_block_makes_a_file_longer_where_that_is_the_way() {
    const END: u64 = BLOCK_SIZE as u64 + 100;
    let with = |blocks_may_set_size| {
        let model = Model::new(Habits { blocks_may_set_size, ..Habits::default() });
        let mut history = History { model };
        history.begin(create("a"));
        history.begin(Event::SyncEnd { obj: None, call: None, times: None });
        let blocks = vec![Block::new([1; BLOCK_SIZE]); 2];
        history.begin(Event::Write { obj: A, first: 0, blocks, from: 0, end: END });
        history.begin(Event::SyncBegin { obj: Some(A) });
        history
    };
    assert_eq!([true, false].map(|way| with(way).damage_of(&[1, 1])), [TORN, GARBAGE]);
}

/// So many bytes of each.
fn mixed(parts: &[(usize, u8)]) -> Vec<u8> {
    parts.iter().flat_map(|&(len, byte)| vec![byte; len]).collect()
}

/// What is wrong with a file `a` whose block has so many bytes of each.
fn damage_of_mixed(history: &History, block: u64, parts: &[(usize, u8)]) -> Option<Damage> {
    let fs = MemFs::new();
    let bytes = mixed(parts);
    let ino = file(&fs, "a");
    fs.write(ino, 0, &[1; BLOCK_SIZE]).expect("memory has room");
    fs.write(ino, block * BLOCK_SIZE as u64, &bytes).expect("memory has room");
    let found = verify(&fs, &|_, _| (), &history.model, &mut Memo::default());
    assert!(found.iter().all(|verdict| verdict.block == Some(block)), "{found:?}");
    found.first().map(|verdict| verdict.damage)
}

#[test]
fn sectors_of_what_may_be_there_are_torn_and_others_garbage() {
    let mut history = History::new();
    let rest = BLOCK_SIZE - 512;
    let (torn, third, within) =
        ([(512, 2), (rest, 1)], [(512, 3), (rest, 1)], [(500, 2), (BLOCK_SIZE - 500, 1)]);
    assert_eq!(damage_of_mixed(&history, 0, &torn), GARBAGE);
    history.done(write(A, 0, 2));
    assert_eq!(damage_of_mixed(&history, 0, &torn), TORN);
    assert_eq!([third, within].map(|parts| damage_of_mixed(&history, 0, &parts)), [GARBAGE; 2]);
    history.done(write(A, 0, 3));
    assert_eq!([torn, third].map(|parts| damage_of_mixed(&history, 0, &parts)), [TORN; 2]);
    history.sync(A);
    assert_eq!(damage_of_mixed(&history, 0, &torn), GARBAGE);
    // Nothing is overwritten where there was nothing.
    history.done(write(A, 1, 2));
    history.done(write(A, 0, 1));
    assert_eq!(damage_of_mixed(&history, 1, &[(512, 2), (rest, 0)]), GARBAGE);
}

#[test]
fn a_torn_block_may_be_of_any_file_that_has_such_sectors() {
    let mut history = History::new();
    history.done(create("b"));
    history.done(create("c"));
    history.done(write(2, 0, 2));
    history.sync(ROOT);
    history.sync(2);
    history.done(write(3, 0, 3));
    history.done(rename("b", "n"));
    history.call_sync(2);
    history.done(rename("c", "n"));
    let lost = |parts: &[(usize, u8)]| {
        let fs = MemFs::new();
        for (name, bytes) in [("a", vec![1; BLOCK_SIZE]), ("n", mixed(parts))] {
            let ino = file(&fs, name);
            fs.write(ino, 0, &bytes).expect("memory has room");
        }
        let found = verify(&fs, &|_, _| (), &history.model, &mut Memo::default());
        found.iter().any(|verdict| verdict.damage == Damage::Lost)
    };
    let rest = BLOCK_SIZE - 512;
    // The second file, whose new block came in part.
    assert!(!lost(&[(512, 3), (rest, 0)]));
    // Neither of the two, but the second was durable.
    assert!(lost(&[(512, 4), (rest, 0)]));
}

/// A hole that an fsync made durable is an old version of what is written there.
#[test]
fn a_hole_is_an_old_version_if_it_was_durable() {
    let with = |grown: bool| {
        let mut history = History::new();
        history.done(truncate(A, 3));
        if grown {
            history.sync(A);
        }
        history.done(write(A, 1, 2));
        history.sync(A);
        history.damage_of(&[1, 0, 0])
    };
    assert_eq!([true, false].map(with), [LOST, GARBAGE]);
}
