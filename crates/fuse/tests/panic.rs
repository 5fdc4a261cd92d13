//! A request that panics fails, and so do all requests behind it. No process is left waiting.
//!
//! Needs root and /dev/fuse.

use std::path::Path;
use std::sync::Arc;

use fuse::{Control, Ended, How, MountOptions, Session};
use rustix::io::Errno;
use vfs::MemFs;

/// Panics when it is asked for anything.
struct Fragile;

impl Control for Fragile {
    fn ask(&self, _: &[u8]) -> Result<Vec<u8>, Errno> {
        panic!("on purpose: this test wants to see what it does to the caller");
    }
}

fn ask(point: &Path) -> Result<usize, Errno> {
    rustix::fs::getxattr(point, "user.strandline.status", &mut [0; 64][..])
}

#[test]
fn a_panic_fails_the_request_and_the_volume() {
    assert!(rustix::process::getuid().is_root(), "this test mounts: run as root");
    let dir = tempfile::tempdir().unwrap();
    for list in ["threads=1", "threads=4"] {
        let (options, _) = MountOptions::parse(list).unwrap();
        let (fs, control) = (Arc::new(MemFs::new()), Arc::new(Fragile));
        let source = Path::new("fragile");
        let session = Session::start(fs, Some(control), source, dir.path(), &options).unwrap();
        std::fs::write(dir.path().join("file"), "before").unwrap();
        assert_eq!(ask(dir.path()), Err(Errno::IO));
        assert_eq!(ask(dir.path()), Err(Errno::IO));
        let refused = std::fs::write(dir.path().join("other"), "after").unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::IO));
        assert_eq!(session.wait(), Ok(Ended::Panicked));
        fuse::unmount(dir.path(), How::Plainly).unwrap();
    }
}
