//! All that may be on the drive at one position of the log.
//!
//! Every value (a block, a size, a name) is a *durable* version and the *pending* ones since.
//! Durable only: it must be there. With pending ones: any of them may be. Nothing else may.
//! What was durable before is remembered by its hash, so that a stale block can be told from
//! garbage.
//!
//! Writers of one object must not run beside its fsync: `SyncEnd` makes durable what is current
//! then.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use drive::{BLOCK_SIZE, Block};
use vfs::FileKind;

use super::event::{Event, Meta, ObjId, Place, ROOT};

/// A value of which several versions may have survived.
#[derive(Clone, Debug)]
pub struct Versions<T> {
    /// What a completed fsync promised.
    pub durable: T,
    /// What came after, oldest first.
    pub pending: Vec<T>,
}

impl<T: Clone + PartialEq> Versions<T> {
    fn new(durable: T) -> Self {
        Self { durable, pending: Vec::new() }
    }

    /// The newest version.
    pub fn current(&self) -> &T {
        self.pending.last().unwrap_or(&self.durable)
    }

    /// All versions that may be found.
    pub fn allowed(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.durable).chain(&self.pending)
    }

    /// Whether `value` is one of them.
    pub fn allows(&self, value: &T) -> bool {
        self.allowed().any(|v| v == value)
    }

    fn push(&mut self, value: T) {
        self.pending.push(value);
    }

    fn settle(&mut self) {
        if let Some(last) = self.pending.pop() {
            self.durable = last;
            self.pending.clear();
        }
    }
}

/// One block of a file.
#[derive(Clone, Debug)]
pub struct BlockVersions {
    /// What may be there.
    pub versions: Versions<Block>,
    /// Hashes of what was written before. Holes are left out, zeroes are garbage and not an old
    /// version, unless a checkpoint may have shown one in a file that had grown.
    history: Vec<u64>,
}

impl BlockVersions {
    fn hole() -> Self {
        Self { versions: Versions::new(Block::zeroed()), history: Vec::new() }
    }

    /// Whether these bytes, up to the file's end, were this block's content once, and are no more.
    pub fn was_once(&self, bytes: &[u8]) -> bool {
        self.history.contains(&hash(Block::from_prefix(bytes).bytes()))
    }

    fn settle(&mut self) {
        let newest = self.versions.current().clone();
        for old in self.versions.allowed().filter(|old| !old.same_page(&Block::zeroed())) {
            if *old != newest {
                remember(&mut self.history, old);
            }
        }
        self.versions.settle();
    }

    /// A checkpoint took the file's size along and not this block.
    fn show(&mut self) {
        remember(&mut self.history, &self.versions.durable);
    }
}

fn remember(history: &mut Vec<u64>, block: &Block) {
    let hash = hash(block.bytes());
    if !history.contains(&hash) {
        history.push(hash);
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The value of an extended attribute, if it is set.
pub type XattrValue = Option<Box<[u8]>>;

/// One inode.
#[derive(Clone, Debug)]
pub struct Object {
    /// Type.
    pub kind: FileKind,
    /// Target of a symbolic link.
    pub target: Box<[u8]>,
    /// Attributes.
    pub meta: Versions<Meta>,
    /// Size in bytes; a write may be caught half way, so any size between the versions may be.
    pub size: Versions<u64>,
    /// Largest size it ever had.
    pub size_ever: u64,
    /// Blocks that were ever written or cut off; all others are holes.
    pub blocks: BTreeMap<u64, BlockVersions>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Box<[u8]>, Versions<XattrValue>>,
    /// An fsync of it is under way.
    pub syncing: bool,
    /// Something else was synced since its last fsync: if that was a checkpoint, it has taken the
    /// size, the attributes and the holes of then along, and of other contents nothing.
    pub carried: bool,
    /// Some name of it was made durable: it must be reachable as long as it has a name.
    pub anchored: bool,
    /// Its names now.
    pub places: Vec<Place>,
    dirty: Vec<u64>,
    /// How many of `dirty` were so when something else was synced last.
    shown: usize,
}

impl Object {
    fn new(kind: FileKind, target: Box<[u8]>, meta: Meta) -> Self {
        Self {
            kind,
            target,
            meta: Versions::new(meta),
            size: Versions::new(0),
            size_ever: 0,
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            syncing: false,
            carried: false,
            anchored: false,
            places: Vec::new(),
            dirty: Vec::new(),
            shown: 0,
        }
    }

    /// Smallest and largest size that may be found.
    pub fn size_range(&self) -> (u64, u64) {
        self.size
            .allowed()
            .fold((u64::MAX, 0), |(low, high), &size| (low.min(size), high.max(size)))
    }

    /// Whether anything written since the last fsync may or may not have survived.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Indices of the blocks written since the last fsync, in order of writing, may repeat.
    pub fn dirty_blocks(&self) -> &[u64] {
        &self.dirty
    }

    /// Newest content of block `index`.
    pub fn current_block(&self, index: u64) -> Block {
        self.blocks.get(&index).map_or_else(Block::zeroed, |b| b.versions.current().clone())
    }

    fn put(&mut self, index: u64, block: Block) {
        self.blocks.entry(index).or_insert_with(BlockVersions::hole).versions.push(block);
        self.dirty.push(index);
    }

    fn write(&mut self, first: u64, blocks: &[Block], size: u64) {
        for (index, block) in (first..).zip(blocks) {
            self.put(index, block.clone());
        }
        if *self.size.current() != size {
            self.size.push(size);
            self.size_ever = self.size_ever.max(size);
        }
        self.forget_mtime();
    }

    fn truncate(&mut self, size: u64) {
        let keep = size.div_ceil(BLOCK_SIZE as u64);
        let tail = (size % BLOCK_SIZE as u64) as usize;
        let cut = keep.saturating_sub(1);
        if tail != 0 && size < *self.size.current() && self.blocks.contains_key(&cut) {
            let mut block = self.current_block(cut);
            block.make_mut()[tail..].fill(0);
            self.put(cut, block);
        }
        let behind: Vec<u64> = self.blocks.range(keep..).map(|(&index, _)| index).collect();
        for index in behind {
            self.put(index, Block::zeroed());
        }
        self.size.push(size);
        self.size_ever = self.size_ever.max(size);
        self.forget_mtime();
    }

    fn forget_mtime(&mut self) {
        let current = *self.meta.current();
        if current.mtime.is_some() {
            self.meta.push(Meta { mtime: None, ..current });
        }
    }

    /// Something else is synced; that may be a checkpoint.
    fn carry(&mut self) {
        self.carried = true;
        for index in &self.dirty[std::mem::replace(&mut self.shown, self.dirty.len())..] {
            if let Some(block) = self.blocks.get_mut(index) {
                block.show();
            }
        }
    }

    fn settle(&mut self) {
        self.shown = 0;
        for index in std::mem::take(&mut self.dirty) {
            if let Some(block) = self.blocks.get_mut(&index) {
                block.settle();
            }
        }
        self.meta.settle();
        self.size.settle();
        self.xattrs.values_mut().for_each(Versions::settle);
        self.syncing = false;
        self.carried = false;
    }
}

/// Everything that may be there.
#[derive(Clone, Debug)]
pub struct Model {
    /// Objects by number.
    pub objects: Vec<Object>,
    /// What each name may stand for.
    pub names: BTreeMap<Place, Versions<Option<ObjId>>>,
    position: usize,
}

impl Default for Model {
    fn default() -> Self {
        let meta = Meta { perm: 0o755, uid: 0, gid: 0, mtime: None };
        let mut root = Object::new(FileKind::Directory, Box::default(), meta);
        root.anchored = true;
        Self { objects: vec![root], names: BTreeMap::new(), position: 0 }
    }
}

impl Model {
    /// How many events it has seen.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Moves forward along `log` to `position`.
    pub fn advance(&mut self, log: &[Event], position: usize) {
        for event in &log[self.position..position] {
            self.apply(event);
        }
    }

    /// The names known in directory `dir`, in order.
    pub fn entries(&self, dir: ObjId) -> impl Iterator<Item = (&[u8], &Versions<Option<ObjId>>)> {
        self.names
            .range((dir, Box::default())..(dir + 1, Box::default()))
            .map(|((_, name), versions)| (&**name, versions))
    }

    /// One path of `obj`, for people.
    pub fn path(&self, obj: ObjId) -> String {
        let mut parts = Vec::new();
        let mut at = obj;
        while at != ROOT {
            let Some((parent, name)) = self.objects[at].places.first() else {
                parts.push(format!("(unlinked object {at})"));
                break;
            };
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *parent;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// Takes in one event.
    pub fn apply(&mut self, event: &Event) {
        self.position += 1;
        match event {
            Event::Create { place, kind, meta, target } => {
                self.objects.push(Object::new(*kind, target.clone(), *meta));
                self.bind(self.objects.len() - 1, place);
            }
            Event::Link { obj, place } => self.bind(*obj, place),
            Event::Unlink { place } => self.unbind(place),
            Event::Rename { from, to } => {
                let moved = self.names.get(from).and_then(|v| *v.current());
                // Whoever looks finds one or the other there, never nothing.
                if let Some(replaced) = self.names.get(to).and_then(|v| *v.current()) {
                    self.objects[replaced].places.retain(|place| place != to);
                }
                self.unbind(from);
                if let Some(obj) = moved {
                    self.bind(obj, to);
                }
            }
            Event::Write { obj, first, blocks, size } => {
                self.objects[*obj].write(*first, blocks, *size);
            }
            Event::Truncate { obj, size } => self.objects[*obj].truncate(*size),
            Event::SetMeta { obj, meta } => self.objects[*obj].meta.push(*meta),
            Event::Xattr { obj, name, value } => {
                let slot = self.objects[*obj].xattrs.entry(name.clone());
                slot.or_insert_with(|| Versions::new(None)).push(value.clone());
            }
            Event::SyncBegin { obj: Some(obj) } => self.objects[*obj].syncing = true,
            Event::SyncBegin { obj: None } => {
                self.objects.iter_mut().for_each(|o| o.syncing = true);
            }
            Event::SyncEnd { obj: Some(obj) } => self.settle(*obj),
            Event::SyncEnd { obj: None } => self.settle_all(),
        }
    }

    fn bind(&mut self, obj: ObjId, place: &Place) {
        self.objects[obj].places.push(place.clone());
        let slot = self.names.entry(place.clone()).or_insert_with(|| Versions::new(None));
        slot.push(Some(obj));
    }

    fn unbind(&mut self, place: &Place) {
        let Some(slot) = self.names.get_mut(place) else { return };
        let Some(obj) = *slot.current() else { return };
        slot.push(None);
        self.objects[obj].places.retain(|p| p != place);
    }

    /// An fsync makes the object durable, and the way to it; of a directory also its entries.
    fn settle(&mut self, obj: ObjId) {
        for (other, object) in self.objects.iter_mut().enumerate() {
            if other == obj { object.settle() } else { object.carry() }
        }
        if self.objects[obj].kind == FileKind::Directory {
            let names: Vec<Place> = self
                .names
                .range((obj, Box::default())..(obj + 1, Box::default()))
                .filter(|(_, v)| !v.pending.is_empty())
                .map(|(place, _)| place.clone())
                .collect();
            names.iter().for_each(|place| self.settle_name(place));
        }
        self.settle_way(obj);
    }

    fn settle_way(&mut self, obj: ObjId) {
        for place in self.objects[obj].places.clone() {
            let settled = self.names.get(&place).is_some_and(|v| v.pending.is_empty());
            self.settle_name(&place);
            // A settled name was settled together with the way to it.
            if !settled {
                self.settle_way(place.0);
            }
        }
    }

    fn settle_name(&mut self, place: &Place) {
        let Some(slot) = self.names.get_mut(place) else { return };
        slot.settle();
        match slot.durable {
            Some(obj) => self.objects[obj].anchored = true,
            None => drop(self.names.remove(place)),
        }
    }

    fn settle_all(&mut self) {
        self.objects.iter_mut().for_each(Object::settle);
        let objects = &mut self.objects;
        self.names.retain(|_, slot| {
            slot.settle();
            if let Some(obj) = slot.durable {
                objects[obj].anchored = true;
            }
            slot.durable.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        (ROOT, name.as_bytes().into())
    }

    fn create(name: &str) -> Event {
        let meta = Meta { perm: 0o644, uid: 0, gid: 0, mtime: None };
        Event::Create { place: place(name), kind: FileKind::Regular, meta, target: Box::default() }
    }

    fn write(obj: ObjId, byte: u8) -> Event {
        let blocks = vec![Block::new([byte; BLOCK_SIZE])];
        Event::Write { obj, first: 0, blocks, size: BLOCK_SIZE as u64 }
    }

    fn run(events: &[Event]) -> Model {
        let mut model = Model::default();
        model.advance(events, events.len());
        model
    }

    #[test]
    fn a_write_may_be_and_an_fsync_makes_it_must() {
        let log = [
            create("a"),
            write(1, 7),
            Event::SyncBegin { obj: Some(1) },
            Event::SyncEnd { obj: Some(1) },
        ];
        let before = run(&log[..3]);
        assert_eq!(before.names[&place("a")].allowed().count(), 2);
        assert_eq!(before.objects[1].size_range(), (0, 4096));
        let after = run(&log);
        assert_eq!(after.names[&place("a")].durable, Some(1));
        assert_eq!(after.objects[1].size_range(), (4096, 4096));
        assert!(after.objects[1].anchored);
    }

    #[test]
    fn what_was_durable_once_is_stale_not_garbage() {
        let sync = Event::SyncEnd { obj: Some(1) };
        let model = run(&[create("a"), write(1, 1), sync.clone(), write(1, 2), sync]);
        let block = &model.objects[1].blocks[&0];
        assert!(block.was_once(&[1; BLOCK_SIZE]));
        assert!(!block.was_once(&[2; BLOCK_SIZE]));
    }

    #[test]
    fn truncation_clears_the_tail_and_keeps_the_old_as_possible() {
        let sync = Event::SyncEnd { obj: Some(1) };
        let cut = Event::Truncate { obj: 1, size: 10 };
        let model = run(&[create("a"), write(1, 9), sync, cut]);
        let versions = &model.objects[1].blocks[&0].versions;
        assert_eq!(versions.current()[9..12], [9, 0, 0]);
        assert_eq!(versions.durable[9..12], [9, 9, 9]);
        assert_eq!(model.objects[1].size_range(), (10, 4096));
    }

    #[test]
    fn a_rename_leaves_both_names_open_until_the_directory_is_synced() {
        let sync = Event::SyncEnd { obj: Some(1) };
        let moved = Event::Rename { from: place("a"), to: place("b") };
        let log = [create("a"), sync, moved, Event::SyncEnd { obj: Some(ROOT) }];
        let between = run(&log[..3]);
        assert!(between.names[&place("a")].allows(&None));
        assert!(between.names[&place("b")].allows(&Some(1)));
        let after = run(&log);
        assert!(!after.names.contains_key(&place("a")));
        assert_eq!(after.names[&place("b")].durable, Some(1));
    }
}
