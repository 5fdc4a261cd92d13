//! `strandline defrag`: files in one piece.

use std::ffi::OsString;

use clap::Args;
use lab::report::counted;
use serde::Serialize;
use vfs::FileKind;

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out::{self, lossy};
use crate::target::{Devices, ImageVolume, Target, only_f2fs};

/// Lay files out in one piece: a file, everything below a directory, or a whole volume.
///
/// A file is moved only if that makes it fewer pieces. It takes as much free space as the largest
/// file is long.
#[derive(Args)]
#[command(
    version = crate::VERSION,
    after_help = "\
Examples:
  strandline defrag disk.img
  strandline defrag disk.img:/var/lib/db/data --json"
)]
pub(crate) struct Defrag {
    /// IMAGE, or IMAGE:/path
    target: OsString,
    #[command(flatten)]
    devices: Devices,
    /// Name each file that was moved
    #[arg(long, short = 'v')]
    verbose: bool,
    /// One JSON object per file
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Moved {
    path: String,
    extents_before: u64,
    extents_after: u64,
    blocks: u64,
}

impl Defrag {
    pub(crate) fn run(self) -> Outcome {
        let (image, path) = match Target::parse(&self.target) {
            Target::Inside(inside) => (inside.image, inside.path),
            Target::Host(image) => (image, b"/".to_vec()),
        };
        let volume = ImageVolume::change_with(&image, &self.devices, |opened| {
            let format = self.devices.kind.of(&opened.drive);
            let format = format.map_err(Failure::on(image.display()))?;
            only_f2fs(&image, format, "e4defrag defragments a mounted ext4")
        })?;
        let done = self.files_at(&volume, &path);
        // Even after an error the volume is left in good order.
        volume.close_or_cut()?;
        done
    }

    fn files_at(&self, volume: &ImageVolume, path: &[u8]) -> Outcome {
        let attr = volume.find(path, true)?;
        let mut files = Vec::new();
        match attr.kind {
            FileKind::Regular => files.push((path.to_vec(), attr.ino)),
            FileKind::Directory => vfs::path::walk(&*volume.fs, attr.ino, &mut |below, attr| {
                if attr.kind == FileKind::Regular {
                    files.push((crate::copy::join(path, below), attr.ino));
                }
                Ok(())
            })
            .map_err(volume.about(path))?,
            _ => return Err(Failure::Problem(format!("{}: not a file", volume.name_of(path)))),
        }
        // A file with several names has its blocks once.
        files.sort_by_key(|(_, ino)| *ino);
        files.dedup_by_key(|(_, ino)| *ino);
        let mut failed = false;
        let (mut moved, mut blocks) = (0, 0);
        for (path, ino) in files {
            match volume.fs.defragment(ino) {
                Ok(report) => {
                    moved += usize::from(report.blocks > 0);
                    blocks += report.blocks as usize;
                    out::heard(self.tell(&Moved {
                        path: lossy(&path),
                        extents_before: report.extents_before,
                        extents_after: report.extents_after,
                        blocks: report.blocks,
                    }))?;
                }
                Err(error) => {
                    failed = true;
                    out::complain(&format!("{}: {error}", volume.name_of(&path)));
                }
            }
        }
        if !self.json {
            let (files, blocks) = (counted(moved, "file"), counted(blocks, "block"));
            out::heard(out::line(format!("{files} moved, {blocks}")))?;
        }
        Ok(if failed { PROBLEM } else { 0 })
    }

    fn tell(&self, moved: &Moved) -> Outcome<()> {
        if self.json {
            return out::json(moved);
        }
        let Moved { path, extents_before, extents_after, blocks } = moved;
        match blocks {
            0 => Ok(()),
            _ if !self.verbose => Ok(()),
            _ => out::line(format!(
                "{path}: {}, {extents_before} -> {}",
                counted(*blocks as usize, "block"),
                counted(*extents_after as usize, "extent")
            )),
        }
    }
}
