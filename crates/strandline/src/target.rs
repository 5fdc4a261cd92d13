//! `IMAGE:/path`: a file inside an image, and the mounted volume it is on.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::{OsStringValueParser, TryMapValueParser, TypedValueParser, ValueParserFactory};
use drive::linux::{Access, BlockDevice, Engine, OpenError};
use drive::pm::{Mapped, PmAccess, PmDrive, PmOverlay};
use drive::{Command, Drive, Ssd, Timing, image};
use vfs::Attr;
use vfs::kind::{self, Device, Format};

use crate::failure::{Failure, Outcome};
use crate::in_use::{check_not_looped, in_use, is_directory};
use crate::out::lossy;

/// A path of the host or inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Of the host.
    Host(PathBuf),
    /// Inside an image.
    Inside(Inside),
}

/// A path inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The image file.
    pub(crate) image: PathBuf,
    /// The path, from the root.
    pub(crate) path: Vec<u8>,
}

impl Target {
    /// Splits at the first `:/`.
    pub(crate) fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        match bytes.windows(2).position(|pair| pair == b":/") {
            Some(at) if at > 0 => Self::Inside(Inside {
                image: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())),
                path: bytes[at + 1..].to_vec(),
            }),
            _ => Self::Host(PathBuf::from(text)),
        }
    }
}

/// A path inside an image.
fn parse_inside(text: OsString) -> Result<Inside, String> {
    match Target::parse(&text) {
        Target::Inside(inside) => Ok(inside),
        Target::Host(path) => {
            Err(format!("'{}' names no file inside an image; write IMAGE:/path", path.display()))
        }
    }
}

/// For clap: names are bytes, so an argument need not be UTF-8.
impl ValueParserFactory for Inside {
    type Parser = TryMapValueParser<OsStringValueParser, fn(OsString) -> Result<Self, String>>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(parse_inside as fn(OsString) -> Result<Self, String>)
    }
}

/// As [`parse_size`], in whole blocks.
pub(crate) fn parse_blocks(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    match size % drive::BLOCK_SIZE as u64 {
        0 if size > 0 => Ok(size),
        _ => Err(format!("{size} bytes are not a multiple of 4096")),
    }
}

/// A percentage between 0 and 100.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| *percent > 0.0 && *percent < 100.0);
    percent.ok_or_else(|| "expected a percentage above 0 and below 100".into())
}

/// A size in bytes, with k, m, g or t for powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        Some(b'g') => (&text[..text.len() - 1], 30),
        Some(b't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a size"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

/// Which file system a volume is of.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Kind {
    /// The volume's file system: one whose superblocks are lost is shown and checked too, unless
    /// the drive holds something else that is known
    #[arg(long = "fs", value_name = "NAME", value_parser = subjects::named)]
    named: Option<&'static dyn Format>,
}

impl Kind {
    /// The file system of that name.
    pub(crate) fn called(name: &str) -> kind::Result<Self> {
        Ok(Self { named: Some(subjects::named(name)?) })
    }

    /// The file system of the volume on `drive`: the one that was named, unless there is another,
    /// or what a look finds.
    pub(crate) fn of(self, drive: &Arc<dyn Drive>) -> kind::Result<&'static dyn Format> {
        match self.named {
            Some(named) => subjects::confirm(named, drive),
            None => subjects::probe(drive),
        }
    }

    /// The file system that was named.
    pub(crate) fn named(self) -> Option<&'static dyn Format> {
        self.named
    }

    /// The name that was given.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.named.map(Format::name)
    }
}

/// What a command line says about a volume besides where it begins.
#[derive(Args, Clone, Default)]
pub(crate) struct Devices {
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// A further device of the volume, in the order of mkfs -c; may be given again
    #[arg(long = "device", value_name = "DEVICE")]
    pub(crate) others: Vec<PathBuf>,
}

/// A drive opened for one command: a block device, an emulated drive in a file, or several as one.
pub(crate) struct Opened {
    /// The drive.
    pub(crate) drive: Arc<dyn Drive>,
    emulated: Vec<Arc<Ssd>>,
}

impl Opened {
    /// The emulated drives it is made of, whose power can be cut; none if one of them is real.
    pub(crate) fn emulated(&self) -> &[Arc<Ssd>] {
        &self.emulated
    }

    /// A drive with the same contents for experiments; this one stays as it is.
    pub(crate) fn scratch(&self) -> Outcome<Arc<dyn Drive>> {
        if let Some(pm) = self.drive.pm() {
            return Ok(PmDrive::new(PmOverlay::new(pm), PmAccess::Write));
        }
        Ok(match &self.emulated[..] {
            [ssd] => Ssd::power_on(ssd.survivors(0).writable(), Timing::Instant, 0),
            _ => drive::overlay(self.drive.clone())
                .map_err(|error| Failure::Problem(error.to_string()))?,
        })
    }

    /// Switches emulated drives off in good order; a real one is left running. What was forced has
    /// been programmed, but the host may still have it in memory only.
    pub(crate) fn close(&self) -> Outcome<()> {
        self.drive.submit(0, 0, Command::Flush);
        let flushed = self.drive.wait_for(0, 0).map_or(Ok(()), |done| done.result.map(drop));
        self.emulated.iter().for_each(|ssd| drop(ssd.power_off()));
        flushed.map_err(|status| Failure::Problem(format!("the last flush: {status}")))
    }
}

/// Fails, before anything is changed, if the volume in `image` is not F2FS. `ext4` names the
/// program that does the same there.
pub(crate) fn only_f2fs(image: &Path, format: &dyn Format, ext4: &str) -> Outcome<()> {
    let hint = match format.name() {
        "f2fs" => return Ok(()),
        "ext4" => format!("; {ext4}"),
        _ => String::new(),
    };
    let (image, name) = (image.display(), format.name());
    Err(Failure::Problem(format!("{image}: F2FS only, this is {name}: nothing was changed{hint}")))
}

/// The drive at `path`: a block device or an emulated drive, as fast as possible.
pub(crate) fn open_drive(path: &Path, access: Access) -> Outcome<Opened> {
    open_timed(path, access, Timing::Instant)
}

fn open_timed(path: &Path, access: Access, timing: Timing) -> Outcome<Opened> {
    let metadata = std::fs::metadata(path).map_err(Failure::host(path))?;
    if is_memory(path) {
        return open_memory(path, access);
    }
    if metadata.file_type().is_block_device() {
        return open_real(path, access, Engine::Best);
    }
    if access == Access::Write {
        check_not_looped(path)?;
    }
    let ssd = image::open(path, access != Access::Write, timing);
    let ssd = ssd.map_err(|error| match error {
        image::ImageError::Busy(path) => in_use(&path),
        image::ImageError::NotAFile(path) if path.is_dir() => is_directory(&path),
        error => Failure::Problem(error.to_string()),
    })?;
    Ok(Opened { drive: ssd.clone(), emulated: vec![ssd] })
}

/// Whether `path` is to be mapped: a character device (`/dev/dax0.0`), or a file called `*.pm`.
fn is_memory(path: &Path) -> bool {
    let is_dax = std::fs::metadata(path).is_ok_and(|is| is.file_type().is_char_device());
    is_dax || path.extension() == Some(OsStr::new("pm"))
}

/// Persistent memory. Unless it is opened for writing, changes stay in this process.
fn open_memory(path: &Path, access: Access) -> Outcome<Opened> {
    let access = if access == Access::Write { PmAccess::Write } else { PmAccess::Private };
    let pm = Mapped::open(&[path], access).map_err(|error| Failure::Problem(error.to_string()))?;
    Ok(Opened { drive: PmDrive::new(Arc::new(pm), access), emulated: Vec::new() })
}

/// A device, or a file used like one, through the kernel.
fn open_real(path: &Path, access: Access, engine: Engine) -> Outcome<Opened> {
    let device = BlockDevice::open_with(path, access, engine);
    let device = device.map_err(|error| match error {
        OpenError::Busy(path) => in_use(&path),
        error => Failure::Problem(error.to_string()),
    })?;
    Ok(Opened { drive: Arc::new(device), emulated: Vec::new() })
}

/// The drive, or the drives, of the volume that begins at `path`, for many at a time: as
/// [`open_volume`], but without emulating what a plain file does not need.
pub(crate) fn open_to_serve(
    path: &Path,
    devices: &Devices,
    access: Access,
    timing: Timing,
) -> Outcome<Opened> {
    let open = |path: &Path| {
        let is_plain = path.is_file() && !image::zones_path(path).exists() && !is_memory(path);
        if timing == Timing::Instant && is_plain {
            if access == Access::Write {
                check_not_looped(path)?;
            }
            // The host's page cache answers in less time than a ring's worker takes to wake up.
            open_real(path, access, Engine::Syscalls)
        } else {
            open_timed(path, access, timing)
        }
    };
    open_all(path, devices, open, |all| join_volume(devices.kind, all))
}

/// The drive, or the drives, of the volume that begins at `path`; emulated ones take the time that
/// `timing` says.
pub(crate) fn open_volume(
    path: &Path,
    devices: &Devices,
    access: Access,
    timing: Timing,
) -> Outcome<Opened> {
    let open = |path: &Path| open_timed(path, access, timing);
    open_all(path, devices, open, |all| join_volume(devices.kind, all))
}

/// The drive, or the drives, for a new volume, which `join` puts together.
pub(crate) fn open_for_mkfs(
    path: &Path,
    devices: &Devices,
    join: impl FnOnce(Vec<Device>) -> kind::Result<Arc<dyn Drive>>,
) -> Outcome<Opened> {
    let open = |path: &Path| {
        if path.try_exists().is_ok_and(|there| !there) {
            let hint = "no such file; 'strandline drive create' makes a drive, 'truncate' a file";
            return Err(Failure::Problem(format!("{}: {hint}", path.display())));
        }
        open_drive(path, Access::Write)
    };
    open_all(path, devices, open, join)
}

/// The devices of one volume, whose first says what it is, as one drive.
fn join_volume(kind: Kind, devices: Vec<Device>) -> kind::Result<Arc<dyn Drive>> {
    let Some(first) = devices.first() else {
        return Err(kind::Error::Usage("no device given".into()));
    };
    kind.of(&first.drive)?.join(devices)
}

fn open_all(
    path: &Path,
    devices: &Devices,
    open: impl Fn(&Path) -> Outcome<Opened>,
    join: impl FnOnce(Vec<Device>) -> kind::Result<Arc<dyn Drive>>,
) -> Outcome<Opened> {
    let first = open(path)?;
    if devices.others.is_empty() {
        return Ok(first);
    }
    let name = |path: &Path| path.display().to_string();
    let mut all = vec![Device { name: name(path), drive: first.drive }];
    let mut emulated = first.emulated;
    for other in &devices.others {
        if all.iter().any(|one| one.name == name(other)) {
            return Err(Failure::Problem(format!("{}: given twice", other.display())));
        }
        let opened = open(other)?;
        all.push(Device { name: name(other), drive: opened.drive });
        emulated.extend(opened.emulated);
    }
    if emulated.len() < all.len() {
        emulated.clear();
    }
    let drive = join(all).map_err(Failure::on(path.display()))?;
    Ok(Opened { drive, emulated })
}

/// A mounted volume of a drive.
pub(crate) struct ImageVolume {
    /// The file system.
    pub(crate) fs: Arc<dyn kind::Volume>,
    /// The drive below.
    pub(crate) opened: Opened,
    image: PathBuf,
}

impl ImageVolume {
    /// Mounts the volume in `image` to look at; the image stays as it is.
    pub(crate) fn look(image: &Path, devices: &Devices) -> Outcome<Self> {
        let opened = open_volume(image, devices, Access::Read, Timing::Instant)?;
        // Recovery happens in memory only.
        Self::mount(image, devices.kind, opened, "ro")
    }

    /// Mounts the volume in `image` to change it; `prepare` sees the drive before any command.
    pub(crate) fn change_with(
        image: &Path,
        devices: &Devices,
        prepare: impl FnOnce(&Opened) -> Outcome<()>,
    ) -> Outcome<Self> {
        let opened = open_volume(image, devices, Access::Write, Timing::Instant)?;
        prepare(&opened)?;
        Self::mount(image, devices.kind, opened, "")
    }

    fn mount(image: &Path, kind: Kind, opened: Opened, options: &str) -> Outcome<Self> {
        Self::new(image, opened, |drive| kind.of(&drive)?.mount(drive, options))
    }

    /// The volume on a drive, which was opened at `image`, as `mount` mounts it.
    pub(crate) fn new(
        image: &Path,
        opened: Opened,
        mount: impl FnOnce(Arc<dyn Drive>) -> kind::Result<Arc<dyn kind::Volume>>,
    ) -> Outcome<Self> {
        let fs = mount(opened.drive.clone()).map_err(Failure::on(image.display()))?;
        Ok(Self { fs, opened, image: image.to_owned() })
    }

    /// The inode `path` leads to.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> Outcome<Attr> {
        vfs::path::resolve(&*self.fs, path, follow).map_err(self.about(path))
    }

    /// The name of `path` for people: `IMAGE:/path`.
    pub(crate) fn name_of(&self, path: &[u8]) -> String {
        format!("{}:{}", self.image.display(), lossy(path))
    }

    /// Says which file an error is about.
    pub(crate) fn about(&self, path: &[u8]) -> impl Fn(vfs::Error) -> Failure + use<> {
        let name = self.name_of(path);
        move |error| Failure::Problem(format!("{name}: {error}"))
    }

    /// Whether the power of the drive has failed.
    pub(crate) fn has_fallen(&self) -> bool {
        self.opened.emulated().iter().any(|drive| drive.fallen().is_some())
    }

    /// Unmounts; true if the power failed on the way.
    pub(crate) fn close_or_cut(self) -> Outcome<bool> {
        match self.fs.unmount() {
            Err(_) if self.has_fallen() => return Ok(true),
            unmounted => unmounted.map_err(self.about(b"/"))?,
        }
        let cut = self.has_fallen();
        if !cut {
            self.opened.close()?;
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_host_paths_are_told_apart() {
        let inside = |image: &str, path: &[u8]| {
            Target::Inside(Inside { image: image.into(), path: path.to_vec() })
        };
        assert_eq!(Target::parse(OsStr::new("a.img:/b/c")), inside("a.img", b"/b/c"));
        assert_eq!(Target::parse(OsStr::new("/x/a.img:/")), inside("/x/a.img", b"/"));
        assert_eq!(Target::parse(OsStr::new("a.img:/b:/c")), inside("a.img", b"/b:/c"));
        assert_eq!(Target::parse(OsStr::new("a:b")), Target::Host("a:b".into()));
        assert_eq!(Target::parse(OsStr::new(":/b")), Target::Host(":/b".into()));
    }

    #[test]
    fn sizes_have_units_and_limits() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("16m"), Ok(16 << 20));
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert!(parse_size("-1").is_err() && parse_size("").is_err() && parse_size("k").is_err());
        assert!(parse_size("99999999999t").is_err());
    }
}
