//! Drives that are nothing but memory, to measure what is above them: `null`, which keeps nothing
//! (Linux's `null_blk`), and `ramdisk-mq`, which keeps everything (the many-core study's RAM disk,
//! section 5.2). Hardware queues and their depth are the caller's choice.
//!
//! Both answer in [`Drive::issue`], as their kernel drivers end a request within `queue_rq`, and no
//! lock is shared by all of a drive: the one lock a command takes protects a stretch of the drive.
//! So cores that keep to stretches of their own meet only above.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;

use crate::answers::Answers;
use crate::{
    BLOCK_SIZE, Block, Command, Completion, Drive, Identify, Lba, Output, RamMedia, Stats, Status,
};

/// Stretches with a lock of their own: several for each core of the largest machine.
const STRETCHES: u64 = 1024;

/// 1 MiB, as Linux's RAM disks allow.
const MAX_TRANSFER: u32 = 256;

/// A drive in memory without a model of anything else.
pub struct Memory {
    identify: Identify,
    /// The contents in stretches of equal length; none if nothing is kept.
    stretches: Box<[Mutex<RamMedia>]>,
    queues: Box<[Queue]>,
}

/// A hardware queue. Aligned so that counting in one does not slow down another.
#[repr(align(128))]
struct Queue {
    /// Answers of commands that came by [`Drive::submit`].
    done: Answers,
    flushes: AtomicU64,
    blocks_written: AtomicU64,
}

impl Memory {
    /// A drive that says yes, and reads as zeroes. As everywhere in this file, it has at least one
    /// block, one queue and a depth of one.
    pub fn null(blocks: u64, queues: u16, queue_depth: u16) -> Arc<Self> {
        Arc::new(Self::new("null", blocks, queues, queue_depth, 0))
    }

    /// A drive that keeps what is written. Space is taken when it is.
    pub fn ramdisk_mq(blocks: u64, queues: u16, queue_depth: u16) -> Arc<Self> {
        Arc::new(Self::new("ramdisk-mq", blocks, queues, queue_depth, STRETCHES))
    }

    fn new(model: &str, blocks: u64, queues: u16, queue_depth: u16, stretches: u64) -> Self {
        let identify = Identify {
            model: model.to_owned(),
            blocks: blocks.clamp(1, 1 << 48),
            queues: queues.max(1),
            queue_depth: queue_depth.max(1),
            max_transfer: MAX_TRANSFER,
            volatile_cache: false,
            fua: true,
            atomic_write: BLOCK_SIZE as u32,
            discard: true,
            discard_zeroes: true,
            read_only: false,
            zones: None,
            joined: Vec::new(),
            pm: None,
        };
        let stretch = || Mutex::named("ramdisk-mq stretch", RamMedia::new());
        let queue = || Queue {
            done: Answers::named("memory completions"),
            flushes: AtomicU64::new(0),
            blocks_written: AtomicU64::new(0),
        };
        Self {
            stretches: (0..stretches).map(|_| stretch()).collect(),
            queues: (0..identify.queues).map(|_| queue()).collect(),
            identify,
        }
    }

    /// The flushes and the blocks written so far; nothing else is counted.
    pub fn stats(&self) -> Stats {
        let sum = |count: fn(&Queue) -> &AtomicU64| {
            self.queues.iter().map(|queue| count(queue).load(Ordering::Relaxed)).sum()
        };
        let (flushes, blocks_written) = (sum(|q| &q.flushes), sum(|q| &q.blocks_written));
        Stats { flushes, blocks_written, ..Stats::default() }
    }

    fn run(&self, queue: u16, command: Command) -> Result<Output, Status> {
        self.count(queue, &command);
        match command {
            Command::Read { lba, blocks } => {
                self.transfer(lba, blocks as usize)?;
                let range = lba..lba + u64::from(blocks);
                let kept = |lba| self.at(lba).map(|media| media.lock().read(lba));
                let block = |lba| kept(lba).unwrap_or_else(Block::zeroed);
                Ok(Output::Data(range.map(block).collect()))
            }
            Command::Write { lba, data, .. } => {
                self.transfer(lba, data.len())?;
                for (lba, block) in (lba..).zip(data) {
                    if let Some(media) = self.at(lba) {
                        media.lock().write(lba, block);
                    }
                }
                Ok(Output::Done)
            }
            Command::Flush => Ok(Output::Done),
            Command::Discard { lba, blocks } => {
                self.check(lba, blocks)?;
                let length = self.stretch_length();
                let (first, end) = (lba / length, (lba + blocks).div_ceil(length));
                let touched = self.stretches.iter().take(end as usize).skip(first as usize);
                touched.for_each(|media| media.lock().discard(lba, blocks));
                Ok(Output::Done)
            }
            Command::Append { .. } | Command::ReportZones { .. } | Command::ManageZone { .. } => {
                Err(Status::InvalidOpcode)
            }
        }
    }

    fn count(&self, queue: u16, command: &Command) {
        let Some(queue) = self.queues.get(usize::from(queue)) else { return };
        let (count, n) = match command {
            Command::Write { data, .. } => (&queue.blocks_written, data.len() as u64),
            Command::Flush => (&queue.flushes, 1),
            _ => return,
        };
        count.fetch_add(n, Ordering::Relaxed);
    }

    /// Checks a read or a write, and charges the memory that it moves. The other side, a buffer in
    /// use, is taken to be in the core's cache.
    fn transfer(&self, lba: Lba, blocks: usize) -> Result<(), Status> {
        if blocks == 0 || blocks > MAX_TRANSFER as usize {
            return Err(Status::InvalidField);
        }
        self.check(lba, blocks as u64)?;
        if !self.stretches.is_empty() {
            cores::memory((blocks * BLOCK_SIZE) as u64);
        }
        Ok(())
    }

    fn check(&self, lba: Lba, blocks: u64) -> Result<(), Status> {
        match lba.checked_add(blocks) {
            Some(end) if end <= self.identify.blocks => Ok(()),
            _ => Err(Status::LbaOutOfRange),
        }
    }

    /// Where `lba` is kept, if it is.
    fn at(&self, lba: Lba) -> Option<&Mutex<RamMedia>> {
        self.stretches.get(usize::try_from(lba / self.stretch_length()).ok()?)
    }

    fn stretch_length(&self) -> u64 {
        self.identify.blocks.div_ceil(STRETCHES)
    }

    fn take(&self, queue: u16, cid: Option<u16>) -> Option<Completion> {
        self.queues.get(usize::from(queue))?.done.take(cid)
    }
}

impl Drive for Memory {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let result = self.run(queue, command);
        if let Some(queue) = self.queues.get(usize::from(queue)) {
            queue.done.put(Completion { cid, result });
        }
    }

    fn issue(&self, queue: u16, cid: u16, command: Command) -> Option<Completion> {
        Some(Completion { cid, result: self.run(queue, command) })
    }

    fn poll(&self, queue: u16) -> Option<Completion> {
        self.take(queue, None)
    }

    fn wait(&self, queue: u16) -> Option<Completion> {
        self.take(queue, None)
    }

    fn wait_for(&self, queue: u16, cid: u16) -> Option<Completion> {
        self.take(queue, Some(cid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;

    fn read(drive: &Memory, lba: Lba, blocks: u32) -> Result<Blocks, Status> {
        match drive.issue(0, 7, Command::Read { lba, blocks }).expect("at once") {
            Completion { cid: 7, result: Ok(Output::Data(data)) } => Ok(data),
            Completion { result: Err(status), .. } => Err(status),
            other => panic!("{other:?}"),
        }
    }

    fn write(lba: Lba, n: u64) -> Command {
        let data = (n..n + 3).map(|n| Block::from_prefix(&n.to_le_bytes())).collect();
        Command::Write { lba, data, fua: false }
    }

    #[test]
    fn one_keeps_what_is_written_and_the_other_does_not() {
        // The write goes across the end of a stretch of two blocks.
        let (ram, null) = (Memory::ramdisk_mq(2000, 3, 9), Memory::null(2000, 3, 9));
        for drive in [&ram, &null] {
            assert_eq!((drive.identify().queues, drive.identify().queue_depth), (3, 9));
            drive.submit(2, 4, write(1, 5));
            assert!(drive.poll(1).is_none() && drive.wait_for(2, 5).is_none());
            assert!(drive.wait_for(2, 4).is_some_and(|done| done.result.is_ok()));
        }
        let five = Block::from_prefix(&5u64.to_le_bytes());
        assert_eq!(read(&ram, 1, 1).expect("read")[0], five);
        assert_eq!(read(&null, 1, 1).expect("read")[0], Block::zeroed());
        let discard = Command::Discard { lba: 1, blocks: 2 };
        assert!(ram.issue(0, 0, discard).is_some_and(|done| done.result.is_ok()));
        let seven = Block::from_prefix(&7u64.to_le_bytes());
        let left = read(&ram, 1, 3).expect("read").to_vec();
        assert_eq!(left, [Block::zeroed(), Block::zeroed(), seven]);
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let drive = Memory::ramdisk_mq(1000, 1, 1);
        assert_eq!(read(&drive, 999, 2), Err(Status::LbaOutOfRange));
        assert_eq!(read(&drive, Lba::MAX, 2), Err(Status::LbaOutOfRange));
        assert_eq!(read(&drive, 0, 0), Err(Status::InvalidField));
        assert_eq!(read(&drive, 0, MAX_TRANSFER + 1), Err(Status::InvalidField));
        let report = drive.issue(0, 0, Command::ReportZones { lba: 0, max: 1 }).expect("at once");
        assert_eq!(report.result.expect_err("no zones"), Status::InvalidOpcode);
    }
}
