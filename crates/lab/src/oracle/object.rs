//! One inode: what it may be found to be.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use drive::{BLOCK_SIZE, Block};
use vfs::{FileKind, Timespec};

use super::event::{Meta, Place, Times};
use super::order::{Call, Calls, Size, Versions};

/// What no drive tears.
pub(super) const SECTOR: usize = 512;

/// One block of a file.
#[derive(Clone, Debug)]
pub struct BlockVersions {
    /// What may be there.
    pub versions: Versions<Block>,
    /// Hashes of what was written before. Holes are left out, zeroes are garbage and not an old
    /// version, unless one was made durable, or taken along, in a file that had grown.
    history: Vec<u64>,
}

impl BlockVersions {
    fn hole() -> Self {
        Self { versions: Versions::new(Block::zeroed()), history: Vec::new() }
    }

    /// Whether these bytes, up to the file's end, are an outdated version of this block.
    pub fn was_once(&self, bytes: &[u8]) -> bool {
        self.history.contains(&hash(Block::from_prefix(bytes).bytes()))
    }

    /// Whether each `grain` of these bytes belongs to some version that may be there. On a drive a
    /// hole counts as none, because a block that fills it is not written in place; memory may be
    /// zeroed in place.
    pub fn has_sectors(&self, bytes: &[u8], grain: usize) -> bool {
        let counts = |version: &Block| grain < SECTOR || !version.same_page(&Block::zeroed());
        self.is_made_of(bytes, grain, counts)
    }

    /// As [`BlockVersions::has_sectors`], of a block that was not synced: it may also be new and
    /// not have reached the drive as a whole.
    pub fn has_sectors_or_zeroes(&self, bytes: &[u8]) -> bool {
        self.is_made_of(bytes, SECTOR, |_| true)
    }

    fn is_made_of(&self, bytes: &[u8], grain: usize, counts: impl Fn(&Block) -> bool) -> bool {
        let versions = || self.versions.allowed().filter(|version| counts(version));
        (0..)
            .step_by(grain)
            .zip(bytes.chunks(grain))
            .all(|(at, sector)| versions().any(|v| v[at..at + sector.len()] == *sector))
    }

    fn settle(&mut self, calls: &Calls, called: usize, carried: bool) {
        let mut gone = Vec::new();
        self.versions.settle(calls, called, &mut |old| gone.push(old.clone()));
        let is_known = |old: &Block| carried || !old.same_page(&Block::zeroed());
        for old in gone.iter().filter(|old| is_known(old)) {
            if !self.versions.allows(old) {
                remember(&mut self.history, old);
            }
        }
    }

    /// The file's size was made durable, or taken along, but not this block.
    fn show(&mut self) {
        remember(&mut self.history, self.versions.durable());
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

/// No time is before it.
const EARLIEST: Timespec = Timespec { secs: i64::MIN, nanos: 0 };

/// The value of an extended attribute, if it is set.
pub type XattrValue = Option<Box<[u8]>>;

/// One inode.
#[derive(Clone, Debug)]
pub struct Object {
    /// Type.
    pub kind: FileKind,
    /// Target of a symbolic link.
    pub target: Box<[u8]>,
    /// Number of a device.
    pub rdev: u64,
    /// Attributes.
    pub meta: Versions<Meta>,
    /// The times that a completed fsync found; they can be no earlier.
    pub times: Option<Times>,
    /// Size in bytes.
    pub size: Size,
    /// Blocks that were ever written or cut off; all others are holes.
    pub blocks: BTreeMap<u64, BlockVersions>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Box<[u8]>, Versions<XattrValue>>,
    /// The fsyncs of it that are under way.
    pub(super) syncs: Vec<Call>,
    /// When the last fsync of it returned.
    synced_at: usize,
    /// Since its last fsync, something else was synced that may have made the size, attributes and
    /// holes of that moment durable, but no other contents.
    pub carried: bool,
    /// Some name of it was made durable: it must be reachable as long as it has a name.
    pub anchored: bool,
    /// At the same time, others reused or removed a name of it: it may have none.
    pub(super) contested: bool,
    /// Its names now.
    pub places: Vec<Place>,
    dirty: Vec<u64>,
    /// How many of `dirty` there were when something else was last synced.
    shown: usize,
    /// Truncations that may still be under way: the first block that is cut off.
    truncations: Vec<(Call, u64)>,
}

impl Object {
    pub(super) fn new(kind: FileKind, target: Box<[u8]>, meta: Meta, rdev: u64) -> Self {
        Self {
            kind,
            target,
            rdev,
            meta: Versions::new(meta),
            times: None,
            size: Size::zero(),
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            syncs: Vec::new(),
            synced_at: 0,
            carried: false,
            anchored: false,
            contested: false,
            places: Vec::new(),
            dirty: Vec::new(),
            shown: 0,
            truncations: Vec::new(),
        }
    }

    /// Whether one of its names must be there.
    pub fn is_somewhere(&self) -> bool {
        self.anchored && !self.contested && !self.places.is_empty()
    }

    /// Whether an fsync of it is under way.
    pub fn is_syncing(&self) -> bool {
        !self.syncs.is_empty()
    }

    /// Whether a mixture of old and new would be half of the one fsync under way. That is certain
    /// only if everything it may bring was written before it was called, and after the previous
    /// fsync returned, which may have taken along what was written while it was under way.
    pub fn can_be_torn(&self, calls: &Calls) -> bool {
        let [sync] = self.syncs[..] else { return false };
        let blocks = || self.dirty.iter().filter_map(|index| self.blocks.get(index));
        let had_returned = self.size.had_returned(calls, sync)
            && self.meta.had_returned(calls, sync)
            && self.xattrs.values().all(|xattr| xattr.had_returned(calls, sync))
            && blocks().all(|block| block.versions.had_returned(calls, sync));
        let since = [self.size.open_since(), self.meta.open_since()]
            .into_iter()
            .chain(self.xattrs.values().map(Versions::open_since))
            .chain(blocks().map(|block| block.versions.open_since()));
        had_returned && since.flatten().all(|began| self.synced_at < began)
    }

    /// Whether anything written since the last fsync may or may not have survived.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Indices of the blocks written since the last fsync, in order of writing. They may repeat.
    pub fn dirty_blocks(&self) -> &[u64] {
        &self.dirty
    }

    /// Those of them written since something else was last synced: nothing took them along.
    pub fn dirty_since_carried(&self) -> &[u64] {
        &self.dirty[self.shown..]
    }

    /// Newest content of block `index`.
    pub fn current_block(&self, index: u64) -> Block {
        self.blocks.get(&index).map_or_else(Block::zeroed, |b| b.versions.current().clone())
    }

    fn put(&mut self, index: u64, block: Block, call: Call) {
        self.blocks.entry(index).or_insert_with(BlockVersions::hole).versions.push(block, call);
        self.dirty.push(index);
    }

    pub(super) fn write(
        &mut self,
        first: u64,
        blocks: &[Block],
        (from, end): (u64, u64),
        (call, calls): (Call, &Calls),
    ) {
        self.truncations.retain(|(truncation, _)| !calls.is_before(*truncation, call));
        let durable = self.size.durable(calls).div_ceil(BLOCK_SIZE as u64);
        for (index, block) in (first..).zip(blocks) {
            if !self.blocks.contains_key(&index) {
                // A truncation under way may come after this write and leave a hole.
                for at in 0..self.truncations.len() {
                    let (truncation, keep) = self.truncations[at];
                    if keep <= index {
                        self.put(index, Block::zeroed(), truncation);
                    }
                }
            }
            self.put(index, block.clone(), call);
            if let Some(block) = self.blocks.get_mut(&index).filter(|_| index < durable)
                && block.versions.durable().same_page(&Block::zeroed())
            {
                block.show();
            }
        }
        self.size.reach(from, end, call, calls);
        self.forget_mtime(call);
    }

    pub(super) fn truncate(&mut self, size: u64, (call, calls): (Call, &Calls)) {
        let keep = size.div_ceil(BLOCK_SIZE as u64);
        let tail = (size % BLOCK_SIZE as u64) as usize;
        let cut = keep.saturating_sub(1);
        if tail != 0 && size < self.size.current() && self.blocks.contains_key(&cut) {
            let mut block = self.current_block(cut);
            block.make_mut()[tail..].fill(0);
            self.put(cut, block, call);
        }
        let behind: Vec<u64> = self.blocks.range(keep..).map(|(&index, _)| index).collect();
        for index in behind {
            self.put(index, Block::zeroed(), call);
        }
        if calls.overlap() {
            self.truncations.push((call, keep));
        }
        self.size.truncate(size, call);
        self.forget_mtime(call);
    }

    fn forget_mtime(&mut self, call: Call) {
        let current = *self.meta.current();
        if current.mtime.is_some() {
            self.meta.push(Meta { mtime: None, ..current }, call);
        }
    }

    /// Something else is synced and may make this durable with it.
    pub(super) fn carry(&mut self) {
        self.carried = true;
        for index in &self.dirty[std::mem::replace(&mut self.shown, self.dirty.len())..] {
            if let Some(block) = self.blocks.get_mut(index) {
                block.show();
            }
        }
    }

    /// An fsync of it has returned that was called when its times were these. A time that the
    /// workload set may be earlier than one that moves by itself.
    pub(super) fn settle_times(&mut self, times: Option<Times>) {
        let Some(times) = times else { return };
        let mtime_was_set = self.meta.allowed().any(|meta| meta.mtime.is_some());
        let mtime = if mtime_was_set { EARLIEST } else { times.mtime };
        let ctime = self.times.map_or(times.ctime, |before| before.ctime.max(times.ctime));
        self.times = Some(Times { mtime, ctime });
    }

    /// An fsync of it has returned, at `now`, that was called at `called`. If `carried`, other
    /// fsyncs may from now on make parts of it durable.
    pub(super) fn settle(&mut self, calls: &Calls, called: usize, now: usize, carried: bool) {
        self.synced_at = now;
        self.shown = 0;
        for index in std::mem::take(&mut self.dirty) {
            if let Some(block) = self.blocks.get_mut(&index) {
                block.settle(calls, called, carried);
                if block.versions.is_open() {
                    self.dirty.push(index);
                }
            }
        }
        self.meta.settle(calls, called, &mut |_| ());
        self.size.settle(calls, called);
        self.xattrs.values_mut().for_each(|xattr| xattr.settle(calls, called, &mut |_| ()));
        self.carried = carried;
    }
}
