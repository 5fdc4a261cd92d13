//! A volume in a sparse file, and Debian's f2fs-tools as its judges.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output as ProcessOutput};
use std::sync::Arc;

use drive::{Drive, Spec, Timing, image};

/// A directory of images that goes away with the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A sparse image of `bytes`.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.path().join(name);
        File::create(&path).and_then(|f| f.set_len(bytes)).expect("a sparse file");
        path
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }
}

/// The drive in the image at `path`, answering at once.
pub fn open_image(path: &Path) -> Arc<dyn Drive> {
    image::open(path, false, Timing::Instant).unwrap_or_else(|e| panic!("{e}"))
}

/// Makes a drive with zones in `path`: `size` and capacity in blocks, how many, and how many of
/// them conventional.
pub fn create_zoned_image(
    path: &Path,
    (size, capacity): (u64, u64),
    (count, conventional): (u32, u32),
) {
    let spec = Spec::named("ram").expect("a profile").zone_size(size, capacity);
    let spec = spec.zones(count, conventional).limits(None, None);
    image::create(path, &spec).unwrap_or_else(|e| panic!("{e}"));
}

/// Runs one of f2fs-tools. Without it there is no judge, and no verdict: that fails the test.
pub fn tool(name: &str, arguments: &[&str]) -> ProcessOutput {
    let path = ["/usr/sbin", "/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let Some(path) = path.into_iter().find(|path| path.exists()) else {
        panic!("{name} is not installed; it judges these tests: apt-get install f2fs-tools");
    };
    Process::new(&path).args(arguments).output().unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

/// `fsck.f2fs --dry-run` must find nothing.
pub fn assert_fsck_clean(image: &Path) {
    let out = tool("fsck.f2fs", &["--dry-run", image.to_str().expect("a plain path")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}\n{text}", image.display());
    assert!(!text.contains("[Fail]"), "{text}");
}

/// An image `mkfs.f2fs` made with `arguments`.
pub fn assert_stock_mkfs(image: &Path, arguments: &[&str]) {
    let mut all = vec!["-q", "-f"];
    all.extend(arguments);
    all.push(image.to_str().expect("a plain path"));
    let out = tool("mkfs.f2fs", &all);
    assert!(out.status.success(), "mkfs.f2fs {all:?}: {}", String::from_utf8_lossy(&out.stdout));
}
