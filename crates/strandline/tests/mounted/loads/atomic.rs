//! SQLite that commits through the file system's atomic writes and has no journal. A transaction
//! whose commit returned is there, and none is there partially.

use std::collections::BTreeMap;
use std::path::Path;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rusqlite::{Connection, Result};

use super::{Kept, Load};

/// Rows of a transaction, most of which replace older ones.
const ROWS: i64 = 4;
const KEYS: i64 = 500;
const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, made_by INTEGER, contents TEXT)";
/// A row that every transaction replaces.
const LAST: i64 = -1;

/// For each row the transaction that made it, and its contents.
type Rows = BTreeMap<i64, (usize, String)>;

/// What each transaction wrote, and how many were committed.
#[derive(Default)]
pub(crate) struct Log {
    begun: Vec<Rows>,
    committed: usize,
}

/// Works in `dir` until that fails.
pub(crate) fn work(dir: &Path, seed: u64, kept: &Kept) -> Log {
    let mut log = Log::default();
    // The error is the cut.
    let _ = log.fill(dir, seed, kept);
    log
}

/// The table is made with a journal, as an empty database has nothing to write atomically; cutting
/// that one off is synced.
fn open(dir: &Path) -> Result<Connection> {
    let db = Connection::open(dir.join("atomic"))?;
    db.execute_batch("PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL;")?;
    Ok(db)
}

impl Log {
    fn fill(&mut self, dir: &Path, seed: u64, kept: &Kept) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let db = open(dir)?;
        db.execute(TABLE, [])?;
        for number in 1.. {
            let mut rows = Rows::from([(LAST, (number, String::new()))]);
            let row = |_| {
                let contents = format!("{number} ").repeat(random.random_range(1..600));
                (random.random_range(0..KEYS), (number, contents))
            };
            rows.extend((0..ROWS).map(row));
            self.begun.push(rows);
            let transaction = db.unchecked_transaction()?;
            for (id, (made_by, contents)) in &self.begun[self.committed] {
                let replace = "REPLACE INTO t VALUES (?1, ?2, ?3)";
                transaction.execute(replace, (id, *made_by as i64, contents))?;
            }
            transaction.commit()?;
            self.committed += 1;
            kept.one_more();
        }
        Ok(())
    }

    /// What is wrong with a database, unless SQLite says so itself.
    fn fault(&self, db: &Connection) -> Result<Option<String>> {
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if sound != "ok" {
            return Ok(Some(sound));
        }
        let mut rows = db.prepare("SELECT id, made_by, contents FROM t")?;
        let rows = rows.query_map([], |row| {
            Ok((row.get(0)?, (row.get::<_, i64>(1)? as usize, row.get(2)?)))
        })?;
        let found = rows.collect::<Result<Rows>>()?;
        let there = found.get(&LAST).map_or(0, |(number, _)| *number);
        let may = self.committed..=self.begun.len();
        if !may.contains(&there) {
            return Ok(Some(format!("{there} transactions, not {may:?}")));
        }
        let written = self.begun[..there].iter().flatten();
        let expected: Rows = written.map(|(id, row)| (*id, row.clone())).collect();
        Ok((found != expected).then(|| format!("transaction {there} is there in part")))
    }
}

impl Load for Log {
    fn name(&self) -> &'static str {
        "SQLite with atomic writes"
    }

    fn promises(&self) -> u64 {
        self.committed as u64
    }

    fn broken(&self, dir: &Path) -> Vec<String> {
        let fault = open(dir).and_then(|db| self.fault(&db)).unwrap_or_else(|error| {
            // Before the first commit there may be no table.
            (self.committed > 0).then(|| error.to_string())
        });
        fault.map(|fault| format!("atomic database: {fault}")).into_iter().collect()
    }
}
