//! The command run as a script runs it, for all tests of this crate.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod manifest;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of a test's own below the target directory.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&dir));
        std::fs::create_dir_all(&dir).expect("the target directory takes files");
        Self(dir)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("an ASCII path").to_owned()
    }

    /// An empty F2FS volume on an emulated zoned drive.
    pub fn volume(&self) -> String {
        let image = self.path("disk.img");
        ok(&format!("drive create {ZONED} {image}"));
        let made = ok(&format!("mkfs {image}"));
        assert!(made.ends_with("Info: format successful\n"), "{made}");
        image
    }
}

/// The command as users get it, if the variable STRANDLINE names it, as `make test-all` does.
/// Otherwise the tests' own, whose dependencies have all the features that other packages and tests
/// ask for.
pub fn program() -> PathBuf {
    std::env::var_os("STRANDLINE")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_strandline")), PathBuf::from)
}

pub const ZONED: &str = "--profile zn540-noplp --zone-size 32m --zone-capacity 18m --zones 40 \
                     --conventional 2";

pub fn strandline(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.args(line.split_whitespace()).output().expect("the command starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a command that must succeed.
pub fn ok(line: &str) -> String {
    let out = strandline(line);
    assert!(out.status.success(), "{line}: {:?} {}", out.status, text(&out.stderr));
    text(&out.stdout)
}

/// The one line a failing command says, and its status.
pub fn fails(line: &str) -> (i32, String) {
    let out = strandline(line);
    let said = text(&out.stderr);
    assert!(!out.status.success(), "{line} succeeded");
    assert!(!said.contains("panicked"), "{line}: {said}");
    (out.status.code().expect("an exit status"), said)
}

/// Runs one of Debian's tools in `dir`. Without it there is no judge, and no verdict: that fails
/// the test.
pub fn tool(dir: &Path, line: &str) -> Output {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a program");
    let found = ["/usr/sbin", "/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let Some(path) = found.into_iter().find(|path| path.exists()) else {
        panic!("{name} is not installed; it judges these tests: apt-get install f2fs-tools");
    };
    let mut command = Command::new(&path);
    command.args(words).current_dir(dir).stdin(std::process::Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// `fsck.f2fs` must find nothing.
pub fn assert_fsck_clean(image: &str) {
    let out = tool(Path::new("/"), &format!("fsck.f2fs --dry-run {image}"));
    let said = text(&out.stdout);
    assert!(out.status.code() == Some(0) && !said.contains("[Fail]"), "{image}: {said}");
}
