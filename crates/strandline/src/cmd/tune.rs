//! `strandline tune`: settings of a mounted volume, under the names of `/sys/fs/f2fs/<disk>/`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::mounted::Mounted;

/// Change settings of a mounted volume, with the kernel's names.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline tune /mnt gc_urgent=1
  strandline tune /mnt cp_interval=10 max_roll_forward_node_blocks=1000

Names and values are those of /sys/fs/f2fs/<disk>/; `strandline status` shows them. They hold until
the volume is unmounted. If one of them is refused, none is set.")]
pub(crate) struct Tune {
    /// Directory the volume is mounted on
    dir: PathBuf,
    /// What to set: gc_urgent, gc_idle, gc_remaining_trials, gc_min_sleep_time, gc_max_sleep_time,
    /// gc_no_gc_sleep_time, gc_urgent_sleep_time, gc_idle_interval, gc_no_zoned_gc_percent,
    /// gc_boost_zoned_gc_percent, gc_pin_file_thresh, cp_interval, max_roll_forward_node_blocks,
    /// min_hot_blocks, min_ssr_sections, ipu_policy, min_ipu_util, min_fsync_blocks,
    /// max_victim_search or reclaim_segments
    #[arg(value_name = "NAME=VALUE", required = true)]
    settings: Vec<String>,
}

/// What a request to a mount has room for, besides its name (`XATTR_NAME_MAX`).
const SETTINGS_MAX: usize = 230;

impl Tune {
    pub(crate) fn run(self) -> Outcome {
        if let Some(wrong) = self.settings.iter().find(|setting| !setting.contains('=')) {
            return Err(Failure::Usage(format!("{wrong}: not NAME=VALUE")));
        }
        let mounted = Mounted::on(&self.dir)?;
        if self.settings.join(",").len() > SETTINGS_MAX {
            let most = format!("at most {SETTINGS_MAX} bytes of settings at a time");
            return Err(Failure::Usage(most));
        }
        let refusal = mounted.ask(&format!("tune={}", self.settings.join(",")))?;
        if !refusal.is_empty() {
            return Err(Failure::Usage(String::from_utf8_lossy(&refusal).into_owned()));
        }
        Ok(0)
    }
}
