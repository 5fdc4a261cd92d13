//! Drives for tests, and a model to compare the engine with.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod files;
pub mod late;
pub mod tagged;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive, DriveState, Spec, Ssd, Timing};
use f2fs::check::{CheckOptions, check};
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::ondisk::checkpoint::Checkpoint;
use f2fs::ondisk::superblock::{Features, Superblock};
use f2fs::{F2fs, MountOptions};
use vfs::FileSystem;
use vfs::ops::{Op, Session, Tree, snapshot};

/// The kinds of drives every test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Conventional, 128 MiB, a volatile cache.
    Conventional,
    /// Zones of 4 MiB of which 3 MiB can be written, a volatile cache.
    Zoned,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Conventional, Self::Zoned];

    pub fn spec(self) -> Spec {
        match self {
            Self::Conventional => Spec::named("conventional-noplp").unwrap().blocks(32 * 1024),
            Self::Zoned => Spec::named("zn540-noplp").unwrap().zone_size(1024, 768).zones(64, 5),
        }
    }

    /// A drive with a new volume on it.
    pub fn formatted(self, seed: u64) -> Arc<Ssd> {
        self.formatted_at(seed, Timing::Instant)
    }

    /// The same on the clock that `timing` says.
    pub fn formatted_at(self, seed: u64, timing: Timing) -> Arc<Ssd> {
        let drive = Ssd::new(self.spec(), timing, seed).unwrap();
        let dynamic: Arc<dyn Drive> = drive.clone();
        format(&dynamic, &mkfs_options()).unwrap();
        drive
    }
}

/// Every optional part of the format that the engine writes.
pub fn mkfs_options() -> MkfsOptions {
    MkfsOptions {
        features: Features::EXTRA_ATTR
            | Features::INODE_CHKSUM
            | Features::INODE_CRTIME
            | Features::SB_CHKSUM,
        ..MkfsOptions::default()
    }
}

pub fn mount(drive: &Arc<Ssd>, options: &str) -> F2fs {
    mount_on(drive.clone(), options)
}

/// Mounts the volume on a drive of any kind.
pub fn mount_on(drive: Arc<dyn Drive>, options: &str) -> F2fs {
    let options: MountOptions = options.parse().unwrap();
    F2fs::mount(drive, &options).unwrap_or_else(|error| panic!("mount: {error}"))
}

/// Switches on what a cut left; answers at once.
pub fn power_on(state: &DriveState) -> Arc<Ssd> {
    Ssd::power_on(state.clone(), Timing::Instant, 0)
}

/// The newest checkpoint in what a drive holds.
pub fn checkpoint_of(state: &DriveState) -> (Superblock, Checkpoint) {
    let read = |addr: u32| Ok(state.media().read(addr.into()).unwrap());
    let (sb, _) = Superblock::select(read).unwrap();
    let checkpoint = Checkpoint::select(&sb, read).unwrap().checkpoint;
    (sb, checkpoint)
}

/// What our own check finds wrong, as text; empty if nothing.
pub fn findings(state: &DriveState) -> String {
    let drive: Arc<dyn Drive> = power_on(state);
    let report = check(&drive, &CheckOptions::default()).unwrap();
    let lines: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Writes what a drive holds to a sparse file.
pub fn dump(state: &DriveState, path: &Path) {
    let blocks = state.identify().blocks;
    let file = File::create(path).unwrap();
    file.set_len(blocks * BLOCK_SIZE as u64).unwrap();
    let zero = Block::zeroed();
    for lba in 0..blocks {
        let block = state.media().read(lba).unwrap();
        if !block.same_page(&zero) {
            file.write_all_at(&block[..], lba * BLOCK_SIZE as u64).unwrap();
        }
    }
}

/// A volume and the reference file system, kept in step.
pub struct Pair {
    pub drive: Arc<Ssd>,
    pub options: String,
    pub model: vfs::MemFs,
    seed: u64,
    timing: Timing,
}

impl Pair {
    /// A new volume on a drive of this kind, and the model of it.
    pub fn new(kind: Kind, options: &str, seed: u64, timing: Timing) -> Self {
        let (drive, model) = (kind.formatted_at(seed, timing), vfs::MemFs::new());
        Self { drive, options: options.into(), model, seed, timing }
    }

    /// Applies `ops` to both. After every `stretch` operations the volume is unmounted or, every
    /// other time, synced and its power cut; returns the first difference in words.
    pub fn run(&mut self, ops: &[Op], stretch: usize) -> Result<(), String> {
        for (round, chunk) in ops.chunks(stretch).enumerate() {
            let fs = mount(&self.drive, &self.options);
            self.apply(&fs, chunk, round * stretch)?;
            self.compare(&fs, "at the end of a stretch")?;
            if (round as u64 + self.seed).is_multiple_of(2) {
                fs.unmount().map_err(|e| format!("unmount: {e}"))?;
            } else {
                fs.sync().map_err(|e| format!("sync: {e}"))?;
                drop(fs);
                let left = self.drive.survivors(self.seed);
                self.drive = Ssd::power_on(left, self.timing, self.seed);
            }
        }
        let fs = mount(&self.drive, &self.options);
        self.compare(&fs, "after the last mount")?;
        fs.unmount().map_err(|e| format!("unmount: {e}"))
    }

    fn apply(&self, fs: &F2fs, ops: &[Op], base: usize) -> Result<(), String> {
        let mut ours = Session::new(fs);
        let mut model = Session::new(&self.model);
        for (i, op) in ops.iter().enumerate() {
            let (a, b) = (ours.apply(op), model.apply(op));
            if a != b {
                return Err(format!("op {} {op:?}: F2FS {a:?}, model {b:?}", base + i));
            }
        }
        Ok(())
    }

    pub fn compare(&self, fs: &dyn FileSystem, when: &str) -> Result<(), String> {
        let ours = snapshot(fs).map_err(|e| format!("{when}: {e}"))?;
        let model: Tree = snapshot(&self.model).map_err(|e| format!("model: {e}"))?;
        let differences = model.diff(&ours);
        if differences.is_empty() { Ok(()) } else { Err(format!("{when}: {differences:?}")) }
    }
}
