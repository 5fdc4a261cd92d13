//! Every interface moves the same bytes, and one that this kernel refuses says why.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

fn file() -> (TempDir, PathBuf) {
    // Not in memory: there some kernels have no direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
    let path = dir.path().join("file");
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8 + 1; BLOCK]).collect();
    fs::write(&path, bytes).expect("file");
    (dir, path)
}

fn setup(way: Way) -> Setup {
    Setup { way, block: BLOCK, depth: 4, direct: true, job: 0, seed: 7 }
}

/// Moves every block once, some at a time; `None` if the kernel refuses the interface.
fn run(kind: Kind, target: &Target, setup: &Setup) -> Option<u64> {
    let mut interface = kind.open(target, setup).map_err(|e| refused(kind, &e)).ok()?;
    let mut free: Vec<u16> = (0..kind.depth(setup.depth)).collect();
    let (mut next, mut moved) = (0, 0);
    while moved < BLOCKS {
        while next < BLOCKS
            && let Some(slot) = free.pop()
        {
            interface.start(slot, next * BLOCK as u64).map_err(|e| refused(kind, &e)).ok()?;
            next += 1;
        }
        let before = free.len();
        interface.wait(&mut free).map_err(|e| refused(kind, &e)).ok()?;
        assert!(free.len() > before, "{kind} returned without a completion");
        moved += (free.len() - before) as u64;
    }
    assert_eq!(free.len(), usize::from(kind.depth(setup.depth)), "{kind}");
    Some(interface.calls().unwrap_or(0))
}

/// Only what depends on the machine may be refused, and with words.
fn refused(kind: Kind, error: &io::Error) {
    let why = kind.explain(error);
    let plain = [Kind::Psync, Kind::Pvsync2, Kind::Libaio];
    assert!(!plain.contains(&kind), "{kind}: {why}");
    assert!(!why.is_empty() && !why.contains("os error"), "{kind}: {why}");
}

#[test]
fn all_read_the_same_bytes_and_make_few_calls() {
    let (_dir, path) = file();
    for kind in Kind::ALL {
        let target = Target::open(&path, kind, Way::Read, true).expect("opens");
        assert_eq!(target.bytes(), BLOCKS * BLOCK as u64);
        let Some(calls) = run(kind, &target, &setup(Way::Read)) else { continue };
        let most = match kind {
            Kind::Psync | Kind::Pvsync2 | Kind::Pvsync2Hipri => BLOCKS,
            Kind::Libaio => 2 * BLOCKS,
            Kind::Polled | Kind::Drive => 1,
            // A submission thread that sleeps is woken and waited for in one call.
            Kind::IoUring | Kind::IoUringFixed | Kind::IoUringHipri | Kind::IoUringSqpoll => BLOCKS,
        };
        assert!(calls <= most, "{kind}: {calls} calls");
    }
}

#[test]
fn what_is_read_is_what_is_there() {
    let (_dir, path) = file();
    let target = Target::open(&path, Kind::Psync, Way::Read, true).expect("opens");
    let Target::File { file, .. } = target else { panic!("a file") };
    let setup = setup(Way::Read);
    let mut reads = sync::Sync::plain(file.clone(), &setup).expect("opens");
    assert!(reads.start(0, 9 * BLOCK as u64).is_ok());
    assert!(reads.start(0, BLOCKS * BLOCK as u64).is_err(), "beyond the end");
    let options = Kind::IoUring.ring().expect("a ring");
    let mut ring = uring::Uring::new(file, &setup, options).expect("opens");
    ring.start(3, 9 * BLOCK as u64).expect("begun");
    let mut done = Vec::new();
    ring.wait(&mut done).expect("read");
    assert_eq!(done, [3]);
    assert!(ring.start(1, BLOCKS * BLOCK as u64).is_ok() && ring.wait(&mut Vec::new()).is_err());
}

#[test]
fn all_write_every_block_once() {
    for kind in Kind::ALL {
        let (_dir, path) = file();
        let before = fs::read(&path).expect("readable");
        let target = Target::open(&path, kind, Way::Write, true).expect("opens");
        if run(kind, &target, &setup(Way::Write)).is_none() {
            continue;
        }
        drop(target);
        let file = fs::File::open(&path).expect("opens");
        let mut block = vec![0; BLOCK];
        for at in 0..BLOCKS as usize {
            file.read_exact_at(&mut block, (at * BLOCK) as u64).expect("readable");
            assert_ne!(block, before[at * BLOCK..][..BLOCK], "{kind}: block {at}");
        }
    }
}

#[test]
fn the_cache_is_used_only_if_wanted_and_writers_are_alone() {
    let (_dir, path) = file();
    for direct in [false, true] {
        let target = Target::open(&path, Kind::Psync, Way::Read, direct).expect("opens");
        let Target::File { file, .. } = target else { panic!("a file") };
        let flags = rustix::fs::fcntl_getfl(&*file).expect("flags");
        assert_eq!(flags.contains(rustix::fs::OFlags::DIRECT), direct);
    }
    let _writer = Target::open(&path, Kind::Libaio, Way::Write, true).expect("opens");
    assert!(Target::open(&path, Kind::Libaio, Way::Write, true).is_err());
}

#[test]
fn a_drive_of_ours_is_polled() {
    let target = Target::Drive(crate::ram(BLOCKS));
    for way in [Way::Write, Way::Read] {
        assert!(run(Kind::Drive, &target, &setup(way)).is_some());
    }
    let too_deep = Setup { depth: u16::MAX, ..setup(Way::Read) };
    assert!(Kind::Drive.open(&target, &too_deep).is_err());
    assert!(Kind::Psync.open(&target, &setup(Way::Read)).is_err(), "no file");
}

#[test]
fn a_refusal_is_told_in_words() {
    for (kind, errno, words) in [
        (Kind::IoUring, libc::ENOSYS, "this kernel has no io_uring"),
        (Kind::IoUringFixed, libc::EPERM, "io_uring is forbidden here"),
        (Kind::IoUringSqpoll, libc::EPERM, "SQPOLL is forbidden here"),
        (Kind::IoUringFixed, libc::ENOMEM, "ulimit -l"),
        (Kind::Pvsync2Hipri, libc::EOPNOTSUPP, "no polled completions"),
        (Kind::Polled, libc::EOPNOTSUPP, "no polled completions"),
        (Kind::Libaio, libc::EAGAIN, "fs.aio-max-nr"),
        (Kind::Psync, libc::EIO, "error"),
    ] {
        let said = kind.explain(&io::Error::from_raw_os_error(errno));
        assert!(said.contains(words), "{kind}, {errno}: {said}");
    }
}

#[test]
fn what_is_asked_for_too_much_is_refused() {
    let (_dir, path) = file();
    let target = Target::open(&path, Kind::IoUring, Way::Read, true).expect("opens");
    for (block, depth) in [(0, 1), (BLOCK, 0), (BLOCK_MAX + 1, 1), (BLOCK_MAX, 65), (512, 4097)] {
        let wrong = Setup { block, depth, ..setup(Way::Read) };
        assert!(Kind::IoUring.open(&target, &wrong).is_err(), "{block} {depth}");
    }
    assert!("io_uring".parse::<Kind>().is_ok() && "spdk".parse::<Kind>().is_err());
}
