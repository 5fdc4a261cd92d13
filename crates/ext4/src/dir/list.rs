//! Listing a directory. A cookie is the byte behind an entry, so it stays good while others change.

use drive::BLOCK_SIZE;
use vfs::{DirEntry, FileKind};

use crate::dir::entries::{block_count, dir_block};
use crate::inode::cached::Inode;
use crate::inode::map::Blocks;
use crate::mount::want::Step;
use crate::ondisk::dirent::Dirents;

/// The entries of one block of a directory, from byte `from` of the directory on; the byte to go on
/// from if there is more.
pub(crate) fn list(
    blocks: &impl Blocks,
    inode: &Inode,
    from: u64,
) -> Step<(Vec<DirEntry>, Option<u64>)> {
    let index = (from / BLOCK_SIZE as u64).min(u32::MAX.into()) as u32;
    if index >= block_count(inode) {
        return Ok((Vec::new(), None));
    }
    let start = u64::from(index) * BLOCK_SIZE as u64;
    let (at, block) = dir_block(blocks, inode, index)?;
    let mut entries = Vec::new();
    for dirent in Dirents::new(&block[..], at) {
        let dirent = dirent?;
        let here = start + dirent.offset as u64;
        if dirent.ino != 0 && here >= from {
            entries.push(DirEntry {
                name: dirent.name.to_vec(),
                ino: dirent.ino.into(),
                kind: FileKind::from_dirent_type(dirent.file_type).unwrap_or(FileKind::Regular),
                next: here + dirent.rec_len as u64,
            });
        }
    }
    Ok((entries, Some(start + BLOCK_SIZE as u64)))
}
