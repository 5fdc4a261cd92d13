//! Requests to a running mount, through the extended attributes of its root directory.

use std::sync::Arc;

use drive::{Ssd, Stats};
use fuse::Control;
use rustix::io::Errno;
use vfs::kind::{Shutdown, Volume};

/// The way to the volume and the drives below a running mount.
pub(super) struct Switch {
    pub(super) volume: Arc<dyn Volume>,
    /// The drives it is on, if they are emulated.
    pub(super) drives: Vec<Arc<Ssd>>,
    /// The volume was mounted read-only.
    pub(super) read_only: bool,
}

impl Control for Switch {
    /// `status`: one JSON object. `tune=NAME=VALUE[,…]`: sets attributes, all or none; says what is
    /// wrong, if anything. `sync`: everything becomes durable. `remount=rw`: whether it can be
    /// written at all. `cut=SEED`: the power fails, with the choices of the seed. `shutdown=N`: as
    /// `f2fs_io shutdown N`, whose number FUSE does not let through.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            b"status" => {
                let report = report(&*self.volume, &self.drives);
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
                if let Some(settings) = request.strip_prefix(b"tune=") {
                    return self.tune(settings);
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
}

impl Switch {
    fn tune(&self, settings: &[u8]) -> Result<Vec<u8>, Errno> {
        let text = std::str::from_utf8(settings).map_err(|_| Errno::INVAL)?;
        let settings = text.split(',').map(|setting| setting.split_once('=').ok_or(Errno::INVAL));
        let refused = self.volume.set(&settings.collect::<Result<Vec<_>, _>>()?).err();
        Ok(refused.map_or_else(Vec::new, |error| error.to_string().into_bytes()))
    }

    fn shut_down(&self, how: Shutdown) -> Result<(), Errno> {
        self.volume.shut_down(how).map_err(|error| error.errno())
    }
}

/// State and statistics of a volume and its drives.
fn report(volume: &dyn Volume, drives: &[Arc<Ssd>]) -> serde_json::Value {
    // First how it is mounted, with the fsync mode: mount tables cannot show that.
    let mut report = serde_json::json!({ "mount_options": volume.options() });
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
    report
}
