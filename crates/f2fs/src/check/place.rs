//! Where in an F2FS volume a check finds something.

use std::fmt;

use vfs::Corrupt;

use crate::error::Error;
use crate::ondisk::{BlockAddr, Nid, SegNo};

pub use vfs::finding::Remedy;

/// One thing that is wrong.
pub type Finding = vfs::finding::Finding<Place>;

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A copy of the superblock.
    Superblock {
        /// Block it is in.
        copy: BlockAddr,
    },
    /// The checkpoint in use.
    Checkpoint {
        /// Pack, 0 or 1.
        pack: usize,
    },
    /// An entry of the node address table.
    Nat {
        /// Node it is for.
        nid: Nid,
    },
    /// A segment of the main area, and what SIT and SSA say about it.
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
        /// Name, with unprintable bytes escaped.
        name: Box<str>,
    },
    /// A zone of the drive.
    Zone {
        /// Its first block.
        start: u64,
    },
}

impl Place {
    /// Turns an error into a finding: the result of a structure's own checks, or why it could not
    /// be read. This place is used if the error names no block.
    pub(crate) fn finding(self, error: Error) -> Finding {
        match error {
            Error::Corrupt(Corrupt { structure, found, allowed, .. }) => {
                Finding { place: self, what: structure, found, allowed, remedy: Remedy::Set }
            }
            other => Finding::new(self, "read", other, "readable"),
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
            Self::Dentry { dir, name } => write!(f, "entry '{name}' of directory {dir}"),
            Self::Zone { start } => write!(f, "zone at block {start:#x}"),
        }
    }
}
