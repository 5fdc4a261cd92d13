//! Persistent memory as a block drive, for whatever asks for blocks: probing, dumps, serving, and
//! file systems that know no better. As with Linux's pmem driver in its default mode, a completed
//! write is durable, but a block is torn at words.

use std::sync::Arc;

use super::{Domain, Pm, PmAccess, WORD};
use crate::answers::Answers;
use crate::{BLOCK_SIZE, Block, Command, Completion, Drive, Identify, Lba, Output, Status};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// 1 MiB.
const MAX_TRANSFER: u32 = 256;
/// Commands are done when they are submitted, so few suffice.
const QUEUE_DEPTH: u16 = 64;

/// A drive whose blocks are persistent memory.
pub struct PmDrive {
    identify: Identify,
    pm: Arc<dyn Pm>,
    queues: Box<[Answers]>,
}

impl PmDrive {
    /// The blocks of `pm`. With [`PmAccess::Private`] the drive says that it is read-only, although
    /// the memory can be changed: nothing of that lasts.
    pub fn new(pm: Arc<dyn Pm>, access: PmAccess) -> Arc<Self> {
        let info = pm.info();
        let queues = cores::core_count().clamp(1, 64) as u16;
        let identify = Identify {
            model: format!("persistent memory ({})", info.domain.name()),
            blocks: info.bytes / BLOCK,
            queues,
            queue_depth: QUEUE_DEPTH,
            max_transfer: MAX_TRANSFER,
            volatile_cache: false,
            fua: true,
            atomic_write: WORD as u32,
            discard: false,
            discard_zeroes: false,
            read_only: access == PmAccess::Private,
            zones: None,
            joined: Vec::new(),
            pm: Some(info.clone()),
        };
        let queues = (0..queues).map(|_| Answers::named("pm completions")).collect();
        Arc::new(Self { identify, pm, queues })
    }

    fn run(&self, command: Command) -> Result<Output, Status> {
        match command {
            Command::Read { lba, blocks } => {
                let range = self.range(lba, blocks as usize)?;
                let block = |lba| {
                    let mut block = Block::unspecified();
                    self.pm.read(lba * BLOCK, block.make_mut());
                    block
                };
                Ok(Output::Data(range.map(block).collect()))
            }
            Command::Write { lba, data, .. } => {
                let range = self.range(lba, data.len())?;
                if self.identify.read_only {
                    return Err(Status::WriteProtected);
                }
                for (lba, block) in range.zip(&data) {
                    self.pm.stream(lba * BLOCK, &block[..]);
                }
                self.pm.fence();
                Ok(Output::Done)
            }
            Command::Flush => {
                self.pm.fence();
                let is_covered =
                    self.identify.pm.as_ref().is_none_or(|i| i.domain != Domain::Process);
                match is_covered.then_some(()).ok_or(()).or_else(|()| self.pm.sync()) {
                    Ok(()) => Ok(Output::Done),
                    Err(_) => Err(Status::WriteFault),
                }
            }
            Command::Discard { .. }
            | Command::Append { .. }
            | Command::ReportZones { .. }
            | Command::ManageZone { .. } => Err(Status::InvalidOpcode),
        }
    }

    fn range(&self, lba: Lba, blocks: usize) -> Result<std::ops::Range<Lba>, Status> {
        if blocks == 0 || blocks > MAX_TRANSFER as usize {
            return Err(Status::InvalidField);
        }
        match lba.checked_add(blocks as u64) {
            Some(end) if end <= self.identify.blocks => Ok(lba..end),
            _ => Err(Status::LbaOutOfRange),
        }
    }

    fn take(&self, queue: u16, cid: Option<u16>) -> Option<Completion> {
        self.queues.get(usize::from(queue))?.take(cid)
    }
}

impl Drive for PmDrive {
    fn identify(&self) -> &Identify {
        &self.identify
    }

    fn pm(&self) -> Option<Arc<dyn Pm>> {
        Some(self.pm.clone())
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn submit(&self, queue: u16, cid: u16, command: Command) {
        let result = self.run(command);
        if let Some(queue) = self.queues.get(usize::from(queue)) {
            queue.put(Completion { cid, result });
        }
    }

    fn issue(&self, _queue: u16, cid: u16, command: Command) -> Option<Completion> {
        Some(Completion { cid, result: self.run(command) })
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
