//! `F2FS_IOC_MOVE_RANGE`: contents go from one file to another and leave a hole
//! (`f2fs_move_file_range`).
//!
//! Linux exchanges the addresses of blocks; here they are copied, a piece at a time, so a cut may
//! leave some pieces in the one file and others in the other, and a piece of which nothing was
//! fsynced since in both.

use vfs::{Errno, FallocateMode, FileKind, FileSystem, Ino};

use crate::F2fs;
use crate::error::{Error, Result};
use crate::mount::fs::nid;
use crate::ondisk::BLOCK_SIZE;

/// Bytes that are copied at a time.
const PIECE: u64 = 64 * BLOCK_SIZE as u64;

impl F2fs {
    /// Moves `len` bytes at `from_start` of one file to `to_start` of another, or of the same; all
    /// up to the end if `len` is 0. All three must be multiples of a block, unless the range
    /// reaches the end of the file.
    pub fn move_range(
        &self,
        from: Ino,
        from_start: u64,
        to: Ino,
        to_start: u64,
        len: u64,
    ) -> vfs::Result<()> {
        let size = self.check_movable(from)?;
        self.check_movable(to)?;
        let len = if len == 0 { size.saturating_sub(from_start) } else { len };
        let end = from_start.checked_add(len).filter(|end| *end <= size).ok_or(Errno::INVAL)?;
        let (block, goes_on) = (BLOCK_SIZE as u64, end < size);
        let is_whole = from_start.is_multiple_of(block)
            && to_start.is_multiple_of(block)
            && (!goes_on || len.is_multiple_of(block));
        let runs_into_itself = from == to && to_start > from_start && to_start < end;
        if !is_whole || runs_into_itself {
            return Err(Errno::INVAL.into());
        }
        if from == to && from_start == to_start {
            return Ok(());
        }
        let mut done = 0;
        while done < len {
            let piece = PIECE.min(len - done);
            self.move_piece((from, from_start + done), (to, to_start + done), piece)?;
            done += piece;
        }
        Ok(())
    }

    /// The size of a file whose contents can be moved.
    fn check_movable(&self, ino: Ino) -> Result<u64> {
        let mut volume = self.change()?;
        let ino = nid(ino)?;
        if volume.kind_of(ino)? != FileKind::Regular {
            return Err(Errno::INVAL.into());
        }
        if volume.layout(ino)?.cluster().is_some() || volume.is_pinned(ino)? {
            return Err(Error::Posix(Errno::OPNOTSUPP));
        }
        Ok(volume.raw_inode(ino)?.size.get())
    }

    fn move_piece(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> vfs::Result<()> {
        let mut bytes = vec![0; len as usize];
        let read = self.read(from.0, from.1, &mut bytes)?;
        let written = self.write(to.0, to.1, &bytes[..read])?;
        if written < read {
            return Err(Errno::NOSPC.into());
        }
        // Of a move towards the front of the same file, some of this has just been written.
        let keep = if from.0 == to.0 && to.1 < from.1 { to.1 + len } else { 0 };
        let start = from.1.max(keep);
        let end = (from.1 + len).next_multiple_of(BLOCK_SIZE as u64);
        if start < end {
            let hole = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            self.fallocate(from.0, hole, start, end - start)?;
        }
        Ok(())
    }
}
