//! `strandline status`: state and statistics of a mounted volume and its drive, under the names of
//! `/sys/fs/f2fs/<disk>/`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;
use crate::out;

/// Show attributes and statistics of a mounted volume, with the kernel's names.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline status /mnt
  strandline status /mnt --json | jq .free_segments

Names are those of /sys/fs/f2fs/<disk>/ where the kernel has them; those of the drive begin with
drive/.")]
pub(crate) struct Status {
    /// Directory the volume is mounted on
    dir: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Status {
    /// A mount that became read-only later is so to the kernel only: the volume need not know.
    fn show_remount(&self, status: &mut serde_json::Map<String, serde_json::Value>) -> Outcome<()> {
        let kernel = rustix::fs::statvfs(&self.dir).map_err(Failure::host(&self.dir))?;
        if kernel.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
            && let Some(serde_json::Value::String(options)) = status.get_mut("mount_options")
            && let Some(rest) = options.strip_prefix("rw")
        {
            *options = format!("ro{rest}");
        }
        Ok(())
    }

    pub(crate) fn run(self) -> Outcome {
        let text = Mounted::on(&self.dir)?.ask("status")?;
        let mut status: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).map_err(Failure::host(&self.dir))?;
        self.show_remount(&mut status)?;
        if self.json {
            out::json(&status)?;
            return Ok(0);
        }
        let width = status.keys().map(String::len).max().unwrap_or(0);
        // First how it is mounted, with the fsync mode: mount tables cannot show that.
        let (first, rest): (Vec<_>, Vec<_>) =
            status.iter().partition(|(name, _)| *name == "mount_options");
        for (name, value) in first.into_iter().chain(rest) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out::line(format!("{name:width$} {value}"))?;
        }
        Ok(0)
    }
}
