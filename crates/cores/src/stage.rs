//! The named stages of CPU work in the stack. They are few and fixed.
//!
//! A stage is measured on a traced real run and charged on a virtual one. So the same list gives
//! the rows of a profile's cost table, of a timeline and of the thesis's Table 3.1.

macro_rules! stages {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A stage of work that is measured, charged and drawn under one name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Stage {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Stage {
            /// Every stage, in the order in which an operation passes them.
            pub const ALL: &'static [Stage] = &[$(Stage::$variant),*];

            /// How many stages there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in profiles, traces and reports, for example `fsync.prepare`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Stage::$variant => $name,)*
                }
            }
        }
    };
}

stages! {
    /// Entry into the file system: the call itself, argument checks, permission checks.
    Syscall = "vfs.syscall",
    /// One component of a path resolved.
    PathLookup = "vfs.path_lookup",
    /// One page found in the page cache and copied; its bytes are charged by themselves.
    CopyPage = "vfs.copy_page",
    /// One inode accessed, once the volume is locked.
    Inode = "fs.inode",
    /// One directory entry added, removed or changed.
    DirEntry = "fs.dir_entry",
    /// One file offset translated into a block address.
    MapBlock = "fs.map_block",
    /// One block address taken from a log or a bitmap.
    AllocBlock = "fs.alloc_block",
    /// One node or inode block changed in memory.
    NodeUpdate = "fs.node_update",
    /// fsync: the file's dirty data gathered and its writes prepared.
    FsyncPrepare = "fsync.prepare",
    /// fsync: the file's dirty nodes gathered, marked and their writes prepared.
    FsyncNode = "fsync.node",
    /// fsync: everything that is neither data, node nor wait.
    FsyncOther = "fsync.other",
    /// One request handed to a hardware queue.
    QueueDispatch = "queue.dispatch",
    /// One completion taken from a hardware queue and its waiter woken.
    QueueComplete = "queue.complete",
    /// Waiting for data blocks to reach the drive.
    WaitData = "wait.data",
    /// Waiting for node blocks to reach the drive.
    WaitNode = "wait.node",
    /// Waiting for a flush.
    WaitFlush = "wait.flush",
    /// A journal transaction built and closed.
    Journal = "journal.commit",
    /// A checkpoint written.
    Checkpoint = "fs.checkpoint",
    /// One section or segment cleaned.
    Gc = "fs.gc",
    /// One node block read and looked at by recovery.
    Recover = "fs.recover",
    /// The pointers of one node block compared with the write pointers of their zones.
    RecoverCheck = "fs.recover_check",
}

impl Stage {
    /// The stage of that name, as written in profiles and traces.
    pub fn named(name: &str) -> Option<Stage> {
        Self::ALL.iter().copied().find(|stage| stage.name() == name)
    }
}
