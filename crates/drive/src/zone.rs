//! Zones of a zoned namespace (ZNS 1.1): kinds, states, and what a report says about one.

use crate::block::Lba;

/// How a zone may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneKind {
    /// Random writes, no write pointer.
    Conventional,
    /// Host-managed: writes only at the write pointer.
    SequentialWriteRequired,
}

/// State of a zone. Names and codes as in ZNS 1.1 and `enum blk_zone_cond`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ZoneState {
    /// A conventional zone has no state machine.
    NotWritePointer = 0x0,
    /// Nothing written.
    Empty = 0x1,
    /// Opened by a write.
    ImplicitlyOpen = 0x2,
    /// Opened by a command.
    ExplicitlyOpen = 0x3,
    /// Active, but without an open resource.
    Closed = 0x4,
    /// Contents can be read, but nothing can be changed.
    ReadOnly = 0xd,
    /// No more writes until reset.
    Full = 0xe,
    /// Gone.
    Offline = 0xf,
}

/// Zone Management Send actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneAction {
    /// Makes it explicitly open.
    Open,
    /// Makes it closed.
    Close,
    /// Makes it full.
    Finish,
    /// Makes it empty: the contents are gone.
    Reset,
    /// Takes it from read only to offline.
    Offline,
}

impl ZoneAction {
    /// Whether "select all" means a zone in `state`: ZNS 1.1, 3.4.3.1.
    pub(crate) fn selects(self, state: ZoneState) -> bool {
        use ZoneState::{Closed, ExplicitlyOpen, Full, ImplicitlyOpen};
        match self {
            Self::Open => state == Closed,
            Self::Close => matches!(state, ImplicitlyOpen | ExplicitlyOpen),
            Self::Finish => matches!(state, ImplicitlyOpen | ExplicitlyOpen | Closed),
            Self::Reset => matches!(state, ImplicitlyOpen | ExplicitlyOpen | Closed | Full),
            Self::Offline => state == ZoneState::ReadOnly,
        }
    }
}

/// What a zone report says about one zone. All addresses and lengths are in 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// First block.
    pub start: Lba,
    /// Distance from its first block to the next zone's.
    pub size: u64,
    /// Blocks that can be written, from `start`.
    pub capacity: u64,
    /// Next block to write. For a conventional zone this is its end; for a full zone `start +
    /// size`, as on Linux.
    pub wp: Lba,
    /// Kind of zone.
    pub kind: ZoneKind,
    /// Its state.
    pub state: ZoneState,
}

/// The zoned part of a namespace's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// Blocks from one zone's start to the next's.
    pub size: u64,
    /// Writable blocks in each sequential zone.
    pub capacity: u64,
    /// How many zones.
    pub count: u32,
    /// Zones `0..conventional` take random writes.
    pub conventional: u32,
    /// How many zones can be open at once; `None` = no limit.
    pub max_open: Option<u32>,
    /// How many zones can be active (open or closed) at once; `None` = no limit.
    pub max_active: Option<u32>,
}
