//! `fstrim`: discards everything free in a range (`f2fs_trim_fs`, FITRIM).

use std::ops::Range;

use vfs::Errno;

use crate::F2fs;
use crate::error::Result;
use crate::mount::engine::Engine;
use crate::ondisk::sit::MAP_SIZE;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, SegNo};

/// Segments examined before the volume is unlocked, unless `batched_trim_sections` says so.
const BATCH_SEGMENTS: u32 = 64;

impl F2fs {
    /// `FITRIM`: discards the free blocks in these bytes of the volume, in runs of at least `least`
    /// bytes, as far as they are not discarded already. Returns how many bytes that were.
    ///
    /// A checkpoint comes first, to free what only it can free.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let block = BLOCK_SIZE as u64;
        // Without a discard thread, checkpoints discard the segments that they free.
        let told_before = self.lock().discards.blocks;
        let (segments, batch) = {
            let volume = self.change()?;
            if !volume.io.queue().identify().discard || volume.zones.is_some() {
                return Err(Errno::OPNOTSUPP.into());
            }
            let end = u64::from(volume.sb.main_end());
            if bytes.start / block >= end
                || bytes.end < bytes.start + block
                || least > (end * block)
            {
                return Err(Errno::INVAL.into());
            }
            let batch = volume.knobs.batched_trim_sections as u32;
            let batch = batch.saturating_mul(volume.sb.segs_per_sec);
            (volume.segments_in(bytes.start / block..bytes.end / block), batch)
        };
        let least = least.div_ceil(block).max(1) as u32;
        // A run that is long enough must not be split.
        let whole = BATCH_SEGMENTS.max(least.div_ceil(BLOCKS_PER_SEGMENT).saturating_mul(2));
        let step = if batch == 0 { whole } else { batch };
        let mut from = segments.start;
        while from < segments.end {
            let to = segments.end.min(from.saturating_add(step));
            if from == segments.start || batch > 0 {
                self.write_checkpoint()?;
            }
            self.trim_segments(from..to, least)?;
            from = to;
        }
        Ok((self.lock().discards.blocks - told_before) * block)
    }

    /// Discards what is free in these segments.
    fn trim_segments(&self, segments: Range<SegNo>, least: u32) -> Result<()> {
        let _telling = self.discarding.lock();
        let telling = self.lock().begin_trim(segments, least)?;
        if telling.is_empty() {
            return Ok(());
        }
        let told = telling.tell(self.queue());
        self.lock().end_discards(told)
    }
}

impl Engine {
    /// The segments that have some of these blocks.
    fn segments_in(&self, blocks: Range<u64>) -> Range<SegNo> {
        let main = u64::from(self.sb.main_blkaddr)..u64::from(self.sb.main_end());
        let offset = |block: u64| (block.clamp(main.start, main.end) - main.start) as u32;
        let (from, to) = (offset(blocks.start), offset(blocks.end));
        from / BLOCKS_PER_SEGMENT..to.div_ceil(BLOCKS_PER_SEGMENT)
    }

    /// Takes what is free in `segments` and not discarded, in runs of at least `least` blocks.
    fn begin_trim(&mut self, segments: Range<SegNo>, least: u32) -> Result<super::Telling> {
        self.check_writable()?;
        let mut runs: Vec<Range<BlockAddr>> = Vec::new();
        let (logs, table) = (self.logs.get_mut(), self.segments.get_mut());
        for segno in segments.filter(|segno| !logs.is_current(*segno)) {
            let start = self.sb.seg_start(segno);
            for offset in 0..MAP_SIZE * 8 {
                if !table.is_discardable(segno, offset) {
                    continue;
                }
                let addr = start + offset as BlockAddr;
                match runs.last_mut() {
                    Some(run) if run.end == addr => run.end += 1,
                    _ => runs.push(addr..addr + 1),
                }
            }
        }
        runs.retain(|run| run.len() >= least as usize);
        for run in &runs {
            table.pending().remove(run.clone());
        }
        Ok(self.keep_from_logs(Vec::new(), runs))
    }
}
