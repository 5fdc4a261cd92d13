//! What a profile promises, in formulas: the times of the emulated drive without the emulation.
//!
//! A write passes firmware, DMA and buffer; a full program unit goes on over a channel to a die. So
//! short writes cost firmware and DMA while the buffer has room; once it has none, they wait for
//! the slowest part of the drive. These are mean values; the emulation adds the jitter of programs.
//! `strandline drive bench` prints both side by side.

use crate::{BLOCK_SIZE, Profile};

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

impl Profile {
    /// Time in ns of a write of `blocks` blocks that finds an idle drive with room in its buffer.
    pub fn write_ns(&self, blocks: u64) -> f64 {
        let per_block = self.firmware_write_block_ns.value as f64;
        self.firmware_write_ns.value as f64 + per_block * blocks as f64 + self.dma_ns(blocks)
    }

    /// Bytes per second of continuous writes: the rate of the slowest of DMA, channels and dies.
    pub fn sustained_bytes_per_s(&self) -> f64 {
        let dma = self.dma_bytes_per_s.value as f64;
        if self.write_through() {
            return dma;
        }
        let channels = f64::from(self.channels.value) * self.channel_bytes_per_s.value as f64;
        let unit = (self.program_unit() * BLOCK_SIZE as u64) as f64;
        let dies = self.dies() as f64 * unit * SECOND / self.program_ns.value as f64;
        dma.min(channels).min(dies)
    }

    /// Bytes per second of `writers` who each write `blocks` blocks and wait for them before the
    /// next. A zone with one write in flight, as under Linux's zone write lock, is such a writer.
    pub fn write_bytes_per_s(&self, writers: u64, blocks: u64) -> f64 {
        let bytes = (writers * blocks * BLOCK_SIZE as u64) as f64;
        (bytes * SECOND / self.write_ns(blocks)).min(self.sustained_bytes_per_s())
    }

    /// Time in ns of a write of `blocks` blocks when `writers` write continuously: by Little's law,
    /// if the drive is the bottleneck.
    pub fn sustained_write_ns(&self, writers: u64, blocks: u64) -> f64 {
        let bytes = (writers * blocks * BLOCK_SIZE as u64) as f64;
        bytes * SECOND / self.write_bytes_per_s(writers, blocks)
    }

    /// Time in ns of a flush that finds `dirty` blocks of one zone in the buffer and no program
    /// under way. Units go to dies side by side, channels load them in turn, and the longest
    /// program decides. Valid for at most as many units as there are dies.
    pub fn flush_ns(&self, dirty: u64) -> f64 {
        let firmware = self.firmware_flush_ns.value as f64;
        if dirty == 0 || !self.volatile() {
            return firmware;
        }
        let units = dirty.div_ceil(self.program_unit());
        let in_turn = units.div_ceil(u64::from(self.channels.value));
        let longest = dirty.min(self.program_unit());
        let load = in_turn as f64 * transfer_ns(longest, self.channel_bytes_per_s.value);
        firmware + load + self.longest_program_ns(units)
    }

    /// The mean of the longest of `count` programs, spread evenly about their mean.
    fn longest_program_ns(&self, count: u64) -> f64 {
        let spread = f64::from(self.program_jitter_percent.value) / 100.0;
        let count = count as f64;
        self.program_ns.value as f64 * (1.0 + spread * (count - 1.0) / (count + 1.0))
    }

    fn dma_ns(&self, blocks: u64) -> f64 {
        transfer_ns(blocks, self.dma_bytes_per_s.value)
    }
}

fn transfer_ns(blocks: u64, bytes_per_s: u64) -> f64 {
    (blocks * BLOCK_SIZE as u64) as f64 * SECOND / bytes_per_s as f64
}
