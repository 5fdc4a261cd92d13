//! The fsync modes under test, by the names the reports use.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// How an fsync orders its writes, and how recovery trusts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Wait for data, wait for nodes, one FLUSH.
    Posix,
    /// A FLUSH before and after the last node.
    Strict,
    /// As `posix` without the FLUSH; for drives with power-loss protection.
    Nobarrier,
    /// `posix` with order-preserving recovery by write pointer.
    Oprw,
    /// `nobarrier` with order-preserving recovery by write pointer.
    OprwNobarrier,
    /// `strict` with order-preserving recovery by write pointer: atomic, with one FLUSH.
    OprwStrict,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Posix,
        Self::Strict,
        Self::Nobarrier,
        Self::Oprw,
        Self::OprwNobarrier,
        Self::OprwStrict,
    ];

    /// Short name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Strict => "strict",
            Self::Nobarrier => "nobarrier",
            Self::Oprw => "oprw",
            Self::OprwNobarrier => "oprw-nobarrier",
            Self::OprwStrict => "oprw-strict",
        }
    }

    /// The paper's name.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Posix => "F2FS-posix",
            Self::Strict => "F2FS-strict",
            Self::Nobarrier => "F2FS-nobarrier",
            Self::Oprw => "OPRW-posix",
            Self::OprwNobarrier => "OPRW-nobarrier",
            Self::OprwStrict => "OPRW-strict",
        }
    }

    /// The `mount -o` string. Without OPRW, recovery behaves like Linux's.
    pub const fn mount_options(self) -> &'static str {
        match self {
            Self::Posix => "fsync_mode=posix,nowp_check",
            Self::Strict => "fsync_mode=strict,nowp_check",
            Self::Nobarrier => "fsync_mode=nobarrier,nowp_check",
            Self::Oprw => "fsync_mode=posix,oprw",
            Self::OprwNobarrier => "fsync_mode=nobarrier,oprw",
            Self::OprwStrict => "fsync_mode=strict,oprw",
        }
    }

    /// The `mount -o` string of the mode without OPRW, as Linux knows it.
    pub const fn linux_options(self) -> &'static str {
        match self {
            Self::Posix | Self::Oprw => "fsync_mode=posix",
            Self::Strict | Self::OprwStrict => "fsync_mode=strict",
            Self::Nobarrier | Self::OprwNobarrier => "fsync_mode=nobarrier",
        }
    }

    /// Whether recovery compares with the write pointers.
    pub const fn is_oprw(self) -> bool {
        matches!(self, Self::Oprw | Self::OprwNobarrier | Self::OprwStrict)
    }

    /// Whether an fsync is to be recovered whole or not at all.
    pub const fn is_strict(self) -> bool {
        matches!(self, Self::Strict | Self::OprwStrict)
    }

    /// Whether fsync sends no FLUSH.
    pub const fn is_nobarrier(self) -> bool {
        matches!(self, Self::Nobarrier | Self::OprwNobarrier)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| Error::Usage(format!("unknown mode '{name}'; known: {}", known())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse::<Mode>().unwrap(), mode);
        }
        assert!("posixly".parse::<Mode>().is_err());
    }
}
