//! Histories made by hand, and what may be found after them.

mod attributes;
mod overlap;
mod torn;

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
const CORRUPT: Option<Damage> = Some(Damage::Corrupt);
