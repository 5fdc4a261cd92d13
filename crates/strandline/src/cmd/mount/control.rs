//! Requests to a running mount, through the extended attributes of its root directory.

use std::sync::Arc;

use drive::{Ssd, Stats};
use f2fs::F2fs;
use fuse::{Answer, Control, Ioctl};
use rustix::io::Errno;
use serde_json::json;
use vfs::kind::Shutdown;
use vfs::{Attr, Creator, FileSystem, Ino, Timespec};

/// The way to the volume and the drives below a running mount.
pub(super) struct Switch {
    pub(super) volume: Arc<F2fs>,
    /// The drives it is on, if they are emulated.
    pub(super) drives: Vec<Arc<Ssd>>,
    /// The volume was mounted read-only.
    pub(super) read_only: bool,
}

impl Control for Switch {
    /// `status`: one JSON object. `tune=NAME=VALUE`: sets a tunable; says what is wrong with it, if
    /// anything. `sync`: everything becomes durable. `remount=rw`: whether it can
    /// be written at all. `cut=SEED`: the power fails, with the choices of the seed.
    /// `shutdown=N`: as `f2fs_io shutdown N`, whose number FUSE does not let through.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            b"status" => {
                let report = report(&self.volume, &self.drives);
                return serde_json::to_vec(&report).map_err(|_| Errno::IO);
            }
            b"sync" => self.volume.sync().map_err(|error| error.errno())?,
            b"remount=rw" if self.read_only => return Err(Errno::ROFS),
            b"remount=rw" => {}
            b"shutdown=0" => self.shut_down(Shutdown::FullSync)?,
            b"shutdown=1" => self.shut_down(Shutdown::MetaSync)?,
            b"shutdown=2" => self.shut_down(Shutdown::NoSync)?,
            b"shutdown=3" => self.shut_down(Shutdown::MetaFlush)?,
            _ => {
                if let Some(setting) = request.strip_prefix(b"tune=") {
                    return self.tune(setting);
                }
                let seed = request.strip_prefix(b"cut=").ok_or(Errno::NODATA)?;
                let seed = std::str::from_utf8(seed).ok().and_then(|text| text.parse().ok());
                let seed = seed.ok_or(Errno::INVAL)?;
                if self.drives.is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                self.drives.iter().for_each(|drive| drop(drive.cut(seed)));
            }
        }
        Ok(Vec::new())
    }

    fn ioctl(&self, ino: Ino, ioctl: Ioctl) -> vfs::Result<Answer> {
        let volume = &self.volume;
        match ioctl {
            Ioctl::GetFlags => return Ok(Answer::Number(volume.inode_flags(ino)?)),
            Ioctl::GetProject => return Ok(Answer::Number(volume.project_id(ino)?)),
            Ioctl::GetFeatures => return Ok(Answer::Number(volume.features())),
            Ioctl::GetPinFile => return Ok(Answer::Number(volume.pin_file(ino)?)),
            Ioctl::Defragment { start, len } => {
                return Ok(Answer::Bytes(volume.defragment(ino, start, len)?));
            }
            Ioctl::SetFlags(flags) => volume.set_inode_flags(ino, flags)?,
            Ioctl::SetProject(project) => volume.set_project_id(ino, project)?,
            Ioctl::GarbageCollect { sync } => volume.garbage_collect(sync)?,
            Ioctl::WriteCheckpoint => volume.write_checkpoint()?,
            Ioctl::SetPinFile(pin) => volume.set_pin_file(ino, pin)?,
            Ioctl::PrecacheExtents => volume.precache_extents(ino)?,
            Ioctl::StartAtomicWrite => volume.start_atomic_write(ino)?,
            Ioctl::CommitAtomicWrite => volume.commit_atomic_write(ino)?,
            Ioctl::AbortAtomicWrite => volume.abort_atomic_write(ino)?,
        }
        Ok(Answer::Done)
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> vfs::Result<Attr> {
        Ok(self.volume.tmpfile(parent, perm, creator)?)
    }

    fn touch_atime(&self, ino: Ino, time: Timespec) -> vfs::Result<()> {
        Ok(self.volume.touch_atime(ino, time)?)
    }
}

impl Switch {
    fn tune(&self, setting: &[u8]) -> Result<Vec<u8>, Errno> {
        let setting = std::str::from_utf8(setting).map_err(|_| Errno::INVAL)?;
        let (name, value) = setting.split_once('=').ok_or(Errno::INVAL)?;
        let refused = self.volume.set_tunable(name, value).err();
        Ok(refused.map_or_else(Vec::new, |error| error.to_string().into_bytes()))
    }

    fn shut_down(&self, how: Shutdown) -> Result<(), Errno> {
        self.volume.shutdown(how).map_err(|error| vfs::Error::from(error).errno())
    }
}

/// State and statistics of a volume and its drives.
fn report(volume: &F2fs, drives: &[Arc<Ssd>]) -> serde_json::Value {
    // Numbers and lists of names: always JSON.
    let mut report = serde_json::to_value(volume.status()).unwrap_or_else(|_| json!({}));
    report["recovered_nodes"] = volume.recovery().replayed_nodes.into();
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
    report
}
