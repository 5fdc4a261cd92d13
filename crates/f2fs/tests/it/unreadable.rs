//! What cannot be read, or is corrupt, fails those who need it and nobody else: neither sync and
//! unmount nor the cleaner give up all that is sound for it.

use std::sync::Arc;

use drive::{Block, Command, Drive, Fault, FaultOn, Output, Ssd, Status};
use f2fs::ondisk::checkpoint::CpFlags;
use f2fs::ondisk::node::RawNodeFooter;
use f2fs::{F2fs, Format};
use vfs::kind::Format as _;
use vfs::path::read_to_vec;
use vfs::{Creator, Errno, FileSystem, Ino};

use crate::harness::{Kind, checkpoint_of, mount, mount_on, power_on};

const PAGE: usize = 4096;

/// How blocks are spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Unreadable,
    Corrupt,
}

impl How {
    const ALL: [Self; 2] = [Self::Unreadable, Self::Corrupt];

    fn errno(self) -> Errno {
        match self {
            Self::Unreadable => Errno::IO,
            Self::Corrupt => Errno::UCLEAN,
        }
    }

    fn spoil(self, drive: &Fault<Arc<Ssd>>, lba: u64) {
        match self {
            Self::Unreadable => {
                drive.fail_range(FaultOn::Read, lba..lba + 1, Status::UnrecoveredRead);
            }
            Self::Corrupt => {
                write(drive, lba, Block::from_prefix(&[0xff; PAGE]));
            }
        }
    }
}

fn write(drive: &impl Drive, lba: u64, block: Block) {
    let data = [block].into_iter().collect();
    drive.submit(0, u16::MAX, Command::Write { lba, data, fua: false });
    drive.wait_for(0, u16::MAX).unwrap().result.unwrap();
}

fn read(drive: &impl Drive, lba: u64) -> Block {
    drive.submit(0, u16::MAX, Command::Read { lba, blocks: 1 });
    match drive.wait_for(0, u16::MAX).unwrap().result {
        Ok(Output::Data(blocks)) => blocks[0].clone(),
        other => panic!("block {lba}: {other:?}"),
    }
}

/// The blocks of a drive of which `is_wanted`.
fn find(drive: &impl Drive, is_wanted: impl Fn(&Block) -> bool) -> Vec<u64> {
    (0..drive.identify().blocks).filter(|lba| is_wanted(&read(drive, *lba))).collect()
}

/// Whether a block is node `nid` of file `ino`; `None` for any but the inode.
fn is_node(block: &Block, ino: Ino, nid: Option<Ino>) -> bool {
    let footer = RawNodeFooter::of(block);
    let found = Ino::from(footer.nid.get());
    Ino::from(footer.ino.get()) == ino && nid.map_or(found != ino, |nid| found == nid)
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino
}

/// A volume in which the nodes of a large file with a dirty page are spoilt, the file, and others
/// that are not durable.
fn with_a_bad_file(how: How) -> (Arc<Fault<Arc<Ssd>>>, F2fs, Ino, Vec<Ino>) {
    let drive = Arc::new(Fault::new(Kind::Conventional.formatted(1)));
    let fs = mount_on(drive.clone(), "");
    let large = create(&fs, "large");
    fs.write(large, 0, &vec![1; 1800 * PAGE]).unwrap();
    let many: Vec<Ino> = (0..600).map(|n| create(&fs, &format!("small {n}"))).collect();
    fs.unmount().unwrap();
    drop(fs);
    let nodes = find(&*drive, |block| is_node(block, large, None));
    let fs = mount_on(drive.clone(), "cache=1m");
    fs.write(large, 1500 * PAGE as u64, &[2; PAGE]).unwrap();
    // So that the nodes of the large one are cached no longer.
    many.iter().for_each(|ino| _ = fs.getattr(*ino).unwrap());
    let others: Vec<Ino> = (0..20).map(|n| create(&fs, &format!("other {n}"))).collect();
    others.iter().for_each(|ino| _ = fs.write(*ino, 0, &[9; 2 * PAGE]).unwrap());
    nodes.into_iter().for_each(|lba| how.spoil(&drive, lba));
    (drive, fs, large, others)
}

fn assert_others_are_kept(drive: &Fault<Arc<Ssd>>, how: How, what: &str) {
    drive.clear();
    let state = drive.below().survivors(1);
    let asks = checkpoint_of(&state).1.flags.contains(CpFlags::FSCK);
    assert_eq!(asks, how == How::Corrupt, "{how:?}, {what}: whether it asks for fsck");
    let fs = mount(&power_on(&state), "");
    for n in 0..20 {
        let found = fs.lookup(fs.root(), format!("other {n}").as_bytes());
        let ino = found.unwrap_or_else(|error| panic!("{how:?}, {what}, {n}: {error}")).ino;
        assert_eq!(read_to_vec(&fs, ino).unwrap(), [9; 2 * PAGE], "{how:?}, {what}, {n}");
    }
}

#[test]
fn a_file_that_cannot_be_written_keeps_no_other_from_the_drive() {
    for how in How::ALL {
        let (drive, fs, large, others) = with_a_bad_file(how);
        assert_eq!(fs.sync().unwrap_err().errno(), how.errno(), "{how:?}");
        assert_others_are_kept(&drive, how, "sync");
        for &ino in &others {
            fs.fsync(ino, false).unwrap_or_else(|error| panic!("{how:?}, not its own: {error}"));
        }
        // Told as a failure of write-back first.
        assert_eq!(fs.fsync(large, false).unwrap_err().errno(), Errno::IO, "{how:?}");
        create(&fs, "later");

        let (drive, fs, ..) = with_a_bad_file(how);
        assert_eq!(fs.unmount().unwrap_err().errno(), how.errno(), "{how:?}");
        drop(fs);
        assert_others_are_kept(&drive, how, "unmount");
    }
}

#[test]
fn an_fsync_that_meets_something_bad_stops_nobody() {
    for how in How::ALL {
        let (drive, fs, large, others) = with_a_bad_file(how);
        for _ in 0..2 {
            assert_eq!(fs.fsync(large, false).unwrap_err().errno(), how.errno(), "{how:?}");
        }
        create(&fs, "later");
        others.iter().for_each(|ino| fs.fsync(*ino, false).unwrap());
        assert!(fs.unmount().is_err());
        assert_others_are_kept(&drive, how, "fsync");
    }
}

/// Overwrites all files but the first two, on a volume so full that it has to be cleaned, where a
/// block of the second cannot be read.
fn clean_around(how: How, of_inode: bool) {
    let setting = format!("{how:?}, inode: {of_inode}");
    let drive = Arc::new(Fault::new(Kind::Conventional.formatted(1)));
    let fs = mount_on(drive.clone(), "mode=lfs");
    let count = fs.statfs().unwrap().blocks * 3 / 4 / 64;
    let files: Vec<Ino> = (0..count).map(|n| create(&fs, &format!("file {n}"))).collect();
    for (n, ino) in files.iter().enumerate() {
        fs.write(*ino, 0, &[n as u8; 64 * PAGE]).unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let bad = files[1];
    let is_bad = |block: &Block| match of_inode {
        true => is_node(block, bad, Some(bad)),
        false => block[..] == [1; PAGE],
    };
    let blocks = find(&*drive, is_bad);
    let fs = mount_on(drive.clone(), "mode=lfs");
    blocks.into_iter().for_each(|lba| how.spoil(&drive, lba));
    let mut random = 12345_u64;
    for step in 0..count * 40 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let ino = files[2 + (random >> 33) as usize % (files.len() - 2)];
        let page = (random >> 20) % 64;
        let written = fs.write(ino, page * PAGE as u64, &[7; PAGE]).map(drop);
        let done = written.and_then(|()| match step % 50 {
            0 => fs.fsync(ino, false),
            _ => Ok(()),
        });
        done.unwrap_or_else(|error| panic!("{setting}, step {step}: {error}"));
    }
    assert!(fs.cleaned_sections() > 10, "{setting}: {}", fs.cleaned_sections());
    fs.unlink(fs.root(), b"file 5").unwrap();
    fs.unmount().unwrap_or_else(|error| panic!("{setting}: {error}"));
    let asks = checkpoint_of(&drive.below().power_off()).1.flags.contains(CpFlags::FSCK);
    assert_eq!(asks, how == How::Corrupt, "{setting}: whether it asks for fsck");
}

#[test]
fn the_cleaner_goes_round_what_it_cannot_read() {
    clean_around(How::Unreadable, false);
    clean_around(How::Unreadable, true);
    clean_around(How::Corrupt, true);
}

/// So that the next `fsck -p` looks, whatever happens after it was met.
#[test]
fn the_checkpoint_says_that_something_is_corrupt() {
    for leaves in [true, false] {
        let drive = Arc::new(Fault::new(Kind::Conventional.formatted(1)));
        let fs = mount_on(drive.clone(), "");
        let ino = create(&fs, "bad");
        fs.unmount().unwrap();
        drop(fs);
        let inodes = find(&*drive, |block| is_node(block, ino, Some(ino)));
        inodes.into_iter().for_each(|lba| How::Corrupt.spoil(&drive, lba));
        let fs = Arc::new(mount_on(drive.clone(), ""));
        assert_eq!(fs.lookup(fs.root(), b"bad").unwrap_err().errno(), Errno::UCLEAN);
        match leaves {
            true => fs.unmount().unwrap(),
            false => fs.sync().unwrap(),
        }
        let state = drive.below().survivors(1);
        assert!(checkpoint_of(&state).1.flags.contains(CpFlags::FSCK), "unmounts: {leaves}");
        let drive: Arc<dyn Drive> = power_on(&state);
        assert!(!Format.is_clean(&drive).unwrap(), "unmounts: {leaves}");
    }
}
