//! What the interfaces work on, and how much of it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ::drive::linux::interface::{Kind, Setup, Target, Way};
use ::drive::{BLOCK_SIZE, Block, Command, Drive, Memory, Timing};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{Job, On};
use crate::workload::Rng;
use crate::{Error, Result, rig};

const MIB: u64 = 1 << 20;
/// How much of an emulated drive is used if nothing is said.
const EMULATED: u64 = 64 * MIB;

/// A file, device or drive of which so many bytes are used.
pub(super) struct Place<'a> {
    job: &'a Job,
    /// Kept from round to round, unlike files, because its contents go with it.
    emulated: Option<Arc<dyn Drive>>,
    bytes: u64,
}

impl<'a> Place<'a> {
    pub(super) fn new(job: &'a Job) -> Result<Self> {
        let (emulated, has) = match &job.on {
            On::Emulated(profile) => {
                let size = job.size.unwrap_or(EMULATED);
                (Some(emulated(profile, size, job.seed)?), size)
            }
            On::Path(path) => {
                let target = Target::open(path, Kind::Psync, Way::Read, false);
                let target = target.map_err(|error| Error::Volume {
                    step: "bench io",
                    message: error.to_string(),
                })?;
                (None, target.bytes())
            }
        };
        let bytes = job.size.unwrap_or(has);
        let place = Self { job, emulated, bytes };
        let few = place.blocks() / u64::from(job.jobs.max(1)) == 0;
        if bytes > has || few {
            let (name, block, jobs) = (place.name(), job.block, job.jobs);
            let why = format!(
                "{name} has {has} bytes; {jobs} jobs with blocks of {block} bytes do not fit \
                 into {bytes}"
            );
            return Err(Error::Usage(why));
        }
        Ok(place)
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        match &self.job.on {
            On::Path(path) => path.display().to_string(),
            On::Emulated(profile) => format!("{profile} (emulated)"),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whole blocks in it.
    pub(super) fn blocks(&self) -> u64 {
        self.bytes / self.job.block.max(1)
    }

    /// Opens it for one run of `kind`; the error says why that cannot be.
    pub(super) fn open(&self, kind: Kind) -> std::result::Result<Target, String> {
        match (&self.job.on, &self.emulated) {
            (On::Path(path), _) => Target::open(path, kind, self.job.pattern.way, self.job.direct)
                .map_err(|error| error.to_string()),
            (_, Some(drive)) => Ok(Target::Drive(drive.clone())),
            _ => Err("nothing to work on".into()),
        }
    }

    /// What one job asks of an interface.
    pub(super) fn setup(&self, job: u16, round: u64) -> Setup {
        let Job { pattern, block, depth, direct, seed, .. } = *self.job;
        let block = usize::try_from(block).unwrap_or(usize::MAX);
        Setup { way: pattern.way, block, depth, direct, job, seed: seed ^ round.rotate_left(32) }
    }
}

/// The emulated drives that are nothing but memory: hardware queues, and commands in each.
const QUEUES: (u16, u16) = (64, 1024);

/// A drive without zones whose first `size` bytes have been written, so that reads go where a real
/// drive's go.
fn emulated(profile: &str, size: u64, seed: u64) -> Result<Arc<dyn Drive>> {
    let blocks = size.div_ceil(BLOCK_SIZE as u64);
    let drive: Arc<dyn Drive> = match profile {
        "null" => Memory::null(blocks, QUEUES.0, QUEUES.1),
        "ramdisk-mq" => Memory::ramdisk_mq(blocks, QUEUES.0, QUEUES.1),
        "ram" => rig::new_drive(&rig::spec(profile, size)?, Timing::Instant, seed)?,
        _ => rig::new_drive(&rig::spec(profile, size)?, Timing::Paced, seed)?,
    };
    let identify = drive.identify().clone();
    if identify.zones.is_some() {
        return Err(Error::Usage(format!("{profile} has zones; this is for drives without")));
    }
    let block = Block::from_prefix(&seed.to_le_bytes());
    let step = u64::from(identify.max_transfer);
    let writes = (0..blocks).step_by(step as usize).map(|lba| {
        let data = std::iter::repeat_n(block.clone(), step.min(blocks - lba) as usize).collect();
        Command::Write { lba, data, fua: false }
    });
    for command in writes.chain([Command::Flush]) {
        let done = drive.issue(0, 0, command).or_else(|| drive.wait_for(0, 0));
        if let Some(Err(status)) = done.map(|done| done.result) {
            return Err(Error::Usage(format!("{profile}: {status}")));
        }
    }
    Ok(drive)
}

/// Makes a file of `bytes` bytes where none is, with bytes that do not compress, and makes it
/// durable. An existing file is an error and stays as it is; one that cannot be made whole, as for
/// want of space, is removed.
pub fn lay_out(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let file =
        OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::host(path))?;
    fill(path, file, bytes, seed).inspect_err(|_| drop(std::fs::remove_file(path)))
}

fn fill(path: &Path, mut file: File, bytes: u64, seed: u64) -> Result<()> {
    // Without space for all of it, not a byte of it is written.
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(errno) => return Err(Error::host(path)(errno.into())),
    }
    let mut rng = Rng::new(seed, 11);
    let mut left = bytes;
    while left > 0 {
        let chunk = rng.bytes(left.min(MIB) as usize);
        file.write_all(&chunk).map_err(Error::host(path))?;
        left -= chunk.len() as u64;
    }
    file.sync_all().map_err(Error::host(path))
}
