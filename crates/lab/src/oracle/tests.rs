//! Histories of several threads, made by hand, and what may be found after them.

use drive::{BLOCK_SIZE, Block};
use vfs::{Creator, FileKind, FileSystem, Ino, InodeFlags, MemFs, SetAttr, Timespec, XattrMode};

use super::event::{Event, Meta, ObjId, ROOT, Times};
use super::order::Call;
use super::{Damage, Memo, Model, verify};
use vfs::kind::Habits;

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
        history.begin(Event::SyncEnd { obj: None, call: None, times: None });
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
        self.begin(Event::SyncEnd { obj: Some(obj), call: Some(call), times: None });
    }

    /// The first finding about this volume.
    fn finding(&self, fs: &MemFs) -> Option<(Damage, String)> {
        let found = verify(fs, &|_, _| (), &self.model, &mut Memo::default());
        found.into_iter().next().map(|verdict| (verdict.damage, verdict.expected))
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
    make(name, FileKind::Regular, 0)
}

fn make(name: &str, kind: FileKind, rdev: u64) -> Event {
    let meta = Meta { perm: 0o644, ..Meta::default() };
    Event::Create { place: place(name), kind, meta, target: Box::default(), rdev }
}

fn rename(from: &str, to: &str) -> Event {
    Event::Rename { from: place(from), to: place(to) }
}

fn write(obj: ObjId, first: u64, byte: u8) -> Event {
    let blocks = vec![Block::new([byte; BLOCK_SIZE])];
    let from = first * BLOCK_SIZE as u64;
    Event::Write { obj, first, blocks, from, end: from + BLOCK_SIZE as u64 }
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

/// A file `a` of a block of 1s, as it was made durable, and what is then done to it.
fn found(change: impl FnOnce(&MemFs, Ino) -> vfs::Result<()>) -> MemFs {
    let fs = MemFs::new();
    let ino = file(&fs, "a");
    fs.write(ino, 0, &[1; BLOCK_SIZE]).expect("memory has room");
    change(&fs, ino).expect("it can be done");
    fs
}

fn said(finding: Option<(Damage, String)>) -> (Option<Damage>, String) {
    finding.map_or((None, String::new()), |(damage, expected)| (Some(damage), expected))
}

#[test]
fn a_link_more_than_names_is_noticed() {
    let history = History::new();
    let hidden = found(|fs, ino| {
        let dir = fs.mkdir(fs.root(), b"d", 0o755, Creator::default())?.ino;
        fs.link(ino, dir, b"b").map(drop)
    });
    // A directory that nobody made is one finding; its contents are not counted.
    let found = verify(&hidden, &|_, _| (), &history.model, &mut Memo::default());
    assert!(found.iter().any(|v| (v.path.as_str(), v.expected.as_str()) == ("/a", "1 links")));
    assert!(found.iter().all(|v| (v.path == "/a") == (v.damage == Damage::Corrupt)), "{found:?}");
}

#[test]
fn two_files_are_not_two_names_of_one() {
    let mut history = History::new();
    history.done(Event::Link { obj: A, place: place("b") });
    history.sync(A);
    let linked = found(|fs, ino| fs.link(ino, fs.root(), b"b").map(drop));
    assert_eq!(history.finding(&linked), None);
    let copied = found(|fs, _| {
        let ino = file(fs, "b");
        fs.write(ino, 0, &[1; BLOCK_SIZE]).map(drop)
    });
    let (damage, expected) = said(history.finding(&copied));
    assert_eq!(damage, Some(Damage::Corrupt));
    assert!(expected.ends_with("as by another name"), "{expected}");
}

#[test]
fn another_device_number_is_noticed() {
    let mut history = History::new();
    history.done(make("null", FileKind::CharDevice, 0x103));
    history.sync(ROOT);
    let with = |number| {
        let kind = FileKind::CharDevice;
        let who = Creator::default();
        history.finding(&found(|fs, _| {
            fs.mknod(fs.root(), b"null", kind, 0o644, number, who).map(drop)
        }))
    };
    assert_eq!(with(0x103), None);
    assert_eq!(with(0x104), Some((Damage::Garbage, "device 0x103".into())));
}

/// A volume in memory has no flags.
#[test]
fn flags_that_are_gone_are_noticed() {
    let meta = Meta { perm: 0o644, flags: InodeFlags::NODUMP, ..Meta::default() };
    let mut history = History::new();
    history.done(Event::SetMeta { obj: A, meta });
    assert_eq!(history.damage_of(&[1]), None);
    history.sync(A);
    assert_eq!(history.damage_of(&[1]), LOST);
}

#[test]
fn the_list_of_attributes_has_those_that_are_set() {
    let (one, two) = (&b"user.one"[..], &b"user.two"[..]);
    let set = |name: &[u8], value: Option<&[u8]>| {
        let (name, value) = (name.into(), value.map(Into::into));
        Event::Xattr { obj: A, name, value }
    };
    let mut history = History::new();
    history.done(set(one, Some(b"1")));
    history.sync(A);
    history.done(set(one, None));
    let with = |history: &History, names: &[&[u8]]| {
        let volume = found(|fs, ino| {
            let mut names = names.iter();
            names.try_for_each(|name| fs.setxattr(ino, name, b"1", XattrMode::Set))
        });
        history.finding(&volume).map(|(damage, _)| damage)
    };
    assert_eq!([with(&history, &[one]), with(&history, &[])], [None; 2]);
    assert_eq!(with(&history, &[one, two]), GARBAGE);
    history.sync(A);
    assert_eq!([with(&history, &[one]), with(&history, &[])], [LOST, None]);
    assert_eq!(with(&history, &[two]), GARBAGE);
}

#[test]
fn times_are_those_of_the_last_fsync_or_later_or_such_as_were_set() {
    let at = |secs| Timespec { secs, nanos: 5 };
    let with = |history: &History, atime, mtime, ctime| {
        let (atime, mtime, ctime) = (Some(at(atime)), Some(at(mtime)), Some(at(ctime)));
        let set = SetAttr { atime, mtime, ctime, ..SetAttr::default() };
        let volume = found(|fs, ino| fs.setattr(ino, &set).map(drop));
        history.finding(&volume).map(|(damage, _)| damage)
    };
    let sync = |history: &mut History, mtime, ctime| {
        let call = history.call_sync(A);
        let times = Some(Times { mtime: at(mtime), ctime: at(ctime) });
        history.begin(Event::SyncEnd { obj: Some(A), call: Some(call), times });
    };
    let mut history = History::new();
    assert_eq!(with(&history, 1, 1, 1), None);
    sync(&mut history, 10, 12);
    assert_eq!([with(&history, 1, 10, 12), with(&history, 1, 11, 13)], [None; 2]);
    assert_eq!([with(&history, 1, 9, 12), with(&history, 1, 10, 11)], [LOST; 2]);
    // Set to what they were long ago.
    let (atime, mtime) = (Some(at(3)), Some(at(2)));
    let meta = Meta { perm: 0o644, atime, mtime, ..Meta::default() };
    history.done(Event::SetMeta { obj: A, meta });
    assert_eq!([with(&history, 1, 10, 12), with(&history, 3, 2, 14)], [None; 2]);
    assert_eq!(with(&history, 1, 2, 14), LOST);
    sync(&mut history, 2, 14);
    assert_eq!(with(&history, 3, 2, 14), None);
    assert_eq!(with(&history, 1, 2, 14), LOST);
    assert_eq!(with(&history, 3, 10, 14), LOST);
    assert_eq!(with(&history, 3, 2, 13), LOST);
    // After a write the time moves by itself again.
    history.done(write(A, 0, 1));
    sync(&mut history, 20, 20);
    assert_eq!(with(&history, 3, 20, 20), None);
    assert_eq!(with(&history, 3, 2, 20), LOST);
}

#[test]
fn a_size_is_one_that_calls_make() {
    const BLOCK: u64 = BLOCK_SIZE as u64;
    let mut history = History::new();
    let append = |from: u64, end: u64| {
        let first = from / BLOCK;
        let blocks = (first..end.div_ceil(BLOCK)).map(|_| Block::new([1; BLOCK_SIZE])).collect();
        Event::Write { obj: A, first, blocks, from, end }
    };
    history.done(append(BLOCK, BLOCK + 500));
    history.done(append(BLOCK + 500, 4 * BLOCK + 100));
    let with = |history: &History, size: u64| {
        let volume = found(|fs, ino| fs.write(ino, 0, &vec![1; size as usize]).map(drop));
        history.finding(&volume).map(|(damage, _)| damage)
    };
    let passed = [BLOCK, BLOCK + 500, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 4 * BLOCK + 100];
    assert_eq!(passed.map(|size| with(&history, size)), [None; 6]);
    for never in [BLOCK + 1, BLOCK + 499, 2 * BLOCK + 500, 4 * BLOCK + 99] {
        assert_eq!(with(&history, never), GARBAGE, "{never}");
    }
    history.sync(A);
    assert_eq!(with(&history, 4 * BLOCK + 100), None);
    assert_eq!([BLOCK + 500, 3 * BLOCK].map(|size| with(&history, size)), [LOST; 2]);
    // A truncation passes nothing.
    history.done(truncate(A, 2));
    assert_eq!([2 * BLOCK, 4 * BLOCK + 100].map(|size| with(&history, size)), [None; 2]);
    assert_eq!(with(&history, 3 * BLOCK), LOST);
    assert_eq!(with(&history, 3 * BLOCK + 1), GARBAGE);
}

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

/// What is wrong with a file `a` whose block has so many bytes of each.
fn damage_of_mixed(history: &History, block: u64, parts: &[(usize, u8)]) -> Option<Damage> {
    let fs = MemFs::new();
    let bytes: Vec<u8> = parts.iter().flat_map(|&(len, byte)| vec![byte; len]).collect();
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
