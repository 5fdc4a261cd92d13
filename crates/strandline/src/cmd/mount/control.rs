//! Requests to a running mount, through the extended attributes of its root directory.

use std::sync::Arc;

use cores::Mutex;
use drive::linux::Access;
use drive::{Ssd, Stats};
use fuse::{Control, Reopened};
use rustix::io::Errno;
use vfs::kind::{Ioctl, Shutdown, Volume};

use super::log::Log;
use super::source::{Served, Source};
use crate::ending::{self, Speaker};

/// How many processes can wait at a time to hear how the mount ends.
const SPEAKERS_MAX: usize = 16;

/// The way to the volume and the drives below a running mount.
pub(super) struct Switch {
    /// Protects which volume is mounted: `None` while it is opened again, and if that failed.
    pub(super) served: Mutex<Option<Served>>,
    /// How it is opened again.
    pub(super) source: Source,
    pub(super) log: Arc<Log>,
    /// Protects the list of listeners that are told how the mount ends.
    pub(super) speakers: Mutex<Vec<Speaker>>,
}

impl Control for Switch {
    /// `status`: one JSON object. `attributes`: a JSON list of what can be set or has a name in
    /// `/sys/fs`. `tune=NAME=VALUE[,…]`: sets attributes, all or none; says what is
    /// wrong, if anything. `sync`: everything becomes durable; says what is not, if anything.
    /// `remount=rw`: whether it can be written at all. `cut=SEED`: the power fails, with the
    /// choices of the seed. `shutdown=N`: as `f2fs_io shutdown N`, whose number FUSE does not let
    /// through.
    /// `ending=NAME`: see [`crate::ending`].
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        if ![&b"status"[..], b"attributes"].contains(&request) {
            self.log.note(&String::from_utf8_lossy(request));
        }
        match request {
            b"status" => return serde_json::to_vec(&self.report()?).map_err(|_| Errno::IO),
            b"attributes" => {
                let rows = self.volume()?.attributes();
                return serde_json::to_vec(&rows).map_err(|_| Errno::IO);
            }
            b"sync" => {
                let volume = self.volume()?;
                let failed = volume.sync().err().map(|error| self.lost(&*volume, &error));
                return Ok(failed.unwrap_or_default().into_bytes());
            }
            // It is writable, or [`Control::reopen`] would have been asked.
            b"remount=rw" => {}
            b"shutdown=0" => self.shut_down(Shutdown::FullSync)?,
            b"shutdown=1" => self.shut_down(Shutdown::MetaSync)?,
            b"shutdown=2" => self.shut_down(Shutdown::NoSync)?,
            b"shutdown=3" => self.shut_down(Shutdown::MetaFlush)?,
            _ => {
                if let Some(call) = request.strip_prefix(b"ioctl=") {
                    return self.ioctl(call);
                }
                if let Some(settings) = request.strip_prefix(b"tune=") {
                    return self.tune(settings);
                }
                if let Some(name) = request.strip_prefix(ending::REQUEST.as_bytes()) {
                    return self.speak_to(name).map(|()| Vec::new());
                }
                let seed = request.strip_prefix(b"cut=").ok_or(Errno::NODATA)?;
                let seed = std::str::from_utf8(seed).ok().and_then(|text| text.parse().ok());
                let seed = seed.ok_or(Errno::INVAL)?;
                let drives = self.drives();
                if drives.is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                drives.iter().for_each(|drive| drop(drive.cut(seed)));
                self.log.note("the power of the drive has failed");
            }
        }
        Ok(Vec::new())
    }

    fn reopen(&self) -> Reopened {
        // The image can be opened for writing only when nothing of it is open.
        drop(self.served.lock().take());
        let refused = match self.source.open(Access::Write) {
            Ok(served) => {
                let volume = self.serve(served);
                self.maintain();
                return Reopened { volume: Some(volume), refused: None };
            }
            Err(refused) => refused.to_string(),
        };
        match self.source.open(Access::Read) {
            Ok(served) => Reopened { volume: Some(self.serve(served)), refused: Some(refused) },
            Err(lost) => {
                let refused = format!("{refused}; it cannot be read again, either: {lost}");
                self.log.fail(&refused);
                Reopened { volume: None, refused: Some(refused) }
            }
        }
    }
}

impl Switch {
    /// From now on `served` is the mounted volume.
    pub(super) fn serve(&self, served: Served) -> Arc<dyn Volume> {
        let volume = served.volume.clone();
        let witness = self.log.clone();
        volume.report_to(Arc::new(move |what| witness.fail(what)));
        self.log.note(&format!(
            "mounted from {}: {}",
            self.source.image.display(),
            volume.options()
        ));
        *self.served.lock() = Some(served);
        volume
    }

    /// Lets the volume write back and clean from time to time.
    pub(super) fn maintain(&self) {
        if let Some(served) = &mut *self.served.lock() {
            served.maintenance = Some(served.volume.clone().maintain());
        }
    }

    /// The volume that is mounted now.
    fn volume(&self) -> Result<Arc<dyn Volume>, Errno> {
        self.served.lock().as_ref().map(|served| served.volume.clone()).ok_or(Errno::IO)
    }

    fn drives(&self) -> Vec<Arc<Ssd>> {
        self.served.lock().as_ref().map_or_else(Vec::new, |served| served.drives.clone())
    }

    fn tune(&self, settings: &[u8]) -> Result<Vec<u8>, Errno> {
        let text = std::str::from_utf8(settings).map_err(|_| Errno::INVAL)?;
        let settings = text.split(',').map(|setting| setting.split_once('=').ok_or(Errno::INVAL));
        let refused = self.volume()?.set(&settings.collect::<Result<Vec<_>, _>>()?).err();
        Ok(refused.map_or_else(Vec::new, |error| error.to_string().into_bytes()))
    }

    /// `INO:NUMBER:BYTES`: an ioctl, with its bytes in hexadecimal digits. Answers 0 and what it
    /// returns, or 1 and in words why not.
    fn ioctl(&self, call: &[u8]) -> Result<Vec<u8>, Errno> {
        let text = std::str::from_utf8(call).map_err(|_| Errno::INVAL)?;
        let mut parts = text.split(':');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let ino = number().ok_or(Errno::INVAL)?;
        let number = number().and_then(|number| u32::try_from(number).ok()).ok_or(Errno::INVAL)?;
        let digits = parts.next().unwrap_or_default().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let input: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let input = input.ok_or(Errno::INVAL)?;
        let call = Ioctl { number, input: &input, privileged: true, atomic_writes: false };
        Ok(match self.volume()?.ioctl(ino, call) {
            Ok(answer) => [&[0], &answer[..]].concat(),
            Err(error) => [&[1], error.to_string().as_bytes()].concat(),
        })
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
    pub(super) fn lost(&self, volume: &dyn Volume, error: &vfs::Error) -> String {
        let why = self.log.first_error().unwrap_or_else(|| error.to_string());
        match volume.unwritten() {
            0 => why,
            bytes => format!("{why}: {} not written", size_text(bytes)),
        }
    }

    /// Tells all listeners how the mount has ended.
    pub(super) fn end(&self, lost: Option<&str>) {
        self.speakers.lock().iter().for_each(|speaker| speaker.say(lost));
    }

    /// State and statistics of the volume and its drives, and of this process.
    fn report(&self) -> Result<serde_json::Value, Errno> {
        let (volume, drives) = (self.volume()?, self.drives());
        // First how it is mounted, with the fsync mode: mount tables cannot show that.
        let mut report = serde_json::json!({ "mount_options": volume.options() });
        report["image"] = self.source.image.to_string_lossy().into();
        if let Some(error) = self.log.first_error() {
            report["error"] = error.into();
        }
        if !drives.is_empty() {
            let off = drives.iter().any(|drive| drive.is_off());
            report["power"] = if off { "off" } else { "on" }.into();
        }
        report["memory_kb"] = resident_kb().into();
        report["unwritten_kb"] = (volume.unwritten() / 1024).into();
        fill(&mut report, &*volume, &drives);
        Ok(report)
    }

    fn shut_down(&self, how: Shutdown) -> Result<(), Errno> {
        self.volume()?.shut_down(how).map_err(|error| error.errno())
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
