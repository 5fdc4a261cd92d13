//! Free blocks that only some users get (`__allow_reserved_blocks`, `ext4_has_free_clusters`).

use cores::Caller;

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
    /// How many blocks are kept from whom the calling thread works for. Work for no user completes
    /// what some user was granted before, so nothing is kept from it.
    pub fn kept_from_caller(&self) -> u64 {
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
