//! One fuzz case: bytes in, a damaged volume mounted, walked, written, synced and checked.
//!
//! The bytes are a tape of choices: which volume, what damage, which mount. Any tape is a case, and
//! the same tape is always the same case. What a case asserts: no panic (arithmetic overflow is
//! one), no unbounded number of drive commands, a mount error that says what is wrong with the
//! volume, and that a read-only mount writes nothing.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each binary uses its part")]

mod base;
mod damage;
mod memory_drive;
mod tape;
mod walk;

use std::sync::{Arc, OnceLock};

use drive::Drive;
use f2fs::check::{CheckOptions, check};
use f2fs::{F2fs, MountOptions};
use vfs::{Errno, FileSystem};

pub use base::{Area, Base, Kind};
pub use damage::reseal;
pub use memory_drive::{MemoryDrive, Snapshot};
use tape::Tape;

/// What became of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The volume could be mounted.
    pub mounted: bool,
    /// Entries the walk saw.
    pub entries: u64,
    /// Calls that failed, during walk and writes.
    pub errors: u64,
    /// The volume was unmounted without an error.
    pub unmounted: bool,
}

/// Mount options a case chooses among; `oprw` is for zoned volumes.
const OPTIONS: [&str; 8] = [
    "",
    "ro",
    "fsync_mode=strict",
    "noinline_data,noinline_dentry,noinline_xattr",
    "mode=lfs,nodiscard",
    "ro,norecovery",
    "oprw",
    "norecovery,cache=1m",
];

/// The volumes, made once.
pub fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| Kind::ALL.map(Base::new).into())
}

/// Runs the case `data` stands for.
pub fn run(data: &[u8]) -> Outcome {
    let mut tape = Tape::new(data);
    let bases = bases();
    let base = &bases[tape.below(bases.len())];
    let options = OPTIONS[tape.below(OPTIONS.len())];
    let options = if options == "oprw" && !base.kind.is_zoned() { "" } else { options };
    let with_check = tape.below(16) == 0;
    let snapshot = damage::apply(base, &mut tape);
    if with_check {
        let drive: Arc<dyn Drive> = MemoryDrive::on(snapshot.clone());
        // Whatever it finds; here it matters that it ends.
        let _ = check(&drive, &CheckOptions { max_findings: 50 });
    }
    mount_and_use(snapshot, options, &mut tape)
}

/// A damaged volume by its tape, and which of [`bases`] it was.
pub fn damaged(data: &[u8]) -> (usize, Snapshot) {
    let mut tape = Tape::new(data);
    let base = tape.below(bases().len());
    (base, damage::apply(&bases()[base], &mut tape))
}

/// Mounts, walks and changes one volume, and asserts what a case asserts.
pub fn survive(snapshot: Snapshot, options: &str) -> Outcome {
    mount_and_use(snapshot, options, &mut Tape::new(&[]))
}

fn mount_and_use(snapshot: Snapshot, options: &str, tape: &mut Tape<'_>) -> Outcome {
    let memory = MemoryDrive::on(snapshot);
    let drive: Arc<dyn Drive> = memory.clone();
    let options: MountOptions = options.parse().expect("options of this file");
    let read_only = options.read_only;
    let mut outcome = Outcome::default();
    match F2fs::mount(drive, &options) {
        Ok(fs) => {
            outcome.mounted = true;
            walk::read_everything(&fs, &mut outcome);
            if !read_only {
                walk::change_something(&fs, tape, &mut outcome);
            }
            outcome.unmounted = fs.unmount().is_ok();
        }
        Err(error) => assert_mount_error(&error),
    }
    assert!(!read_only || memory.changes() == 0, "a read-only mount changed the drive");
    outcome
}

/// A volume that cannot be mounted is corrupt, unsupported, or without the room recovery needs.
fn assert_mount_error(error: &f2fs::Error) {
    let errno = error.errno();
    let allowed = [Errno::UCLEAN, Errno::BADMSG, Errno::OPNOTSUPP, Errno::NOSPC];
    assert!(allowed.contains(&errno), "mount failed with {errno:?}: {error}");
}
