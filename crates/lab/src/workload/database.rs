//! How two databases commit, both of which read through a mapping and keep no journal: bbolt
//! (`tx.go`, `db.go`) and LMDB (`mdb.c`, 0.9).
//!
//! A transaction writes new pages next to those of the last one, makes them durable, and only then
//! writes one of two meta pages in turn, which says where the tree begins. Opening the file takes
//! the newer sound one of the two. So the file system is asked for order, not for atomicity: a meta
//! page that is there leads to pages that are all there.
//!
//! They differ in this: bbolt makes the file longer first, durably and by doubling, writes page by
//! page, and a whole meta page with a checksum. LMDB writes runs of pages, the file growing with
//! them, and of the meta page the few bytes that change, through a descriptor with `O_DSYNC`; by
//! `MDB_WRITEMAP` it makes the file as long as the map at once, the pages are written back in no
//! order, and `msync` ends each half. Pages here carry a checksum, which neither database has, so
//! that wrong contents are noticed.

use std::collections::{BTreeMap, BTreeSet};

use drive::BLOCK_SIZE;
use vfs::FileSystem;

use super::Workload;
use super::content::Rng;
use crate::oracle::{Damage, Transactions, Verdict};
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

const PAGE: u64 = BLOCK_SIZE as u64;
/// The file.
const NAME: &[u8] = b"data";
/// Bytes of a page's header: checksum, number, transaction, and what it is.
const HEADER: usize = 32;
const MAGIC: u64 = 0x6264_6d6c;
/// The first page that is not a meta page.
const FIRST: u64 = 2;
/// Leaves at the start, and the most a root has room for here.
const LEAVES: u64 = 6;
const LEAVES_MAX: u64 = 200;
/// The smallest file of bbolt.
const SIZE_MIN: u64 = 32 << 10;
/// Most pages of one write of LMDB, `MDB_COMMIT_PAGES`.
const RUN_MAX: usize = 64;
/// Bytes of LMDB's map.
const MAP: u64 = 8 << 20;
/// Where what a transaction changes of a meta page begins, and how long it is.
const CHANGED: std::ops::Range<usize> = HEADER + 8..HEADER + 40;

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// bbolt, as etcd uses it.
    Bbolt,
    /// LMDB.
    Lmdb,
    /// LMDB with `MDB_WRITEMAP`.
    LmdbWritemap,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bbolt, Self::Lmdb, Self::LmdbWritemap];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bbolt => "bbolt",
            Self::Lmdb => "lmdb",
            Self::LmdbWritemap => "lmdb-writemap",
        }
    }

    /// How many transactions' freed pages are not used again yet: bbolt's next one takes them
    /// (`freelist.release`), LMDB's the one after that (`mdb_find_oldest`).
    const fn kept(self) -> usize {
        if matches!(self, Self::Bbolt) { 0 } else { 1 }
    }
}

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct Database {
    /// Whose way.
    pub kind: Kind,
    /// How many transactions.
    pub transactions: u64,
}

impl Database {
    /// Two fsyncs each, and about as many as cuts.
    pub fn for_cuts(kind: Kind, cuts: usize) -> Self {
        Self { kind, transactions: (cuts as u64 / 2).clamp(20, 1_000) }
    }
}

/// What a meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    root: u64,
    /// The list of free pages.
    list: u64,
    /// Pages in use end before it.
    high: u64,
    txid: u64,
}

impl Meta {
    /// Meta page `number` as it is written.
    fn page(self, number: u64) -> Vec<u8> {
        let words = [MAGIC, self.root, self.list, self.high, self.txid];
        page(number, self.txid, 0, &words)
    }

    /// The fields of a meta page, if it is one. LMDB's have only a magic number to tell.
    fn of(bytes: &[u8], kind: Kind) -> Option<Self> {
        let at = |index: usize| word(bytes, HEADER / 8 + index);
        let sound = at(0) == MAGIC && (kind != Kind::Bbolt || sum(&bytes[8..]) == word(bytes, 0));
        sound.then(|| Self { root: at(1), list: at(2), high: at(3), txid: at(4) })
    }
}

/// FNV-1a, as bbolt's meta pages have it.
fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let word = bytes[index * 8..].first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(word)
}

/// A page of words.
fn page(number: u64, txid: u64, what: u64, words: &[u64]) -> Vec<u8> {
    let header = [number, txid, what];
    let mut bytes: Vec<u8> =
        header.iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(BLOCK_SIZE - 8, 0);
    [&sum(&bytes).to_le_bytes()[..], &bytes].concat()
}

/// The pages of a file and what becomes of them.
struct Store<'a> {
    fs: &'a Recorder,
    kind: Kind,
    rng: Rng,
    file: Node,
    /// Page and transaction of each leaf.
    leaves: Vec<(u64, u64)>,
    meta: Meta,
    free: BTreeSet<u64>,
    /// Freed by the last transactions, the oldest first.
    freed: Vec<Vec<u64>>,
}

impl<'a> Store<'a> {
    /// A new file, as the first program that opens it makes it.
    fn create(fs: &'a Recorder, kind: Kind, rng: Rng) -> Result<Self> {
        let file = fs.create(fs.root(), NAME, 0o644)?;
        let meta = Meta { root: FIRST, list: FIRST + 1, high: FIRST + 2, txid: 0 };
        let (leaves, free, freed) = (Vec::new(), BTreeSet::new(), Vec::new());
        let mut store = Self { fs, kind, rng, file, leaves, meta, free, freed };
        let pages =
            [meta.page(0), meta.page(1), page(meta.root, 0, 0, &[0]), page(meta.list, 0, 0, &[0])];
        fs.write(file, 0, &pages.concat())?;
        if kind == Kind::LmdbWritemap {
            fs.truncate(file, MAP)?;
        }
        store.sync()?;
        (0..LEAVES).try_for_each(|_| store.commit())?;
        Ok(store)
    }

    /// `msync` is an fsync of the range; the others leave times out.
    fn sync(&self) -> Result<()> {
        match self.kind {
            Kind::LmdbWritemap => self.fs.fsync(self.file),
            _ => self.fs.fdatasync(self.file),
        }
    }

    fn allocate(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.meta.high += 1;
            self.meta.high - 1
        })
    }

    /// One transaction: rewrites some leaves, perhaps adds one, and rewrites the path to them.
    fn commit(&mut self) -> Result<()> {
        self.meta.txid += 1;
        let txid = self.meta.txid;
        self.fs.transaction(txid, false);
        while self.freed.len() > self.kind.kept() {
            self.free.extend(self.freed.remove(0));
        }
        let mut pages = BTreeMap::new();
        let mut freed = vec![self.meta.root, self.meta.list];
        for leaf in self.changed() {
            let number = self.allocate();
            if let Some((old, _)) = self.leaves.get(leaf).copied() {
                self.fs.read(self.file, old * PAGE, PAGE)?;
                freed.push(old);
                self.leaves[leaf] = (number, txid);
            } else {
                self.leaves.push((number, txid));
            }
            let words: Vec<u64> = (0..100).map(|_| self.rng.below(u64::MAX)).collect();
            pages.insert(number, page(number, txid, leaf as u64, &words));
        }
        (self.meta.root, self.meta.list) = (self.allocate(), self.allocate());
        let (root, list) = (self.meta.root, self.meta.list);
        let ways = self.leaves.iter().flat_map(|(number, txid)| [*number, *txid]);
        let ways: Vec<u64> = [self.leaves.len() as u64].into_iter().chain(ways).collect();
        pages.insert(root, page(root, txid, 0, &ways));
        self.freed.push(freed);
        let unused: Vec<u64> =
            self.free.iter().chain(self.freed.iter().flatten()).copied().collect();
        let unused: Vec<u64> = [unused.len() as u64].into_iter().chain(unused).collect();
        pages.insert(list, page(list, txid, 0, &unused));
        self.write(pages)?;
        self.sync()?;
        self.write_meta()?;
        self.sync()?;
        self.fs.transaction(txid, true);
        Ok(())
    }

    /// The leaves a transaction changes, and now and then a new one.
    fn changed(&mut self) -> BTreeSet<usize> {
        let count = self.leaves.len() as u64;
        let mut changed: BTreeSet<usize> =
            (0..self.rng.within(1, 3)).map(|_| self.rng.below(count) as usize).collect();
        if count < LEAVES || count < LEAVES_MAX && self.meta.txid.is_multiple_of(2) {
            changed.insert(count as usize);
        }
        changed
    }

    fn write(&mut self, pages: BTreeMap<u64, Vec<u8>>) -> Result<()> {
        let (fs, file) = (self.fs, self.file);
        if self.kind == Kind::Bbolt {
            // `DB.grow`: as long as the mapping, which doubles.
            let size = (self.meta.high * PAGE).next_power_of_two().max(SIZE_MIN);
            if size > fs.size(file) {
                fs.truncate(file, size)?;
                fs.fsync(file)?;
            }
        }
        let mut pages: Vec<(u64, Vec<u8>)> = pages.into_iter().collect();
        match self.kind {
            Kind::Bbolt => {}
            Kind::Lmdb => {
                for run in pages.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
                    for run in run.chunks(RUN_MAX) {
                        let bytes: Vec<u8> =
                            run.iter().flat_map(|(_, page)| page).copied().collect();
                        fs.write(file, run[0].0 * PAGE, &bytes)?;
                    }
                }
                return Ok(());
            }
            Kind::LmdbWritemap => {
                for at in (1..pages.len()).rev() {
                    pages.swap(at, self.rng.below(at as u64 + 1) as usize);
                }
            }
        }
        pages.iter().try_for_each(|(number, page)| fs.write(file, number * PAGE, page))
    }

    fn write_meta(&self) -> Result<()> {
        let number = self.meta.txid % 2;
        let bytes = self.meta.page(number);
        match self.kind {
            Kind::Lmdb => {
                let at = number * PAGE + CHANGED.start as u64;
                self.fs.write(self.file, at, &bytes[CHANGED])
            }
            _ => self.fs.write(self.file, number * PAGE, &bytes),
        }
    }
}

impl Workload for Database {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn footprint(&self) -> u64 {
        (16 << 20) + self.transactions * 16 * PAGE
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut store = Store::create(fs, self.kind, Rng::new(seed, 10))?;
        fs.sync()?;
        started();
        (0..self.transactions).try_for_each(|_| store.commit())
    }

    fn inspect(&self, fs: &dyn FileSystem, known: Transactions) -> Vec<Verdict> {
        let opened = Reader::open(self.kind, fs).map_err(|error| Finding {
            damage: Damage::Corrupt,
            expected: "a file that can be read".into(),
            found: error.to_string(),
            in_flight: false,
        });
        let finding = opened.and_then(|reader| reader.check(known)).err();
        finding.map(|finding| finding.told(self.kind)).into_iter().collect()
    }
}

/// What a program finds that opens the database.
struct Finding {
    damage: Damage,
    expected: String,
    found: String,
    in_flight: bool,
}

impl Finding {
    fn told(self, kind: Kind) -> Verdict {
        let Self { damage, expected, found, in_flight } = self;
        let path = format!("({})", kind.name());
        Verdict { damage, path, block: None, expected, found, in_flight }
    }
}

/// The whole file.
struct Reader {
    kind: Kind,
    bytes: Vec<u8>,
}

impl Reader {
    fn open(kind: Kind, fs: &dyn FileSystem) -> Result<Self> {
        let ino = fs.lookup(fs.root(), NAME).map_err(Error::at("lookup", NAME))?.ino;
        let bytes = vfs::path::read_to_vec(fs, ino).map_err(Error::at("read", NAME))?;
        Ok(Self { kind, bytes })
    }

    fn page(&self, number: u64) -> &[u8] {
        let at = usize::try_from(number).ok().and_then(|number| number.checked_mul(BLOCK_SIZE));
        at.and_then(|at| self.bytes.get(at..at + BLOCK_SIZE)).unwrap_or(&[0; BLOCK_SIZE])
    }

    /// The newest sound meta page must belong to the last acknowledged transaction or a later one.
    /// Its tree must be that transaction's, with no page in it twice or free.
    fn check(&self, known: Transactions) -> std::result::Result<(), Finding> {
        let Transactions { begun, committed } = known;
        let meta = self.newest(begun > committed)?;
        if !(committed..=begun).contains(&meta.txid) {
            let damage = if meta.txid < committed { Damage::Lost } else { Damage::Garbage };
            let expected = format!("transaction {committed} or what came later, up to {begun}");
            return Err(finding(damage, expected, format!("transaction {}", meta.txid)));
        }
        let mut used = BTreeSet::new();
        let root = self.sound(meta.root, meta.txid, &mut used)?;
        let pairs = (0..word(root, HEADER / 8).min(LEAVES_MAX + LEAVES)).map(|leaf| {
            let at = HEADER / 8 + 1 + 2 * leaf as usize;
            (word(root, at), word(root, at + 1))
        });
        for (number, txid) in pairs {
            self.sound(number, txid, &mut used)?;
        }
        let list = self.sound(meta.list, meta.txid, &mut used)?;
        let length = word(list, HEADER / 8).min(PAGE / 8 - 5) as usize;
        let free = (0..length).map(|index| word(list, HEADER / 8 + 1 + index));
        if let Some(both) = free.into_iter().find(|number| used.contains(number)) {
            let expected = "pages in use, or free".into();
            return Err(finding(Damage::Garbage, expected, format!("page {both} is both")));
        }
        Ok(())
    }

    /// LMDB opens no file in which either meta page is invalid; bbolt takes the other.
    fn newest(&self, in_flight: bool) -> std::result::Result<Meta, Finding> {
        let metas = [0, 1].map(|number| Meta::of(self.page(number), self.kind));
        let is_lost = match self.kind {
            Kind::Bbolt => metas == [None; 2],
            _ => metas.contains(&None),
        };
        match metas.into_iter().flatten().max_by_key(|meta| meta.txid) {
            Some(meta) if !is_lost => Ok(meta),
            _ => {
                let of = |meta: Option<Meta>| {
                    meta.map_or("none".into(), |meta| format!("one of transaction {}", meta.txid))
                };
                let found = metas.map(of).join(" and ");
                let expected = "meta pages".into();
                Err(Finding { in_flight, ..finding(Damage::Garbage, expected, found) })
            }
        }
    }

    /// Page `number` as transaction `txid` wrote it.
    fn sound(
        &self,
        number: u64,
        txid: u64,
        used: &mut BTreeSet<u64>,
    ) -> std::result::Result<&[u8], Finding> {
        let bytes = self.page(number);
        let (is_sound, of) = (sum(&bytes[8..]) == word(bytes, 0), word(bytes, 2));
        let is_it = is_sound && word(bytes, 1) == number;
        if is_it && of == txid && used.insert(number) {
            return Ok(bytes);
        }
        let damage = if is_it && of < txid { Damage::Lost } else { Damage::Garbage };
        let found = match is_it {
            true => format!("that of transaction {of}"),
            false => "what nobody wrote there".into(),
        };
        Err(finding(damage, format!("page {number} of transaction {txid}, once"), found))
    }
}

fn finding(damage: Damage, expected: String, found: String) -> Finding {
    Finding { damage, expected, found, in_flight: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vfs::MemFs;

    use super::*;
    use crate::oracle::Oracle;

    const COMMITTED: u64 = 26;

    /// A file after a number of transactions, and what undoes part of the last one.
    fn found(kind: Kind, undo: impl FnOnce(&dyn FileSystem, u64)) -> Option<Damage> {
        let fs = Arc::new(MemFs::new());
        let oracle = Arc::new(Oracle::new());
        let recorder = Recorder::new(fs.clone(), oracle.clone());
        let database = Database { kind, transactions: COMMITTED - LEAVES };
        database.run(&recorder, 3, &mut || ()).expect("memory has room");
        let known = oracle.with_model(|model| model.transactions);
        assert_eq!(known, Transactions { begun: COMMITTED, committed: COMMITTED });
        let ino = fs.lookup(fs.root(), NAME).expect("it is there").ino;
        undo(&*fs, ino);
        database.inspect(&*fs, known).first().map(|verdict| verdict.damage)
    }

    fn newest(kind: Kind, fs: &dyn FileSystem) -> Meta {
        let reader = Reader::open(kind, fs).expect("it is there");
        Meta::of(reader.page(COMMITTED % 2), kind).expect("a meta page")
    }

    #[test]
    fn what_was_committed_is_sound() {
        for kind in Kind::ALL {
            assert_eq!(found(kind, |_, _| ()), None, "{}", kind.name());
        }
    }

    /// The second of the two syncs that make a transaction durable.
    #[test]
    fn a_meta_page_that_was_lost_is_noticed() {
        for kind in Kind::ALL {
            let older = |fs: &dyn FileSystem, ino| {
                let number = COMMITTED % 2;
                let old = Meta { txid: COMMITTED - 2, ..newest(kind, fs) }.page(number);
                fs.write(ino, number * PAGE, &old).expect("memory has room");
            };
            assert_eq!(found(kind, older), Some(Damage::Lost), "{}", kind.name());
        }
    }

    /// The first.
    #[test]
    fn pages_that_were_lost_are_noticed() {
        for kind in Kind::ALL {
            let lost = |fs: &dyn FileSystem, ino| {
                let at = newest(kind, fs).root * PAGE;
                fs.write(ino, at, &[0; BLOCK_SIZE]).expect("memory has room");
            };
            assert_eq!(found(kind, lost), Some(Damage::Garbage), "{}", kind.name());
            let old = |fs: &dyn FileSystem, ino| {
                let root = newest(kind, fs).root;
                let old = page(root, COMMITTED - 3, 0, &[0]);
                fs.write(ino, root * PAGE, &old).expect("memory has room");
            };
            assert_eq!(found(kind, old), Some(Damage::Lost), "{}", kind.name());
        }
    }

    #[test]
    fn bbolt_does_without_one_meta_page_and_lmdb_does_not() {
        let spoilt = |fs: &dyn FileSystem, ino| {
            let number = 1 - COMMITTED % 2;
            fs.write(ino, number * PAGE, &[0; BLOCK_SIZE]).expect("memory has room");
        };
        assert_eq!(found(Kind::Bbolt, spoilt), None);
        assert_eq!(found(Kind::Lmdb, spoilt), Some(Damage::Garbage));
    }
}
