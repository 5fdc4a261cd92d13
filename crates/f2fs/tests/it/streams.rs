//! What the flusher does beside a stream, on a slow drive.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use f2fs::mkfs::format;
use vfs::path::read_to_vec;
use vfs::{Creator, FileSystem};

use crate::harness::{mkfs_options, mount, power_on};

const SECOND: u64 = 1_000_000_000;

/// What a power cut leaves after two minutes in which one file was written once, and then another
/// one without a pause.
fn cut_in_a_stream() -> DriveState {
    let mut profile = drive::Profile::named("conventional-noplp").unwrap();
    // A memory card with 1 MB/s.
    profile.dma_bytes_per_s.value = 1_000_000;
    let drive = Ssd::new(Spec::new(profile).blocks(64 << 10), Timing::Virtual, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    format(&dynamic, &mkfs_options()).unwrap();
    let fs = Arc::new(mount(&drive, "cache=16m,checkpoint_interval=30"));
    let maintenance = fs.maintain();
    let [stream, other] = [b"stream", b"behind"]
        .map(|name| fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino);
    fs.write(other, 0, b"once").unwrap();
    let (begun, mut at) = (cores::now(), 0);
    while cores::now() - begun < 120 * SECOND {
        at += fs.write(stream, at, &[1; 64 << 10]).unwrap() as u64;
    }
    assert!(at > 60 << 20, "{at} bytes were written");
    let left = drive.survivors(1);
    maintenance.stop();
    left
}

#[test]
fn a_stream_keeps_no_other_file_from_being_written_back() {
    let profile = Profile::named("xeon-4116").unwrap();
    let left = Machine::simulated(&profile, 1).run(cut_in_a_stream).unwrap();
    let fs = mount(&power_on(&left), "");
    let other = fs.lookup(fs.root(), b"behind").unwrap().ino;
    assert_eq!(read_to_vec(&fs, other).unwrap(), b"once");
}
