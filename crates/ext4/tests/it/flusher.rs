//! The flusher, and fsyncs, beside a stream, on a slow drive.

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

/// How many times as long as the first fsync of a file one takes during which another thread
/// appends to it, about as fast as the drive writes.
fn fsync_during_appends(options: &str) -> u64 {
    let mut profile = drive::Profile::named("conventional-noplp").unwrap();
    profile.dma_bytes_per_s.value = 20_000_000;
    let drive: Arc<dyn Drive> =
        Ssd::new(Spec::new(profile).blocks(64 << 10), Timing::Virtual, 1).unwrap();
    Format.make(&drive).unwrap();
    let fs = Arc::new(Ext4::mount(drive, &options.parse().unwrap()).unwrap());
    let ino = fs.create(fs.root(), b"log", 0o644, Creator::default()).unwrap().ino;
    let fsync = || {
        let begun = cores::now();
        fs.fsync(ino, false).unwrap();
        cores::now() - begun
    };
    fs.write(ino, 0, &[1; 256 << 10]).unwrap();
    let first = fsync();
    let begun = cores::now();
    let appender = {
        let fs = fs.clone();
        cores::spawn("appender", Some(1), move || {
            let mut at = 256 << 10;
            while cores::now() - begun < SECOND {
                at += fs.write(ino, at, &[1; 4096]).unwrap() as u64;
                cores::sleep(200_000);
            }
        })
    };
    cores::sleep(SECOND / 20);
    let second = fsync();
    appender.join();
    second / first
}

#[test]
fn an_fsync_ends_while_others_append() {
    let profile = Profile::named("xeon-4116").unwrap();
    for options in ["", "journal=grouped"] {
        let during = move || fsync_during_appends(options);
        let times = Machine::simulated(&profile, 1).run(during).unwrap();
        assert!(times < 5, "{options}: {times} times as long");
    }
}
