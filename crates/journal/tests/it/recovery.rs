//! Logs that e2fsprogs wrote: after recovery every block is what `e2fsck` makes of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use journal::Strictness;
use journal::ondisk::fast::{Change, Naming};

use crate::judges::Image;

/// Sizes of blocks, features, and how debugfs opens the journal: every format of tags.
const FORMATS: [(usize, &str, &str); 8] = [
    (1024, "^metadata_csum,64bit", "jo"),
    (1024, "^metadata_csum,^64bit", "jo"),
    (1024, "metadata_csum,64bit", "jo -c"),
    (1024, "metadata_csum,64bit", "jo -c -v 2"),
    (2048, "metadata_csum,^64bit", "jo -c -v 2"),
    (2048, "metadata_csum,64bit", "jo -c"),
    (4096, "^metadata_csum,64bit", "jo"),
    (4096, "metadata_csum,64bit", "jo -c"),
];

/// Bytes that no two blocks share. Some blocks begin with the journal's magic.
fn noise(seed: u8, block_size: usize, blocks: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut bytes: Vec<u8> = (0..block_size * blocks).map(|_| next()).collect();
    for block in bytes.chunks_mut(block_size).step_by(3) {
        block[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
    }
    bytes
}

/// Writes transactions with debugfs: `-b`, `-r` and `-c` as `jw` takes them.
fn log(image: &Image, open: &str, transactions: &[&str]) {
    let mut script = String::new();
    for (seed, transaction) in (0..).zip(transactions) {
        let data = image.beside(&format!("data{seed}"), &noise(seed, image.block_size, 500));
        let has_images = transaction.contains("-b");
        let file = if has_images { data.to_str().unwrap() } else { "" };
        // One session each: in a second `jw` debugfs may overwrite the first one's commit block.
        script += &format!("{open}\njw {transaction} {file}\njc\n");
    }
    let said = image.debugfs(&script);
    assert!(!said.to_lowercase().contains("error") && !said.contains("usage"), "{said}");
}

fn agrees(image: &Image, what: &str) -> usize {
    let (judged, code, said) = image.checked(&["-y", "-E", "journal_only"]);
    assert!(code == 0 || code == 1, "{what}: e2fsck exits {code}: {said}");
    let (done, ours) = image.recovered(Strictness::Strict);
    let done = done.unwrap_or_else(|error| panic!("{what}: {error}"));
    let differ = judged.differences(&ours);
    assert!(differ.is_empty(), "{what}: blocks {differ:?} differ after {done:?}");
    done.blocks
}

#[test]
fn every_format_of_tags_is_replayed_as_e2fsck_does() {
    for (block_size, features, open) in FORMATS {
        let Some(image) = Image::make(block_size, "16M", features) else { return };
        let what = format!("{block_size} {features} {open}");
        log(&image, open, &["-b 1500-1599", "-b 1590-1700", "-r 1595,1650", "-b 1595"]);
        assert_eq!(agrees(&image, &what), 200, "{what}: all but the revoked one");
    }
}

#[test]
fn many_descriptors_and_revokes_are_replayed() {
    for (block_size, features, open) in FORMATS {
        let Some(image) = Image::make(block_size, "16M", features) else { return };
        log(&image, open, &["-b 1500-1989", "-r 1600-1899"]);
        assert_eq!(agrees(&image, open), 190);
    }
}

#[test]
fn a_transaction_without_its_commit_block_is_left_out() {
    for (block_size, features, open) in FORMATS {
        let Some(image) = Image::make(block_size, "16M", features) else { return };
        log(&image, open, &["-b 1500-1510", "-c -b 1505-1520"]);
        assert_eq!(agrees(&image, open), 11);
    }
}

#[test]
fn recovery_of_a_recovered_log_does_nothing() {
    let Some(image) = Image::make(4096, "16M", "metadata_csum") else { return };
    log(&image, "jo -c", &["-b 1500-1510"]);
    let (done, bytes) = image.recovered(Strictness::Strict);
    assert_eq!(done.unwrap().blocks, 11);
    let (again, same) = Image::of(&bytes).unwrap().recovered(Strictness::Strict);
    assert_eq!(again.unwrap(), journal::Replayed::default());
    assert!(bytes == same);
}

/// The log's blocks flipped one by one: nothing panics, and a strict recovery that fails has
/// changed nothing.
#[test]
fn damaged_logs_fail_or_end_early() {
    let Some(image) = Image::make(1024, "4M", "metadata_csum,64bit") else { return };
    log(&image, "jo -c", &["-b 1500-1505", "-r 1502", "-b 1503-1510"]);
    let (clean, map) = (fs::read(&image.path).unwrap(), image.journal());
    let (mut failed, mut passed) = (0, 0);
    let flips = (0..20).flat_map(|block| [5_usize, 9, 18, 900].map(|byte| (block, byte)));
    for (block, byte) in flips {
        let mut bytes = clean.clone();
        bytes[map[block] as usize * 1024 + byte] ^= 0x41;
        let damaged = Image::of(&bytes).unwrap();
        let (done, after) = damaged.recovered_with(&map, Strictness::Strict);
        match done {
            Err(_) => assert!(after == bytes, "block {block} byte {byte}: changed and failed"),
            Ok(_) => passed += 1,
        }
        failed += usize::from(after == bytes);
    }
    assert!(failed > 10 && passed > 10, "{failed} failed, {passed} passed");
}

/// The images of e2fsprogs' own tests (its source package, unpacked, named by
/// `STRANDLINE_E2FSPROGS`): after a lenient recovery, the blocks are those that e2fsck leaves.
#[test]
fn images_of_e2fsprogs_end_as_e2fsck_leaves_them() {
    let Some(source) = std::env::var_os("STRANDLINE_E2FSPROGS") else {
        eprintln!("SKIPPED: STRANDLINE_E2FSPROGS does not name e2fsprogs' unpacked source");
        return;
    };
    let mut seen = 0;
    for entry in fs::read_dir(Path::new(&source).join("tests")).expect("its tests") {
        let dir = entry.expect("an entry").path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        // A fast commit is replayed by the file system, not by the journal: below.
        if !name.starts_with("j_") || name.contains("_ext_") || name.contains("fast_commit") {
            continue;
        }
        let Some(bytes) = unpack(&dir) else { continue };
        let image = Image::of(&bytes).expect("a volume");
        let (judged, code, said) = image.checked(&["-y", "-E", "journal_only"]);
        let (done, ours) = image.recovered(Strictness::Lenient);
        seen += 1;
        println!("{name}: e2fsck {code}, ours {done:?}");
        if let Ok(done) = done {
            let mut differ = judged.differences(&ours);
            // There e2fsck notes that it has met an error.
            let superblock = image.journal()[0] as usize;
            differ.retain(|block| done.damage.is_empty() || *block != superblock);
            assert!(differ.is_empty(), "{name}: blocks {differ:?} differ, {done:?}\n{said}");
        } else {
            assert!(said.contains("ournal"), "{name}: {done:?}, but e2fsck: {said}");
        }
    }
    assert!(seen >= 10, "only {seen} images");
}

/// Fast commits that a kernel wrote, in e2fsprogs' own image: they say the names and blocks that
/// its test expects behind e2fsck (`tests/j_recover_fast_commit/expect`).
#[test]
fn fast_commits_of_e2fsprogs_are_read() {
    let Some(source) = std::env::var_os("STRANDLINE_E2FSPROGS") else {
        eprintln!("SKIPPED: STRANDLINE_E2FSPROGS does not name e2fsprogs' unpacked source");
        return;
    };
    let dir = Path::new(&source).join("tests/j_recover_fast_commit");
    let image = Image::of(&unpack(&dir).expect("an image")).expect("a volume");
    let (done, _) = image.recovered(Strictness::Strict);
    let (mut names, mut blocks) = (Vec::new(), Vec::new());
    for change in done.unwrap().fast {
        match change {
            Change::Name { how, parent, ino, name } => {
                names.push((how, parent, ino, String::from_utf8(name.into()).unwrap()));
            }
            Change::AddRange { ino, extent } => {
                let number = |at: usize| u16::from_le_bytes([extent[at], extent[at + 1]]);
                blocks.push((ino, number(0), number(8), number(4)));
            }
            Change::DelRange { .. } | Change::Inode { .. } => {}
        }
    }
    let name = |how, ino, name: &str| (how, 12, ino, name.to_owned());
    let made = [
        name(Naming::Create, 14, "new"),
        name(Naming::Unlink, 13, "old"),
        name(Naming::Create, 13, "data"),
    ];
    assert_eq!(names, made);
    let ranges = [(0, 1619, 16), (16, 1601, 16), (32, 1985, 32), (64, 1537, 64), (128, 1793, 128)];
    let data = ranges.map(|(at, start, len)| (13, at, start, len));
    assert_eq!(blocks, [&[(14, 0, 1107, 1)], &data[..]].concat());
}

fn unpack(dir: &Path) -> Option<Vec<u8>> {
    let packed = [("image.gz", "gzip"), ("image.bz2", "bzip2")];
    let (file, program) = packed.into_iter().find(|(file, _)| dir.join(file).exists())?;
    let input = fs::File::open(dir.join(file)).expect("opened");
    let output = Command::new(program).arg("-dc").stdin(Stdio::from(input)).output();
    Some(output.expect("unpacked").stdout)
}
