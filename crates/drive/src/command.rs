//! What a drive is asked and how it answers, in the terms of NVMe 2.0 and the ZNS command set.

use thiserror::Error;

use crate::block::{Blocks, Lba};
use crate::zone::{Zone, ZoneAction};

/// One command. Blocks are 4 KiB; a zone is named by its first block.
#[derive(Clone, Debug)]
pub enum Command {
    /// Read `blocks` blocks from `lba`.
    Read {
        /// First block.
        lba: Lba,
        /// How many.
        blocks: u32,
    },
    /// Write `data` at `lba`. In a sequential zone `lba` must be the write pointer.
    Write {
        /// First block.
        lba: Lba,
        /// What to write.
        data: Blocks,
        /// Force unit access: complete only when these blocks are on stable media.
        fua: bool,
    },
    /// Write `data` at the write pointer of the zone starting at `zone`; the answer says where.
    Append {
        /// First block of the zone.
        zone: Lba,
        /// What to write.
        data: Blocks,
        /// As for [`Command::Write`].
        fua: bool,
    },
    /// Make everything stable that has completed.
    Flush,
    /// Dataset management, deallocate: the range's contents are no longer needed. It reads as
    /// zeroes afterwards if [`crate::Identify::discard_zeroes`] says so.
    Discard {
        /// First block.
        lba: Lba,
        /// How many.
        blocks: u64,
    },
    /// Describe up to `max` zones from the one that holds `lba`.
    ReportZones {
        /// Any block of the first zone.
        lba: Lba,
        /// Report at most this many.
        max: u32,
    },
    /// Change the state of one zone, or of all (`zone: None`).
    ManageZone {
        /// What to do.
        action: ZoneAction,
        /// First block of the zone; `None` selects all zones the action applies to.
        zone: Option<Lba>,
    },
}

/// What a successful command answers.
#[derive(Clone, Debug)]
pub enum Output {
    /// No data.
    Done,
    /// Data of a read.
    Data(Blocks),
    /// Where an append landed.
    Appended(Lba),
    /// A zone report.
    Zones(Vec<Zone>),
}

/// A finished command.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The submitter's identifier.
    pub cid: u16,
    /// How it ended.
    pub result: Result<Output, Status>,
}

/// Error status of a command. [`Status::code`] gives the NVMe status code type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Status {
    /// Generic: the command has a field this drive cannot serve.
    #[error("invalid field in command")]
    InvalidField,
    /// Generic: this drive does not have that command.
    #[error("invalid command opcode")]
    InvalidOpcode,
    /// Generic: the drive lost power or went away.
    #[error("namespace not ready")]
    NotReady,
    /// Generic: beyond the end of the namespace.
    #[error("LBA out of range")]
    LbaOutOfRange,
    /// Generic: the drive promised more blocks than it has room for. Of an image, the host's file
    /// system is full.
    #[error("capacity exceeded: what holds the drive is out of space")]
    CapacityExceeded,
    /// Generic: the namespace is write protected.
    #[error("namespace is write protected")]
    WriteProtected,
    /// ZNS: the transfer crosses a zone's end.
    #[error("zone boundary error")]
    ZoneBoundary,
    /// ZNS: the zone is full.
    #[error("zone is full")]
    ZoneFull,
    /// ZNS: the zone is read only.
    #[error("zone is read only")]
    ZoneReadOnly,
    /// ZNS: the zone is offline.
    #[error("zone is offline")]
    ZoneOffline,
    /// ZNS: the write does not start at the write pointer.
    #[error("zone invalid write")]
    ZoneInvalidWrite,
    /// ZNS: one more active zone than the drive has resources for.
    #[error("too many active zones")]
    TooManyActiveZones,
    /// ZNS: one more open zone than the drive has resources for.
    #[error("too many open zones")]
    TooManyOpenZones,
    /// ZNS: this zone cannot go from its state to the one asked for.
    #[error("invalid zone state transition")]
    InvalidZoneStateTransition,
    /// Media: the write failed.
    #[error("write fault")]
    WriteFault,
    /// Media: the read failed.
    #[error("unrecovered read error")]
    UnrecoveredRead,
}

impl Status {
    /// `(status code type, status code)` as in the NVMe base 2.0 and ZNS 1.1 specifications.
    pub fn code(self) -> (u8, u8) {
        match self {
            Self::InvalidOpcode => (0, 0x01),
            Self::InvalidField => (0, 0x02),
            Self::WriteProtected => (0, 0x20),
            Self::LbaOutOfRange => (0, 0x80),
            Self::CapacityExceeded => (0, 0x81),
            Self::NotReady => (0, 0x82),
            Self::ZoneBoundary => (1, 0xb8),
            Self::ZoneFull => (1, 0xb9),
            Self::ZoneReadOnly => (1, 0xba),
            Self::ZoneOffline => (1, 0xbb),
            Self::ZoneInvalidWrite => (1, 0xbc),
            Self::TooManyActiveZones => (1, 0xbd),
            Self::TooManyOpenZones => (1, 0xbe),
            Self::InvalidZoneStateTransition => (1, 0xbf),
            Self::WriteFault => (2, 0x80),
            Self::UnrecoveredRead => (2, 0x81),
        }
    }
}
