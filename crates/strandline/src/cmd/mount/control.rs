//! Requests to a running mount, through the extended attributes of its root directory.

use std::path::PathBuf;
use std::sync::Arc;

use cores::Mutex;
use drive::{Ssd, Stats};
use fuse::Control;
use rustix::io::Errno;
use vfs::kind::{Shutdown, Volume};

use super::log::Log;
use crate::ending::{self, Speaker};

/// How many processes can wait at a time to hear how the mount ends.
const SPEAKERS_MAX: usize = 16;

/// The way to the volume and the drives below a running mount.
pub(super) struct Switch {
    pub(super) volume: Arc<dyn Volume>,
    /// The drives it is on, if they are emulated.
    pub(super) drives: Vec<Arc<Ssd>>,
    /// The volume was mounted read-only.
    pub(super) read_only: bool,
    /// What it is mounted from.
    pub(super) image: PathBuf,
    pub(super) log: Arc<Log>,
    /// Protects the list of listeners that are told how the mount ends.
    pub(super) speakers: Mutex<Vec<Speaker>>,
}

impl Control for Switch {
    /// `status`: one JSON object. `tune=NAME=VALUE[,…]`: sets attributes, all or none; says what is
    /// wrong, if anything. `sync`: everything becomes durable; says what is not, if anything.
    /// `remount=rw`: whether it can be written at all. `cut=SEED`: the power fails, with the
    /// choices of the seed. `shutdown=N`: as `f2fs_io shutdown N`, whose number FUSE does not let
    /// through.
    /// `ending=NAME`: see [`crate::ending`].
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        if request != b"status" {
            self.log.note(&String::from_utf8_lossy(request));
        }
        match request {
            b"status" => return serde_json::to_vec(&self.report()).map_err(|_| Errno::IO),
            b"sync" => {
                let failed = self.volume.sync().err();
                return Ok(failed.map_or_else(Vec::new, |error| self.lost(&error).into_bytes()));
            }
            b"remount=rw" if self.read_only => return Err(Errno::ROFS),
            b"remount=rw" => {}
            b"shutdown=0" => self.shut_down(Shutdown::FullSync)?,
            b"shutdown=1" => self.shut_down(Shutdown::MetaSync)?,
            b"shutdown=2" => self.shut_down(Shutdown::NoSync)?,
            b"shutdown=3" => self.shut_down(Shutdown::MetaFlush)?,
            _ => {
                if let Some(settings) = request.strip_prefix(b"tune=") {
                    return self.tune(settings);
                }
                if let Some(name) = request.strip_prefix(ending::REQUEST.as_bytes()) {
                    return self.speak_to(name).map(|()| Vec::new());
                }
                let seed = request.strip_prefix(b"cut=").ok_or(Errno::NODATA)?;
                let seed = std::str::from_utf8(seed).ok().and_then(|text| text.parse().ok());
                let seed = seed.ok_or(Errno::INVAL)?;
                if self.drives.is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                self.drives.iter().for_each(|drive| drop(drive.cut(seed)));
                self.log.note("the power of the drive has failed");
            }
        }
        Ok(Vec::new())
    }
}

impl Switch {
    fn tune(&self, settings: &[u8]) -> Result<Vec<u8>, Errno> {
        let text = std::str::from_utf8(settings).map_err(|_| Errno::INVAL)?;
        let settings = text.split(',').map(|setting| setting.split_once('=').ok_or(Errno::INVAL));
        let refused = self.volume.set(&settings.collect::<Result<Vec<_>, _>>()?).err();
        Ok(refused.map_or_else(Vec::new, |error| error.to_string().into_bytes()))
    }

    fn speak_to(&self, listener: &[u8]) -> Result<(), Errno> {
        let name = std::str::from_utf8(listener).map_err(|_| Errno::INVAL)?;
        let mut speakers = self.speakers.lock();
        if speakers.len() == SPEAKERS_MAX {
            return Err(Errno::BUSY);
        }
        speakers.push(Speaker::new(name).map_err(|_| Errno::CONNREFUSED)?);
        Ok(())
    }

    /// Why not everything is durable, after `error`: the first failure has the cause, where later
    /// ones only say that the volume has stopped.
    pub(super) fn lost(&self, error: &vfs::Error) -> String {
        let why = self.log.first_error().unwrap_or_else(|| error.to_string());
        match self.volume.unwritten() {
            0 => why,
            bytes => format!("{why}: {} not written", size_text(bytes)),
        }
    }

    /// Tells all listeners how the mount has ended.
    pub(super) fn end(&self, lost: Option<&str>) {
        self.speakers.lock().iter().for_each(|speaker| speaker.say(lost));
    }

    /// State and statistics of the volume and its drives, and of this process.
    fn report(&self) -> serde_json::Value {
        // First how it is mounted, with the fsync mode: mount tables cannot show that.
        let mut report = serde_json::json!({ "mount_options": self.volume.options() });
        report["image"] = self.image.to_string_lossy().into();
        if let Some(error) = self.log.first_error() {
            report["error"] = error.into();
        }
        if !self.drives.is_empty() {
            let off = self.drives.iter().any(|drive| drive.is_off());
            report["power"] = if off { "off" } else { "on" }.into();
        }
        report["memory_kb"] = resident_kb().into();
        report["unwritten_kb"] = (self.volume.unwritten() / 1024).into();
        fill(&mut report, &*self.volume, &self.drives);
        report
    }

    fn shut_down(&self, how: Shutdown) -> Result<(), Errno> {
        self.volume.shut_down(how).map_err(|error| error.errno())
    }
}

/// Bytes, for people.
fn size_text(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1024)),
        mib => format!("{mib} MiB"),
    }
}

/// How much memory this process has, in KiB (`VmRSS` of proc(5)); 0 without /proc.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    resident.and_then(|kb| kb.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// What a volume and its drives count.
fn fill(report: &mut serde_json::Value, volume: &dyn Volume, drives: &[Arc<Ssd>]) {
    volume.status().into_iter().for_each(|(name, value)| report[name] = value);
    report["recovered_nodes"] = volume.recovery().replayed.into();
    if !drives.is_empty() {
        let all: Vec<Stats> = drives.iter().map(|drive| drive.stats()).collect();
        let sum = |count: fn(&Stats) -> u64| all.iter().map(count).sum::<u64>();
        report["drive/commands"] = sum(|drive| drive.commands).into();
        report["drive/reads"] = sum(|drive| drive.reads).into();
        report["drive/writes"] = sum(|drive| drive.writes).into();
        report["drive/flushes"] = sum(|drive| drive.flushes).into();
        report["drive/discards"] = sum(|drive| drive.discards).into();
        report["drive/blocks_read"] = sum(|drive| drive.blocks_read).into();
        report["drive/blocks_written"] = sum(|drive| drive.blocks_written).into();
        report["drive/programs"] = sum(|drive| drive.programs).into();
        report["drive/resets"] = sum(|drive| drive.resets).into();
    }
    // A volume that has failed has no statistics any more, but its drive does.
    if let Ok(stat) = volume.statfs() {
        report["total_blocks"] = stat.blocks.into();
        report["free_blocks"] = stat.blocks_free.into();
        report["free_inodes"] = stat.files_free.into();
    }
}
