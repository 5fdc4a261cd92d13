//! Images that are not whole.

use f2fs::ondisk::checkpoint::Checkpoint;
use vfs::{Creator, Errno, FileSystem};

use super::{base, refusal, try_mount};
use crate::fuzz_body::{self, MemoryDrive, Snapshot, survive};

#[test]
fn no_volume_at_all() {
    let empty = Snapshot::new(4096, None);
    assert_eq!(refusal(MemoryDrive::on(empty), "").0, Errno::UCLEAN);
    let mut text = Snapshot::new(4096, None);
    (0..64).for_each(|addr| text.change(addr, |bytes| bytes.fill(b'x')));
    let (errno, line) = refusal(MemoryDrive::on(text), "ro");
    assert_eq!(errno, Errno::UCLEAN);
    assert!(line.contains("magic"), "{line}");
    for blocks in [1, 2] {
        assert!(try_mount(MemoryDrive::on(Snapshot::new(blocks, None)), "").is_err());
    }
}

#[test]
fn a_truncated_image_says_so() {
    let base = base(fuzz_body::Kind::Clean);
    for blocks in [1, 2, 511, 1000, base.snapshot.blocks / 2, u64::from(base.sb.main_end()) - 1] {
        for text in ["", "ro"] {
            let snapshot = Snapshot { blocks, ..base.snapshot.clone() };
            let (errno, line) = refusal(MemoryDrive::on(snapshot), text);
            assert_eq!(errno, Errno::UCLEAN, "{blocks} blocks: {line}");
        }
    }
}

#[test]
fn one_superblock_is_enough() {
    let base = base(fuzz_body::Kind::Clean);
    for copy in [0, 1] {
        let mut snapshot = base.snapshot.clone();
        snapshot.change(copy, |bytes| bytes.fill(0xff));
        let outcome = survive(snapshot, "");
        assert!(outcome.mounted && outcome.errors == 0, "without copy {copy}: {outcome:?}");
    }
}

/// A checkpoint whose last block never arrived does not count: the previous one does.
#[test]
fn a_torn_checkpoint_leaves_the_older_one() {
    let memory = MemoryDrive::on(base(fuzz_body::Kind::Clean).snapshot.clone());
    let fs = try_mount(memory.clone(), "").unwrap();
    fs.create(fs.root(), b"first", 0o644, Creator::default()).unwrap();
    fs.sync().unwrap();
    let before = memory.snapshot();
    let older = Checkpoint::select(&base(fuzz_body::Kind::Clean).sb, |addr| {
        Ok(before.media.read(addr.into()))
    });
    let older = older.unwrap();
    fs.create(fs.root(), b"second", 0o644, Creator::default()).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let mut snapshot = memory.snapshot();
    let newer = base(fuzz_body::Kind::Clean).sb.cp_pack(1 - older.pack);
    snapshot.change(newer, |bytes| bytes[0] ^= 1);
    let fs = try_mount(MemoryDrive::on(snapshot), "").unwrap();
    assert!(fs.lookup(fs.root(), b"first").is_ok());
    assert_eq!(fs.lookup(fs.root(), b"second").unwrap_err().errno(), Errno::NOENT);
}
