//! The choices of `mkfs.f2fs`, by its flags.

use super::geometry::Formula;
use crate::error::{self, Error, Result};
use crate::ondisk::encoding::Casefold;
use crate::ondisk::feature::{self, FEATURES, Make, Mount};
use crate::ondisk::superblock::{DEVICE_PATH_LEN, Features, MAX_EXTENSIONS};

/// What to make. The default is `mkfs.f2fs`'s: no optional features, and one segment in a section.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// `-l`: volume label.
    pub label: String,
    /// `-o`: percentage kept from users; `None` picks the one that leaves the most space.
    pub overprovision: Option<f64>,
    /// `-O`: optional parts of the format.
    pub features: Features,
    /// `-s`: segments in a section. A zoned drive's zone size overrides it.
    pub segs_per_sec: u32,
    /// `-z`: sections in a zone. A zoned drive sets it to 1.
    pub secs_per_zone: u32,
    /// `-m`: lay the volume out for zones. On a zoned drive this is always done.
    pub zoned: bool,
    /// `-i`: NAT bitmap that grows into blocks behind the checkpoint header.
    pub large_nat_bitmap: bool,
    /// `-r` and more: the seed of the checkpoint version, and of the UUID if none is given.
    pub seed: u64,
    /// `-U`: UUID; `None` derives one from the seed.
    pub uuid: Option<[u8; 16]>,
    /// `-R`: owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// `-e`: extensions of files that rarely change, besides the usual ones.
    pub cold_extensions: Vec<String>,
    /// `-E`: extensions of files that often change, besides the usual ones.
    pub hot_extensions: Vec<String>,
    /// `-t`: discard the whole device first. A zoned drive's zones are always reset.
    pub discard: bool,
    /// `-T`: times of the root directory, in seconds since the epoch.
    pub time: u64,
    /// `-w`: sector size noted in the superblock, 512 to 4096 bytes.
    pub sector_size: u32,
    /// Size of the volume in sectors of `sector_size`; `None` takes the device.
    pub sectors: Option<u64>,
    /// `-f`: overwrite an existing file system.
    pub force: bool,
    /// `-C`: how casefolded directories compare names.
    pub encoding: Encoding,
    /// Which f2fs-tools to follow for the size of the cleaner's reserve.
    pub formula: Formula,
    /// `-c`: names of all devices, including the first, to be noted in the superblock. Empty for a
    /// volume on a single device.
    pub devices: Vec<String>,
}

/// `-C ENCODING[:FLAGS]`: `s_encoding` and its flags. The only encoding is UTF-8 12.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Names that are not UTF-8 are refused.
    pub strict: bool,
}

impl std::str::FromStr for Encoding {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, flags) = text.split_once(':').unwrap_or((text, ""));
        if name != "utf8" {
            return Err(Error::usage(format!("unknown encoding {name}; there is utf8")));
        }
        let mut encoding = Self::default();
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "strict" => encoding.strict = true,
                _ => return Err(Error::usage(format!("unknown flag {flag}; there is strict"))),
            }
        }
        Ok(encoding)
    }
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            label: String::new(),
            overprovision: None,
            features: Features::empty(),
            segs_per_sec: 1,
            secs_per_zone: 1,
            zoned: false,
            large_nat_bitmap: false,
            seed: 0,
            uuid: None,
            root_owner: (0, 0),
            cold_extensions: Vec::new(),
            hot_extensions: Vec::new(),
            discard: true,
            time: 0,
            sector_size: 512,
            sectors: None,
            force: false,
            encoding: Encoding::default(),
            formula: Formula::default(),
            devices: Vec::new(),
        }
    }
}

/// Extensions of files that rarely change once written: media, archives, packages, fonts.
pub(super) const COLD: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus",
    "flac", "gif", "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc",
    "ttc", "ttf", "exe", "apk", "cnt", "exo", "odex", "vdex", "so",
];
/// Extensions of files that change all the time: databases, disk images.
pub(super) const HOT: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

impl MkfsOptions {
    /// Adds the features named in `list`, separated by commas, as `-O` takes them.
    pub fn add_features(&mut self, list: &str) -> Result<()> {
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let known = FEATURES.iter().find(|f| f.make != Make::Implied && f.name == name);
            let known = known.ok_or_else(|| {
                let names = feature::names(feature::all(|f| f.make == Make::Asked));
                Error::usage(format!("unknown feature {name}; there are {names}"))
            })?;
            self.features |= known.bit;
        }
        Ok(())
    }

    /// Checks everything that does not depend on the drive.
    pub(super) fn check(&self) -> Result<()> {
        let missing = self.features & feature::all(|f| f.make == Make::Never);
        if !missing.is_empty() {
            let made = format!("making volumes with {}", feature::names(missing));
            let foreign = feature::all(|f| f.mount == Mount::Foreign);
            return Err(match missing.intersects(foreign) {
                true => error::foreign(made),
                false => Error::unsupported(made),
            });
        }
        let needy = self.features & Features::NEED_EXTRA_ATTR;
        if !needy.is_empty() && !self.features.contains(Features::EXTRA_ATTR) {
            let names = feature::names(needy);
            return Err(Error::usage(format!("{names}: needs feature extra_attr as well")));
        }
        let too_long = |name: &&String| !(1..DEVICE_PATH_LEN).contains(&name.len());
        if let Some(name) = self.devices.iter().find(too_long) {
            return Err(Error::usage(format!("the device name '{name}' is not 1 to 63 bytes")));
        }
        if !self.sector_size.is_power_of_two() || !(512..=4096).contains(&self.sector_size) {
            return Err(Error::usage(format!("sector size of {} bytes", self.sector_size)));
        }
        if self.label.encode_utf16().count() > 512 {
            return Err(Error::usage("the label has more than 512 UTF-16 units"));
        }
        let (cold, hot) = (self.all_cold(), self.all_hot());
        if let Some(long) = cold.iter().chain(&hot).find(|e| e.is_empty() || e.len() > 7) {
            return Err(Error::usage(format!("extension '{long}' is not 1 to 7 bytes long")));
        }
        if cold.len() + hot.len() > MAX_EXTENSIONS {
            return Err(Error::usage("more than 64 extensions"));
        }
        Ok(())
    }

    /// `s_encoding` and `s_encoding_flags`.
    pub(super) fn raw_encoding(&self) -> (u16, u16) {
        let strict = if self.encoding.strict { Casefold::STRICT } else { 0 };
        if self.features.contains(Features::CASEFOLD) {
            (Casefold::UTF8_12_1, strict)
        } else {
            (0, 0)
        }
    }

    /// What `-g android` stands for, besides `-d 1`.
    pub fn set_android(&mut self) {
        self.force = true;
        self.sector_size = 4096;
        self.root_owner = (0, 0);
        self.features |= Features::ENCRYPT
            | Features::QUOTA_INO
            | Features::PRJQUOTA
            | Features::EXTRA_ATTR
            | Features::VERITY;
    }

    /// Cold extensions, the usual ones first.
    pub(super) fn all_cold(&self) -> Vec<&str> {
        COLD.into_iter().chain(self.cold_extensions.iter().map(String::as_str)).collect()
    }

    /// Hot extensions, the usual ones first.
    pub(super) fn all_hot(&self) -> Vec<&str> {
        HOT.into_iter().chain(self.hot_extensions.iter().map(String::as_str)).collect()
    }
}
