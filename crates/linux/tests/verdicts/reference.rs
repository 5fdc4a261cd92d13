//! The kernel as witness: the reference file system answers as Linux does.
//!
//! Every operation of some generated sequences is applied to both, and so to a directory of a real
//! file system; results and errnos must be the same. Needs root (device nodes, owners, trusted
//! attributes) and a temporary directory on ext4 or F2FS; says so and passes where these lack.

use std::os::unix::fs::PermissionsExt;

use linux::Directory;
use rustix::fs::{self as sys, Mode};
use vfs::ops::{Generator, Op, Outcome, Session};
use vfs::{Errno, MemFs};

const EXT4_MAGIC: i64 = 0xef53;
const F2FS_MAGIC: i64 = 0xf2f5_2010;

type Answer = Result<Outcome, Errno>;

/// Opening a directory for writing is refused before the operation itself could be.
fn refused_at_open(op: &Op, kernel: &Answer, reference: &Answer) -> bool {
    let opens = matches!(op, Op::Fallocate { .. } | Op::Copy { .. });
    opens && *kernel == Err(Errno::ISDIR) && reference.is_err()
}

/// Other file systems have rules of their own.
fn assert_is_a_witness(dir: &std::path::Path) {
    assert!(rustix::process::geteuid().is_root(), "this test makes devices: run it as root");
    let kind = sys::statfs(dir).expect("a file system").f_type;
    assert!(
        matches!(kind, EXT4_MAGIC | F2FS_MAGIC),
        "{} is on a file system of type {kind:#x}: set TMPDIR to a directory on ext4 or F2FS",
        dir.display()
    );
}

#[test]
fn the_reference_answers_as_linux_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    assert_is_a_witness(dir.path());
    rustix::process::umask(Mode::empty());
    let mut compared = 0;
    for seed in 1000..1020 {
        let root = dir.path().join(seed.to_string());
        std::fs::create_dir(&root).expect("a directory");
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut kernel = Directory::new(&root);
        let fs = MemFs::new();
        let mut reference = Session::new(&fs);
        for (step, op) in Generator::new(seed).take_ops(300).iter().enumerate() {
            // To sync, the whole disk below would be written each time.
            if kernel.meets_a_device(op) || matches!(op, Op::Sync) {
                continue;
            }
            let (theirs, ours) = (kernel.apply(op), reference.apply(op));
            if !refused_at_open(op, &theirs, &ours) {
                assert_eq!(ours, theirs, "seed {seed}, step {step}: {op}");
                compared += 1;
            }
        }
    }
    assert!(compared > 5000, "only {compared} compared");
}
