//! Programs people use, on mounted volumes, each of which checks itself or is checked: fio with
//! checksums, SQLite, dbench, stress-ng, tar, rsync, git and cargo. F2FS on a conventional drive
//! and under OPRW on a zoned one, ext4, and pmfs in memory; every fsck finds nothing afterwards.
//! `SUITE_SECONDS` is how long dbench runs, and each stressor of stress-ng a fifth of it. `FS`
//! leaves the other file systems out.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mounting::programs::{shell, succeed};
use crate::mounting::{DESIGNS, Disk, Rig, VOLATILE, number, require};

const VOLUMES: [(&str, Disk, &str); 7] = [
    ("f2fs", Disk::Plain(1536), "fsync_mode=posix"),
    ("f2fs", Disk::Zoned(VOLATILE, 384), "oprw"),
    ("ext4", Disk::Plain(1536), "data=ordered"),
    ("ext4", Disk::Plain(1536), "data=journal"),
    ("pmfs", Disk::Memory(DESIGNS[0].0, 1024), DESIGNS[0].1),
    ("pmfs", Disk::Memory(DESIGNS[1].0, 1024), DESIGNS[1].1),
    ("pmfs", Disk::Memory(DESIGNS[2].0, 1024), DESIGNS[2].1),
];

/// Runs `work` on a volume of each kind. Its result must be the same after a remount.
fn on_each(work: impl Fn(&Rig), look: impl Fn(&Path) -> String) {
    let only = std::env::var("FS").ok();
    for (fs, disk, options) in VOLUMES {
        if only.as_ref().is_some_and(|only| only != fs) {
            continue;
        }
        let rig = Rig::of(fs, disk, &["-o", options]);
        work(&rig);
        let before = look(&rig.point());
        rig.remount(&["-o", options]);
        assert_eq!(look(&rig.point()), before, "{disk:?} {options}: after a remount");
        rig.unmount();
        rig.check();
    }
}

/// Names, kinds, owners, modes, sizes and links of a tree, and checksums of its files.
fn tree(dir: &Path) -> String {
    shell(
        "find . ! -name lost+found -printf '%P %y %U %G %m %n %s %T@ %l\\n' | sort
         find . -type f -print0 | sort -z | xargs -0r sha256sum",
        dir,
    )
}

const FIO: &str = "
[global]
size=48m
verify=crc32c
verify_fatal=1
randseed=7
[sequential]
rw=write
bs=128k
[random]
stonewall
rw=randwrite
bs=4k
fsync=16
[direct]
stonewall
rw=randwrite
bs=4k
direct=1
iodepth=8
ioengine=io_uring
[mixed-direct]
stonewall
rw=randrw
bsrange=4k-256k
direct=1
[mmap]
stonewall
rw=randwrite
ioengine=mmap
bs=4k
";

#[test]
#[ignore = "long: fio"]
fn fio() {
    require("fio", "fio");
    let scratch = tempfile::tempdir().unwrap();
    let jobs = scratch.path().join("jobs.fio");
    fs::write(&jobs, FIO).unwrap();
    let work = |rig: &Rig| {
        let mut fio = Command::new("fio");
        fio.arg("--directory").arg(rig.point()).arg(&jobs).current_dir(scratch.path());
        succeed(&mut fio);
    };
    on_each(work, tree);
}

const BULK: &str = "
PRAGMA journal_mode=%; PRAGMA synchronous=FULL;
CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO t SELECT i, i * 7919 % 100003, printf('%.*c', i % 300, 'x') FROM n;
CREATE INDEX by_a ON t(a);
UPDATE t SET b = b || a WHERE a % 3 = 0;
DELETE FROM t WHERE a % 5 = 1;
VACUUM;
UPDATE t SET a = a + 1;
";

#[test]
#[ignore = "long: SQLite"]
fn sqlite() {
    require("sqlite3", "sqlite3");
    let work = |rig: &Rig| {
        for journal in ["WAL", "DELETE", "TRUNCATE"] {
            let script = BULK.replacen('%', journal, 1);
            succeed(Command::new("sqlite3").arg(rig.point().join(journal)).arg(script));
        }
    };
    let look = |dir: &Path| {
        let ask = "PRAGMA integrity_check; SELECT count(*), sum(a), sum(length(b)) FROM t;";
        let found = ["WAL", "DELETE", "TRUNCATE"]
            .map(|name| succeed(Command::new("sqlite3").arg(dir.join(name)).arg(ask)));
        assert!(
            found.iter().all(|text| text.starts_with("ok\n") && *text == found[0]),
            "{found:?}"
        );
        found.concat()
    };
    on_each(work, look);
}

#[test]
#[ignore = "long: dbench"]
fn dbench() {
    require("dbench", "dbench");
    let seconds = number("SUITE_SECONDS", 25).to_string();
    let work = |rig: &Rig| {
        let said =
            succeed(Command::new("dbench").args(["-t", &seconds, "-D"]).arg(rig.point()).arg("4"));
        let rate = said.lines().find(|line| line.starts_with("Throughput"));
        println!("dbench: {}", rate.expect("dbench ends with its throughput"));
    };
    on_each(work, tree);
}

/// Stressors of other things: binder's own file system, and what FUSE does not support: `FIEMAP`
/// and fs-verity.
const NOT_OURS: &str = "binderfs,fiemap,verity";

/// All of stress-ng's file system stressors, one after the other, two of each at a time.
#[test]
#[ignore = "long: stress-ng, a quarter of an hour"]
fn stress_ng() {
    require("stress-ng", "stress-ng");
    let seconds = number("SUITE_SECONDS", 25).div_ceil(5).to_string();
    let work = |rig: &Rig| {
        let mut stress = Command::new("stress-ng");
        stress.args(["--class", "filesystem", "--exclude", NOT_OURS, "--sequential", "2"]);
        stress.args(["--verify", "--timeout", &seconds]);
        succeed(stress.arg("--temp-path").arg(rig.point()));
    };
    on_each(work, tree);
}

/// A tree with something of everything: these sources, links, holes, attributes, a pipe.
fn source() -> tempfile::TempDir {
    require("setfattr", "attr");
    require("setfacl", "acl");
    let dir = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let script = format!(
        "cp -r '{}' sources; mkdir odd; cd odd; echo x > a; ln a b; ln -s a c; ln -s /nowhere d
         mkfifo p; truncate -s 99M hole; echo end >> hole; dd if=/dev/urandom of=r bs=1M count=20
         setfattr -n user.test -v value a; setfacl -m u:nobody:rwx r; chown 12:34 r; chmod 4711 a
         mkdir -p deep/er/still; touch -d 1950-01-01 old; touch -d 2200-01-01 new; chmod 1777 deep
         touch -- -rf 'two words' \"$(printf 'new\\nline')\"",
        sources.display()
    );
    shell(&script, dir.path());
    dir
}

#[test]
#[ignore = "long: tar"]
fn tar_round_trip() {
    let source = source();
    // Headers have the number of the process in their names, and times that cannot be set.
    let pack = "tar --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime --sort=name \
                --xattrs --acls --numeric-owner -cf - .";
    let sum = |dir: &Path| shell(&format!("{pack} | sha256sum"), dir);
    let expected = sum(source.path());
    let work = |rig: &Rig| {
        let into = rig.point().join("tree");
        fs::create_dir(&into).unwrap();
        let unpack = "tar --xattrs --acls --numeric-owner -xpf - -C";
        shell(&format!("{pack} --sparse | {unpack} '{}'", into.display()), source.path());
    };
    on_each(work, |dir| {
        let found = sum(&dir.join("tree"));
        assert_eq!(found, expected);
        found
    });
}

#[test]
#[ignore = "long: rsync"]
fn rsync() {
    require("rsync", "rsync");
    let source = source();
    let copy = |more: &[&str], to: &Path| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-aHAXS", "--checksum", "--itemize-changes", "--delete"]).args(more);
        rsync.arg(format!("{}/", source.path().display())).arg(format!("{}/", to.display()));
        succeed(&mut rsync)
    };
    let work = |rig: &Rig| drop(copy(&[], &rig.point().join("tree")));
    on_each(work, |dir| {
        let differs = copy(&["--dry-run"], &dir.join("tree"));
        assert!(differs.is_empty(), "{differs}");
        differs
    });
}

const DEVELOP: &str = "
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q first; cp -r \"$0\"/. first; cd first; git add -A; git commit -qm one
git mv f2fs moved; git commit -qm two; git gc -q; cd ..
git clone -q --no-hardlinks first second; cd second; git fsck --strict
git checkout -q HEAD~1; git diff --exit-code HEAD; test -z \"$(git status --porcelain)\"
cd ..; cargo init -q --vcs none --name program program; cd program
echo 'fn main() { println!(\"built here\"); }' > src/main.rs
export CARGO_TARGET_DIR=$PWD/target; cargo build -q --offline
test \"$(target/debug/program)\" = 'built here'; cargo build -q --offline; cargo test -q --offline";

#[test]
#[ignore = "long: git and cargo"]
fn git_and_cargo() {
    require("git", "git");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let work = |rig: &Rig| {
        let mut develop = Command::new("sh");
        develop.args(["-euc", DEVELOP]).arg(sources).current_dir(rig.point());
        succeed(&mut develop);
    };
    on_each(work, tree);
}
