//! Histories of several threads, made by hand, and what may be found after them.

use drive::{BLOCK_SIZE, Block};
use vfs::{Creator, FileKind, FileSystem, Ino, MemFs};

use super::event::{Event, Meta, ObjId, ROOT};
use super::order::Call;
use super::{Damage, Memo, Model, verify};

/// What was done, as the oracle knows it.
struct History {
    model: Model,
}

/// The file `a`.
const A: ObjId = 1;

impl History {
    /// A file `a` with a block of 1s is durable; from then on calls overlap.
    fn new() -> Self {
        let mut history = Self { model: Model::default() };
        history.begin(create("a"));
        history.begin(write(A, 0, 1));
        history.begin(Event::SyncEnd { obj: None, call: None });
        history.begin(Event::Overlap);
        history
    }

    fn begin(&mut self, event: Event) -> Call {
        self.model.apply(&event);
        self.model.position()
    }

    fn end(&mut self, call: Call) {
        self.begin(Event::Return { call });
    }

    fn done(&mut self, event: Event) {
        let call = self.begin(event);
        self.end(call);
    }

    fn sync(&mut self, obj: ObjId) {
        let call = self.call_sync(obj);
        self.synced(obj, call);
    }

    fn call_sync(&mut self, obj: ObjId) -> Call {
        self.begin(Event::SyncBegin { obj: Some(obj) })
    }

    fn synced(&mut self, obj: ObjId, call: Call) {
        self.begin(Event::SyncEnd { obj: Some(obj), call: Some(call) });
    }

    /// What is wrong with a volume of these files, each of blocks filled with these bytes.
    fn damage(&self, files: &[(&str, &[u8])]) -> Option<Damage> {
        let fs = MemFs::new();
        for (name, blocks) in files {
            let ino = file(&fs, name);
            for (at, byte) in (0..).step_by(BLOCK_SIZE).zip(*blocks) {
                fs.write(ino, at, &[*byte; BLOCK_SIZE]).expect("memory has room");
            }
        }
        let found = verify(&fs, &|_, _| (), &self.model, &mut Memo::default());
        found.first().map(|verdict| verdict.damage)
    }

    /// As [`History::damage`] of `a` alone.
    fn damage_of(&self, blocks: &[u8]) -> Option<Damage> {
        self.damage(&[("a", blocks)])
    }
}

fn file(fs: &MemFs, name: &str) -> Ino {
    let made = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default());
    made.expect("memory has room").ino
}

fn place(name: &str) -> (ObjId, Box<[u8]>) {
    (ROOT, name.as_bytes().into())
}

fn create(name: &str) -> Event {
    let meta = Meta { perm: 0o644, uid: 0, gid: 0, mtime: None };
    let (place, target) = (place(name), Box::default());
    Event::Create { place, kind: FileKind::Regular, meta, target }
}

fn rename(from: &str, to: &str) -> Event {
    Event::Rename { from: place(from), to: place(to) }
}

fn write(obj: ObjId, first: u64, byte: u8) -> Event {
    let blocks = vec![Block::new([byte; BLOCK_SIZE])];
    Event::Write { obj, first, blocks, end: (first + 1) * BLOCK_SIZE as u64 }
}

fn truncate(obj: ObjId, blocks: u64) -> Event {
    Event::Truncate { obj, size: blocks * BLOCK_SIZE as u64 }
}

const LOST: Option<Damage> = Some(Damage::Lost);
const GARBAGE: Option<Damage> = Some(Damage::Garbage);
const TORN: Option<Damage> = Some(Damage::Torn);

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
    // One that began later ends the doubt.
    history.done(write(A, 0, 4));
    history.sync(A);
    assert_eq!(history.damage_of(&[4]), None);
    assert_eq!([2, 3].map(|byte| history.damage_of(&[byte])), [LOST; 2]);
}

#[test]
fn of_two_changes_at_once_neither_is_the_older_half_of_a_later_fsync() {
    let mode = |perm| Event::SetMeta { obj: A, meta: Meta { perm, uid: 0, gid: 0, mtime: None } };
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
    // With a third it is old for certain.
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
    // What lost its name to the other makes no promise about it.
    history.sync(3);
    assert_eq!(history.damage(&[("x", &[2]), ("y", &[3]), ("a", &[1])]), None);
    history.sync(ROOT);
    assert_eq!([2, 3].map(|byte| history.damage_of(&[byte])), [None; 2]);
    // The file that was replaced is neither.
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
