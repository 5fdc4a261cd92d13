//! SQLite with `synchronous=FULL`: rows in transactions of their own, by the `sqlite3` program. A
//! transaction that it answered was committed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Load;

const ROWS: u32 = 20_000;
/// Contents of a row, derived from its number.
const CONTENTS: &str = "printf('%.*c', 100 + id * 37 % 3000, char(97 + id % 26))";

/// Journals whose commits `synchronous=FULL` makes durable. Not `DELETE`: FULL does not sync the
/// directory the journal was removed from, and EXTRA takes it for synced if the mount goes away
/// before it has opened it (SQLite 3.40, `unixDelete`).
const JOURNALS: [&str; 3] = ["WAL", "TRUNCATE", "PERSIST"];

/// A database that is being filled.
pub(crate) struct Filling {
    sqlite: Child,
    answers: PathBuf,
    journal: &'static str,
}

/// A database that is no longer being filled.
pub(crate) struct Log {
    committed: u64,
    journal: &'static str,
}

/// Begins to fill a database in `dir`; what SQLite answers is kept in `outside`.
pub(crate) fn start(dir: &Path, outside: &Path, seed: u64) -> Filling {
    let journal = JOURNALS[(seed % 3) as usize];
    let mut script = format!(
        ".bail on\nPRAGMA journal_mode={journal};\nPRAGMA synchronous=FULL;\n\
         CREATE TABLE t(id INTEGER PRIMARY KEY, contents TEXT);\n"
    );
    for id in 1..=ROWS {
        script += &format!("INSERT INTO t SELECT {id}, {CONTENTS} FROM (SELECT {id} AS id);\n");
        // Before it reads the next line, the program writes its answers out.
        script += &format!("SELECT 'committed {id}';\n");
    }
    fs::write(outside.join("script"), script).unwrap();
    let answers = outside.join("answers");
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg(dir.join("db")).stdin(File::open(outside.join("script")).unwrap());
    sqlite.stdout(File::create(&answers).unwrap()).stderr(Stdio::null());
    Filling { sqlite: sqlite.spawn().expect("sqlite3 runs"), answers, journal }
}

impl Filling {
    /// How many rows SQLite has said are committed.
    pub(crate) fn committed(&self) -> u64 {
        let answers = fs::read_to_string(&self.answers).unwrap();
        answers.lines().filter(|line| line.starts_with("committed ")).count() as u64
    }

    pub(crate) fn end(mut self) -> Log {
        self.sqlite.kill().unwrap();
        self.sqlite.wait().unwrap();
        Log { committed: self.committed(), journal: self.journal }
    }
}

impl Load for Log {
    fn name(&self) -> &'static str {
        "SQLite with a journal"
    }

    fn promises(&self) -> u64 {
        self.committed
    }

    fn broken(&self, dir: &Path) -> Vec<String> {
        if self.committed == 0 && !dir.join("db").exists() {
            return Vec::new();
        }
        let count = format!("SELECT count(*) FROM t WHERE id <= {} AND contents = {CONTENTS};", {
            self.committed
        });
        let ask = |question: &str| {
            let output =
                Command::new("sqlite3").arg(dir.join("db")).arg(question).output().unwrap();
            let (said, error) = (output.stdout, output.stderr);
            String::from_utf8_lossy(&[said, error].concat()).trim().to_owned()
        };
        let journal = self.journal;
        let mut broken = Vec::new();
        let integrity = ask("PRAGMA integrity_check;");
        if integrity != "ok" {
            broken.push(format!("database, {journal}: {integrity}"));
        }
        if self.committed > 0 {
            let found = ask(&count);
            if found != self.committed.to_string() {
                let committed = self.committed;
                broken.push(format!("database, {journal}: {found} rows of {committed} committed"));
            }
        }
        broken
    }
}
