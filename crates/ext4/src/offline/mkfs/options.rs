//! The choices of mke2fs, by its letters.

use crate::error::{Error, Result};
use crate::ondisk::features::{Compat, Incompat, RoCompat};

/// Bytes of a block, if none are asked for.
const BLOCK_SIZE: u32 = 4096;
/// `-G`: groups of a flexible group.
const FLEX_GROUPS: u32 = 16;
const MIB: u64 = 1 << 20;
/// What `-E` of mke2fs has besides.
const NOT_MADE: &str = "desc_size encoding encoding_flags mmp_update_interval num_backup_sb offset \
    orphan_file_size packed_meta_blocks quotatype revision test_fs assume_storage_prezeroed";

/// The three feature words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

impl Features {
    const NONE: Self =
        Self { compat: Compat::empty(), incompat: Incompat::empty(), ro_compat: RoCompat::empty() };

    /// What Debian 12's mke2fs.conf makes: every kernel since 3.6 can write it.
    pub const DEBIAN: Self = Self {
        compat: Compat::HAS_JOURNAL
            .union(Compat::EXT_ATTR)
            .union(Compat::RESIZE_INODE)
            .union(Compat::DIR_INDEX),
        incompat: Incompat::FILETYPE
            .union(Incompat::EXTENTS)
            .union(Incompat::BIT64)
            .union(Incompat::FLEX_BG),
        ro_compat: RoCompat::SPARSE_SUPER
            .union(RoCompat::LARGE_FILE)
            .union(RoCompat::HUGE_FILE)
            .union(RoCompat::DIR_NLINK)
            .union(RoCompat::EXTRA_ISIZE)
            .union(RoCompat::METADATA_CSUM),
    };

    /// What mke2fs.conf of e2fsprogs 1.47 makes. Kernels before 5.15 cannot write it.
    pub const UPSTREAM: Self = Self {
        compat: Self::DEBIAN.compat.union(Compat::ORPHAN_FILE),
        incompat: Self::DEBIAN.incompat.union(Incompat::CSUM_SEED),
        ro_compat: Self::DEBIAN.ro_compat,
    };

    /// What can be made.
    const MADE: Self = Self {
        compat: Self::UPSTREAM.compat.union(Compat::SPARSE_SUPER2).union(Compat::FAST_COMMIT),
        incompat: Self::UPSTREAM.incompat.union(Incompat::META_BG).union(Incompat::LARGEDIR),
        ro_compat: Self::UPSTREAM.ro_compat.union(RoCompat::GDT_CSUM),
    };

    /// Changes what `list` names, as `-O` takes it: `feature,^feature`; `none` clears all.
    pub fn change(&mut self, list: &str) -> Result<()> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                *self = Self::NONE;
                continue;
            }
            let name = word.trim_start_matches(['^', '-', '+']);
            let is_on = !word.starts_with(['^', '-']);
            if let Some(flag) = Compat::named(name) {
                self.compat.set(flag, is_on);
            } else if let Some(flag) = Incompat::named(other_name(name)) {
                self.incompat.set(flag, is_on);
            } else if let Some(flag) = RoCompat::named(other_name(name)) {
                self.ro_compat.set(flag, is_on);
            } else {
                return Err(Error::usage(format!("unknown feature {name}")));
            }
        }
        // Its checksums replace those of uninit_bg (mke2fs leaves out the older one as well).
        if self.ro_compat.contains(RoCompat::METADATA_CSUM) {
            self.ro_compat.remove(RoCompat::GDT_CSUM);
        }
        Ok(())
    }

    fn check(self) -> Result<()> {
        let more = [
            (self.compat - Self::MADE.compat).to_string(),
            (self.incompat - Self::MADE.incompat).to_string(),
            (self.ro_compat - Self::MADE.ro_compat).to_string(),
        ];
        if let Some(names) = more.iter().find(|names| !names.is_empty()) {
            return Err(Error::unsupported(format!("making volumes with {names}")));
        }
        let needed = (Incompat::EXTENTS | Incompat::FILETYPE) - self.incompat;
        if !needed.is_empty() {
            return Err(Error::unsupported(format!("making volumes without {needed}")));
        }
        let has = |feature| self.compat.contains(feature);
        let (journal, resize) = (has(Compat::HAS_JOURNAL), has(Compat::RESIZE_INODE));
        let csum = self.ro_compat.contains(RoCompat::METADATA_CSUM);
        let seed = self.incompat.contains(Incompat::CSUM_SEED);
        let sparse = self.ro_compat.contains(RoCompat::SPARSE_SUPER);
        let meta_bg = self.incompat.contains(Incompat::META_BG);
        require(csum || !seed, "metadata_csum_seed needs metadata_csum as well")?;
        require(journal || !has(Compat::ORPHAN_FILE), "orphan_file needs has_journal as well")?;
        require(journal || !has(Compat::FAST_COMMIT), "fast_commit needs has_journal as well")?;
        require(sparse || !resize, "resize_inode needs sparse_super as well")?;
        require(!meta_bg || !resize, "meta_bg excludes resize_inode")?;
        require(!has(Compat::SPARSE_SUPER2) || !resize, "sparse_super2 excludes resize_inode")
    }
}

/// Fails for this reason unless something can be made as it is asked for.
pub(super) fn require(can_be: bool, why_not: impl ToString) -> Result<()> {
    if can_be { Ok(()) } else { Err(Error::usage(why_not)) }
}

/// Names that mke2fs knows besides those of dumpe2fs.
fn other_name(name: &str) -> &str {
    match name {
        "extents" => "extent",
        "uninit_groups" => "uninit_bg",
        name => name,
    }
}

/// `-e`: what the kernel does when it finds an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Goes on.
    #[default]
    Continue = 1,
    /// Mounts read-only.
    RemountReadOnly = 2,
    /// Stops.
    Panic = 3,
}

/// What to make. The default is mke2fs's of Debian 12, but always with blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// `-b`: bytes of a block.
    pub block_size: Option<u32>,
    /// Blocks of the volume; `None` takes the device.
    pub blocks: Option<u64>,
    /// `-g`: blocks of a group; `None` takes as many as a bitmap has bits.
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups whose bitmaps and inode tables lie together.
    pub flex_groups: u32,
    /// `-I`: bytes of an inode.
    pub inode_size: u32,
    /// `-i`: bytes of the volume for each inode; `None` goes by size, as mke2fs.conf says.
    pub inode_ratio: Option<u64>,
    /// `-N`: inodes.
    pub inodes: Option<u64>,
    /// `-m`: percentage of blocks that only root can use.
    pub reserved_percent: f64,
    /// `-J size=`: MiB of the journal; `None` goes by the volume's size.
    pub journal_mib: Option<u64>,
    /// `-O`: parts of the format.
    pub features: Features,
    /// `-L`: volume label.
    pub label: String,
    /// `-M`: where it counts as mounted last.
    pub last_mounted: String,
    /// `-e`: what the kernel does when it finds an error.
    pub on_error: OnError,
    /// `-U`: UUID.
    pub uuid: [u8; 16],
    /// `-E hash_seed=`: what directories' hashes start from.
    pub hash_seed: [u8; 16],
    /// `-E stride=`: blocks of a RAID's chunk.
    pub stride: u16,
    /// `-E stripe_width=`: blocks of a RAID's stripe.
    pub stripe_width: u32,
    /// `-E resize=`: blocks up to which the volume can grow while it is mounted; `None` takes 1,024
    /// times its size.
    pub resize: Option<u64>,
    /// `-E lazy_itable_init=`: leave inode tables as they are; the kernel zeroes them later.
    pub lazy_tables: bool,
    /// `-E lazy_journal_init=`: leave the journal as it is.
    pub lazy_journal: bool,
    /// `-E root_owner=`: owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// `-E discard`: discard the whole device first.
    pub discard: bool,
    /// `-F`: overwrite an existing file system.
    pub force: bool,
    /// Seconds since the epoch for all times.
    pub time: u64,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            block_size: None,
            blocks: None,
            blocks_per_group: None,
            flex_groups: FLEX_GROUPS,
            inode_size: 256,
            inode_ratio: None,
            inodes: None,
            reserved_percent: 5.0,
            journal_mib: None,
            features: Features::DEBIAN,
            label: String::new(),
            last_mounted: String::new(),
            on_error: OnError::Continue,
            uuid: uuid_of(0),
            hash_seed: uuid_of(1),
            stride: 0,
            stripe_width: 0,
            resize: None,
            lazy_tables: true,
            lazy_journal: false,
            root_owner: (0, 0),
            discard: true,
            force: false,
            time: 0,
        }
    }
}

impl MkfsOptions {
    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.block_size.unwrap_or(BLOCK_SIZE)
    }

    /// Bytes of a volume of `bytes` for each inode.
    pub(super) fn ratio(&self, bytes: u64) -> u64 {
        let by_size = match bytes / MIB {
            0..3 => 8192,
            3..512 => 4096,
            512..0x40_0000 => 16_384,
            0x40_0000..0x100_0000 => 32_768,
            _ => 65_536,
        };
        self.inode_ratio.unwrap_or(by_size).max(self.block_size().into())
    }

    /// `-T`: the sizes for one use of a volume, by mke2fs.conf's name.
    pub fn set_usage(&mut self, name: &str) -> Result<()> {
        let (block_size, ratio) = match name {
            "default" | "ext4" => (BLOCK_SIZE, 16_384),
            "floppy" => (1024, 8192),
            "small" => (1024, 4096),
            "big" => (BLOCK_SIZE, 32_768),
            "huge" => (BLOCK_SIZE, 65_536),
            "news" => (BLOCK_SIZE, 4096),
            "largefile" => (BLOCK_SIZE, 1 << 20),
            "largefile4" => (BLOCK_SIZE, 4 << 20),
            _ => {
                let names = "default, floppy, small, big, huge, news, largefile, largefile4";
                return Err(Error::usage(format!("unknown usage {name}; there are {names}")));
            }
        };
        self.block_size.get_or_insert(block_size);
        self.inode_ratio.get_or_insert(ratio);
        Ok(())
    }

    /// `-E`: extended options, separated by commas.
    pub fn set_extended(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            self.set_one(&name.replace('-', "_"), value, word)?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &str, word: &str) -> Result<()> {
        let wrong = || Error::usage(format!("-E {word}: not a value of {name}"));
        let flag = || match value {
            "" | "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(wrong()),
        };
        match name {
            "stride" => self.stride = value.parse().map_err(|_| wrong())?,
            "stripe_width" | "stripe" => self.stripe_width = value.parse().map_err(|_| wrong())?,
            "resize" => self.resize = Some(value.parse().map_err(|_| wrong())?),
            "lazy_itable_init" => self.lazy_tables = flag()?,
            "lazy_journal_init" => self.lazy_journal = flag()?,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "hash_seed" => self.hash_seed = parse_uuid(value).ok_or_else(wrong)?,
            "root_owner" => {
                let owner = value.split_once(':');
                let owner = owner.and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
                self.root_owner = owner.ok_or_else(wrong)?;
            }
            name if NOT_MADE.split(' ').any(|known| known == name) => {
                return Err(Error::unsupported(format!("-E {name}")));
            }
            _ => return Err(Error::usage(format!("unknown extended option {name}"))),
        }
        Ok(())
    }

    /// `-J`: what the journal is like.
    pub fn set_journal(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=').unwrap_or((word, "")) {
                ("size", value) => {
                    let size = value.parse().ok().filter(|size| *size > 0);
                    let wrong = || Error::usage(format!("-J {word}: not a number of MiB"));
                    self.journal_mib = Some(size.ok_or_else(wrong)?);
                }
                (name @ ("device" | "location" | "fast_commit_size"), _) => {
                    return Err(Error::unsupported(format!("-J {name}")));
                }
                (name, _) => return Err(Error::usage(format!("unknown journal option {name}"))),
            }
        }
        Ok(())
    }

    /// Checks everything that does not depend on the drive.
    pub fn check(&self) -> Result<()> {
        self.features.check()?;
        let size = self.block_size();
        let allowed = "there are 1024, 2048 and 4096";
        let fits = [1024, 2048, 4096].contains(&size);
        require(fits, format!("blocks of {size} bytes; {allowed}"))?;
        let (inode, allowed) = (self.inode_size, "a power of two, 128 up to a block");
        let fits = inode.is_power_of_two() && (128..=size).contains(&inode);
        require(fits, format!("inodes of {inode} bytes; {allowed}"))?;
        let (blocks, most) = (self.blocks_per_group.unwrap_or(size * 8), size * 8);
        let fits = (256..=most).contains(&blocks) && blocks.is_multiple_of(8);
        require(fits, format!("groups of {blocks} blocks; a multiple of 8, 256 up to {most}"))?;
        let flex = self.flex_groups;
        let fits = flex.is_power_of_two() && flex <= 1 << 16;
        require(fits, format!("flexible groups of {flex}; a power of two up to 65536"))?;
        let percent = self.reserved_percent;
        require((0.0..=50.0).contains(&percent), format!("{percent}% reserved; up to 50"))?;
        let ratio = self.inode_ratio.unwrap_or(1024);
        let fits = (1024..=64 * MIB).contains(&ratio);
        require(fits, format!("an inode for each {ratio} bytes; 1024 up to 67108864"))?;
        require(self.label.len() <= 16, "the label has more than 16 bytes")?;
        require(self.last_mounted.len() <= 63, "the last mount point has more than 63 bytes")
    }
}

/// The random UUID that a seed stands for: version 4, as RFC 9562 wants it.
fn uuid_of(seed: u64) -> [u8; 16] {
    let (high, low) = (cores::splitmix64(seed), cores::splitmix64(!seed));
    let number = u128::from(high & !0xf000 | 0x4000) << 64 | u128::from(low >> 2 | 1 << 63);
    number.to_be_bytes()
}

/// The bytes of a UUID in its usual form.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let is_whole = digits.len() == 32 && digits.bytes().all(|c| c.is_ascii_hexdigit());
    let number = is_whole.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(number.to_be_bytes())
}
