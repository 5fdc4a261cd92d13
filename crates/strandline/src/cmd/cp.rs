//! `strandline cp`: into an image, out of one, or between two, as cp(1) copies.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use drive::CutPoint;
use lab::report::counted;
use vfs::{Errno, FileKind, Ino};

use crate::copy::{self, Copy, Counts, Found, Host, Keep, Options, Sink, Source, Sparse};
use crate::failure::{Failure, Outcome, PROBLEM};
use crate::interrupt::Interrupt;
use crate::out;
use crate::progress::Progress;
use crate::target::{Devices, ImageVolume, Inside, Opened, Target};

/// Copy files and trees into an image, out of one, or from one to another, with the options of
/// cp(1).
///
/// Owners, modes, times, hard links, extended attributes and holes are kept unless --preserve or
/// --no-preserve say otherwise. Existing files in the way are removed first, never written through;
/// a device or FIFO as destination is refused.
/// Devices and other users' files need root on the host; what cannot be made is reported, the rest
/// is copied, and the exit status is 1.
///
/// With --cut-at the power of the drive fails at that command; the image is left with what NAND
/// held, for `strandline fsck` to recover.
#[derive(Args)]
#[command(after_help = "\
Examples:
  strandline cp -a /usr/share/doc disk.img:/
  strandline cp -r --no-preserve=ownership disk.img:/doc /tmp/
  strandline cp -a old.img:/. new.img:/
  strandline cp -r --cut-at 500 /usr/share/doc disk.img:/ && strandline fsck disk.img")]
pub(crate) struct Cp {
    /// Sources, then the destination; one side at least is IMAGE:/path
    #[arg(required = true, num_args = 1..)]
    paths: Vec<OsString>,
    #[command(flatten)]
    devices: Devices,
    /// Directories with everything in them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// The same as -d -r --preserve=all
    #[arg(short = 'a', long)]
    archive: bool,
    /// Symbolic links stay symbolic links; so they do with -r
    #[arg(short = 'd', visible_short_alias = 'P', long)]
    no_dereference: bool,
    /// Copy the targets of symbolic links, not the links
    #[arg(short = 'L', long, conflicts_with_all = ["no_dereference", "archive"])]
    dereference: bool,
    /// Keep only mode, ownership and timestamps
    #[arg(short = 'p', conflicts_with_all = ["preserve", "archive"])]
    posix: bool,
    /// Keep only these: mode, ownership, timestamps, links, context, xattr, all
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1)]
    #[arg(require_equals = true, default_missing_value = "mode,ownership,timestamps")]
    preserve: Option<Vec<String>>,
    /// Do not keep these
    #[arg(long, value_name = "LIST", value_delimiter = ',', require_equals = true)]
    no_preserve: Vec<String>,
    /// What becomes a hole
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    sparse: Sparse,
    /// Accepted: files in the way are removed anyway
    #[arg(short = 'f', long)]
    force: bool,
    /// All sources into this directory
    #[arg(short = 't', long, value_name = "DIRECTORY")]
    target_directory: Option<OsString>,
    /// The destination is the copy's name even if it is a directory
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// fsync every file
    #[arg(long)]
    fsync: bool,
    /// Cut the power as the N-th drive command arrives, counted from 0
    #[arg(long, value_name = "N")]
    cut_at: Option<u64>,
    /// Seed of the drive's random choices at the cut
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object with what was copied
    #[arg(long)]
    json: bool,
}

/// What was copied, and how it ended.
#[derive(Default, serde::Serialize)]
struct Report {
    #[serde(flatten)]
    counts: Counts,
    power_cut: bool,
    #[serde(skip)]
    drive_commands: u64,
}

impl Cp {
    pub(crate) fn run(mut self) -> Outcome {
        let options = self.options()?;
        let last = match self.target_directory.clone() {
            Some(directory) => directory,
            None if self.paths.len() > 1 => self.paths.pop().unwrap_or_default(),
            None => {
                let only = self.paths[0].display().to_string();
                return Err(Failure::Usage(format!("missing destination after '{only}'")));
            }
        };
        let sources: Vec<Target> = self.paths.iter().map(|p| Target::parse(p)).collect();
        let to = Target::parse(&last);
        let any_inside = sources.iter().chain([&to]).any(|t| matches!(t, Target::Inside(_)));
        if !any_inside {
            let text = "neither side is inside an image; write IMAGE:/path";
            return Err(Failure::Usage(text.into()));
        }
        let report = match &to {
            Target::Inside(to) => self.inward(&sources, to, &options)?,
            Target::Host(_) if self.cut_at.is_some() => {
                return Err(Failure::Usage("--cut-at needs an image as destination".into()));
            }
            Target::Host(to) => self.outward(&sources, to, &options)?,
        };
        self.tell(&report)?;
        options.interrupt.check(|| {
            let files = counted(report.counts.files as usize, "file");
            // As with cp(1), a file that could not be read to its end stays.
            let but = if report.counts.errors > 0 { ", except those named above" } else { "" };
            format!("{files} copied completely, the others not at all{but}")
        })?;
        Ok(if report.counts.errors > 0 && !report.power_cut { PROBLEM } else { 0 })
    }

    fn tell(&self, report: &Report) -> Outcome<()> {
        let files = counted(report.counts.files as usize, "file");
        let commands = counted(report.drive_commands as usize, "drive command");
        if self.json {
            out::json(report)
        } else if report.power_cut {
            out::line(format!("power cut after {files}"))
        } else if self.cut_at.is_some() {
            out::line(format!("no power cut: {files} took {commands}"))
        } else {
            Ok(())
        }
    }

    fn options(&self) -> Outcome<Options> {
        let posix = ["mode", "ownership", "timestamps"].map(String::from).to_vec();
        let mut keep = Keep::default();
        if let Some(words) = self.preserve.clone().or(self.posix.then_some(posix)) {
            keep = Keep::none();
            for word in &words {
                keep = keep.with(word, true).map_err(Failure::Usage)?;
            }
        }
        for word in &self.no_preserve {
            keep = keep.with(word, false).map_err(Failure::Usage)?;
        }
        let recursive = self.recursive || self.archive;
        Ok(Options {
            recursive,
            follow: self.dereference || !recursive && !self.no_dereference,
            keep,
            sparse: self.sparse,
            fsync: self.fsync,
            interrupt: Interrupt::watch()?,
            ..Options::default()
        })
    }

    fn inward(&self, sources: &[Target], to: &Inside, options: &Options) -> Outcome<Report> {
        let same = |source: &Target| matches!(source, Target::Inside(from) if is_same(from, to));
        if sources.iter().any(same) {
            return Err(Failure::Usage(format!(
                "{}: both sides are inside this image; mount it to copy there",
                to.image.display()
            )));
        }
        let mut drives = Vec::new();
        let volume = ImageVolume::change_with(&to.image, &self.devices, |opened| {
            drives = opened.emulated().to_vec();
            self.prepare(opened)
        });
        let volume = match volume {
            // So early that it was not even mounted.
            Err(Failure::Problem(_)) if drives.iter().any(|drive| drive.fallen().is_some()) => {
                return Ok(Report { power_cut: true, ..Report::default() });
            }
            volume => volume?,
        };
        let place = self.place_inside(&volume, to, sources.len());
        let host = self.host(sources, Some(&to.image));
        let copied =
            place.and_then(|place| self.copy_all(sources, &host, &volume, &place, options));
        if self.cut_at.is_some() && volume.has_fallen() {
            let counts = copied.unwrap_or_default();
            return Ok(Report { counts, power_cut: true, drive_commands: 0 });
        }
        let drive = volume.opened.emulated().first().cloned();
        // Files copied before an error stay.
        let power_cut = volume.close_or_cut()?;
        let counts = copied?;
        Ok(Report {
            counts,
            power_cut,
            drive_commands: drive.map_or(0, |drive| drive.stats().commands),
        })
    }

    fn prepare(&self, opened: &Opened) -> Outcome<()> {
        let Some(n) = self.cut_at else { return Ok(()) };
        let [drive] = opened.emulated() else {
            return Err(Failure::Usage("--cut-at: only an emulated drive can be cut".into()));
        };
        drive.cut_at(CutPoint::Command(n), self.seed);
        Ok(())
    }

    fn outward(&self, sources: &[Target], to: &Path, options: &Options) -> Outcome<Report> {
        let path = to.as_os_str().as_bytes();
        let found = std::fs::metadata(to).ok().map(|meta| meta.is_dir());
        let place = if found == Some(true) && !self.no_target_directory {
            Destination { dir: to.to_owned(), path: path.to_vec(), name: None }
        } else {
            self.single_name(to.display(), sources.len(), found.is_some())?;
            let to = &existing(to, options.follow)?;
            let name = to.file_name().ok_or_else(|| missing(to.display()))?;
            let parent = to.parent().filter(|p| !p.as_os_str().is_empty());
            let dir = parent.unwrap_or(Path::new(".")).to_owned();
            let path = dir.as_os_str().as_bytes().to_vec();
            Destination { dir, path, name: Some(name.as_bytes().to_vec()) }
        };
        let host = self.host(sources, None);
        let counts = self.copy_all(sources, &host, &host, &place, options)?;
        Ok(Report { counts, ..Report::default() })
    }

    /// The host's files, without the images that take part in the copy.
    fn host(&self, sources: &[Target], to: Option<&Path>) -> Host {
        let from = sources.iter().filter_map(|source| match source {
            Target::Inside(inside) => Some(inside.image.as_path()),
            Target::Host(_) => None,
        });
        Host::without(from.chain(to).chain(self.devices.others.iter().map(PathBuf::as_path)))
    }

    fn place_inside(
        &self,
        volume: &ImageVolume,
        to: &Inside,
        sources: usize,
    ) -> Outcome<Destination<Ino>> {
        let found = match vfs::path::resolve(&*volume.fs, &to.path, true) {
            Ok(attr) => Some(attr),
            Err(error) if error.errno() == Errno::NOENT => None,
            Err(error) => return Err(volume.about(&to.path)(error)),
        };
        let is_dir = found.filter(|attr| attr.kind == FileKind::Directory);
        if let (Some(dir), false) = (is_dir, self.no_target_directory) {
            return Ok(Destination { dir: dir.ino, path: to.path.clone(), name: None });
        }
        self.single_name(volume.name_of(&to.path), sources, found.is_some())?;
        let parent = vfs::path::resolve_parent(&*volume.fs, &to.path);
        let (dir, name) = parent.map_err(volume.about(&to.path))?;
        let end = to.path.windows(name.len()).rposition(|w| w == name).unwrap_or(0);
        let path = to.path.get(..end).unwrap_or_default().to_vec();
        Ok(Destination { dir, path, name: Some(name.to_vec()) })
    }

    /// Several sources, or -t, need a directory to go to.
    fn single_name(&self, to: impl std::fmt::Display, sources: usize, there: bool) -> Outcome<()> {
        match (sources > 1 || self.target_directory.is_some(), there) {
            (false, _) => Ok(()),
            (true, false) => Err(missing(to)),
            (true, true) => Err(Failure::Problem(format!("target '{to}' is not a directory"))),
        }
    }

    fn copy_all<T: Sink>(
        &self,
        sources: &[Target],
        host: &Host,
        to: &T,
        place: &Destination<T::Node>,
        options: &Options,
    ) -> Outcome<Counts> {
        let mut total = Counts::default();
        for source in sources {
            let counts = match source {
                Target::Host(path) => self.one(host, path.clone(), source, to, place, options),
                Target::Inside(inside) => {
                    let volume = ImageVolume::look(&inside.image, &self.devices)?;
                    // Whether a link named on the command line is copied as such or followed is
                    // decided later.
                    let attr = volume.find(&inside.path, false)?;
                    let node = Found { ino: attr.ino, path: inside.path.clone() };
                    self.one(&volume, node, source, to, place, options)
                }
            };
            total.add(&counts);
        }
        Ok(total)
    }

    fn one<S: Source, T: Sink>(
        &self,
        from: &S,
        node: S::Node,
        source: &Target,
        to: &T,
        place: &Destination<T::Node>,
        options: &Options,
    ) -> Counts {
        let progress = Progress::counting("cp", self.json, || copy::count(from, &node));
        let mut copy = Copy::new(from, to, options, &progress);
        match (place.name.clone(), base_name(source)) {
            (Some(name), _) | (None, Some(name)) => {
                copy.copy_as(node, &place.dir, &place.path, &name);
            }
            // `dir/.`, `..` and the root have no name of their own: what is in them is copied.
            (None, None) => copy.copy_contents(node, &place.dir, &place.path),
        }
        progress.finish();
        copy.counts
    }
}

/// Where sources go: a directory, and a name in it unless they bring their own.
struct Destination<N> {
    dir: N,
    path: Vec<u8>,
    name: Option<Vec<u8>>,
}

/// The file that `to` names and that a copy replaces, with `follow` past symbolic links. As cp(1),
/// not a dangling one; and never what is more than its contents.
fn existing(to: &Path, follow: bool) -> Outcome<PathBuf> {
    let Ok(named) = std::fs::symlink_metadata(to) else { return Ok(to.to_owned()) };
    let shown = to.display();
    let Ok(meta) = std::fs::metadata(to) else {
        let what = format!("not writing through dangling symlink '{shown}'");
        return if follow { Err(Failure::Problem(what)) } else { Ok(to.to_owned()) };
    };
    if !meta.is_file() && !meta.is_dir() {
        let what = format!("'{shown}' is not a regular file; 'strandline cat' writes into it");
        return Err(Failure::Problem(what));
    }
    match named.is_symlink() && follow {
        true => std::fs::canonicalize(to).map_err(|e| Failure::Problem(format!("{shown}: {e}"))),
        false => Ok(to.to_owned()),
    }
}

/// Whether both are inside one image.
fn is_same(one: &Inside, other: &Inside) -> bool {
    let canonical = |inside: &Inside| std::fs::canonicalize(&inside.image).ok();
    canonical(one).is_some_and(|image| canonical(other) == Some(image))
}

fn missing(to: impl std::fmt::Display) -> Failure {
    Failure::Problem(format!("target '{to}': No such file or directory"))
}

fn base_name(source: &Target) -> Option<Vec<u8>> {
    match source {
        Target::Host(path) if path.as_os_str().as_bytes().ends_with(b"/.") => None,
        Target::Host(path) => path.file_name().map(|name| name.as_bytes().to_vec()),
        Target::Inside(inside) => {
            let name = inside.path.rsplit(|&b| b == b'/').find(|n| !n.is_empty())?;
            (name != b"." && name != b"..").then(|| name.to_vec())
        }
    }
}
