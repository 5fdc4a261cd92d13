//! What went wrong with a command, in one line and one errno.

use drive::{Lba, Status};
use thiserror::Error;

/// What a command was for. It gives the verb of an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// [`drive::Command::Read`]
    Read,
    /// [`drive::Command::Write`]
    Write,
    /// [`drive::Command::Append`]
    Append,
    /// [`drive::Command::Flush`]
    Flush,
    /// [`drive::Command::Discard`]
    Discard,
    /// [`drive::Command::ReportZones`]
    ReportZones,
    /// [`drive::Command::ManageZone`]
    ManageZone,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "zone append",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::ReportZones => "zone report",
            Self::ManageZone => "zone management",
        })
    }
}

/// A command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{verb} of {blocks} block(s) at block {lba:#x} failed: {status}")]
pub struct IoError {
    /// What was tried.
    pub verb: Verb,
    /// First block.
    pub lba: Lba,
    /// How many blocks; 0 for a command without a range.
    pub blocks: u64,
    /// What the drive said.
    pub status: Status,
}

const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOVERFLOW: i32 = 75;
const EOPNOTSUPP: i32 = 95;
const ETOOMANYREFS: i32 = 109;

impl IoError {
    /// The Linux errno that a program sees. Errors about zone resources are as in Linux's block
    /// layer (`blk_errors`). A full zone is "no space", because that is what it means to its
    /// writer.
    pub fn errno(&self) -> i32 {
        match self.status {
            Status::InvalidField => EINVAL,
            Status::InvalidOpcode => EOPNOTSUPP,
            Status::NotReady => ENXIO,
            Status::LbaOutOfRange | Status::ZoneFull | Status::CapacityExceeded => ENOSPC,
            Status::WriteProtected | Status::ZoneReadOnly => EROFS,
            Status::TooManyActiveZones => EOVERFLOW,
            Status::TooManyOpenZones => ETOOMANYREFS,
            Status::ZoneBoundary
            | Status::ZoneOffline
            | Status::ZoneInvalidWrite
            | Status::InvalidZoneStateTransition
            | Status::WriteFault
            | Status::UnrecoveredRead => EIO,
        }
    }
}
