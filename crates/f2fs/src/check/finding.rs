//! What a check reports: where, what, found, allowed; one line each.

use std::fmt;

use crate::error::Error;
use crate::ondisk::{BlockAddr, Nid, SegNo};

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A copy of the superblock.
    Superblock {
        /// Block it is in.
        copy: BlockAddr,
    },
    /// The checkpoint the volume stands on.
    Checkpoint {
        /// Pack, 0 or 1.
        pack: usize,
    },
    /// An entry of the node address table.
    Nat {
        /// Node it is for.
        nid: Nid,
    },
    /// A segment of the main area, and what SIT and SSA say of it.
    Segment {
        /// Its number.
        segno: SegNo,
    },
    /// A block.
    Block {
        /// Its address.
        addr: u64,
    },
    /// A node other than an inode.
    Node {
        /// Its number.
        nid: Nid,
    },
    /// An inode, and the file as a whole.
    Inode {
        /// Its number.
        ino: Nid,
    },
    /// A directory entry.
    Dentry {
        /// Directory.
        dir: Nid,
        /// Name, unprintable bytes escaped.
        name: Box<str>,
    },
    /// A zone of the drive.
    Zone {
        /// Its first block.
        start: u64,
    },
}

/// What a repair does about a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// It is set to what it should be, or derived anew.
    #[default]
    Set,
    /// The pointer is cleared: a hole, or no node.
    Cleared,
    /// The entry is removed; what it named may end in `lost+found`.
    Removed,
    /// The entry goes where its name is looked for.
    Moved,
    /// The second owner gets a copy.
    Copied,
    /// Another block is found to be the right one.
    Found,
    /// The node is written to another place.
    Rewritten,
    /// The inode goes to `lost+found`, anything else is freed.
    Reconnected,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What of it.
    pub what: &'static str,
    /// As it is.
    pub found: Box<str>,
    /// As it should be.
    pub allowed: Box<str>,
    /// What a repair does about it.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding.
    pub(crate) fn new(
        place: Place,
        what: &'static str,
        found: impl ToString,
        allowed: impl ToString,
    ) -> Self {
        Self {
            place,
            what,
            found: found.to_string().into(),
            allowed: allowed.to_string().into(),
            remedy: Remedy::Set,
        }
    }

    /// What a structure's own checks say, or why it could not be read. `place` is used where the
    /// error names no block.
    pub(crate) fn from_error(place: Place, error: Error) -> Self {
        match error {
            Error::Corrupt { structure, found, allowed, .. } => {
                Self { place, what: structure, found, allowed, remedy: Remedy::Set }
            }
            other => Self::new(place, "read", other, "readable"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock { copy } => write!(f, "superblock in block {copy}"),
            Self::Checkpoint { pack } => write!(f, "checkpoint in pack {}", pack + 1),
            Self::Nat { nid } => write!(f, "NAT entry of node {nid}"),
            Self::Segment { segno } => write!(f, "segment {segno}"),
            Self::Block { addr } => write!(f, "block {addr:#x}"),
            Self::Node { nid } => write!(f, "node {nid}"),
            Self::Inode { ino } => write!(f, "inode {ino}"),
            Self::Dentry { dir, name } => write!(f, "entry `{name}` of directory {dir}"),
            Self::Zone { start } => write!(f, "zone at block {start:#x}"),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Cleared => "cleared",
            Self::Removed => "removed",
            Self::Moved => "moved",
            Self::Copied => "copied",
            Self::Found => "found",
            Self::Rewritten => "rewritten",
            Self::Reconnected => "lost+found, or freed",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, what, found, allowed, .. } = self;
        write!(f, "{place}: {what}: found {found}, should be {allowed}")
    }
}
