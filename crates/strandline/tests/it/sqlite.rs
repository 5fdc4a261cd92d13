//! SQLite with `synchronous=FULL` on a volume in process, and the power fails: after each cut the
//! database is sound, every transaction that was committed is there, and the one under way is
//! there as a whole or not at all.

#[path = "../../examples/sqlite/sqlite_vfs/mod.rs"]
mod sqlite_vfs;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cores::Mutex;
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use f2fs::{F2fs, mkfs};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rusqlite::{Connection, params};
use sqlite_vfs::SqliteVfs;
use vfs::FileSystem;

const TRANSACTIONS: usize = 60;
const KEYS: i64 = 60;

/// Each registered VFS needs a name of its own.
static VOLUMES: AtomicU64 = AtomicU64::new(0);

/// One run at a time: SQLite's connections share their page cache, so one run would have another
/// spill elsewhere.
static ALONE: Mutex<()> = Mutex::new(());

/// On what, and how.
#[derive(Clone, Copy, Debug)]
struct Setup {
    zoned: bool,
    options: &'static str,
    journal: &'static str,
    /// Commits go through atomic writes instead of the rollback journal.
    atomic: bool,
    seed: u64,
}

/// What the drive holds at one instant, and how many transactions had begun and were committed.
struct Cut {
    event: u64,
    begun: usize,
    committed: usize,
    state: DriveState,
}

/// What a transaction does to the table: keys and their new values, or none.
type Change = Vec<(i64, Option<Vec<u8>>)>;

fn changes(seed: u64) -> Vec<Change> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut change = |_| {
        // Sometimes one that does not fit SQLite's cache and spills before it commits.
        let rows = if rng.random_ratio(1, 10) { 40 } else { rng.random_range(1..6) };
        let mut row = |_| {
            let length = rng.random_range(1..6000);
            let value = (0..length).map(|_| rng.random()).collect();
            (rng.random_range(0..KEYS), rng.random_ratio(3, 4).then_some(value))
        };
        (0..rows).map(&mut row).collect()
    };
    (0..TRANSACTIONS).map(&mut change).collect()
}

/// What the table holds after each transaction; the first is the empty table.
fn digests(changes: &[Change]) -> Vec<u64> {
    let mut table = BTreeMap::new();
    let mut digests = vec![digest(&table)];
    for change in changes {
        for (key, value) in change {
            match value {
                Some(value) => drop(table.insert(*key, value.clone())),
                None => drop(table.remove(key)),
            }
        }
        digests.push(digest(&table));
    }
    digests
}

fn digest(table: &BTreeMap<i64, Vec<u8>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    table.hash(&mut hasher);
    hasher.finish()
}

impl Setup {
    fn spec(&self) -> Spec {
        if self.zoned {
            Spec::named("zn540-noplp").unwrap().zone_size(1024, 768).zones(64, 5)
        } else {
            Spec::named("conventional-noplp").unwrap().blocks(32 * 1024)
        }
    }

    fn register(&self, fs: &Arc<F2fs>) -> SqliteVfs {
        let name = format!("volume-{}", VOLUMES.fetch_add(1, Ordering::Relaxed));
        SqliteVfs::register(&name, fs.clone(), self.atomic).unwrap()
    }

    /// Runs the transactions and takes what is left at `picks`, events of the drive since the table
    /// was made. Returns the cuts and how many events there were.
    ///
    /// On a virtual machine, so that the same seed gives the same run.
    fn run(&self, changes: &[Change], picks: BTreeSet<u64>) -> (Vec<Cut>, u64) {
        let _alone = ALONE.lock();
        let machine = lab::machine_named(lab::CAMPAIGN_MACHINE, self.seed).unwrap();
        machine.run(|| self.run_here(changes, picks)).unwrap()
    }

    fn run_here(&self, changes: &[Change], picks: BTreeSet<u64>) -> (Vec<Cut>, u64) {
        let ssd = Ssd::new(self.spec(), Timing::Virtual, self.seed).unwrap();
        let drive: Arc<dyn Drive> = ssd.clone();
        mkfs::format(&drive, &mkfs::MkfsOptions::default()).unwrap();
        let fs = Arc::new(F2fs::mount(drive, &self.options.parse().unwrap()).unwrap());
        let volume = self.register(&fs);
        let db = volume.open("/test.db").unwrap();
        let mode: String = db
            .query_row(&format!("PRAGMA journal_mode = {}", self.journal), [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, self.journal);
        db.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA cache_size = 20; PRAGMA wal_autocheckpoint = 40;
             CREATE TABLE kv (k INTEGER PRIMARY KEY, v BLOB);
             CREATE TABLE done (n INTEGER); INSERT INTO done VALUES (0);",
        )
        .unwrap();
        let (begun, committed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (events, cuts) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let watch = (begun.clone(), committed.clone(), events.clone(), cuts.clone());
        let seed = self.seed;
        ssd.observe(Box::new(move |_, moment| {
            let (begun, committed, events, cuts) = &watch;
            let event = events.fetch_add(1, Ordering::Relaxed);
            if picks.contains(&event) {
                let (begun, committed) =
                    (begun.load(Ordering::Relaxed), committed.load(Ordering::Relaxed));
                let state = moment.survivors(seed ^ event);
                cuts.lock().push(Cut { event, begun, committed, state });
            }
        }));
        for change in changes {
            begun.fetch_add(1, Ordering::Relaxed);
            apply(&db, change).unwrap();
            committed.fetch_add(1, Ordering::Relaxed);
        }
        drop(ssd.unobserve());
        let cuts = std::mem::take(&mut *cuts.lock());
        (cuts, events.load(Ordering::Relaxed))
    }

    /// Judges one cut.
    fn judge(&self, cut: &Cut, digests: &[u64]) -> Result<(), String> {
        let _alone = ALONE.lock();
        let drive = Ssd::power_on(cut.state.clone(), Timing::Instant, self.seed);
        let fs = F2fs::mount(drive, &self.options.parse().unwrap());
        let fs = Arc::new(fs.map_err(|error| format!("mount: {error}"))?);
        let volume = self.register(&fs);
        let looked = look(&volume).map_err(|error| error.to_string());
        drop(volume);
        let (sound, done, digest) = looked?;
        if sound != "ok" {
            return Err(format!("integrity_check: {sound}"));
        }
        if !(cut.committed..=cut.begun).contains(&done) {
            return Err(format!("transaction {done}, but {} were committed", cut.committed));
        }
        if digest != digests[done] {
            return Err(format!("transaction {done} is there in part"));
        }
        fs.unmount().map_err(|error| format!("unmount: {error}"))
    }

    /// How many of a number of cuts at random events show something that must not be.
    fn campaign(&self, cuts: usize) -> Vec<String> {
        let changes = changes(self.seed);
        let digests = digests(&changes);
        let (_, events) = self.run(&changes, BTreeSet::new());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut picks = BTreeSet::new();
        while picks.len() < cuts.min(events as usize / 2) {
            picks.insert(rng.random_range(0..events));
        }
        let (taken, again) = self.run(&changes, picks);
        assert_eq!((events, taken.len()), (again, cuts), "{self:?}: the same run twice");
        let judged = taken.iter().filter_map(|cut| {
            let found = self.judge(cut, &digests).err()?;
            Some(format!("{self:?}, cut at event {}: {found}", cut.event))
        });
        judged.collect()
    }
}

fn apply(db: &Connection, change: &Change) -> rusqlite::Result<()> {
    let transaction = db.unchecked_transaction()?;
    for (key, value) in change {
        match value {
            Some(value) => db.execute("REPLACE INTO kv VALUES (?1, ?2)", params![key, value])?,
            None => db.execute("DELETE FROM kv WHERE k = ?1", params![key])?,
        };
    }
    db.execute("UPDATE done SET n = n + 1", [])?;
    transaction.commit()
}

/// What integrity_check says, how many transactions are there, and the digest of the table.
fn look(volume: &SqliteVfs) -> rusqlite::Result<(String, usize, u64)> {
    let db = volume.open("/test.db")?;
    let sound = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let done: i64 = db.query_row("SELECT n FROM done", [], |row| row.get(0))?;
    let mut rows = db.prepare("SELECT k, v FROM kv")?;
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let table: BTreeMap<i64, Vec<u8>> = rows.collect::<rusqlite::Result<_>>()?;
    Ok((sound, done as usize, digest(&table)))
}

/// Strict and OPRW on zones without power-loss protection, posix on a conventional drive.
const VOLUMES_AND_MODES: [(bool, &str); 3] =
    [(true, "fsync_mode=strict"), (true, "fsync_mode=posix,oprw"), (false, "fsync_mode=posix")];

/// Atomic writes take one flush here.
const ONE_FLUSH: [(bool, &str); 2] =
    [(true, "fsync_mode=strict,oprw"), (false, "fsync_mode=strict,oprw")];

fn every_commit_survives(journal: &'static str, cuts: usize, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for (zoned, options) in VOLUMES_AND_MODES {
            let broken = Setup { zoned, options, journal, atomic: false, seed }.campaign(cuts);
            assert!(broken.is_empty(), "{} of {cuts}: {:#?}", broken.len(), broken);
        }
    }
}

#[test]
fn commits_survive_cuts_with_a_rollback_journal() {
    every_commit_survives("delete", 100, 1..2);
}

#[test]
fn commits_survive_cuts_with_a_wal() {
    every_commit_survives("wal", 100, 1..2);
}

/// No journal is written: its file is never made.
#[test]
fn commits_survive_cuts_without_a_journal() {
    for (zoned, options) in VOLUMES_AND_MODES.into_iter().chain(ONE_FLUSH) {
        let setup = Setup { zoned, options, journal: "delete", atomic: true, seed: 1 };
        let broken = setup.campaign(100);
        assert!(broken.is_empty(), "{} of 100: {broken:#?}", broken.len());
        let lost = if zoned { "oprw,inject=drop-flush" } else { "inject=drop-flush" };
        let setup = Setup { options: lost, ..setup };
        assert!(!setup.campaign(60).is_empty(), "{setup:?}: nothing was noticed");
    }
}

#[test]
fn a_lost_flush_is_noticed() {
    for journal in ["delete", "wal"] {
        for (zoned, options) in [
            (true, "fsync_mode=strict,inject=drop-flush"),
            (true, "fsync_mode=posix,oprw,inject=drop-flush"),
            (false, "fsync_mode=posix,inject=drop-flush"),
        ] {
            let setup = Setup { zoned, options, journal, atomic: false, seed: 1 };
            assert!(!setup.campaign(60).is_empty(), "{setup:?}: nothing was noticed");
        }
    }
}

#[test]
#[ignore = "long: thousands of cuts"]
fn commits_survive_thousands_of_cuts() {
    every_commit_survives("delete", 200, 10..15);
    every_commit_survives("truncate", 200, 20..22);
    every_commit_survives("persist", 200, 30..32);
    every_commit_survives("wal", 200, 40..45);
}

/// Connections of one process: locks, and the WAL's index in memory they share.
#[test]
fn connections_of_several_threads_share_a_database() {
    const THREADS: i64 = 4;
    const EACH: i64 = 25;
    let _alone = ALONE.lock();
    for journal in ["delete", "wal"] {
        let drive: Arc<dyn Drive> = drive::ram(1 << 15);
        mkfs::format(&drive, &mkfs::MkfsOptions::default()).unwrap();
        let fs = Arc::new(F2fs::mount(drive, &"fsync_mode=posix".parse().unwrap()).unwrap());
        let setup = Setup { zoned: false, options: "", journal, atomic: false, seed: 1 };
        let volume = Arc::new(setup.register(&fs));
        let db = volume.open("/shared.db").unwrap();
        db.execute_batch(&format!("PRAGMA journal_mode = {journal}; CREATE TABLE t (n)")).unwrap();
        let add = |volume: Arc<SqliteVfs>| {
            let db = volume.open("/shared.db").unwrap();
            db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
            for n in 0..EACH {
                db.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            }
        };
        let start = |_| {
            let volume = volume.clone();
            cores::spawn("writer", None, move || add(volume))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().for_each(cores::JoinHandle::join);
        let (rows, sum): (i64, i64) = db
            .query_row("SELECT count(*), sum(n) FROM t", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!((rows, sum), (THREADS * EACH, THREADS * EACH * (EACH - 1) / 2), "{journal}");
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok", "{journal}");
    }
}
