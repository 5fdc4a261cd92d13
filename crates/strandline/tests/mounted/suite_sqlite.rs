//! How fast SQLite commits on a mount: through atomic writes, with a WAL and with a rollback
//! journal, each with `synchronous=FULL`.
//!
//! SQLite in this process is built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE` and then cannot be made
//! to use a rollback journal; the program `sqlite3` is Debian's, without that option. So both run
//! the WAL. `COMMITS` is how many there are in a round. Needs root, /dev/fuse and the packages
//! fuse3 and sqlite3.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;

use crate::mounting::{Disk, PROTECTED, Rig, VOLATILE, number, require};

const ROUNDS: usize = 5;
/// An image whose drive takes no time, and emulated ones that take theirs.
const MOUNTS: [(&str, Disk, &str); 6] = [
    ("image", Disk::Plain(256), "fsync_mode=posix"),
    ("no PLP", Disk::Zoned(VOLATILE, 64), "fsync_mode=posix,timing=paced"),
    ("no PLP", Disk::Zoned(VOLATILE, 64), "fsync_mode=strict,timing=paced"),
    ("no PLP", Disk::Zoned(VOLATILE, 64), "oprw,timing=paced"),
    ("PLP", Disk::Zoned(PROTECTED, 64), "fsync_mode=posix,timing=paced"),
    ("PLP", Disk::Zoned(PROTECTED, 64), "oprw,timing=paced"),
];

/// Which SQLite commits, and in which way.
const WAYS: [(&str, &str, Run); 4] = [
    ("atomic writes", "DELETE", here),
    ("WAL", "WAL", here),
    ("sqlite3: WAL", "WAL", program),
    ("sqlite3: journal", "DELETE", program),
];

/// Runs a script on a database, and closes it.
type Run = fn(&Path, script: &Path);

fn here(database: &Path, script: &Path) {
    let db = Connection::open(database).unwrap();
    let with = "SELECT sqlite_compileoption_used('ENABLE_BATCH_ATOMIC_WRITE')";
    assert!(db.query_row(with, [], |row| row.get::<_, bool>(0)).unwrap(), "see .cargo/config.toml");
    fs::read_to_string(script).unwrap().lines().for_each(|line| db.execute_batch(line).unwrap());
}

fn program(database: &Path, script: &Path) {
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg("-bail").arg(database).stdin(File::open(script).unwrap()).stdout(Stdio::null());
    assert!(sqlite.status().unwrap().success());
}

/// Commits a second of one round, of rows of 1,000 bytes.
fn rate((_, disk, options): (&str, Disk, &str), (_, journal, run): (&str, &str, Run)) -> u64 {
    let (rig, outside) = (Rig::on(disk, &["-o", options]), tempfile::tempdir().unwrap());
    let (database, script) = (rig.point().join("db"), outside.path().join("script"));
    let commits = number("COMMITS", 1000);
    let begin = format!("PRAGMA journal_mode = {journal};\nPRAGMA synchronous = FULL;\n");
    fs::write(&script, format!("{begin}CREATE TABLE t (id INTEGER PRIMARY KEY, contents);\n"))
        .unwrap();
    run(&database, &script);
    let insert = |id| format!("INSERT INTO t VALUES ({id}, randomblob(1000));\n");
    fs::write(&script, begin + &(0..commits).map(insert).collect::<String>()).unwrap();
    let begun = cores::now();
    run(&database, &script);
    let ns = cores::now() - begun;
    let db = Connection::open(&database).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!((sound.as_str(), rows as u64), ("ok", commits));
    drop(db);
    rig.unmount();
    rig.check();
    commits * 1_000_000_000 / ns
}

#[test]
#[ignore = "long: measures rates, rounds in turns"]
fn commits_a_second() {
    require("sqlite3", "sqlite3");
    let mut rates: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (m, mount) in MOUNTS.into_iter().enumerate() {
            for (w, way) in WAYS.into_iter().enumerate() {
                rates.entry((m, w)).or_default().push(rate(mount, way));
            }
        }
    }
    let median = |rounds: &mut Vec<u64>| {
        rounds.sort_unstable();
        rounds[rounds.len() / 2]
    };
    for ((m, w), mut rounds) in rates {
        let (drive, _, options) = MOUNTS[m];
        let median = median(&mut rounds);
        println!("{drive:6} {options:31} {:16} {median:6}/s of {rounds:?}", WAYS[w].0);
    }
}
