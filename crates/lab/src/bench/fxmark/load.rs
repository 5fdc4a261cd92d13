//! The loads' names, and what each is about.

use std::fmt;
use std::str::FromStr;

use super::{BLOCK, ENTRIES};
use crate::Error;

macro_rules! loads {
    ($($variant:ident, $name:literal, $about:literal;)*) => {
        /// One of FxMark's loads. In its name the first letter stands for data or metadata, the
        /// second for read or write, the last for how much the cores share: low (each has files
        /// of its own), medium (one directory or file, each its own part) or high (one block).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Load {
            $(#[doc = $about] $variant,)*
        }

        impl Load {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// FxMark's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What each core does.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }
        }
    };
}

loads! {
    Dwal, "DWAL", "append a block to its own file";
    Dwol, "DWOL", "overwrite the block of its own file";
    Dwom, "DWOM", "overwrite its own block of one file";
    Dwsl, "DWSL", "overwrite the block of its own file and fsync";
    Dwtl, "DWTL", "cut a block off its own file";
    Mwcl, "MWCL", "create an empty file in its own directory";
    Mwcm, "MWCM", "create a file of one block in one directory";
    Mwrl, "MWRL", "rename a file within its own directory";
    Mwrm, "MWRM", "move a file from its own directory to one directory";
    Mwul, "MWUL", "unlink a file of its own directory";
    Mwum, "MWUM", "unlink a file of its own in one directory";
    Drbl, "DRBL", "read the block of its own file";
    Drbm, "DRBM", "read its own block of one file";
    Drbh, "DRBH", "read the same block of one file";
    Mrdl, "MRDL", "read an entry of its own directory";
    Mrdm, "MRDM", "read an entry of one directory";
    Mrpl, "MRPL", "stat its own file, five levels deep";
    Mrpm, "MRPM", "stat any of 32,768 files, five levels deep";
    Mrph, "MRPH", "stat the same file, five levels deep";
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Load {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = || Self::ALL.iter().map(|load| load.name()).collect::<Vec<_>>().join(", ");
        let named = |load: &&Self| load.name().eq_ignore_ascii_case(name);
        let found = Self::ALL.iter().find(named).copied();
        found.ok_or_else(|| Error::Usage(format!("unknown load '{name}'; known: {}", known())))
    }
}

/// Room for what DWSL writes at first; after that the volume uses the space of outdated blocks
/// again.
const FSYNC_LOG: u64 = 256 << 20;

impl Load {
    /// Operations per core: on the real machine and the drive `ram` a second or so of them.
    pub(super) const fn default_ops(self, simulated: bool, mounted: bool) -> u64 {
        match self {
            // Most entries come with the one before.
            Self::Mrdl | Self::Mrdm if simulated => 100_000,
            _ if simulated => 1_000,
            _ if mounted => 10_000,
            Self::Dwal | Self::Dwtl | Self::Mwcl | Self::Mwcm => 50_000,
            Self::Mwrl | Self::Mwrm | Self::Mwul | Self::Mwum => 50_000,
            Self::Dwsl => 200_000,
            Self::Mrpl | Self::Mrpm | Self::Mrph => 500_000,
            Self::Dwol | Self::Dwom => 1_000_000,
            Self::Drbl | Self::Drbm | Self::Drbh | Self::Mrdl | Self::Mrdm => 2_000_000,
        }
    }

    /// Bytes that it writes at most: blocks, and for each file an inode and a name in directories
    /// that may be half empty.
    pub(super) const fn footprint(self, cores: u64, ops: u64) -> u64 {
        let blocks = match self {
            Self::Dwal | Self::Dwtl => cores * (ops + ops / 500 + 8),
            Self::Dwsl => {
                let (all, most) = (cores * ops * 2, FSYNC_LOG / BLOCK);
                cores * 8 + if all < most { all } else { most }
            }
            Self::Dwol | Self::Dwom | Self::Drbl | Self::Drbm | Self::Drbh | Self::Mrpl => {
                cores * 16
            }
            Self::Mwrl => cores * 8,
            Self::Mwcl | Self::Mwrm | Self::Mwul | Self::Mwum => cores * (2 * ops + 8),
            Self::Mwcm => cores * (3 * ops + 8),
            Self::Mrdl | Self::Mrdm => cores * (2 * ENTRIES + 8),
            Self::Mrpm | Self::Mrph => 2 * 40_000,
        };
        blocks * BLOCK
    }
}
