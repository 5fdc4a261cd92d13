//! Blocks that share one of the drive's, which is written whole. What the others hold is read
//! before, and where that fails, so does the write: nobody loses anything, and the caller is told.

use std::sync::Arc;

use drive::{Drive, Fault, FaultOn, Lba, Ssd, Status, Timing};
use ext4::{Ext4, Format, MountOptions};
use vfs::kind::Format as _;
use vfs::{Creator, Errno, FileSystem, path};

use crate::harness::{Image, debugfs};
use crate::small::MODES;

/// Small blocks in a drive's.
const EACH: u64 = 4;
const LEN: usize = 1000;

fn errno<T>(done: vfs::Result<T>) -> Option<Errno> {
    done.err().map(|error| error.errno())
}

fn contents(fs: &dyn FileSystem, name: &str) -> vfs::Result<Vec<u8>> {
    path::read_to_vec(fs, fs.lookup(fs.root(), name.as_bytes())?.ino)
}

fn assert_holds(fs: &dyn FileSystem, name: u8, what: &str) {
    let found = contents(fs, &name.to_string()).unwrap_or_else(|e| panic!("{what}, {name}: {e}"));
    assert!(found == [name; LEN], "{what}: file {name} has other contents");
}

/// Adds files 0 to 7 of one block each, which are side by side.
fn add_files(fs: &dyn FileSystem) {
    for name in 0..8_u8 {
        let made = fs.create(fs.root(), name.to_string().as_bytes(), 0o644, Creator::default());
        assert_eq!(fs.write(made.unwrap().ino, 0, &[name; LEN]).unwrap(), LEN);
    }
}

type Faulty = (Arc<Fault<Arc<dyn Drive>>>, Arc<dyn Drive>);

fn faulty(drive: Arc<dyn Drive>) -> Faulty {
    let fault = Arc::new(Fault::new(drive));
    (fault.clone(), fault)
}

fn mount(drive: Arc<dyn Drive>, options: &str) -> Ext4 {
    Ext4::mount(drive, &options.parse().unwrap()).unwrap_or_else(|e| panic!("{options}: {e}"))
}

/// A volume, and of two of its files that share a drive block: the first, and that block.
fn shared(options: &str) -> (Image, u8, Lba) {
    let image = Image::with_blocks(64, 1024, "fast_commit");
    let fs = image.mount_with(options);
    add_files(&fs);
    fs.unmount().unwrap();
    drop(fs);
    let place = |name: u8| -> Lba {
        debugfs(&image, &[&format!("blocks {name}")]).trim().parse::<Lba>().unwrap() / EACH
    };
    let first = (0..7).find(|name| place(*name) == place(*name + 1)).expect("files side by side");
    let lba = place(first);
    (image, first, lba)
}

#[test]
fn a_file_is_not_written_around_a_neighbour_that_cannot_be_read() {
    for options in MODES {
        let (image, mine, lba) = shared(options);
        let (fault, drive) = faulty(image.drive());
        let fs = mount(drive, options);
        let ino = fs.lookup(fs.root(), mine.to_string().as_bytes()).unwrap().ino;
        contents(&fs, &mine.to_string()).unwrap();
        fault.fail_range(FaultOn::Read, lba..lba + 1, Status::UnrecoveredRead);
        fs.write(ino, 0, &[0xaa; LEN]).unwrap();
        // In the journal, contents have other neighbours until they are brought home.
        let is_logged = options == "data=journal";
        let told = (!is_logged).then_some(Errno::IO);
        assert_eq!(errno(fs.fsync(ino, false)), told, "{options}");
        assert_eq!(errno(contents(&fs, &(mine + 1).to_string())), Some(Errno::IO), "{options}");
        fault.clear();
        fs.fsync(ino, false).unwrap_or_else(|e| panic!("{options}, readable again: {e}"));
        assert_holds(&fs, mine + 1, options);
        drop((fs, fault));
        let fs = image.mount();
        assert_holds(&fs, mine + 1, options);
        assert!(contents(&fs, &mine.to_string()).unwrap() == [0xaa; LEN], "{options}");
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(options);
    }
}

#[test]
fn a_commit_whose_neighbour_cannot_be_read_stops_the_journal() {
    // Without a journal, metadata goes home block by block, and a power cut may take any of it.
    for options in MODES.into_iter().filter(|options| *options != "journal=none") {
        let (image, ..) = shared(options);
        let (fault, drive) = faulty(image.drive());
        let fs = mount(drive, options);
        fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap();
        fault.fail_range(FaultOn::Read, 0..Lba::MAX, Status::UnrecoveredRead);
        assert_eq!(errno(fs.sync()), Some(Errno::IO), "{options}");
        fault.clear();
        let made = fs.create(fs.root(), b"later", 0o644, Creator::default());
        assert_eq!(errno(made), Some(Errno::ROFS), "{options}");
        drop((fs, fault));
        let fs = image.mount();
        (0..8).for_each(|name| assert_holds(&fs, name, options));
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(options);
    }
}

/// Of a recovery, each read fails in turn. The mount may fail; the next one has everything.
#[test]
fn a_recovery_amid_which_a_read_fails_is_done_again() {
    for options in MODES.into_iter().filter(|options| *options != "journal=none") {
        let ram = drive::ram(16 << 10);
        let dynamic: Arc<dyn Drive> = ram.clone();
        Format.make_with(&dynamic, "fast_commit,block_size=1024").unwrap();
        let fs = mount(dynamic, options);
        fs.create(fs.root(), b"first", 0o644, Creator::default()).unwrap();
        fs.sync().unwrap();
        add_files(&fs);
        for name in 0..8 {
            fs.fsync(fs.lookup(fs.root(), name.to_string().as_bytes()).unwrap().ino, false)
                .unwrap();
        }
        let left = ram.survivors(0);
        drop(fs);
        let mut failed = 0;
        for nth in 0.. {
            let what = format!("{options}, read {nth}");
            let (fault, drive) = faulty(Ssd::power_on(left.clone(), Timing::Instant, 1));
            fault.fail_nth(FaultOn::Read, nth, Status::UnrecoveredRead);
            failed += u32::from(Ext4::mount(drive.clone(), &MountOptions::default()).is_err());
            let is_past = fault.is_armed();
            fault.clear();
            let fs = mount(drive.clone(), "");
            (0..8).for_each(|name| assert_holds(&fs, name, &what));
            fs.unmount().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            let checked = Format.check(&drive).unwrap();
            assert!(checked.findings.is_empty(), "{what}: {:?}", checked.findings);
            if is_past {
                break;
            }
        }
        assert!(failed > 10, "{options}: {failed} mounts failed");
    }
}
