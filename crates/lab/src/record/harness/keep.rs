//! A choice of what is not durable that survives all the same: a kernel may have written back any
//! page, and the name of any new file, before the power failed.

use cores::splitmix64;
use drive::BLOCK_SIZE;
use vfs::kind::Volume;
use vfs::{Attr, FileKind, Ino, Result};

use super::torn::Piece;
use super::unsynced::UnsyncedFile;

/// The most bytes that are kept. What is beyond is lost.
const KEPT_MAX: usize = 64 << 20;

/// Pages of a file.
pub(super) struct Kept {
    pub(super) attr: Attr,
    /// Where it is made if its name is lost; `None` if it is then lost, too.
    pub(super) path: Option<Vec<u8>>,
    pub(super) pieces: Vec<Piece>,
}

/// Half of the pages and half of the new files, by `seed`.
pub(super) fn choose(volume: &dyn Volume, files: &[UnsyncedFile], seed: u64) -> Result<Vec<Kept>> {
    let mut room = KEPT_MAX;
    let mut kept = Vec::new();
    for UnsyncedFile { ino, paths, ranges } in files {
        // Files that have no name any more are still reported while they are open.
        let Ok(attr) = volume.getattr(*ino) else { continue };
        if attr.kind != FileKind::Regular {
            continue;
        }
        let mut pieces = Vec::new();
        let pages = ranges.iter().flat_map(|range| {
            range.start / BLOCK_SIZE as u64..range.end.div_ceil(BLOCK_SIZE as u64)
        });
        for page in pages.filter(|page| coin(seed, *ino, *page)) {
            if room < BLOCK_SIZE {
                break;
            }
            let offset = page * BLOCK_SIZE as u64;
            let mut data = vec![0; BLOCK_SIZE];
            let len = volume.read(*ino, offset, &mut data)?;
            data.truncate(len);
            room -= len;
            pieces.push(Piece { offset, data });
        }
        let path = paths.first().filter(|_| coin(seed, *ino, u64::MAX)).cloned();
        kept.push(Kept { attr, path, pieces });
    }
    Ok(kept)
}

fn coin(seed: u64, ino: Ino, page: u64) -> bool {
    splitmix64(splitmix64(seed ^ splitmix64(ino)) ^ page) & 1 == 1
}
