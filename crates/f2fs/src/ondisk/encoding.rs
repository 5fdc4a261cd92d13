//! The encoding of names in directories that fold case (`s_encoding`, `s_encoding_flags`).

use super::superblock::{Features, RawSuperblock};
use crate::error::{Error, Result};

/// How names are folded: UTF-8 by Unicode 12.1, the only encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Casefold {
    /// Names that are not valid UTF-8 are refused rather than compared as bytes.
    pub strict: bool,
    /// A name that is not where its hash says is looked for everywhere. Linux 6.12.0 to 6.12.4
    /// hashed names with ignorable characters in another way.
    pub linear: bool,
}

impl Casefold {
    /// `s_encoding` of UTF-8 12.1.
    pub const UTF8_12_1: u16 = 1;
    /// `SB_ENC_STRICT_MODE_FL`, a bit of `s_encoding_flags`.
    pub const STRICT: u16 = 1;
    /// `SB_ENC_NO_COMPAT_FALLBACK_FL`: no name of the volume has an outdated hash.
    pub const NO_LINEAR: u16 = 2;

    pub(super) fn decode(raw: &RawSuperblock, features: Features) -> Result<Option<Self>> {
        if !features.contains(Features::CASEFOLD) {
            return Ok(None);
        }
        let (encoding, flags) = (raw.s_encoding.get(), raw.s_encoding_flags.get());
        if encoding != Self::UTF8_12_1 || flags & !(Self::STRICT | Self::NO_LINEAR) != 0 {
            return Err(Error::unsupported(format!("name encoding {encoding}, flags {flags:#x}")));
        }
        Ok(Some(Self { strict: flags & Self::STRICT != 0, linear: flags & Self::NO_LINEAR == 0 }))
    }
}
