//! What the designs promise, and the faults that campaigns must find.

use drive::Identify;
use drive::pm::PmFault;
use vfs::kind::{Promise, Technique};

use crate::ondisk::record::{RECORD_AT, SLOT_SIZE};
use crate::ondisk::superblock::Layout;

/// All of them. An fsync has nothing to do: what a call did is durable when it returns.
pub(crate) const ALL: &[&Technique] =
    &[INPLACE, NOVA, NOVA_SEGMENT, NOVA_CORE_LOG, NOVA_LOCAL, PNOVA];

/// Data in place, metadata by a redo record (JIIBC 2023). Overwritten bytes are old or new by words
/// of 8.
const INPLACE: &Technique = &Technique {
    name: "inplace",
    title: "in-place data, metadata journal",
    options: "",
    make: "design=inplace",
    promise: |_| promise(false),
    runs_on,
};
/// A log per inode, data copied on write (NOVA, FAST 2016).
const NOVA: &Technique = &logged("nova", "NOVA", "");
/// The first of pNOVA's options by itself (MASCOTS 2020).
const NOVA_SEGMENT: &Technique = &logged("nova-segment", "NOVA, segments", "range_lock=segment");
/// The second.
const NOVA_CORE_LOG: &Technique = &logged("nova-core-log", "NOVA, logs of cores", "log=core");
/// The third.
const NOVA_LOCAL: &Technique = &logged("nova-local", "NOVA, local memory", "place=local");
/// All three.
const PNOVA: &Technique = &logged("pnova", "pNOVA", "range_lock=segment,log=core,place=local");

const fn logged(name: &'static str, title: &'static str, options: &'static str) -> Technique {
    let make = "design=nova";
    Technique { name, title, options, make, promise: |_| promise(true), runs_on }
}

const fn runs_on(drive: &Identify) -> bool {
    drive.pm.is_some()
}

const fn promise(copies: bool) -> Promise {
    Promise { durable: true, intact: true, atomic: copies, whole: copies, at_return: true }
}

/// What a mount can be told to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forget {
    Fences,
    /// One of the four of a change, in turn.
    Fence(u64),
    /// That behind a record. NOVA's first hole: old words are not durable when their mark is.
    RecordFence,
    /// That behind a mark.
    MarkFence,
    /// The first of a mount, which is recovery's. NOVA's second hole: the mark is cleared before
    /// what it took back is durable.
    RecoveryFence,
    WriteBacks,
    /// Those of single words in the table. NOVA's third hole: `valid` of a new inode.
    TableWords,
    /// Streaming stores stay in the cache.
    Streams,
}

/// The value of `inject=` for each.
pub(crate) const FAULTS: &[(&str, Option<Forget>)] = &[
    ("drop-fence", Some(Forget::Fences)),
    ("drop-fence-1-of-4", Some(Forget::Fence(0))),
    ("drop-fence-2-of-4", Some(Forget::Fence(1))),
    ("drop-fence-3-of-4", Some(Forget::Fence(2))),
    ("drop-fence-4-of-4", Some(Forget::Fence(3))),
    ("drop-record-fence", Some(Forget::RecordFence)),
    ("drop-mark-fence", Some(Forget::MarkFence)),
    ("drop-recovery-fence", Some(Forget::RecoveryFence)),
    ("drop-write-back", Some(Forget::WriteBacks)),
    ("drop-table-words", Some(Forget::TableWords)),
    ("drop-stream", Some(Forget::Streams)),
];

impl Forget {
    /// The same for the memory.
    pub(crate) fn fault(self, layout: &Layout) -> PmFault {
        let journal = layout.slot_at(0)..layout.table().start;
        let behind = |part| {
            let (start, end, stride) = (journal.start, journal.end, SLOT_SIZE);
            PmFault::DropFencesBehind { start, end, stride, part }
        };
        match self {
            Self::Fences => PmFault::DropFence,
            Self::Fence(first) => PmFault::DropFences { first, every: 4 },
            Self::RecordFence => behind((RECORD_AT, SLOT_SIZE)),
            Self::MarkFence => behind((0, RECORD_AT)),
            Self::RecoveryFence => PmFault::DropFences { first: 0, every: u64::MAX },
            Self::WriteBacks => PmFault::DropWriteBack,
            Self::TableWords => {
                let table = layout.table();
                PmFault::DropWriteBacks { start: table.start, end: table.end, longest: 8 }
            }
            Self::Streams => PmFault::DropStream,
        }
    }
}
