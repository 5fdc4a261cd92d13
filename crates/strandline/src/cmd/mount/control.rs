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
    /// `status`: one JSON object.
    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        if name != b"status" {
            return None;
        }
        serde_json::to_vec(&report(&self.volume, self.drive.as_deref())).ok()
    }

    /// `cut`: the power fails, with the choices of the seed that is the value. `sync`: everything
    /// becomes durable. `remount`: whether the volume can be what the value says, `ro` or `rw`.
    fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match name {
            b"cut" => {
                let seed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let drive = self.drive.as_ref().ok_or(Errno::OPNOTSUPP)?;
                drive.cut(seed.ok_or(Errno::INVAL)?);
                Ok(())
            }
            b"sync" => self.volume.sync().map_err(|error| error.errno()),
            b"remount" if value == b"rw" && self.read_only => Err(Errno::ROFS),
            b"remount" => Ok(()),
            _ => Err(Errno::NODATA),
        }
    }
}

/// How a volume and its drive are and what they have done.
fn report(volume: &F2fs, drive: Option<&Ssd>) -> serde_json::Value {
    let recovery = volume.recovery();
    let mut report = json!({
        "recovered_nodes": recovery.replayed_nodes,
        "cleaned_sections": volume.cleaned_sections(),
    });
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
