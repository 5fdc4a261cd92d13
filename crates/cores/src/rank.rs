//! The order in which locks are taken, and what may be done under them; builds with debug
//! assertions check both.
//!
//! A thread that holds a lock may wait only for locks of higher ranks, or of the same rank and a
//! higher key, so threads cannot deadlock. Under a lock marked *short* no thread sleeps: not for a
//! condition, a drive, a timer, a permit or the end of a thread. A violation panics on either
//! machine, even if it does not deadlock in this run, and names both locks and where they were
//! taken.
//!
//! A lock without a rank is outside the order and not checked. Such are those within a drive, since
//! drives stack in any order, those of the lab's instruments, and those of tests.

#[cfg(debug_assertions)]
mod checked;

#[cfg(debug_assertions)]
pub(crate) use checked::HeldLock;

macro_rules! ranks {
    ($($(#[doc = $doc:literal])* $variant:ident = $sleep:ident,)*) => {
        /// The place of a lock in the order: the outermost come first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rank {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Rank {
            /// Whether no thread may sleep under it.
            pub const fn is_short(self) -> bool {
                match self {
                    $(Rank::$variant => matches!(Sleep::$sleep, Sleep::Never),)*
                }
            }
        }
    };
}

/// Whether a thread may sleep while it holds a lock.
enum Sleep {
    Allowed,
    Never,
}

ranks! {
    /// Which volume a harness serves: shared by calls, exclusive while it drops what is not
    /// durable.
    Harness = Allowed,
    /// Renames between directories: while it is held, the way up from a directory stays as it is.
    Rename = Allowed,
    /// Held for the write-back of a large file. A thread with the file's turn never waits for it.
    WriteBack = Allowed,
    /// Held while discards are issued. A thread that holds the volume's lock never waits for it.
    Discard = Allowed,
    /// A volume: shared by operations, exclusive for changes that need the whole of it.
    Gate = Allowed,
    /// Whether a commit is under way. Locked within the gate, or alone to wait for the end.
    Commit = Never,
    /// One inode: contents, attributes, dirty nodes. Several by their numbers. Or a shard of
    /// inodes, by its index, or all inodes of a file system in memory.
    Inode = Allowed,
    /// A part of a file, or of the files that share a lock, by its number.
    Range = Allowed,
    /// The list of a volume's orphans, from when an operation plans a change of it until that is
    /// applied.
    Orphans = Allowed,
    /// A group of blocks and inodes, by its number: its bitmaps and descriptor.
    Group = Allowed,
    /// A shard of the nodes in memory, by its index, or one node.
    Node = Allowed,
    /// Blocks of the drive that smaller blocks share, while one of these is put there.
    Slices = Allowed,
    /// One log: blocks are allocated and stamped in one order, and on zones submitted.
    Log = Never,
    /// Current segments and the table of segments.
    Segments = Never,
    /// A shard of the node address table, by its index.
    Nat = Never,
    /// Metadata that the next checkpoint writes.
    Meta = Never,
    /// Counts of free space and of what has changed since the checkpoint.
    Space = Never,
    /// The nodes on their way to the drive that recovery's chain needs.
    Chain = Never,
    /// Which inodes have an fsync or a write-back under way.
    Turns = Never,
    /// Who has which inode open, in shards by their index.
    Opens = Never,
    /// What a volume's threads and its operations tell each other.
    Upkeep = Never,
    /// The flushes that callers share.
    Flush = Never,
    /// Blocks on their way to the drive, in shards by their index.
    InFlight = Never,
    /// One hardware queue. A drive below may sleep while it takes a command.
    Queue = Allowed,
    /// Requests that have not been sent, and answers that nobody has asked for yet.
    Requests = Never,
    /// The tags of one hardware queue: first the sleepers, then one word of tags.
    Tags = Never,
}

/// The place of one lock; nothing at all in builds without checks.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    #[cfg(debug_assertions)]
    of: Option<(Rank, u64)>,
}

/// Notes that the calling thread holds a lock, until it is dropped.
pub(crate) struct Held {
    /// The lock's identity, if its order is checked.
    #[cfg(debug_assertions)]
    id: Option<usize>,
}

impl Place {
    /// Outside the order.
    pub(crate) const NONE: Place = Place {
        #[cfg(debug_assertions)]
        of: None,
    };

    pub(crate) const fn new(rank: Rank) -> Place {
        let _ = rank;
        Place {
            #[cfg(debug_assertions)]
            of: Some((rank, 0)),
        }
    }

    /// The same rank with a key of its own.
    pub(crate) const fn keyed(self, key: u64) -> Place {
        let _ = key;
        Place {
            #[cfg(debug_assertions)]
            of: match self.of {
                Some((rank, _)) => Some((rank, key)),
                None => None,
            },
        }
    }

    /// For a caller about to wait for the lock: panics if that is against the order.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn check(self, name: Option<&'static str>) {
        let _ = name;
        #[cfg(debug_assertions)]
        if let Some(of) = self.of {
            checked::check(of, name);
        }
    }

    /// For a caller that has the lock now. `lock` tells it from others.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn held<T: ?Sized>(self, name: Option<&'static str>, lock: &T) -> Held {
        let _ = (name, lock);
        Held {
            #[cfg(debug_assertions)]
            id: checked::note(self.of, name, std::ptr::from_ref(lock).addr()),
        }
    }
}

impl Held {
    /// Of a lock outside the order.
    pub(crate) const NONE: Held = Held {
        #[cfg(debug_assertions)]
        id: None,
    };

    /// For a caller about to let go of the lock and sleep until it can have it again: panics if it
    /// must not.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn check_wait(&self) {
        #[cfg(debug_assertions)]
        checked::check_wait(self.id);
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        if let Some(id) = self.id {
            checked::forget(id);
        }
    }
}

/// For a caller that may be about to sleep: panics in builds with debug assertions if the thread
/// holds a [short](Rank::is_short) lock, even if this time there is nothing to wait for. All that
/// sleeps in this crate asks by itself; who waits for a drive has to say so.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn may_sleep() {
    #[cfg(debug_assertions)]
    checked::check_wait(None);
}
