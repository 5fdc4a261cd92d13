//! The options of `mount -o`, as far as they are neither the mount's nor the file system's.

use std::path::{Path, PathBuf};

use drive::Timing;
use drive::linux::Access;
use fuse::MountOptions;

use super::USAGE;
use super::source::Source;
use crate::failure::{Failure, Outcome};
use crate::target::{Devices, Kind, open_volume};

/// The options of `-o`, sorted by recipient.
pub(super) struct Settings {
    /// `remount`: only the flags of the mount change.
    pub(super) remount: bool,
    pub(super) mount: MountOptions,
    /// Those of the file system.
    pub(super) volume: String,
    pub(super) timing: Timing,
    pub(super) devices: Devices,
    pub(super) log: Option<PathBuf>,
    pub(super) verbose: bool,
    /// `lazyfs=CONFIG`.
    pub(super) lazyfs: Option<PathBuf>,
    /// `control=SOCKET`.
    pub(super) control: Option<PathBuf>,
    /// `subdir=DIR`: where LazyFS's configurations believe the root to be.
    pub(super) subdir: Option<PathBuf>,
}

pub(super) fn usage(message: String) -> Failure {
    Failure::Coded { message, code: USAGE }
}

impl Settings {
    /// `lists` for the volume in `image`, of the file system that may be `named`.
    pub(super) fn parse(lists: &[String], named: Kind, image: &Path) -> Outcome<Self> {
        let (mut mount, rest) = MountOptions::parse(&lists.join(",")).map_err(usage)?;
        let (mut remount, mut timing) = (false, Timing::Instant);
        let mut of_volume = Vec::new();
        let mut devices = Devices { kind: named, others: Vec::new() };
        let (mut log, mut verbose) = (None, false);
        let (mut lazyfs, mut control, mut subdir, mut modules) = (None, None, None, false);
        for option in rest {
            match option.as_str() {
                "timing=instant" => timing = Timing::Instant,
                "remount" => remount = true,
                "modules=subdir" => modules = true,
                "verbose" => verbose = true,
                "timing=paced" => timing = Timing::Paced,
                text if text == "timing" || text.starts_with("timing=") => {
                    return Err(usage(format!("{text}: expected timing=instant or timing=paced")));
                }
                text => match path_of(text) {
                    Some(("device", device)) => devices.others.push(device.into()),
                    Some(("lazyfs", config)) => lazyfs = Some(config.into()),
                    Some(("control", socket)) => control = Some(socket.into()),
                    Some(("subdir", root)) => subdir = Some(root.into()),
                    Some((_, file)) => log = Some(file.into()),
                    None => of_volume.push(option),
                },
            }
        }
        mount.uncached = lazyfs.is_some() || control.is_some();
        let of_lazyfs = lazyfs.is_none() && (subdir.is_some() || modules);
        check_harness(&mount, remount, of_lazyfs)?;
        if mount.read_only {
            of_volume.push("ro".into());
        }
        let volume = of_volume.join(",");
        // On remount it is compared with what the volume was mounted with.
        if !remount {
            check_for_volume(&volume, image, &devices)?;
        }
        Ok(Self { remount, mount, volume, timing, devices, log, verbose, lazyfs, control, subdir })
    }
}

/// Fails if no file system has these options, with what that of the volume in `image` says of them,
/// as far as it is known already.
fn check_for_volume(options: &str, image: &Path, devices: &Devices) -> Outcome<()> {
    let Err(error) = subjects::with_options(options) else { return Ok(()) };
    let there = || {
        let opened = open_volume(image, devices, Access::Read, Timing::Instant).ok()?;
        subjects::probe(&opened.drive).ok()
    };
    let format = devices.kind.named().or_else(there);
    let error = format.and_then(|format| format.check_options(options).err()).unwrap_or(error);
    Err(usage(error.to_string()))
}

/// Fails if `lazyfs=` or `control=` has company that it cannot have, or if options of `lazyfs=`
/// `lack` it.
fn check_harness(mount: &MountOptions, remount: bool, lack: bool) -> Outcome<()> {
    let wrong = match mount.uncached {
        _ if lack => "subdir= and modules=subdir take lazyfs=CONFIG",
        true if mount.read_only => "lazyfs= and control= take a mount that can be written",
        true if mount.writeback => {
            "lazyfs= and control= must see each write, which writeback prevents"
        }
        true if remount => "lazyfs= and control= cannot change on remount: unmount first",
        _ => return Ok(()),
    };
    Err(usage(wrong.into()))
}

impl Settings {
    /// What is mounted; without `ro`, which goes by how it is opened.
    pub(super) fn source(&self, image: &Path) -> Source {
        let options = self.volume.split(',').filter(|option| *option != "ro");
        Source {
            image: image.to_owned(),
            devices: self.devices.clone(),
            timing: self.timing,
            cuttable: self.mount.uncached,
            options: options.collect::<Vec<_>>().join(","),
        }
    }
}

/// The options with a path.
const PATHS: [&str; 5] = ["device", "log", "lazyfs", "control", "subdir"];

/// The name and the path of `device=DEVICE`, `log=FILE`, `lazyfs=CONFIG`, `control=SOCKET` or
/// `subdir=DIR`. Where
/// pNOVA's logs are (`log=inode`, `log=core`) is for the volume; files of these names are `./inode`
/// and `./core`.
fn path_of(option: &str) -> Option<(&str, &str)> {
    match option {
        "log=inode" | "log=core" => None,
        _ => option.split_once('=').filter(|(name, _)| PATHS.contains(name)),
    }
}

/// The options for a process with another working directory.
pub(super) fn with_absolute_paths(list: &str) -> String {
    let absolute = |option: &str| match path_of(option) {
        Some((name, path)) => std::path::absolute(path)
            .map_or_else(|_| option.to_owned(), |path| format!("{name}={}", path.display())),
        _ => option.to_owned(),
    };
    list.split(',').map(absolute).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Outcome<Settings> {
        Settings::parse(&[options.to_owned()], Kind::default(), Path::new("image"))
    }

    #[test]
    fn lazyfs_has_options_of_its_own_and_excludes_others() {
        let settings = parse("lazyfs=c.toml,modules=subdir,subdir=/root,noatime").ok().unwrap();
        assert_eq!(settings.lazyfs.as_deref(), Some(Path::new("c.toml")));
        assert_eq!(settings.subdir.as_deref(), Some(Path::new("/root")));
        assert!(settings.mount.uncached && settings.source(Path::new("image")).cuttable);
        for wrong in ["subdir=/root", "modules=subdir", "lazyfs=c,ro", "lazyfs=c,writeback"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let settings = parse("control=s,noatime").ok().unwrap();
        assert_eq!(settings.control.as_deref(), Some(Path::new("s")));
        assert!(settings.mount.uncached && settings.lazyfs.is_none());
        for wrong in ["control=s,ro", "control=s,writeback", "control=s,subdir=/root"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(!parse("noatime").ok().unwrap().mount.uncached);
    }

    #[test]
    fn paths_are_made_absolute() {
        let here = std::env::current_dir().unwrap();
        let list = with_absolute_paths("lazyfs=c.toml,log=/l,log=inode,noatime");
        let config = here.join("c.toml");
        assert_eq!(list, format!("lazyfs={},log=/l,log=inode,noatime", config.display()));
    }
}
