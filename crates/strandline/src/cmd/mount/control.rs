//! What a running mount tells and takes through the extended attributes of its root directory.

use std::sync::Arc;

use drive::Ssd;
use f2fs::F2fs;
use fuse::Control;
use rustix::io::Errno;
use serde_json::json;
use vfs::FileSystem;

/// The way to the volume and the drive below a running mount.
pub(super) struct Switch {
    pub(super) volume: Arc<F2fs>,
    /// The drive, if it is an emulated one.
    pub(super) drive: Option<Arc<Ssd>>,
    /// The volume was mounted read-only.
    pub(super) read_only: bool,
}

impl Control for Switch {
    /// `status`: one JSON object. `sync`: everything becomes durable. `remount=rw`: whether it can
    /// be written at all. `cut=SEED`: the power fails, with the choices of the seed.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            b"status" => {
                let report = report(&self.volume, self.drive.as_deref());
                return serde_json::to_vec(&report).map_err(|_| Errno::IO);
            }
            b"sync" => self.volume.sync().map_err(|error| error.errno())?,
            b"remount=rw" if self.read_only => return Err(Errno::ROFS),
            b"remount=rw" => {}
            _ => {
                let seed = request.strip_prefix(b"cut=").ok_or(Errno::NODATA)?;
                let seed = std::str::from_utf8(seed).ok().and_then(|text| text.parse().ok());
                let drive = self.drive.as_ref().ok_or(Errno::OPNOTSUPP)?;
                drive.cut(seed.ok_or(Errno::INVAL)?);
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

/// How a volume and its drive are and what they have done.
fn report(volume: &F2fs, drive: Option<&Ssd>) -> serde_json::Value {
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
    if let Some(drive) = drive.map(Ssd::stats) {
        report["drive/commands"] = drive.commands.into();
        report["drive/reads"] = drive.reads.into();
        report["drive/writes"] = drive.writes.into();
        report["drive/flushes"] = drive.flushes.into();
        report["drive/discards"] = drive.discards.into();
        report["drive/blocks_read"] = drive.blocks_read.into();
        report["drive/blocks_written"] = drive.blocks_written.into();
        report["drive/programs"] = drive.programs.into();
        report["drive/resets"] = drive.resets.into();
    }
    // A volume that has failed has no statistics any more, but its drive does.
    if let Ok(stat) = volume.statfs() {
        report["total_blocks"] = stat.blocks.into();
        report["free_blocks"] = stat.blocks_free.into();
        report["free_inodes"] = stat.files_free.into();
    }
    report
}
