//! Writes on their way: what is read meanwhile, what two writes of one block leave, and who learns
//! of a failed one.

use std::sync::Arc;

use cores::{Machine, Profile};
use drive::{Fault, FaultOn, Ssd, Status};
use f2fs::F2fs;
use vfs::{Creator, Errno, FileSystem, Ino, SetAttr};

use crate::harness::late::Late;
use crate::harness::{self, Kind, mount, mount_on};

const MS: u64 = 1_000_000;
const PAGE: usize = 4096;
/// More pages than the smallest cache holds.
const FILLER_PAGES: usize = 600;
/// More inodes than it holds nodes.
const FILLER_FILES: usize = 150;

fn on_virtual_cores<T>(f: impl FnOnce() -> T) -> T {
    Machine::simulated(&Profile::named("xeon-4116").unwrap(), 1).run(f).unwrap()
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

fn read_page(fs: &F2fs, ino: Ino) -> u8 {
    let mut page = [0; PAGE];
    assert_eq!(fs.read(ino, 0, &mut page).unwrap(), PAGE);
    assert!(page.iter().all(|byte| *byte == page[0]), "a page of pieces");
    page[0]
}

/// A volume with the smallest cache on a late drive, a file of one page of `1` that is durable, and
/// enough others to push it out of the cache.
struct Rig {
    below: Arc<Ssd>,
    late: Arc<Late>,
    fs: Arc<F2fs>,
    file: Ino,
    filler: Ino,
    others: Vec<Ino>,
}

impl Rig {
    fn new(kind: Kind) -> Self {
        let below = kind.formatted(1);
        let late = Arc::new(Late::new(below.clone()));
        let fs = Arc::new(mount_on(late.clone(), "cache=1m"));
        let (file, filler) = (create(&fs, "file"), create(&fs, "filler"));
        fs.write(file, 0, &[1; PAGE]).unwrap();
        for n in 0..FILLER_PAGES {
            fs.write(filler, (n * PAGE) as u64, &[9; PAGE]).unwrap();
        }
        let others = (0..FILLER_FILES).map(|n| create(&fs, &format!("other {n}"))).collect();
        fs.sync().unwrap();
        Self { below, late, fs, file, filler, others }
    }

    /// Uses all of the caches for something else, more than once for each page's second chance.
    fn evict(&self) {
        for _ in 0..3 {
            let mut buf = vec![0; FILLER_PAGES * PAGE];
            self.fs.read(self.filler, 0, &mut buf).unwrap();
            for ino in &self.others {
                self.fs.getattr(*ino).unwrap();
            }
        }
    }

    /// Begins an fsync of the file with a page of `byte`.
    fn fsync(&self, byte: u8) -> cores::JoinHandle<()> {
        let (fs, file) = (self.fs.clone(), self.file);
        fs.write(file, 0, &[byte; PAGE]).unwrap();
        cores::spawn("fsync", Some(1), move || fs.fsync(file, false).unwrap())
    }
}

#[test]
fn what_is_evicted_in_flight_is_read_as_written() {
    for kind in Kind::ALL {
        on_virtual_cores(|| {
            let rig = Rig::new(kind);
            rig.late.set_delay(100 * MS);
            let thread = rig.fsync(2);
            cores::sleep(10 * MS);
            // First its data is on its way, then its inode.
            for _ in 0..2 {
                assert!(rig.late.waiting() > 0, "{kind:?}: nothing in flight, nothing tested");
                rig.evict();
                assert_eq!(read_page(&rig.fs, rig.file), 2, "{kind:?}");
                assert_eq!(rig.fs.getattr(rig.file).unwrap().size, PAGE as u64, "{kind:?}");
                cores::sleep(100 * MS);
            }
            thread.join();
            rig.evict();
            assert_eq!(read_page(&rig.fs, rig.file), 2, "{kind:?}");
        });
    }
}

/// A drive may finish two writes of one block in either order; the later write must win.
#[test]
fn a_block_in_flight_is_not_overwritten() {
    let below = on_virtual_cores(|| {
        let rig = Rig::new(Kind::Conventional);
        rig.late.set_delay(100 * MS);
        rig.fs.write(rig.file, 0, &[2; PAGE]).unwrap();
        let (fs, file) = (rig.fs.clone(), rig.file);
        // Unmounting does not wait for an fsync to be over, which then fails.
        let thread = cores::spawn("fsync", Some(1), move || fs.fsync(file, false).is_err());
        cores::sleep(10 * MS);
        rig.late.set_delay(MS);
        rig.fs.write(rig.file, 0, &[3; PAGE]).unwrap();
        rig.fs.unmount().unwrap();
        assert!(thread.join());
        rig.below
    });
    let fs = mount(&below, "");
    let file = fs.lookup(fs.root(), b"file").unwrap().ino;
    assert_eq!(read_page(&fs, file), 3);
}

/// A checkpoint takes time on the drive; a caller that only looks does not wait for it.
#[test]
fn reads_go_on_while_a_checkpoint_is_on_its_way() {
    for kind in Kind::ALL {
        on_virtual_cores(|| {
            let rig = Rig::new(kind);
            rig.fs.read(rig.file, 0, &mut [0; PAGE]).unwrap();
            create(&rig.fs, "new");
            rig.late.set_delay(100 * MS);
            let fs = rig.fs.clone();
            let thread = cores::spawn("cp", Some(1), move || fs.write_checkpoint().unwrap());
            cores::sleep(10 * MS);
            assert!(rig.late.waiting() > 0, "{kind:?}");
            let before = cores::now();
            assert_eq!(read_page(&rig.fs, rig.file), 1);
            rig.fs.lookup(rig.fs.root(), b"new").unwrap();
            rig.evict();
            assert!(cores::now() - before < 50 * MS, "{kind:?}: waited for the checkpoint");
            create(&rig.fs, "newer");
            assert!(cores::now() - before > 80 * MS, "{kind:?}: changed what is being written");
            thread.join();
            rig.fs.unmount().unwrap();
            assert_eq!(harness::findings(&rig.below.power_off()), "");
        });
    }
}

/// A volume whose next write fails, and a durable file on it.
fn failing(options: &str) -> (Arc<Fault<Arc<Ssd>>>, F2fs, Ino) {
    let drive = Arc::new(Fault::new(Kind::Conventional.formatted(1)));
    let fs = mount_on(drive.clone(), &format!("cache=1m,{options}"));
    let file = create(&fs, "file");
    fs.write(file, 0, &[1; PAGE]).unwrap();
    fs.sync().unwrap();
    (drive, fs, file)
}

fn errno<T: std::fmt::Debug>(result: vfs::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn a_failed_write_back_is_told_to_the_next_fsync_once() {
    for (options, afterwards) in
        [("errors=continue", Errno::IO), ("errors=remount-ro", Errno::ROFS)]
    {
        let (drive, fs, file) = failing(options);
        let (hit, durable) = (create(&fs, "hit"), file);
        fs.sync().unwrap();
        drive.fail_nth(FaultOn::Write, 0, Status::WriteFault);
        // Nobody waits for pages that are written back because there are too many.
        let wrote = fs.write(hit, 0, &vec![7; 300 * PAGE]).unwrap();
        assert!(wrote > 0, "the write itself was into memory");
        assert_eq!(errno(fs.fsync(hit, false)), Errno::IO, "{options}: told");
        assert_eq!(errno(fs.fsync(hit, false)), afterwards, "{options}: told before");
        assert_eq!(errno(fs.write(durable, 0, b"x")), afterwards, "{options}: no more changes");
        assert_eq!(errno(fs.mkdir(fs.root(), b"d", 0o755, Creator::default())), afterwards);
        assert_eq!(errno(fs.fsync(durable, false)), afterwards, "{options}: no promises");
        assert_eq!(read_page(&fs, durable), 1, "{options}: reads go on");
        assert!(fs.unmount().is_err(), "{options}: not clean");
    }
}

#[test]
fn a_checkpoint_that_fails_leaves_the_volume_readable_and_the_last_one_true() {
    let (drive, fs, file) = failing("");
    fs.write(file, 0, &[2; PAGE]).unwrap();
    for n in 0..100 {
        create(&fs, &format!("new {n}"));
    }
    drive.fail_nth(FaultOn::Flush, 0, Status::WriteFault);
    assert_eq!(errno(fs.sync()), Errno::IO);
    assert_eq!(errno(fs.sync()), Errno::IO);
    for n in 0..100 {
        fs.lookup(fs.root(), format!("new {n}").as_bytes()).unwrap();
    }
    assert_eq!(read_page(&fs, file), 2);
    drop(fs);
    let fs = mount(drive.below(), "");
    assert!(fs.lookup(fs.root(), b"new 0").is_err());
    assert_eq!(fs.getattr(file).unwrap().size, PAGE as u64);
}

/// What a failed checkpoint should have made durable is clean in memory, but not on the drive.
#[test]
fn nothing_is_fsynced_after_a_checkpoint_that_failed() {
    let (drive, fs, file) = failing("");
    fs.setattr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    drive.fail_nth(FaultOn::Flush, 0, Status::WriteFault);
    assert_eq!(errno(fs.sync()), Errno::IO);
    assert_eq!(errno(fs.fsync(file, false)), Errno::IO);
    drop(fs);
    let fs = mount(drive.below(), "");
    assert_eq!(fs.getattr(file).unwrap().size, PAGE as u64);
}
