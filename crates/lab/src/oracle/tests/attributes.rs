//! What belongs to a file besides its contents: names, devices, flags, attributes, times, sizes.

use drive::{BLOCK_SIZE, Block};
use vfs::{Creator, FileKind, FileSystem, Ino, InodeFlags, MemFs, SetAttr, Timespec, XattrMode};

use super::super::event::{Event, Meta, ROOT, Times};
use super::super::{Damage, Memo, verify};
use super::{A, GARBAGE, History, LOST, file, make, place, truncate, write};

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
    // An unexpected directory is one finding; its contents are not counted.
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
