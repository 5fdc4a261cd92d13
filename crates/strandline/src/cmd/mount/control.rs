//! What a running mount tells and takes through the extended attributes of its root directory.

use std::sync::Arc;

use drive::{Ssd, Stats};
use f2fs::F2fs;
use fuse::Control;
use rustix::io::Errno;
use serde_json::json;
use vfs::FileSystem;

/// The way to the volume and the drives below a running mount.
pub(super) struct Switch {
    pub(super) volume: Arc<F2fs>,
    /// The drives it is on, if they are emulated ones.
    pub(super) drives: Vec<Arc<Ssd>>,
    /// The volume was mounted read-only.
    pub(super) read_only: bool,
}

impl Control for Switch {
    /// `status`: one JSON object. `sync`: everything becomes durable. `remount=rw`: whether it can
    /// be written at all. `cut=SEED`: the power fails, with the choices of the seed.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            b"status" => {
                let report = report(&self.volume, &self.drives);
                return serde_json::to_vec(&report).map_err(|_| Errno::IO);
            }
            b"sync" => self.volume.sync().map_err(|error| error.errno())?,
            b"remount=rw" if self.read_only => return Err(Errno::ROFS),
            b"remount=rw" => {}
            _ => {
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

    fn write_checkpoint(&self) -> Result<(), Errno> {
        self.volume.write_checkpoint().map_err(|error| vfs::Error::from(error).errno())
    }

    fn garbage_collect(&self) -> Result<(), Errno> {
        let cleaned = self.volume.background_gc();
        let cleaned = cleaned.map_err(|error| vfs::Error::from(error).errno())?;
        if cleaned { Ok(()) } else { Err(Errno::AGAIN) }
    }
}

/// How a volume and its drives are and what they have done.
fn report(volume: &F2fs, drives: &[Arc<Ssd>]) -> serde_json::Value {
    let recovery = volume.recovery();
    let mut report = json!({
        "recovered_nodes": recovery.replayed_nodes,
        "cleaned_sections": volume.cleaned_sections(),
    });
    // Without its attributes a report is still one.
    if let Ok(serde_json::Value::Object(tunables)) = serde_json::to_value(volume.tunables())
        && let Some(report) = report.as_object_mut()
    {
        report.extend(tunables);
    }
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
