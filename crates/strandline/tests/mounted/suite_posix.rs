//! pjdfstest, the POSIX test suite, as root on a mounted volume: every test that applies passes,
//! and these are exactly the known ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mounting::programs::{installed, said, with_mount_helper};
use crate::mounting::{DESIGNS, Disk, Rig};

/// All tests this version has for Linux.
const TESTS: usize = 398;

/// Not applicable: pathconf(3) has to report how many links a file may have, and the C library,
/// which knows that by file system, says "unknown" for everything mounted through FUSE. F2FS's
/// limit is 2^32 - 1, ext4's 65,000.
const UNKNOWN_LINK_MAX: &str = "link::link_count_max";

/// Each in a process of its own. They make the mount read-only, which a kernel refuses while a file
/// is open for writing, and pjdfstest never closes those of its `posix_fallocate` and `open` tests:
/// what comes after these in one process fails with EBUSY on every file system, ext4 among them.
const READ_ONLY: [&str; 13] = [
    "chmod::erofs_named",
    "chown::erofs_named",
    "chown::lchown::erofs_named",
    "link::erofs_named",
    "mkdir::erofs_new_file",
    "mkfifo::erofs_new_file",
    "open::erofs_named",
    "open::erofs_new_file",
    "rename::erofs_named",
    "rmdir::erofs_named",
    "symlink::erofs_new_file",
    "truncate::erofs_named",
    "unlink::erofs_named",
];

const CONFIG: &str = "\
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
";
const USERS: &str = "\
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

#[test]
#[ignore = "long: needs pjdfstest"]
fn pjdfstest() {
    passes("f2fs", Disk::Plain(128), "rw");
}

#[test]
#[ignore = "long: needs pjdfstest"]
fn pjdfstest_on_ext4() {
    passes("ext4", Disk::Plain(128), "rw");
}

#[test]
#[ignore = "long: needs pjdfstest"]
fn pjdfstest_on_pmfs() {
    for (make, options) in DESIGNS {
        passes("pmfs", Disk::Memory(make, 128), options);
    }
}

fn passes(fs: &'static str, disk: Disk, options: &str) {
    let suite = Suite::new(fs, disk, options);
    let said = suite.run(false, &[]);
    let (passed, skipped, failed) = (with(&said, "ok"), with(&said, "skipped"), failed(&said));
    assert!(failed.is_empty(), "{failed:?}\n{said}");
    let expected: BTreeSet<&str> = READ_ONLY.into_iter().chain([UNKNOWN_LINK_MAX]).collect();
    assert_eq!(skipped, expected, "{said}");
    assert_eq!(passed.len(), TESTS - expected.len(), "{said}");
    for test in READ_ONLY {
        let said = suite.run(true, &["--exact", &format!("pjdfstest::tests::{test}")]);
        assert_eq!(with(&said, "ok"), BTreeSet::from([test]), "{said}");
    }
    println!("pjdfstest on {fs} {options}: {} of {TESTS} pass, 1 does not apply", TESTS - 1);
    suite.rig.unmount();
    suite.rig.check();
}

/// Names of the tests with this `verdict`.
fn with<'a>(said: &'a str, verdict: &str) -> BTreeSet<&'a str> {
    let tests = said.lines().filter(|line| !line.starts_with(['\t', ' ']));
    tests
        .filter_map(|line| line.split_once(char::is_whitespace))
        .filter_map(|(name, rest)| (rest.trim() == verdict).then_some(name))
        .collect()
}

fn failed(said: &str) -> BTreeSet<&str> {
    with(said, "FAILED")
}

/// A volume, and pjdfstest set up for it.
struct Suite {
    rig: Rig,
    program: PathBuf,
    scratch: tempfile::TempDir,
}

impl Suite {
    fn new(fs: &'static str, disk: Disk, options: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let rig = Rig::of(fs, disk, &["-o", options]);
        Self { program: installed("pjdfstest", "0.2.2"), rig, scratch }
    }

    /// pjdfstest's output for the tests with these names, or for all.
    fn run(&self, may_remount: bool, names: &[&str]) -> String {
        let scratch = self.scratch.path();
        let config = scratch.join("config.toml");
        let text = format!("{CONFIG}allow_remount = {may_remount}\n{USERS}");
        std::fs::write(&config, text).unwrap();
        let mut suite = with_mount_helper(&self.program, scratch);
        arguments(&mut suite, &config, &self.rig.point(), scratch).args(names);
        let output = suite.output().expect("unshare runs");
        assert!(!output.stdout.is_empty(), "{suite:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// `other` is in another file system.
fn arguments<'a>(
    suite: &'a mut Command,
    config: &Path,
    point: &Path,
    other: &Path,
) -> &'a mut Command {
    suite.arg("-c").arg(config).arg("-p").arg(point).arg("-s").arg(other)
}
