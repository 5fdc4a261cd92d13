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
    pub(crate) fn run(self) -> Outcome {
        let text = Mounted::on(&self.dir)?.ask("status")?;
        let status: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).map_err(Failure::host(&self.dir))?;
        if self.json {
            out::json(&status)?;
            return Ok(0);
        }
        let width = status.keys().map(String::len).max().unwrap_or(0);
        for (name, value) in &status {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out::line(format!("{name:width$} {value}"))?;
        }
        Ok(0)
    }
}
