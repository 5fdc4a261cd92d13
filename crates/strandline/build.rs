//! The version that `--version` prints: the package's and, in release builds from a clone, the
//! commit's. `STRANDLINE_COMMIT` says it where there is no clone; empty, it says that there is
//! none, as in the tests, which would be compiled again after every commit.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=STRANDLINE_COMMIT");
    let given = std::env::var("STRANDLINE_COMMIT").ok();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| if is_release { of_clone() } else { None });
    let version = env!("CARGO_PKG_VERSION");
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => println!("cargo:rustc-env=STRANDLINE_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=STRANDLINE_VERSION={version}"),
    }
}

/// The commit of the clone whose root is ours; not that of a repository around an unpacked archive.
fn of_clone() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    // HEAD names the branch, its log grows with each commit. What does not exist is not watched:
    // cargo would run this each time.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git says, in our directory; nothing if there is no git.
fn git(arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let said = git.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok().filter(|_| said.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
