//! Images made by e2fsprogs, and its tools as judges.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output, Stdio};
use std::sync::Arc;

use drive::{Drive, Timing, image};
use vfs::kind::{Checked, Format as _, Volume};

/// A directory of images that goes away with the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An image of `mib` MiB, made by mke2fs with these options and filled with `tree`.
    pub fn made(&self, name: &str, mib: u64, options: &[&str], tree: Option<&Path>) -> PathBuf {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("a sparse file");
        let mut all = vec!["-q", "-F"];
        all.extend(options);
        if let Some(tree) = tree {
            all.extend(["-d", tree.to_str().expect("a plain path")]);
        }
        all.push(path.to_str().expect("a plain path"));
        let out = tool("mke2fs", &all, "");
        assert!(out.status.success(), "mke2fs {all:?}: {}", said(&out));
        path
    }
}

/// What a tool printed.
pub fn said(out: &Output) -> String {
    [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy).concat()
}

/// One of e2fsprogs' tools. Without it there is no judge, and no verdict: that fails the test.
pub fn program(name: &str) -> Process {
    let path = ["/usr/sbin", "/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let Some(path) = path.into_iter().find(|path| path.exists()) else {
        panic!("{name} is not installed; it judges these tests: apt-get install e2fsprogs");
    };
    let mut process = Process::new(&path);
    process.env("TZ", "UTC").env("LC_ALL", "C");
    process
}

/// Runs one of e2fsprogs' tools.
pub fn tool(name: &str, arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut process = program(name);
    process.args(arguments).stdin(Stdio::piped());
    let mut child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Lets `debugfs -w` do these commands.
pub fn debugfs(image: &Path, commands: &str) -> String {
    let out = tool("debugfs", &["-w", "-f", "-", image.to_str().expect("a plain path")], commands);
    assert!(out.status.success(), "debugfs: {}", said(&out));
    said(&out)
}

/// The exit status of `e2fsck -f` with one more option.
pub fn e2fsck(image: &Path, option: &str) -> (i32, String) {
    let out = tool("e2fsck", &["-f", option, image.to_str().expect("a plain path")], "");
    (out.status.code().expect("it ends by itself"), said(&out))
}

/// The drive in the image at `path`, answering at once.
pub fn open(path: &Path) -> Arc<dyn Drive> {
    image::open(path, false, Timing::Instant).unwrap_or_else(|error| panic!("{error}"))
}

/// The volume on a drive, mounted for reading.
pub fn mount(drive: &Arc<dyn Drive>) -> Arc<dyn Volume> {
    ext4::Format.mount(drive.clone(), "ro").unwrap_or_else(|error| panic!("{error}"))
}

/// What our check says.
pub fn check(drive: &Arc<dyn Drive>) -> Checked {
    ext4::Format.check(drive).unwrap_or_else(|error| panic!("{error}"))
}

/// What it found, a line each.
pub fn findings(checked: &Checked) -> Vec<String> {
    checked.findings.iter().map(ToString::to_string).collect()
}
