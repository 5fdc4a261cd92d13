//! Images made by mke2fs and judged by e2fsck, and a model to compare the engine with.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use drive::{Drive, Timing, image};
use ext4::{Ext4, MountOptions};
use vfs::kind::Format as _;
use vfs::ops::{Op, Session, snapshot};
use vfs::{Creator, FileSystem, MemFs};

/// Features as Debian 12's mke2fs has them.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,\
    flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";

/// Runs one of e2fsprogs. Without it there is no judge, and no verdict: that fails the test.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    let path = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).join(name));
    let Some(path) = path.into_iter().find(|path| path.exists()) else {
        panic!("{name} is not installed; it judges these tests: apt-get install e2fsprogs");
    };
    Command::new(&path).args(arguments).output().unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

/// A volume in a sparse file that goes away with the test.
pub struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    /// An empty volume of `mib` MiB.
    pub fn new(mib: u64) -> Self {
        Self::with_features(mib, "")
    }

    /// An empty volume with other features, as words of `mke2fs -O`.
    pub fn with_features(mib: u64, features: &str) -> Self {
        Self::made(mib, features, &[])
    }

    /// An empty volume with so many inodes.
    pub fn with_inodes(mib: u64, inodes: u32) -> Self {
        Self::made(mib, "", &["-N", &inodes.to_string()])
    }

    /// An empty volume with blocks of so many bytes.
    pub fn with_blocks(mib: u64, block_size: u32, features: &str) -> Self {
        Self::made(mib, features, &["-b", &block_size.to_string()])
    }

    /// An empty volume with other features and other options of mke2fs.
    pub fn with_options(mib: u64, features: &str, more: &[&str]) -> Self {
        Self::made(mib, features, more)
    }

    fn made(mib: u64, features: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        File::create(&path).and_then(|f| f.set_len(mib << 20)).expect("a sparse file");
        let image = Self { _dir: dir, path };
        let all = [FEATURES, features].join(",");
        let features = all.trim_end_matches(',');
        let most = ["-q", "-F", "-b", "4096", "-I", "256", "-O", features];
        let out = tool("mke2fs", &[&most, more, &[image.name()]].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        image
    }

    /// Another file with the same bytes.
    pub fn copy(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        std::fs::copy(&self.path, &path).expect("copied");
        Self { _dir: dir, path }
    }

    pub fn name(&self) -> &str {
        self.path.to_str().expect("a plain path")
    }

    pub fn drive(&self) -> Arc<dyn Drive> {
        image::open(&self.path, false, Timing::Instant).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn mount(&self) -> Ext4 {
        self.mount_with("")
    }

    /// Mounts it with options as of `mount -o`.
    pub fn mount_with(&self, options: &str) -> Ext4 {
        let options: MountOptions = options.parse().expect("mount options");
        Ext4::mount(self.drive(), &options).unwrap_or_else(|error| panic!("mount: {error}"))
    }

    /// Applies `ops` to the empty volume and to a model, so many to a mount: the volume must be as
    /// the model at the beginning and the end of each, and clean behind it.
    pub fn assert_agrees(&self, options: &str, ops: &[Op], per_mount: usize, what: &str) {
        let model = model();
        for (round, chunk) in ops.chunks(per_mount).enumerate() {
            let when = format!("{what}, round {round}");
            let fs = self.mount_with(options);
            compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, mounted: {e}"));
            apply(&fs, &model, chunk).unwrap_or_else(|e| panic!("{when}: {e}"));
            compare(&fs, &model).unwrap_or_else(|e| panic!("{when}, at the end: {e}"));
            fs.unmount().unwrap_or_else(|e| panic!("{when}: {e}"));
            drop(fs);
            self.assert_clean(&when);
        }
    }

    /// `e2fsck -fn` must find nothing.
    pub fn assert_clean(&self, when: &str) {
        let out = tool("e2fsck", &["-fn", self.name()]);
        let text = String::from_utf8_lossy(&out.stdout);
        if out.status.code() != Some(0) {
            let _ = std::fs::copy(&self.path, "/tmp/ext4-failed.img");
        }
        assert_eq!(out.status.code(), Some(0), "{when}: {text}");
        // And so must we.
        let checked = ext4::Format.check(&self.drive()).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!(checked.findings.is_empty() && checked.clean_unmount, "{when}: {checked:?}");
    }
}

/// What debugfs says to these requests, which may change the image.
pub fn debugfs(image: &Image, requests: &[&str]) -> String {
    let mut said = String::new();
    for request in requests {
        let out = tool("debugfs", &["-w", "-R", request, image.name()]);
        assert!(out.status.success(), "{request}: {}", String::from_utf8_lossy(&out.stderr));
        said.push_str(&String::from_utf8_lossy(&out.stdout));
    }
    said
}

/// The model of an empty volume.
pub fn model() -> MemFs {
    let model = MemFs::new();
    let root = model.root();
    model.mkdir(root, b"lost+found", 0o700, Creator::default()).expect("room for a directory");
    model
}

/// Applies `ops` to both; the first difference in words.
pub fn apply(fs: &dyn FileSystem, model: &dyn FileSystem, ops: &[Op]) -> Result<(), String> {
    let (mut ours, mut theirs) = (Session::new(fs), Session::new(model));
    for (i, op) in ops.iter().enumerate() {
        let (a, b) = (ours.apply(op), theirs.apply(op));
        if a != b {
            return Err(format!("op {i} {op:?}: ext4 {a:?}, model {b:?}"));
        }
    }
    Ok(())
}

/// Whether both hold the same.
pub fn compare(fs: &dyn FileSystem, model: &dyn FileSystem) -> Result<(), String> {
    let ours = snapshot(fs).map_err(|e| format!("ext4: {e}"))?;
    let theirs = snapshot(model).map_err(|e| format!("model: {e}"))?;
    let differences = theirs.diff(&ours);
    if differences.is_empty() { Ok(()) } else { Err(format!("{differences:?}")) }
}
