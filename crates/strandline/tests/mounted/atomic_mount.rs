//! Atomic writes through a mount: SQLite finds them by itself, and then needs no journal.
//!
//! Needs root, /dev/fuse and the package fuse3.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rusqlite::Connection;

use crate::mounting::Rig;

/// A database with one row, in SQLite's default mode, without a WAL.
fn database(rig: &Rig) -> Connection {
    let db = Connection::open(rig.point().join("test.db")).unwrap();
    let with = "SELECT sqlite_compileoption_used('ENABLE_BATCH_ATOMIC_WRITE')";
    assert!(db.query_row(with, [], |row| row.get::<_, bool>(0)).unwrap(), "see .cargo/config.toml");
    db.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;
         CREATE TABLE t (n, filler); INSERT INTO t VALUES (0, zeroblob(100000));",
    )
    .unwrap();
    db
}

/// The directory changes when a journal is made and removed.
fn changed(rig: &Rig) -> (i64, i64) {
    let found = fs::metadata(rig.point()).unwrap();
    (found.mtime(), found.mtime_nsec())
}

fn rows(rig: &Rig) -> (i64, String) {
    let db = Connection::open(rig.point().join("test.db")).unwrap();
    let sound = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    (db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap(), sound)
}

#[test]
fn sqlite_commits_without_a_journal() {
    // Where the kernel collects writes, atomic writes are not offered, and SQLite falls back.
    for (options, journal) in [("fsync_mode=strict", false), ("writeback", true)] {
        let rig = Rig::new(&["-o", options]);
        let db = database(&rig);
        let before = changed(&rig);
        for n in 1..20 {
            db.execute("INSERT INTO t VALUES (?1, zeroblob(5000))", [n]).unwrap();
        }
        assert_eq!(changed(&rig) != before, journal, "-o {options}: a journal was made");
        drop(db);
        rig.remount(&["-o", options]);
        assert_eq!(rows(&rig), (20, "ok".to_owned()), "-o {options}");
        rig.unmount();
        rig.check();
    }
}
