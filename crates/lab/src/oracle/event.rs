//! What a workload did, in the order it did it.
//!
//! An event is logged *before* the file system is asked, so that at any instant the log holds
//! everything that may have reached the drive. An fsync is two events, because only its return
//! promises anything; where threads overlap, every call is two. A position in the log is therefore
//! a snapshot of the oracle, and costs nothing to take.

use drive::Block;
use vfs::{FileKind, InodeFlags, Timespec};

use super::order::Call;

/// The oracle's own number for an inode. The root directory is 0.
pub type ObjId = usize;

/// The root directory.
pub const ROOT: ObjId = 0;

/// A directory and a name in it.
pub type Place = (ObjId, Box<[u8]>);

/// Attributes that a workload sets. A write moves the modification time to an instant the workload
/// does not know: `mtime` is `None` then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// As chattr(1) sets them.
    pub flags: InodeFlags,
    /// Access time, if the workload set it.
    pub atime: Option<Timespec>,
    /// Modification time, if the workload set it.
    pub mtime: Option<Timespec>,
}

/// The times of an inode that move by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Of the last change of contents.
    pub mtime: Timespec,
    /// Of the last change of the inode.
    pub ctime: Timespec,
}

/// The last transaction of a workload that makes them one after the other; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// The last that began.
    pub begun: u64,
    /// The last that was acknowledged.
    pub committed: u64,
}

/// One step of a workload.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new inode under a new name. Objects are numbered in the order of these events.
    Create {
        /// Where.
        place: Place,
        /// What.
        kind: FileKind,
        /// First attributes.
        meta: Meta,
        /// Target of a symbolic link, empty for others.
        target: Box<[u8]>,
        /// Number of a device, 0 for others.
        rdev: u64,
    },
    /// Another name for an object.
    Link {
        /// Which.
        obj: ObjId,
        /// Where.
        place: Place,
    },
    /// A name goes.
    Unlink {
        /// Which.
        place: Place,
    },
    /// A name moves, replacing what was there.
    Rename {
        /// From here.
        from: Place,
        /// To there.
        to: Place,
    },
    /// Whole blocks as they are after a write, from block `first`.
    Write {
        /// Which file.
        obj: ObjId,
        /// Index of the first block.
        first: u64,
        /// Contents afterwards.
        blocks: Vec<Block>,
        /// Where the write begins, in bytes.
        from: u64,
        /// Where it ends: a shorter file has this length afterwards.
        end: u64,
    },
    /// A new size without data.
    Truncate {
        /// Which file.
        obj: ObjId,
        /// In bytes.
        size: u64,
    },
    /// New attributes.
    SetMeta {
        /// Of which object.
        obj: ObjId,
        /// All of them.
        meta: Meta,
    },
    /// An extended attribute is set or removed.
    Xattr {
        /// Of which object.
        obj: ObjId,
        /// Full name.
        name: Box<[u8]>,
        /// `None` removes it.
        value: Option<Box<[u8]>>,
    },
    /// fsync called; `None` is `sync`.
    SyncBegin {
        /// Of which object.
        obj: Option<ObjId>,
    },
    /// fsync returned.
    SyncEnd {
        /// Of which object.
        obj: Option<ObjId>,
        /// The call that returned; `None` if it took no time.
        call: Option<Call>,
        /// The object's times when it was called, if it must keep them.
        times: Option<Times>,
    },
    /// A transaction of the workload's own begins, or is acknowledged. Numbers go up.
    Transaction {
        /// Which.
        number: u64,
        /// Whether it is acknowledged.
        done: bool,
    },
    /// From here on calls overlap, and each call other than an fsync ends in `Return` or `Fail`.
    /// Until here each returned before the next event.
    Overlap,
    /// A call returned.
    Return {
        /// Which.
        call: Call,
    },
    /// A call was refused: no name was changed, nothing was made durable.
    Fail {
        /// Which.
        call: Call,
    },
}
