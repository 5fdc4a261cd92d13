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
drive/. `error` is the first failure since the mount; it is missing if there was none.
`unwritten_kb` is what files have in memory only, or lost on its way to the drive. `memory_kb` is
what the process that serves the mount has.")]
pub(crate) struct Status {
    /// Directory the volume is mounted on
    dir: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What is shown first.
const FIRST: [&str; 5] = ["error", "image", "memory_kb", "mount_options", "power"];

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
        // First how it is mounted and what is wrong with it: mount tables cannot show that.
        let (first, rest): (Vec<_>, Vec<_>) =
            status.iter().partition(|(name, _)| FIRST.contains(&name.as_str()));
        for (name, value) in first.into_iter().chain(rest) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out::line(format!("{name:width$} {value}"))?;
        }
        Ok(0)
    }
}
