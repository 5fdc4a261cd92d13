//! This project's own drives, polled: the caller asks [`Drive::poll`] until something is done and
//! never sleeps. Over an emulated drive no system call is made at all, as with SPDK; over a file or
//! a device each command is handed to an `io_uring`, whose completions are looked for in memory.

use std::io;
use std::sync::Arc;

use super::{Interface, Setup, Way, invalid};
use crate::{BLOCK_SIZE, Block, Blocks, Command, Completion, Drive};

pub(super) struct Polled {
    drive: Arc<dyn Drive>,
    queue: u16,
    blocks: u32,
    /// What is written; none for reads.
    data: Option<Blocks>,
    /// Answered before they could be polled for.
    answered: Vec<Completion>,
    in_flight: usize,
}

impl Polled {
    /// On the hardware queue of the job, which no other job may use: a completion goes to the
    /// thread that polls.
    pub(super) fn new(drive: Arc<dyn Drive>, setup: &Setup) -> io::Result<Self> {
        let identify = drive.identify();
        if setup.job >= identify.queues {
            return Err(invalid(format!(
                "a job per hardware queue, and it has {}",
                identify.queues
            )));
        }
        if setup.depth > identify.queue_depth {
            return Err(invalid(format!("its queues take {} commands", identify.queue_depth)));
        }
        let blocks = (setup.block / BLOCK_SIZE) as u32;
        if !setup.block.is_multiple_of(BLOCK_SIZE) || blocks > identify.max_transfer {
            let most = identify.max_transfer;
            return Err(invalid(format!("commands move 1 to {most} blocks of 4 KiB")));
        }
        let block = Block::from_prefix(&cores::mix(setup.seed).to_le_bytes());
        let data = (0..blocks).map(|_| block.clone()).collect();
        let data = (setup.way == Way::Write).then_some(data);
        Ok(Self { queue: setup.job, drive, blocks, data, answered: Vec::new(), in_flight: 0 })
    }
}

impl Interface for Polled {
    fn start(&mut self, slot: u16, at: u64) -> io::Result<()> {
        let lba = at / BLOCK_SIZE as u64;
        let command = match &self.data {
            None => Command::Read { lba, blocks: self.blocks },
            Some(data) => Command::Write { lba, data: data.clone(), fua: false },
        };
        self.answered.extend(self.drive.issue(self.queue, slot, command));
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<u16>) -> io::Result<()> {
        let before = done.len();
        while done.len() == before && self.in_flight > 0 {
            let polled = std::iter::from_fn(|| self.drive.poll(self.queue));
            for Completion { cid, result } in self.answered.drain(..).chain(polled) {
                self.in_flight -= 1;
                result.map_err(|status| io::Error::other(status.to_string()))?;
                done.push(cid);
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        None
    }
}

impl Drop for Polled {
    /// Leaves the queue empty for the next one.
    fn drop(&mut self) {
        self.in_flight -= self.answered.len().min(self.in_flight);
        while self.in_flight > 0 && self.drive.wait(self.queue).is_some() {
            self.in_flight -= 1;
        }
    }
}
