//! Logs that we wrote, in the journal of an ext4 volume, judged by e2fsprogs.

use std::fs;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Lba};
use journal::{Journal, Log, LogSpace, Options, Strictness, Volume};
use queue::{BlockQueue, Io};

use crate::client::Raw;
use crate::judges::Image;

/// Blocks of the volume that nothing uses.
const FREE: Lba = 3000;

fn block(value: u64) -> Block {
    let mut block = Block::from_prefix(&[0; 16]);
    // Some have to be escaped.
    let magic: [u8; 4] = if value.is_multiple_of(3) { [0xc0, 0x3b, 0x39, 0x98] } else { [1; 4] };
    block.make_mut()[..4].copy_from_slice(&magic);
    block.make_mut()[8..16].copy_from_slice(&value.to_le_bytes());
    block
}

/// Writes transactions into the image's journal, and leaves it as a power cut would.
fn write(image: &Image, transactions: u64) {
    let (map, drive) = (image.journal(), image.drive());
    let io = Arc::new(Io::new(Arc::new(BlockQueue::new(drive.clone()))));
    let find = |block: u32| map.get(block as usize).copied();
    let volume = Volume::new(&io, BLOCK_SIZE as u32).unwrap();
    let log = Log::open(volume, &find, map.len() as u32).unwrap();
    let mut superblock = log.superblock().clone();
    superblock.use_sums();
    let homes = map.clone();
    let blocks = Box::new(move |block: u32| homes.get(block as usize).copied());
    let space = LogSpace { superblock, blocks };
    let journal = Journal::open(io.clone(), space, Options::default(), Raw).unwrap();
    for number in 0..transactions {
        let mut handle = journal.start(40).unwrap();
        for n in 0..30 {
            handle.create(FREE + (number * 17 + n) % 400, (), block(number * 100 + n));
        }
        (0..10).for_each(|n| handle.forget(FREE + (number * 29 + n) % 400));
        let id = handle.id();
        drop(handle);
        journal.commit(id).unwrap();
    }
    let mut bytes = Vec::new();
    let blocks = io.queue().identify().blocks;
    drive.look(&mut (0..blocks), &mut |block| bytes.extend_from_slice(&block[..]));
    fs::write(&image.path, bytes).unwrap();
    image.debugfs("feature needs_recovery\n");
}

/// One transaction, and so many that the log has gone around several times.
#[test]
fn e2fsck_and_debugfs_read_our_logs() {
    for transactions in [1, 7, 100] {
        let Some(image) = Image::make(BLOCK_SIZE, "16M", "metadata_csum,64bit") else { return };
        write(&image, transactions);
        let dump = image.debugfs("logdump -a\n");
        let commits = dump.matches("(commit block)").count() as u64;
        assert!(commits >= transactions.min(20), "{commits} commits: {dump}");
        assert!(dump.contains("(revoke table)") || transactions == 1, "{dump}");
        let (judged, code, said) = image.checked(&["-y", "-E", "journal_only"]);
        assert!(code == 0 || code == 1, "e2fsck exits {code}: {said}");
        assert!(said.contains("recovering journal") && !said.contains("nvalid"), "{said}");
        let (done, ours) = image.recovered(Strictness::Strict);
        let done = done.unwrap();
        assert!(done.blocks >= 20, "{done:?}");
        let differ = judged.differences(&ours);
        assert!(differ.is_empty(), "blocks {differ:?} differ after {done:?}");
        // What the last transaction wrote, and did not forget, is there.
        let last = transactions - 1;
        for n in 10..30 {
            let at = ((FREE + (last * 17 + n) % 400) as usize) * BLOCK_SIZE;
            let is_freed = (0..10).any(|f| (last * 29 + f) % 400 == (last * 17 + n) % 400);
            assert!(is_freed || ours[at..at + BLOCK_SIZE] == block(last * 100 + n)[..]);
        }
    }
}
