//! `strandline cp`: into an image and out of one, with all that `cp -a` keeps.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::Args;
use drive::CutPoint;
use vfs::{FileKind, FileSystem};

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::progress::Progress;
use crate::target::{Inside, Opened, Target, Volume};

mod inward;
mod outward;

/// Bytes per read and write.
const CHUNK: usize = 1 << 20;

/// Copy files and trees into an image or out of one, keeping modes, owners, times, links and
/// extended attributes.
///
/// With --cut-at the power of the drive fails at that command; the image is left as its NAND had
/// it, for `strandline fsck` to recover.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline cp -r /usr/share/doc disk.img:/
  strandline cp -r disk.img:/doc /tmp/
  strandline cp -r --cut-at 500 /usr/share/doc disk.img:/ && strandline fsck disk.img")]
pub(crate) struct Cp {
    /// Sources, then the destination; one side is IMAGE:/path
    #[arg(required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Copy directories with all that is in them
    #[arg(short = 'r', visible_short_aliases = ['a', 'R'])]
    recursive: bool,
    /// fsync every file
    #[arg(long)]
    fsync: bool,
    /// Cut the power as the N-th drive command arrives, counted from 0
    #[arg(long, value_name = "N")]
    cut_at: Option<u64>,
    /// Seed of what a drive leaves to chance at the cut
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object with what was copied
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
struct Counts {
    files: u64,
    directories: u64,
    symlinks: u64,
    bytes: u64,
    skipped: u64,
    power_cut: bool,
    #[serde(skip)]
    drive_commands: u64,
}

impl Cp {
    pub(crate) fn run(mut self) -> Outcome {
        let Some(last) = self.paths.pop() else {
            return Err(Failure::Usage("cp: where to?".into()));
        };
        let sources: Vec<Target> = self.paths.iter().map(|p| Target::parse(p)).collect();
        let mut counts = match Target::parse(&last) {
            Target::Inside(to) => self.inward(&host_paths(sources)?, &to)?,
            Target::Host(to) => self.outward(sources, &to)?,
        };
        counts.power_cut &= self.cut_at.is_some();
        if self.json {
            out::json(&counts)?;
        } else if counts.power_cut {
            out::line(format!("power cut after {} files", counts.files))?;
        } else if self.cut_at.is_some() {
            let (files, commands) = (counts.files, counts.drive_commands);
            out::line(format!("no power cut: {files} files took {commands} drive commands"))?;
        }
        Ok(0)
    }

    fn inward(&self, sources: &[PathBuf], to: &Inside) -> Outcome<Counts> {
        let volume = Volume::change_with(&to.image, |opened| self.prepare(opened));
        let volume = match volume {
            Err(Failure::Problem(_)) if self.cut_at == Some(0) => {
                return Ok(Counts { power_cut: true, ..Counts::default() });
            }
            volume => volume?,
        };
        let total = sources.iter().map(|p| inward::count(p)).sum();
        let progress = Progress::new(total, "cp", self.json);
        let mut copy = inward::Inward {
            volume: &volume,
            fsync: self.fsync,
            recursive: self.recursive,
            counts: Counts::default(),
            progress: &progress,
            chunk: vec![0; CHUNK],
        };
        let copied = sources.iter().try_for_each(|source| copy.copy_to(source, &to.path));
        let mut counts = copy.counts;
        progress.finish();
        if volume.has_fallen() {
            counts.power_cut = true;
            return Ok(counts);
        }
        let drive = volume.opened.emulated().cloned();
        // What was copied before an error stays.
        let closed = volume.close_or_cut()?;
        copied?;
        counts.power_cut = closed;
        counts.drive_commands = drive.map_or(0, |drive| drive.stats().commands);
        Ok(counts)
    }

    fn prepare(&self, opened: &Opened) -> Outcome<()> {
        let Some(n) = self.cut_at else { return Ok(()) };
        let Some(drive) = opened.emulated() else {
            return Err(Failure::Usage("--cut-at: only an emulated drive can be cut".into()));
        };
        drive.cut_at(CutPoint::Command(n), self.seed);
        Ok(())
    }

    fn outward(&self, sources: Vec<Target>, to: &Path) -> Outcome<Counts> {
        if self.cut_at.is_some() {
            return Err(Failure::Usage("--cut-at needs an image as destination".into()));
        }
        let mut counts = Counts::default();
        let many = sources.len() > 1;
        for source in sources {
            let Target::Inside(from) = source else {
                return Err(Failure::Usage(
                    "cp: neither side is inside an image; write IMAGE:/path".into(),
                ));
            };
            if many && !to.is_dir() {
                return Err(Failure::Usage(format!("{}: not a directory", to.display())));
            }
            let volume = Volume::look(&from.image)?;
            let progress = Progress::new(volume.count_below(&from.path)?, "cp", self.json);
            let mut copy = outward::Outward {
                volume: &volume,
                recursive: self.recursive,
                counts,
                progress: &progress,
                chunk: vec![0; CHUNK],
            };
            let copied = copy.copy_to(&from.path, to);
            counts = copy.counts;
            progress.finish();
            copied?;
        }
        Ok(counts)
    }
}

impl Volume {
    fn count_below(&self, path: &[u8]) -> Outcome<u64> {
        let attr = self.find(path, true)?;
        let mut count = 1;
        if attr.kind == FileKind::Directory {
            vfs::path::walk(&self.fs, attr.ino, &mut |_, _| {
                count += 1;
                Ok(())
            })
            .map_err(self.about(path))?;
        }
        Ok(count)
    }

    /// Whether the power of the drive has failed.
    fn has_fallen(&self) -> bool {
        self.opened.emulated().is_some_and(|drive| drive.fallen().is_some())
    }

    /// Unmounts; true if the power failed on the way.
    fn close_or_cut(self) -> Outcome<bool> {
        match self.fs.unmount() {
            Err(_) if self.has_fallen() => return Ok(true),
            unmounted => unmounted.map_err(self.about(b"/"))?,
        }
        let cut = self.has_fallen();
        if !cut {
            self.opened.close();
        }
        Ok(cut)
    }
}

fn host_paths(sources: Vec<Target>) -> Outcome<Vec<PathBuf>> {
    sources
        .into_iter()
        .map(|source| match source {
            Target::Host(path) => Ok(path),
            Target::Inside(_) => {
                Err(Failure::Usage("cp: from image to image is two copies over the host".into()))
            }
        })
        .collect()
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn base_name(path: &Path) -> Option<&[u8]> {
    path.file_name().map(OsStrExt::as_bytes)
}
