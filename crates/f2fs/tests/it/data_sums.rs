//! Atomic OPRW on a drive without write pointers: recovery recognises what an fsync wrote by its
//! checksums.

use std::sync::Arc;

use drive::{Block, Blocks, Command, DriveState, Ssd};
use f2fs::F2fs;
use f2fs::ondisk::crc32;
use vfs::{Creator, FileSystem, Ino};

use crate::harness::{Kind, mount, power_on};

const PAGE: usize = 4096;
const OPTIONS: &str = "fsync_mode=strict,oprw";
/// Fills its whole field.
const LONG: [u8; 255] = [b'l'; 255];

fn create(fs: &F2fs, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

/// The first byte of each page of a file.
fn pages(fs: &F2fs, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(fs.root(), name).unwrap();
    let mut bytes = vec![0; attr.size as usize];
    assert_eq!(fs.read(attr.ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes.chunks(PAGE).map(|page| page[0]).collect()
}

fn recovered(state: &DriveState, options: &str) -> (F2fs, Arc<Ssd>) {
    let drive = power_on(state);
    (mount(&drive, options), drive)
}

/// A page of a database, which ends in its own checksum.
fn page(byte: u8) -> [u8; PAGE] {
    let mut page = [byte; PAGE];
    let sum = crc32(0, &page[..PAGE - 4]);
    page[PAGE - 4..].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Two fsyncs of a file; of the second, the last data block is lost, and what was written there in
/// an earlier life of the block is there again.
fn with_a_block_lost(name: &[u8], earlier: Block) -> DriveState {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, OPTIONS);
    let file = create(&fs, name);
    fs.write(file, 0, &page(1).repeat(3)).unwrap();
    fs.sync().unwrap();
    for byte in [2, 3] {
        fs.write(file, 0, &page(byte).repeat(3)).unwrap();
        fs.fsync(file, false).unwrap();
    }
    let state = drive.survivors(1);
    let spoilt = power_on(&state);
    let is_third = |lba: &u64| state.media().read(*lba).unwrap()[..] == page(3);
    let lba = (0..state.identify().blocks).rev().find(is_third).expect("it was written");
    let write = Command::Write { lba, data: Blocks::from_iter([earlier]), fua: true };
    drive::Drive::issue(&spoilt, 0, 0, write).expect("answered").result.unwrap();
    spoilt.survivors(1)
}

#[test]
fn an_fsync_whose_data_is_missing_is_left_out_and_the_one_before_is_not() {
    for earlier in [Block::zeroed(), Block::new(page(9))] {
        let first = earlier[0];
        let state = with_a_block_lost(b"short", earlier);
        for options in [OPTIONS, "fsync_mode=strict", "", "ro"] {
            let (fs, _drive) = recovered(&state, options);
            assert_eq!(pages(&fs, b"short"), [2, 2, 2], "not {first}, -o {options}");
        }
        let (fs, _drive) = recovered(&state, "nowp_check");
        assert_eq!(pages(&fs, b"short"), [3, 3, first]);
    }
}

#[test]
fn one_flush_where_checksums_fit_and_two_where_not() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, OPTIONS);
    let flushes = |name: &[u8]| {
        let file = create(&fs, name);
        fs.sync().unwrap();
        fs.write(file, 0, &[1; 3 * PAGE]).unwrap();
        let before = drive.stats().flushes;
        fs.fsync(file, false).unwrap();
        drive.stats().flushes - before
    };
    assert_eq!((flushes(b"short"), flushes(&LONG)), (1, 2));
}

#[test]
fn what_a_pinned_file_overwrites_is_not_held_against_an_earlier_fsync() {
    let drive = Kind::Conventional.formatted(1);
    let fs = mount(&drive, OPTIONS);
    let file = create(&fs, b"file");
    fs.sync().unwrap();
    fs.write(file, 0, &[1; 3 * PAGE]).unwrap();
    fs.fsync(file, false).unwrap();
    fs.set_pin_file(file, true).unwrap();
    for byte in [2, 3] {
        fs.write(file, 0, &[byte; 2 * PAGE]).unwrap();
        fs.fsync(file, false).unwrap();
    }
    let (fs, _drive) = recovered(&drive.survivors(1), OPTIONS);
    assert_eq!(pages(&fs, b"file"), [3, 3, 1]);
}

#[test]
fn without_atomic_fsyncs_it_is_refused() {
    let drive = Kind::Conventional.formatted(1);
    let options = "fsync_mode=posix,oprw".parse().unwrap();
    let error = F2fs::mount(drive, &options).err().expect("refused");
    assert!(error.to_string().contains("fsync_mode=strict"), "{error}");
}
