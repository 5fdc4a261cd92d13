//! MariaDB and sysbench on mounted volumes of emulated zoned drives with the timing of real ones:
//! what each fsync mode is worth to a database (the second half of the thesis's Figure 6.2, with
//! the real server), and whether every commit is there after the power failed under it.
//!
//! `SUITE_SECONDS` is the time of all rounds of one mode, `CUTS` how often the power fails. The
//! canary is a mode that promises nothing to the drive it is on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::mounting::mariadb::{self, Server};
use crate::mounting::programs::succeed;
use crate::mounting::{Disk, PROTECTED, Rig, VOLATILE, number, require, strandline};

/// Zones of 4 MiB of the drives: the redo log is 48 MiB.
const ZONES: u32 = 160;
const ROUNDS: u64 = 3;
/// Rows of the table inserts go to.
const ROWS: u64 = 10_000;

const MODES: [(&str, &str); 6] = [
    (VOLATILE, "fsync_mode=posix"),
    (VOLATILE, "fsync_mode=strict"),
    (VOLATILE, "oprw"),
    (PROTECTED, "fsync_mode=posix"),
    (PROTECTED, "fsync_mode=strict"),
    (PROTECTED, "oprw"),
];

/// Inserts per second under each mode, rounds in turns. Each row is there, after a remount too, and
/// both fscks find nothing.
#[test]
#[ignore = "long: MariaDB and sysbench"]
fn oltp_insert() {
    require("sysbench", "sysbench");
    let seconds = number("SUITE_SECONDS", 25).div_ceil(ROUNDS);
    let mut rates: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for mode in MODES {
            rates.entry(mode).or_default().push(inserts(mode, seconds) / seconds);
        }
    }
    for ((drive, options), mut rounds) in rates {
        rounds.sort_unstable();
        let median = rounds[rounds.len() / 2];
        println!("oltp_insert {drive:12} {options:18} {median:6}/s of {rounds:?}");
    }
}

/// The rows inserted in a number of seconds.
fn inserts((drive, options): (&'static str, &str), seconds: u64) -> u64 {
    let options = format!("{options},timing=paced");
    let rig = Rig::on(Disk::Zoned(drive, ZONES), &["-o", &options]);
    let outside = tempfile::tempdir().unwrap();
    mariadb::install(&rig);
    let server = Server::start(&rig, outside.path()).unwrap();
    server.ask("CREATE DATABASE sbtest").unwrap();
    sysbench(&server, &["prepare"]);
    let time = format!("--time={seconds}");
    let said = sysbench(&server, &[&time, "run"]);
    let done = said.lines().find_map(|line| line.trim().strip_prefix("transactions:"));
    let done = done.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let done: u64 = done.unwrap_or_else(|| panic!("sysbench says no transactions: {said}"));
    let look = |server: &Server| {
        let found = server.ask("CHECK TABLE sbtest.sbtest1; SELECT count(*) FROM sbtest.sbtest1");
        let sound = format!("sbtest.sbtest1\tcheck\tstatus\tOK\n{}", ROWS + done);
        assert_eq!(found.as_ref(), Ok(&sound), "{drive} {options}");
    };
    look(&server);
    server.stop();
    rig.remount(&["-o", &options]);
    let server = Server::start(&rig, outside.path()).unwrap();
    look(&server);
    server.stop();
    rig.unmount();
    rig.check();
    done
}

fn sysbench(server: &Server, args: &[&str]) -> String {
    let mut sysbench = Command::new("sysbench");
    sysbench.args(["oltp_insert", "--db-driver=mysql", "--mysql-user=root", "--threads=1"]);
    sysbench.arg(format!("--mysql-{}", server.socket().trim_start_matches('-')));
    sysbench.arg(format!("--table-size={ROWS}"));
    succeed(sysbench.args(args))
}

#[test]
#[ignore = "long: MariaDB and power cuts"]
fn every_commit_survives() {
    let modes =
        [(VOLATILE, "oprw"), (VOLATILE, "fsync_mode=strict"), (VOLATILE, "fsync_mode=posix")];
    let cuts = number("CUTS", 24).div_ceil(modes.len() as u64);
    for (seed, (drive, options)) in (1..).zip(modes) {
        let (committed, broken) = cut_under_inserts(seed, drive, options, cuts);
        assert!(broken.is_empty(), "{drive} {options}: {}", broken.join("\n"));
        assert!(committed > cuts, "{drive} {options}: only {committed} commits");
        println!("{drive} {options}: {cuts} cuts, {committed} commits kept");
    }
}

#[test]
#[ignore = "long: MariaDB and power cuts"]
fn a_mode_that_promises_nothing_loses_commits() {
    let (_, broken) = cut_under_inserts(7, VOLATILE, "fsync_mode=nobarrier", 20);
    assert!(!broken.is_empty(), "20 cuts and nothing is missing");
}

/// Contents of a row, derived from its number.
const CONTENTS: &str = "repeat(char(97 + id % 26), 100 + id * 37 % 3000)";

/// Cuts the power under inserts, each a commit, a table per cut; how many were acknowledged, and
/// what is wrong after the first cut with which something is.
fn cut_under_inserts(
    seed: u64,
    drive: &'static str,
    options: &str,
    cuts: u64,
) -> (u64, Vec<String>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rig = Rig::on(Disk::Zoned(drive, ZONES), &["-o", options]);
    let outside = tempfile::tempdir().unwrap();
    mariadb::install(&rig);
    let mut server = Server::start(&rig, outside.path()).unwrap();
    server.ask("CREATE DATABASE cuts").unwrap();
    let mut committed = Vec::new();
    for cut in 0..cuts {
        let ms = random.random_range(100..1500);
        committed.push(insert_until(&server, cut, outside.path(), || {
            cores::sleep(ms * 1_000_000);
            let seed = random.random::<u64>().to_string();
            let cut = strandline(&["drive", "cut", "--seed", &seed], &rig.point());
            assert!(cut.status.success(), "{cut:?}");
        }));
        server.kill();
        rig.give_up();
        rig.mount(&["-o", options]);
        server = match Server::start(&rig, outside.path()) {
            Ok(server) => server,
            Err(said) => return (committed.iter().sum(), vec![said]),
        };
        let broken: Vec<String> = (0..)
            .zip(&committed)
            .filter_map(|(table, &rows)| missing(&server, table, rows))
            .collect();
        if !broken.is_empty() {
            return (committed.iter().sum(), broken);
        }
    }
    server.stop();
    rig.unmount();
    rig.check();
    (committed.iter().sum(), Vec::new())
}

/// Inserts rows one by one into a new table while `cut` comes to pass; returns how many the server
/// acknowledged.
fn insert_until(server: &Server, table: u64, outside: &Path, cut: impl FnOnce()) -> u64 {
    let create = "id INT PRIMARY KEY, contents TEXT) ENGINE=InnoDB";
    server.ask(&format!("CREATE TABLE cuts.t{table} ({create}")).unwrap();
    let insert = |id: u64| {
        let contents = CONTENTS.replace("id", &id.to_string());
        format!("INSERT INTO cuts.t{table} VALUES ({id}, {contents});\nSELECT {id};\n")
    };
    let (script, answers) = (outside.join("script"), outside.join("answers"));
    fs::write(&script, (1..=20_000).map(insert).collect::<String>()).unwrap();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--unbuffered"]);
    client.arg(server.socket()).stdin(File::open(&script).unwrap());
    client.stdout(File::create(&answers).unwrap()).stderr(Stdio::null());
    let mut client = client.spawn().expect("mariadb runs");
    cut();
    client.kill().unwrap();
    client.wait().unwrap();
    fs::read_to_string(&answers).unwrap().lines().count() as u64
}

/// What is wrong with a table of which this many rows were committed.
fn missing(server: &Server, table: u64, rows: u64) -> Option<String> {
    let right = format!("FROM cuts.t{table} WHERE id <= {rows} AND contents = {CONTENTS}");
    let found = server.ask(&format!("CHECK TABLE cuts.t{table}; SELECT count(*) {right}"));
    let sound = format!("cuts.t{table}\tcheck\tstatus\tOK\n{rows}");
    (found.as_ref() != Ok(&sound)).then(|| format!("{rows} rows committed to t{table}: {found:?}"))
}
