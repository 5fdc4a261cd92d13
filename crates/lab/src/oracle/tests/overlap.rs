//! Calls of several threads: what the order in which they began and returned allows.

use super::super::event::{Event, Meta, ROOT};
use super::{A, CORRUPT, GARBAGE, History, LOST, TORN, create, place, rename, truncate, write};

#[test]
fn of_two_writes_at_once_either_is_the_last() {
    let mut history = History::new();
    let (two, three) = (history.begin(write(A, 0, 2)), history.begin(write(A, 0, 3)));
    history.end(three);
    history.end(two);
    assert_eq!([1, 2, 3].map(|byte| history.damage_of(&[byte])), [None; 3]);
    history.sync(A);
    assert_eq!([2, 3].map(|byte| history.damage_of(&[byte])), [None; 2]);
    assert_eq!(history.damage_of(&[1]), LOST);
    assert_eq!(history.damage_of(&[4]), GARBAGE);
    // A call that began later settles it.
    history.done(write(A, 0, 4));
    history.sync(A);
    assert_eq!(history.damage_of(&[4]), None);
    assert_eq!([2, 3].map(|byte| history.damage_of(&[byte])), [LOST; 2]);
}

#[test]
fn of_two_changes_at_once_neither_is_the_older_half_of_a_later_fsync() {
    let mode = |perm| Event::SetMeta { obj: A, meta: Meta { perm, ..Meta::default() } };
    let syncing = |change: Option<Event>| {
        let mut history = History::new();
        history.done(write(A, 1, 1));
        let (one, other) = (history.begin(mode(0o644)), history.begin(mode(0o600)));
        history.end(other);
        history.end(one);
        history.sync(A);
        history.done(write(A, 0, 2));
        history.done(write(A, 1, 2));
        change.into_iter().for_each(|change| history.done(change));
        history.call_sync(A);
        history
    };
    // The file that is found has mode 644, which may have been the last of the two.
    let history = syncing(None);
    assert_eq!([[1, 1], [2, 2]].map(|found| history.damage_of(&found)), [None; 2]);
    assert_eq!(history.damage_of(&[2, 1]), TORN);
    // With a third version it is certainly outdated.
    let history = syncing(Some(mode(0o640)));
    assert_eq!(history.damage_of(&[1, 1]), None);
    assert_eq!(history.damage_of(&[2, 2]), TORN);
}

#[test]
fn an_fsync_called_first_that_returns_last_takes_no_promise_back() {
    let mut history = History::new();
    let two = history.begin(write(A, 1, 2));
    let first = history.call_sync(A);
    history.end(two);
    history.begin(write(A, 2, 3));
    history.sync(A);
    history.synced(A, first);
    assert_eq!(history.damage_of(&[1]), LOST);
    assert_eq!(history.damage_of(&[1, 2]), None);
}

#[test]
fn of_two_writes_in_turn_the_second_must_be_there() {
    let mut history = History::new();
    history.done(write(A, 0, 2));
    history.done(write(A, 0, 3));
    history.sync(A);
    assert_eq!(history.damage_of(&[3]), None);
    assert_eq!(history.damage_of(&[2]), LOST);
}

#[test]
fn what_had_not_returned_when_an_fsync_was_called_may_be_there() {
    let mut history = History::new();
    let two = history.begin(write(A, 0, 2));
    let sync = history.call_sync(A);
    history.end(two);
    let three = history.begin(write(A, 0, 3));
    history.end(three);
    history.synced(A, sync);
    assert_eq!([1, 2, 3].map(|byte| history.damage_of(&[byte])), [None; 3]);
    history.sync(A);
    assert_eq!([1, 2, 3].map(|byte| history.damage_of(&[byte])), [LOST, LOST, None]);
}

#[test]
fn an_fsync_promises_what_had_returned_whatever_others_began() {
    let mut history = History::new();
    history.done(write(A, 0, 2));
    let sync = history.call_sync(A);
    let three = history.begin(write(A, 0, 3));
    let other = history.call_sync(A);
    history.synced(A, sync);
    assert_eq!([1, 2, 3].map(|byte| history.damage_of(&[byte])), [LOST, None, None]);
    history.end(three);
    history.synced(A, other);
    assert_eq!([1, 2, 3].map(|byte| history.damage_of(&[byte])), [LOST, None, None]);
}

#[test]
fn a_failed_fsync_promises_nothing() {
    let mut history = History::new();
    history.done(write(A, 0, 2));
    let call = history.call_sync(A);
    history.begin(Event::Fail { call });
    assert_eq!([1, 2].map(|byte| history.damage_of(&[byte])), [None; 2]);
    assert!(!history.model.is_syncing());
}

#[test]
fn two_writes_that_both_make_it_longer_leave_it_as_long_as_both() {
    let mut history = History::new();
    let (two, three) = (history.begin(write(A, 1, 2)), history.begin(write(A, 2, 3)));
    history.end(three);
    history.end(two);
    history.sync(A);
    assert_eq!(history.damage_of(&[1, 2, 3]), None);
    assert_eq!(history.damage_of(&[1, 2]), LOST);
    assert_eq!(history.damage_of(&[1, 2, 3, 0]), GARBAGE);
}

#[test]
fn a_write_beside_a_truncation_may_come_before_or_after() {
    let mut history = History::new();
    let (cut, two) = (history.begin(truncate(A, 0)), history.begin(write(A, 1, 2)));
    history.end(cut);
    history.end(two);
    history.sync(A);
    // Before it: nothing is left. After it: a hole, then the block.
    assert_eq!(history.damage_of(&[]), None);
    assert_eq!(history.damage_of(&[0, 2]), None);
    // The truncation itself has returned.
    assert_eq!(history.damage_of(&[1, 2]), LOST);
    history.done(truncate(A, 3));
    history.sync(A);
    assert_eq!(history.damage_of(&[0, 0, 0]), None);
    assert_eq!(history.damage_of(&[0, 2, 0]), None);
    assert_eq!(history.damage_of(&[0, 2]), LOST);
    assert_eq!(history.damage_of(&[1, 2, 0]), LOST);
}

#[test]
fn a_file_renamed_during_its_fsync_has_one_name_or_the_other() {
    let mut history = History::new();
    history.done(create("new"));
    history.done(write(2, 0, 7));
    let sync = history.call_sync(2);
    let moved = history.begin(rename("new", "b"));
    history.synced(2, sync);
    let with = |name| history.damage(&[("a", &[1]), (name, &[7])]);
    assert_eq!([with("new"), with("b")], [None; 2]);
    assert_eq!(history.damage_of(&[1]), LOST);
    history.end(moved);
    assert_eq!(history.damage_of(&[1]), LOST);
    history.sync(ROOT);
    let with = |name| history.damage(&[("a", &[1]), (name, &[7])]);
    assert_eq!([with("new"), with("b")], [LOST, None]);
}

#[test]
fn of_two_files_moved_to_one_name_at_once_either_has_it() {
    let mut history = History::new();
    history.done(create("x"));
    history.done(write(2, 0, 2));
    history.done(create("y"));
    history.done(write(3, 0, 3));
    history.sync(ROOT);
    history.sync(2);
    history.sync(3);
    let (x, y) = (history.begin(rename("x", "a")), history.begin(rename("y", "a")));
    assert_eq!(history.damage(&[("x", &[2]), ("a", &[3])]), None);
    history.end(y);
    history.end(x);
    // A file that lost its name to the other does not have to be there.
    history.sync(3);
    assert_eq!(history.damage(&[("x", &[2]), ("y", &[3]), ("a", &[1])]), None);
    history.sync(ROOT);
    assert_eq!([2, 3].map(|byte| history.damage_of(&[byte])), [None; 2]);
    // The replaced file does not have to be there either.
    assert_eq!(history.damage_of(&[1]), LOST);
    assert_eq!(history.damage_of(&[4]), GARBAGE);
    assert_eq!(history.damage(&[]), LOST);
}

#[test]
fn an_unlink_that_found_nothing_took_nothing() {
    let mut history = History::new();
    let call = history.begin(Event::Unlink { place: place("b") });
    let moved = history.begin(rename("a", "b"));
    assert_eq!(history.damage(&[]), None);
    history.begin(Event::Fail { call });
    history.end(moved);
    history.sync(ROOT);
    assert_eq!(history.damage(&[("b", &[1])]), None);
    assert_eq!(history.damage(&[]), LOST);
    // One that is still under way may take it.
    let call = history.begin(Event::Unlink { place: place("b") });
    history.sync(ROOT);
    assert_eq!(history.damage(&[]), None);
    history.end(call);
    assert_eq!(history.damage(&[("b", &[1])]), None);
    history.sync(ROOT);
    assert_eq!(history.damage(&[("b", &[1])]), LOST);
    assert_eq!(history.damage(&[("c", &[1])]), GARBAGE);
}

/// What stands under the first name was taken for the file that was there first, and so the second
/// name for a second inode of it.
#[test]
fn which_of_two_alike_has_a_name_follows_from_the_other_names() {
    let mut history = History::new();
    history.done(create("n1"));
    history.done(rename("n1", "n2"));
    history.done(create("n1"));
    let a = ("a", &[1][..]);
    assert_eq!(history.damage(&[a, ("n1", &[]), ("n2", &[])]), None);
    assert_eq!(history.damage(&[a, ("n1", &[])]), None);
    // So it does along a chain of them.
    history.done(rename("n1", "n3"));
    history.done(create("n1"));
    assert_eq!(history.damage(&[a, ("n1", &[]), ("n2", &[]), ("n3", &[])]), None);
    // One file cannot have two names.
    let mut history = History::new();
    history.done(create("n1"));
    history.done(rename("n1", "n2"));
    assert_eq!(history.damage(&[a, ("n1", &[]), ("n2", &[])]), CORRUPT);
}

#[test]
fn of_two_files_that_look_alike_either_may_be_the_one_found() {
    let mut history = History::new();
    history.done(create("b"));
    history.done(create("c"));
    history.sync(ROOT);
    // The contents were not fsynced, so a checkpoint may leave zeroes of both.
    history.done(write(2, 0, 2));
    history.done(write(3, 0, 3));
    history.done(rename("b", "n"));
    history.done(rename("c", "n"));
    // This file may be either of the two.
    assert_eq!(history.damage(&[("a", &[1]), ("n", &[0])]), None);
    // These two can be told apart: the second was moved there, over the first.
    assert_eq!(history.damage(&[("a", &[1]), ("n", &[3])]), None);
    // The first alone is not enough: the second was durable, and nothing removed it.
    assert_eq!(history.damage(&[("a", &[1]), ("n", &[2])]), LOST);
}
