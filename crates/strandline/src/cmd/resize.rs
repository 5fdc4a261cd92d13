//! `strandline resize`: what resize.f2fs does, including shrinking.

use std::path::PathBuf;

use clap::Args;
use drive::linux::Access;
use f2fs::resize::{ResizeOptions, resize};
use serde::Serialize;
use vfs::words::counted;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::{Kind, only_f2fs, open_drive, parse_percent};

/// Bytes of a sector, whatever the volume says: resize.f2fs counts in these.
const SECTOR: u64 = 512;

/// Make a volume larger or smaller. It must not be mounted.
///
/// The power may fail at any moment: the volume is then either the old or the new one. A file that
/// holds the volume keeps its size: extend it first to grow, and truncate it afterwards if shrunk.
#[derive(Args)]
#[command(
    version,
    after_help = "\
Examples:
  truncate -s 8G disk.img && strandline resize disk.img
  strandline resize -t 2097152 disk.img && truncate -s 1G disk.img"
)]
pub(crate) struct Resize {
    /// Image of a drive, or a block device
    image: PathBuf,
    #[command(flatten)]
    kind: Kind,
    /// Size in sectors of 512 bytes; the whole device, if not given
    #[arg(short = 't', value_name = "SECTORS")]
    sectors: Option<u64>,
    /// Accepted: every resize here is safe
    #[arg(short = 's')]
    safe: bool,
    /// A NAT bitmap that can grow
    #[arg(short = 'i')]
    large_nat_bitmap: bool,
    /// Percentage of space kept for cleaning
    #[arg(short = 'o', value_name = "PERCENT", value_parser = parse_percent)]
    overprovision: Option<f64>,
    /// Debug level, accepted and not used
    #[arg(short = 'd', value_name = "LEVEL")]
    debug: Option<u32>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Resized {
    sectors_before: u64,
    sectors_after: u64,
    segments_before: u32,
    segments_after: u32,
    segments_emptied: u32,
}

impl Resize {
    pub(crate) fn run(self) -> Outcome {
        let opened = open_drive(&self.image, Access::Write)?;
        let options = ResizeOptions {
            blocks: self.sectors.map(|sectors| sectors / (drive::BLOCK_SIZE as u64 / SECTOR)),
            large_nat_bitmap: self.large_nat_bitmap,
            overprovision: self.overprovision,
        };
        let format = self.kind.of(&opened.drive).map_err(Failure::on(self.image.display()))?;
        only_f2fs(&self.image, format, "resize2fs resizes ext4")?;
        let done = resize(&opened.drive, &options);
        opened.close()?;
        let report = done.map_err(Failure::on(self.image.display()))?;
        let sectors = |blocks: u64| blocks.saturating_mul(drive::BLOCK_SIZE as u64 / SECTOR);
        let resized = Resized {
            sectors_before: sectors(report.before.block_count),
            sectors_after: sectors(report.after.block_count),
            segments_before: report.before.segment_count,
            segments_after: report.after.segment_count,
            segments_emptied: report.evacuated,
        };
        if self.json {
            out::json(&resized)?;
            return Ok(0);
        }
        let Resized { sectors_before, sectors_after, segments_emptied, .. } = resized;
        if report.before == report.after {
            out::line(format!("Info: nothing to resize: {sectors_after} sectors"))?;
            return Ok(0);
        }
        let emptied = counted(segments_emptied, "segment");
        out::line(format!("Info: {emptied} emptied to make room"))?;
        out::line(format!(
            "Info: total FS sectors = {sectors_before} ({} MB) -> {sectors_after} ({} MB)",
            sectors_before >> 11,
            sectors_after >> 11
        ))?;
        Ok(0)
    }
}
