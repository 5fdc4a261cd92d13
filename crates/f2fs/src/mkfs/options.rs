//! The choices of `mkfs.f2fs`, by its flags.

use crate::error::{Error, Result};
use crate::ondisk::superblock::{Features, MAX_EXTENSIONS};

/// What to make. The default is `mkfs.f2fs`'s: no optional features, one segment a section.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// `-l`: volume label.
    pub label: String,
    /// `-o`: percentage kept from users; `None` picks what leaves them most.
    pub overprovision: Option<f64>,
    /// `-O`: optional parts of the format.
    pub features: Features,
    /// `-s`: segments in a section. A zoned drive's zone size overrides it.
    pub segs_per_sec: u32,
    /// `-z`: sections in a zone. A zoned drive sets it to 1.
    pub secs_per_zone: u32,
    /// `-m`: lay the volume out for zones. A zoned drive always gets that.
    pub zoned: bool,
    /// `-i`: NAT bitmap that grows into blocks behind the checkpoint header.
    pub large_nat_bitmap: bool,
    /// `-r` and beyond: what the checkpoint version, and the UUID if none is given, derive from.
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
    /// `-T`: times of the root directory, seconds since the epoch.
    pub time: u64,
    /// `-w`: sector size noted in the superblock, 512 to 4096 bytes.
    pub sector_size: u32,
    /// Size of the volume in sectors of `sector_size`; `None` takes the device.
    pub sectors: Option<u64>,
    /// `-f`: overwrite an existing file system.
    pub force: bool,
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
        }
    }
}

/// Features with the names `mkfs.f2fs -O` has for them.
const FEATURE_NAMES: [(&str, Features); 13] = [
    ("encrypt", Features::ENCRYPT),
    ("extra_attr", Features::EXTRA_ATTR),
    ("project_quota", Features::PRJQUOTA),
    ("inode_checksum", Features::INODE_CHKSUM),
    ("flexible_inline_xattr", Features::FLEXIBLE_INLINE_XATTR),
    ("quota", Features::QUOTA_INO),
    ("inode_crtime", Features::INODE_CRTIME),
    ("lost_found", Features::LOST_FOUND),
    ("verity", Features::VERITY),
    ("sb_checksum", Features::SB_CHKSUM),
    ("casefold", Features::CASEFOLD),
    ("compression", Features::COMPRESSION),
    ("ro", Features::RO),
];

/// Features this crate can make a volume with.
const MAKEABLE: Features = Features::BLKZONED
    .union(Features::EXTRA_ATTR)
    .union(Features::INODE_CHKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::SB_CHKSUM);

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
            let known = FEATURE_NAMES.iter().find(|(known, _)| *known == name);
            let (_, feature) = known.ok_or_else(|| {
                let names = FEATURE_NAMES.map(|(name, _)| name).join(", ");
                Error::usage(format!("unknown feature {name}; there are {names}"))
            })?;
            self.features |= *feature;
        }
        Ok(())
    }

    /// Checks what does not depend on the drive.
    pub(super) fn check(&self) -> Result<()> {
        let missing = self.features - MAKEABLE;
        if !missing.is_empty() {
            let names: Vec<_> = FEATURE_NAMES
                .iter()
                .filter(|(_, feature)| missing.contains(*feature))
                .map(|(name, _)| *name)
                .collect();
            return Err(Error::unsupported(format!("making volumes with {}", names.join(", "))));
        }
        let needy = self.features & Features::NEED_EXTRA_ATTR;
        if !needy.is_empty() && !self.features.contains(Features::EXTRA_ATTR) {
            return Err(Error::usage("these features need extra_attr as well"));
        }
        if !self.sector_size.is_power_of_two() || !(512..=4096).contains(&self.sector_size) {
            return Err(Error::usage(format!("sector size of {} bytes", self.sector_size)));
        }
        if self.label.encode_utf16().count() > 512 {
            return Err(Error::usage("the label has more than 512 UTF-16 units"));
        }
        let (cold, hot) = (self.all_cold(), self.all_hot());
        if let Some(long) = cold.iter().chain(&hot).find(|e| e.is_empty() || e.len() > 7) {
            return Err(Error::usage(format!("extension `{long}` is not 1 to 7 bytes long")));
        }
        if cold.len() + hot.len() > MAX_EXTENSIONS {
            return Err(Error::usage("more than 64 extensions"));
        }
        Ok(())
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
