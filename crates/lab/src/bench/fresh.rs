//! A volume on a new drive, for one measurement.

use std::sync::Arc;

use ::drive::pm::{Domain, PmAccess, PmCharged, PmDrive, PmSim, PmState};
use ::drive::{Concat, Drive, Memory, Stats, Timing};
use vfs::kind::{Format, Volume};

use crate::{Error, Result, rig};

/// Bytes of persistent memory in front of a drive.
const JOINED_PM: u64 = 512 << 20;

/// What a drive has done, whenever asked.
pub(super) type Counts = Box<dyn Fn() -> Stats>;

/// A volume made for one measurement.
pub(super) struct Fresh<'a> {
    pub(super) format: &'static dyn Format,
    pub(super) drive: &'a str,
    pub(super) mount_opts: &'a str,
    pub(super) seed: u64,
    pub(super) simulated: bool,
    /// Bytes for which the drive should have room.
    pub(super) footprint: u64,
}

impl Fresh<'_> {
    /// Makes and mounts it on the current machine, runs `measure` on it and unmounts it. Returns
    /// the drive, too. `measure` may ask what the drive has done.
    pub(super) fn volume<T>(
        &self,
        measure: impl FnOnce(&Arc<dyn Volume>, &dyn Fn() -> Stats) -> Result<T>,
    ) -> Result<(T, Arc<dyn Drive>)> {
        let (drive, stats) = self.new_drive()?;
        rig::make_fitting(self.format, &drive, self.mount_opts)?;
        let fs = rig::mount(self.format, drive.clone(), self.mount_opts)?;
        let measured = measure(&fs, &*stats)?;
        fs.unmount().map_err(Error::at("unmount", b""))?;
        Ok((measured, drive))
    }

    /// Its power is never cut, so a drive that is memory and takes no time needs no model, for
    /// whose lock all threads would contend.
    pub(super) fn new_drive(&self) -> Result<(Arc<dyn Drive>, Counts)> {
        if let Some(below) = self.drive.strip_prefix("pm+") {
            return self.memory_and(below);
        }
        let spec = rig::spec(self.drive, self.footprint)?;
        if self.drive == "ram" && !self.simulated {
            let identify = spec.identify().map_err(|e| Error::Usage(e.to_string()))?;
            let (blocks, queues, depth) = (identify.blocks, identify.queues, identify.queue_depth);
            let ram = Memory::ramdisk_mq(blocks, queues, depth);
            return Ok((ram.clone(), Box::new(move || ram.stats())));
        }
        let timing = if self.simulated { Timing::Virtual } else { Timing::Paced };
        let ssd = rig::new_drive(&spec, timing, self.seed)?;
        Ok((ssd.clone(), Box::new(move || ssd.stats())))
    }

    /// Persistent memory and a drive behind it, joined. The counts are the drive's.
    fn memory_and(&self, drive: &str) -> Result<(Arc<dyn Drive>, Counts)> {
        if !self.simulated {
            return Err(Error::Usage("pm+DRIVE: only simulated memory takes its time".into()));
        }
        let spec = rig::spec(drive, self.footprint)?;
        let ssd = rig::new_drive(&spec, Timing::Virtual, self.seed)?;
        let pm = PmCharged::new(PmSim::power_on(PmState::new(JOINED_PM), Domain::Process));
        let pm: Arc<dyn Drive> = PmDrive::new(pm, PmAccess::Write);
        let blocks = |drive: &dyn Drive| drive.identify().blocks;
        let members = vec![(pm.clone(), blocks(&*pm)), (ssd.clone() as _, blocks(&*ssd))];
        let joined = Concat::new(members).map_err(|error| Error::Usage(error.to_string()))?;
        Ok((Arc::new(joined), Box::new(move || ssd.stats())))
    }
}
