//! Every kind of call on whatever the damaged volume shows.

use std::collections::BTreeSet;

use f2fs::F2fs;
use vfs::{
    Attr, Creator, FallocateMode, FileKind, FileSystem, Ino, RenameFlags, Seek, SetAttr, XattrMode,
};

use super::Outcome;
use super::tape::Tape;

/// Directories and files a walk looks into.
const VISITS_MAX: usize = 100;
/// Entries of each directory that are looked up by name.
const LOOKUPS_MAX: usize = 14;
/// Entries after which a directory counts as one that does not end.
const ENTRIES_MAX: u64 = 100_000;

impl Outcome {
    fn note<T>(&mut self, result: vfs::Result<T>) -> Option<T> {
        self.errors += u64::from(result.is_err());
        result.ok()
    }
}

/// Reads everything, from the root down.
pub fn read_everything(fs: &F2fs, outcome: &mut Outcome) {
    outcome.note(fs.statfs());
    let mut pending = vec![fs.root()];
    let mut seen = BTreeSet::from([fs.root()]);
    while let Some(dir) = pending.pop() {
        for (i, (name, ino)) in entries(fs, dir, outcome).into_iter().enumerate() {
            if i < LOOKUPS_MAX {
                outcome.note(fs.lookup(dir, &name));
            }
            if seen.len() < VISITS_MAX && seen.insert(ino) && read_inode(fs, ino, outcome) {
                pending.push(ino);
            }
        }
    }
}

fn entries(fs: &F2fs, dir: Ino, outcome: &mut Outcome) -> Vec<(Vec<u8>, Ino)> {
    let mut entries = Vec::new();
    let result = fs.readdir(dir, 0, &mut |entry| {
        outcome.entries += 1;
        assert!(outcome.entries < ENTRIES_MAX, "no end of entries");
        if entry.name != b"." && entry.name != b".." && entries.len() < VISITS_MAX {
            entries.push((entry.name, entry.ino));
        }
        true
    });
    outcome.note(result);
    entries
}

/// Reads one inode; true if it is a directory.
fn read_inode(fs: &F2fs, ino: Ino, outcome: &mut Outcome) -> bool {
    let Some(attr) = outcome.note(fs.getattr(ino)) else { return false };
    for name in outcome.note(fs.listxattr(ino)).unwrap_or_default() {
        outcome.note(fs.getxattr(ino, &name));
    }
    match attr.kind {
        FileKind::Directory => return true,
        FileKind::Symlink => {
            outcome.note(fs.readlink(ino));
        }
        FileKind::Regular => read_file(fs, &attr, outcome),
        _ => {}
    }
    false
}

fn read_file(fs: &F2fs, attr: &Attr, outcome: &mut Outcome) {
    let mut buf = [0; 2 * 4096];
    outcome.note(fs.open(attr.ino));
    for offset in [0, attr.size / 2, attr.size.saturating_sub(5000)] {
        outcome.note(fs.read(attr.ino, offset, &mut buf));
    }
    let mut at = 0;
    for _ in 0..4 {
        let Ok(data) = fs.lseek(attr.ino, at, Seek::Data) else { break };
        outcome.note(fs.read(attr.ino, data, &mut buf));
        let Some(hole) = outcome.note(fs.lseek(attr.ino, data, Seek::Hole)) else { break };
        assert!(hole > data, "a hole at {hole} where there is data at {data}");
        at = hole;
    }
    fs.release(attr.ino);
}

/// Some of every change, then everything made durable.
pub fn change_something(fs: &F2fs, tape: &mut Tape<'_>, outcome: &mut Outcome) {
    let (root, nobody) = (fs.root(), Creator::default());
    for _ in 0..1 + tape.below(4) {
        change_existing(fs, tape, outcome);
    }
    if let Some(dir) = outcome.note(fs.mkdir(root, b"fuzz-dir", 0o700, nobody)) {
        outcome.note(fs.symlink(dir.ino, b"link", &[b'l'; 100], nobody));
        outcome.note(fs.fsync(dir.ino, false));
    }
    if let Some(new) = outcome.note(fs.create(root, b"fuzz-file", 0o600, nobody)) {
        outcome.note(fs.write(new.ino, 0, &[7; 9000]));
        outcome.note(fs.fsync(new.ino, false));
    }
    outcome.note(fs.sync());
    outcome.note(fs.background_gc().map_err(vfs::Error::from));
}

const NAMES: [&[u8]; 10] = [
    b"inline",
    b"blocks",
    b"sparse",
    b"attributes",
    b"short-link",
    b"long-link",
    b"small",
    b"large",
    b"device",
    b"new-inline",
];

fn change_existing(fs: &F2fs, tape: &mut Tape<'_>, outcome: &mut Outcome) {
    let root = fs.root();
    let name = *tape.pick(&NAMES);
    let Some(attr) = outcome.note(fs.lookup(root, name)) else { return };
    let ino = attr.ino;
    let offset = match tape.below(4) {
        0 => 0,
        1 => attr.size,
        2 => u64::from(tape.word() % 20_000),
        _ => u64::from(tape.word()) << tape.below(24),
    };
    match tape.below(10) {
        0 | 1 => {
            outcome.note(fs.write(ino, offset, &[b'w'; 5000]));
            outcome.note(fs.fsync(ino, false));
        }
        2 => {
            outcome.note(fs.setattr(ino, &SetAttr { size: Some(offset), ..SetAttr::default() }));
            outcome.note(fs.fsync(ino, true));
        }
        3 => {
            outcome.note(fs.unlink(root, name));
        }
        4 => {
            outcome.note(fs.rename(root, name, root, b"moved", RenameFlags::empty()));
        }
        5 => {
            outcome.note(fs.setxattr(ino, b"user.new", &[b'n'; 700], XattrMode::Set));
            outcome.note(fs.removexattr(ino, b"user.long"));
        }
        6 => {
            let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            outcome.note(fs.fallocate(ino, punch, offset, 1 << 20));
            outcome.note(fs.fallocate(ino, FallocateMode::empty(), offset, 20_000));
        }
        7 => {
            outcome.note(fs.fallocate(ino, FallocateMode::COLLAPSE_RANGE, 0, 4096));
            outcome.note(fs.fallocate(ino, FallocateMode::INSERT_RANGE, 0, 8192));
        }
        8 => change_directory(fs, ino, outcome),
        _ => {
            outcome.note(fs.link(ino, root, b"another"));
            outcome.note(fs.rename(root, name, root, b"inline", RenameFlags::EXCHANGE));
        }
    }
}

fn change_directory(fs: &F2fs, dir: Ino, outcome: &mut Outcome) {
    for (name, ino) in entries(fs, dir, outcome).into_iter().take(3) {
        outcome.note(fs.unlink(dir, &name));
        outcome.note(fs.rmdir(dir, &name));
        outcome.note(fs.link(ino, dir, b"back"));
    }
    outcome.note(fs.create(dir, &[b'c'; 255], 0o600, Creator::default()));
}
