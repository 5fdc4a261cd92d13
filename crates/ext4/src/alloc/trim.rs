//! `fstrim`: discards what is free (`ext4_trim_fs`).

use std::ops::Range;

use vfs::Errno;

use crate::alloc::groups::by_group;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::Group;

/// Blocks that are discarded at a time, and that nobody else gets meanwhile.
const PIECE: u32 = 2048;

impl Engine {
    /// `FITRIM`: discards the free blocks in these bytes of the volume, in runs of at least `least`
    /// bytes. Returns how many bytes that were.
    ///
    /// Blocks that a transaction has freed which is not committed are not free.
    pub(crate) fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        self.check_writable()?;
        if !self.io.queue().identify().discard {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (sb, size) = (&self.sb, u64::from(self.sb.block_size));
        let least = least.div_ceil(size).max(1);
        let from = bytes.start / size;
        let is_short = bytes.end - bytes.start.min(bytes.end) < size;
        if least > sb.blocks_per_group.into() || from >= sb.blocks || is_short {
            return Err(Errno::INVAL.into());
        }
        let blocks = from.max(sb.first_data_block())..(bytes.end / size).min(sb.blocks);
        let mut trimmed = 0;
        for (group, bits) in by_group(sb, blocks) {
            trimmed += self.trim_group(group, bits, least as u32)?;
        }
        Ok(trimmed * size)
    }

    /// Discards the free blocks among these of a group. Returns how many.
    fn trim_group(&self, group: Group, bits: Range<u32>, least: u32) -> Result<u64> {
        let (mut from, mut trimmed) = (bits.start, 0);
        loop {
            let run = match self.groups.free_run(group, from..bits.end, least) {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(trimmed),
                Err(stop) => {
                    self.heed(self.fetch_or_fail(stop))?;
                    continue;
                }
            };
            from = run.end;
            for start in run.clone().step_by(PIECE as usize) {
                trimmed += self.trim_piece(group, start..run.end.min(start + PIECE))?;
            }
        }
    }

    /// Discards these blocks of a group, if they are still free, while they cannot be allocated.
    fn trim_piece(&self, group: Group, bits: Range<u32>) -> Result<u64> {
        let count = u64::from(bits.end - bits.start);
        // Before they are taken: dirty pages that are written back meanwhile must find theirs.
        let Ok(_aside) = self.room.set_aside(count) else { return Ok(0) };
        let done = match self.groups.take_if_free(group, bits.clone()) {
            true => {
                let start = self.sb.group_start(group) + u64::from(bits.start);
                let blocks = start..start + count;
                let done = self.io.discard(blocks.clone());
                self.groups.give_back(&self.sb, blocks);
                done.map(|()| count)
            }
            false => Ok(0),
        };
        Ok(done?)
    }
}
