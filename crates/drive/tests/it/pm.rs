//! Persistent memory, mapped and simulated: what is stored is read, and what survives is what the
//! model says.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use drive::pm::{
    Domain, LINE, Mapped, Pm, PmAccess, PmDrive, PmError, PmFault, PmFaulty, PmSim, PmState,
};
use drive::undo::{Undo, undo};
use drive::{Block, Command, Drive, Output};

const BYTES: u64 = 1 << 16;

fn sim(domain: Domain) -> Arc<PmSim> {
    PmSim::power_on(PmState::new(BYTES), domain)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + 1) as u8).collect()
}

/// Stores and streams of every alignment leave what a plain copy leaves, neighbours included.
fn copies_agree(pm: &dyn Pm) {
    let bytes = pattern(193);
    for len in (0..=193).step_by(3).chain([64, 128, 192]) {
        for offset in 0..64 {
            for streamed in [false, true] {
                let at = 4096 + offset;
                pm.store(4000, &[0x55; 512]);
                match streamed {
                    true => pm.stream(at, &bytes[..len]),
                    false => pm.store(at, &bytes[..len]),
                }
                pm.fence();
                let mut expected = [0x55; 512];
                let start = (at - 4000) as usize;
                expected[start..start + len].copy_from_slice(&bytes[..len]);
                let mut found = [0; 512];
                pm.read(4000, &mut found);
                assert_eq!(found, expected, "{len} bytes at {offset}, streamed {streamed}");
            }
        }
    }
    pm.store_word(8, 0x0102_0304_0506_0708);
    assert_eq!(pm.load(8), 0x0102_0304_0506_0708);
    let mut bytes = [0; 8];
    pm.read(8, &mut bytes);
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn every_alignment_in_a_model() {
    copies_agree(&*sim(Domain::Process));
}

#[test]
fn every_alignment_in_mapped_memory() -> Result<(), PmError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.pm");
    Mapped::create(&path, BYTES)?;
    copies_agree(&Mapped::open(&[&path], PmAccess::Write)?);
    // The instructions of real persistent memory, on memory that does not need them.
    copies_agree(&Mapped::open(&[&path], PmAccess::Write)?.as_memory());
    Ok(())
}

#[test]
fn the_ragged_ends_of_a_stream_are_durable_after_one_fence() {
    let bytes = pattern(193);
    for offset in 0..64 {
        for len in [0, 1, 7, 8, 63, 64, 65, 127, 128, 130, 193] {
            let pm = sim(Domain::Memory);
            pm.stream(4096 + offset, &bytes[..len]);
            pm.fence();
            assert!(pm.pending().is_settled(), "{len} bytes at {offset}");
            let mut found = vec![0; len];
            pm.survivors(1).read(4096 + offset, &mut found);
            assert_eq!(found, bytes[..len]);
        }
    }
}

#[test]
fn a_fence_counts_for_its_own_core() {
    let pm = sim(Domain::Memory);
    pm.store_word(0, 1);
    pm.write_back(0, 8);
    let other = pm.clone();
    cores::spawn("other", None, move || other.fence()).join();
    assert_eq!(pm.pending().count(), 2, "it may be there or not");
    assert_eq!(pm.pending().durable().load(0), 0);
    pm.fence();
    assert!(pm.pending().is_settled());
    assert_eq!(pm.survivors(0).load(0), 1);
}

#[test]
fn a_write_back_covers_what_was_stored_before_it() {
    let pm = sim(Domain::Memory);
    pm.store_word(0, 1);
    pm.write_back(0, 8);
    pm.store_word(8, 2);
    pm.fence();
    let mut seen: Vec<_> = pm.pending().states(9, 0).map(|s| (s.load(0), s.load(8))).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0), (1, 2)], "the second store may have been evicted");
}

#[test]
fn stores_to_one_word_keep_their_order_on_any_way() {
    let pm = sim(Domain::Memory);
    pm.store_word(0, 1);
    pm.stream(0, &[2; LINE as usize]);
    pm.fence();
    let two = u64::from_le_bytes([2; 8]);
    // The cached store came first, so a later eviction cannot bring it back.
    assert!(pm.pending().states(99, 0).all(|state| state.load(0) == two));
}

#[test]
fn what_another_core_has_read_left_the_store_buffer() {
    let pm = sim(Domain::Caches);
    pm.store_word(0, 1);
    pm.store_word(64, 2);
    pm.store_word(128, 3);
    assert_eq!(pm.pending().count(), 4, "a prefix of the core's stores");
    let other = pm.clone();
    cores::spawn("other", None, move || assert_eq!(other.load(64), 2)).join();
    assert_eq!(pm.pending().count(), 2);
    assert_eq!(pm.pending().durable().load(0), 1, "and all before it");
}

#[test]
fn sampled_states_are_different_and_the_same_each_time() {
    let pm = sim(Domain::Memory);
    (0..64).for_each(|line| pm.store_word(line * LINE, line + 1));
    let pending = pm.pending();
    assert_eq!(pending.count(), u64::MAX);
    let hashes = |seed| pending.states(500, seed).map(|s| s.hash()).collect::<Vec<_>>();
    assert_eq!(hashes(1), hashes(1));
    assert_ne!(hashes(1), hashes(2));
    let mut distinct = hashes(1);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 500);
    assert_eq!(pending.states(500, 1).next().expect("none").load(0), 0);
    assert_eq!(pending.states(500, 1).nth(1).expect("all").load(63 * LINE), 64);
}

#[test]
fn equal_contents_have_equal_hashes() {
    let mut one = PmState::new(BYTES);
    let empty = one.hash();
    one.set(64, 7);
    one.set(8, 9);
    let mut other = PmState::new(BYTES);
    other.set(8, 9);
    other.set(64, 8);
    assert_ne!(one.hash(), other.hash());
    other.set(64, 7);
    assert_eq!(one.hash(), other.hash());
    one.set(64, 0);
    one.set(8, 0);
    assert_eq!(one.hash(), empty);
}

#[test]
fn faults_leave_things_pending() {
    let cases = [
        (PmFault::DropFence, false),
        (PmFault::DropWriteBack, false),
        (PmFault::DropStream, false),
        (PmFault::DropFences { first: 1, every: 2 }, true),
        (PmFault::DropFences { first: 0, every: 2 }, false),
    ];
    for (fault, settled) in cases {
        let below = sim(Domain::Memory);
        let pm = PmFaulty::new(below.clone(), fault);
        pm.stream(4096, &[3; 64]);
        pm.store_word(0, 1);
        pm.write_back(0, 8);
        pm.fence();
        assert_eq!(below.pending().is_settled(), settled, "{fault:?}");
        assert_eq!(pm.load(0), 1);
    }
}

#[test]
fn blocks_are_the_same_bytes() {
    let pm = sim(Domain::Memory);
    let drive = PmDrive::new(pm.clone(), PmAccess::Write);
    assert_eq!(drive.identify().pm.as_ref(), Some(pm.info()));
    let data = [Block::from_prefix(b"block")].into_iter().collect();
    let write = Command::Write { lba: 3, data, fua: false };
    assert!(drive.issue(0, 1, write).is_some_and(|done| done.result.is_ok()));
    assert!(pm.pending().is_settled(), "a completed write is durable");
    let mut bytes = [0; 5];
    drive.pm().expect("its memory").read(3 * 4096, &mut bytes);
    assert_eq!(&bytes, b"block");
    let read = |lba| drive.issue(0, 2, Command::Read { lba, blocks: 1 }).expect("at once").result;
    assert!(matches!(read(3), Ok(Output::Data(data)) if data[0].starts_with(b"block")));
    assert!(read(BYTES / 4096).is_err());
    let private = PmDrive::new(pm, PmAccess::Private);
    let data = [Block::zeroed()].into_iter().collect();
    let write = Command::Write { lba: 3, data, fua: false };
    assert!(private.issue(0, 1, write).is_some_and(|done| done.result.is_err()));
}

/// Bytes of a memory, all of them.
fn all(pm: &dyn Pm) -> Vec<u8> {
    let mut bytes = vec![0; pm.info().bytes as usize];
    pm.read(0, &mut bytes);
    bytes
}

#[test]
fn what_memory_held_can_be_put_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let sim = PmSim::power_on(PmState::new(64 << 10), Domain::Process);
    sim.store(100, b"before");
    let before = all(&*sim);
    let below: Arc<dyn Drive> = PmDrive::new(sim.clone(), PmAccess::Write);
    {
        let log = std::fs::File::create_new(&path).expect("a log");
        let pm = Undo::new(below.clone(), log).expect("a log").pm().expect("a memory");
        pm.store(100, b"behind");
        pm.store(4090, b"two blocks");
        pm.stream(20 << 10, &[7; 4096]);
        pm.store_word(32 << 10, 1);
        pm.fence();
        pm.sync().expect("everything was logged");
        assert_eq!(all(&*pm), all(&*sim), "it is stored at once");
    }
    assert_ne!(all(&*sim), before);
    let done = undo(&below, std::fs::File::open(&path).expect("the log")).expect("put back");
    assert_eq!((done.blocks, all(&*sim)), (4, before));
}

#[test]
fn what_cannot_be_logged_is_not_changed() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let log = memfd_create("log", MemfdFlags::ALLOW_SEALING).expect("a log");
    let log = std::fs::File::from(log);
    let sim = PmSim::power_on(PmState::new(64 << 10), Domain::Process);
    let below: Arc<dyn Drive> = PmDrive::new(sim.clone(), PmAccess::Write);
    let drive = Undo::new(below, log.try_clone().expect("a descriptor")).expect("a log");
    let pm = drive.pm().expect("a memory");
    pm.store(0, b"logged");
    fcntl_add_seals(&log, SealFlags::WRITE).expect("sealed");
    let before = all(&*sim);
    pm.store(8192, b"not logged");
    pm.store(0, b"though logged before");
    assert!(all(&*sim) == before && pm.sync().is_err());
}

#[test]
fn a_memory_of_any_size_is_whole_and_zero() -> Result<(), PmError> {
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm");
    for bytes in [4096, (2 << 20) - 1, 2 << 20, (6 << 20) + 4097] {
        let path = dir.path().join(bytes.to_string());
        Mapped::create(&path, bytes)?;
        let found = std::fs::metadata(&path).expect("there");
        let whole = bytes.next_multiple_of(4096);
        assert_eq!((found.len(), found.blocks() * 512), (whole, whole), "{bytes}");
        let pm = Mapped::open(&[&path], PmAccess::Write)?;
        assert!(all(&pm).iter().all(|&byte| byte == 0));
        pm.store(whole - 5, b"end");
        drop(pm);
        let pm = Mapped::open(&[&path], PmAccess::Private)?;
        assert!(all(&pm).ends_with(b"end\0\0"));
    }
    Ok(())
}

#[test]
fn files_are_locked_joined_and_kept() -> Result<(), PmError> {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    Mapped::create(&a, 8192)?;
    Mapped::create(&b, 4097)?;
    assert!(Mapped::create(&a, 4096).is_err(), "it exists");
    {
        let both = Mapped::open(&[&a, &b], PmAccess::Write)?;
        let nodes: Vec<_> = both.info().nodes.iter().map(|node| node.range.clone()).collect();
        assert_eq!(nodes, [0..8192, 8192..16384]);
        assert_eq!(both.info().domain, Domain::Process, "no DAX here");
        both.store(8190, b"across");
        assert!(matches!(Mapped::open(&[&b], PmAccess::Write), Err(PmError::Busy(_))));
        assert!(matches!(Mapped::open(&[&b], PmAccess::Private), Err(PmError::Busy(_))));
        both.sync().expect("msync");
    }
    {
        let private = Mapped::open(&[&b], PmAccess::Private)?;
        private.store(0, b"mine alone");
        let _another = Mapped::open(&[&b], PmAccess::Private)?;
    }
    let b = Mapped::open(&[&b], PmAccess::Write)?;
    let mut bytes = [0; 6];
    b.read(0, &mut bytes);
    assert_eq!(&bytes, b"ross\0\0", "private stores are gone");
    Ok(())
}

#[test]
fn what_is_no_memory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let short = dir.path().join("short");
    std::fs::write(&short, b"too short").expect("a file");
    let open = |path: &Path| Mapped::open(&[path], PmAccess::Write).map(drop);
    assert!(matches!(open(&short), Err(PmError::Size { bytes: 0, .. })));
    assert!(matches!(open(dir.path()), Err(PmError::Io { .. } | PmError::NotMemory(_))));
    assert!(matches!(open(Path::new("/dev/null")), Err(PmError::NotMemory(_))));
    assert!(matches!(open(&dir.path().join("none")), Err(PmError::Io { .. })));
    assert!(Mapped::open(&[], PmAccess::Write).is_err());
    assert!(matches!(Mapped::create(&short, 0), Err(PmError::Size { .. })));
}
