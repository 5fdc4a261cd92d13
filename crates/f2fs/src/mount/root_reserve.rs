//! `reserve_root`, `resuid` and `resgid`: free blocks that only some users get
//! (`__allow_reserved_blocks`).

use std::fmt;

use cores::Caller;

/// The largest part of the volume that can be reserved, as a power of two: an eighth
/// (`limit_reserve_root`).
const LARGEST_PART: u32 = 3;

/// Blocks kept, and for whom besides privileged users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootReserve {
    /// How many blocks are kept.
    pub blocks: u64,
    /// This user may have them.
    pub uid: u32,
    /// Members of this group may have them, unless it is root's.
    pub gid: u32,
}

impl RootReserve {
    /// What of it a volume with so many blocks for users keeps.
    pub(crate) fn within(self, user_blocks: u64) -> Self {
        Self { blocks: self.blocks.min(user_blocks >> LARGEST_PART), ..self }
    }

    /// How many blocks are kept from whom the calling thread works for. Work for no user completes
    /// what some user was granted before, so nothing is kept from it.
    pub(crate) fn kept_from_caller(&self) -> u64 {
        if self.blocks == 0 { 0 } else { self.kept_from(cores::caller()) }
    }

    fn kept_from(&self, caller: Option<Caller>) -> u64 {
        let may_have = |caller: Caller| {
            let of_group = self.gid != Caller::ROOT.gid && caller.gid == self.gid;
            caller.is_privileged() || caller.uid == self.uid || of_group
        };
        if caller.is_none_or(may_have) { 0 } else { self.blocks }
    }
}

/// As in `mount -o`, behind other options.
impl fmt::Display for RootReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { blocks: 0, .. } => Ok(()),
            Self { blocks, uid, gid } => {
                write!(f, ",reserve_root={blocks},resuid={uid},resgid={gid}")
            }
        }
    }
}
