//! The flusher beside a stream, on a slow drive.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Drive, DriveState, Spec, Ssd, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::path::read_to_vec;
use vfs::{Creator, FileSystem};

const SECOND: u64 = 1_000_000_000;

/// What a power cut leaves after a minute in which one file was written once, and then another one
/// without a pause.
fn cut_in_a_stream() -> DriveState {
    let mut profile = drive::Profile::named("conventional-noplp").unwrap();
    // A memory card with 1 MB/s.
    profile.dma_bytes_per_s.value = 1_000_000;
    let drive = Ssd::new(Spec::new(profile).blocks(32 << 10), Timing::Virtual, 1).unwrap();
    let dynamic: Arc<dyn Drive> = drive.clone();
    Format.make(&dynamic).unwrap();
    let fs = Ext4::mount(dynamic, &"cache=2m".parse().unwrap()).unwrap();
    let fs = Arc::new(fs);
    let upkeep = fs.maintain();
    let [stream, other] = [b"stream", b"behind"]
        .map(|name| fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino);
    fs.write(other, 0, b"once").unwrap();
    let (begun, mut at) = (cores::now(), 0);
    while cores::now() - begun < 60 * SECOND {
        at += fs.write(stream, at, &[1; 64 << 10]).unwrap() as u64;
    }
    assert!(at > 30 << 20, "{at} bytes were written");
    let left = drive.survivors(1);
    drop(upkeep);
    left
}

#[test]
fn a_stream_keeps_no_other_file_from_being_written_back() {
    let profile = Profile::named("xeon-4116").unwrap();
    let left = Machine::simulated(&profile, 1).run(cut_in_a_stream).unwrap();
    let drive: Arc<dyn Drive> = Ssd::power_on(left, Timing::Instant, 1);
    let fs = Ext4::mount(drive, &MountOptions::default()).unwrap();
    let other = fs.lookup(fs.root(), b"behind").unwrap().ino;
    assert_eq!(read_to_vec(&fs, other).unwrap(), b"once", "dirty for more than 30 seconds");
}
