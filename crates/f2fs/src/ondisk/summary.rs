//! Segment summaries: to whom each block of a segment belongs (`struct f2fs_summary_block`, 4096
//! bytes). Also the journals of NAT and SIT in their tail, and the compact form in which a
//! checkpoint pack has those of its data logs.

use drive::Block;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::nat::{NatEntry, RawNatEntry};
use super::sit::{LogType, RawSitEntry, SitEntry};
use super::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo, block_view};
use crate::error::{Error, Result};

/// Summaries in a block: one for each block of a segment.
pub const ENTRIES: usize = BLOCKS_PER_SEGMENT as usize;
/// Bytes of the journal area.
pub const JOURNAL_SIZE: usize = 507;
/// NAT entries that a journal holds, in the summary of HOT_DATA.
pub const NAT_JOURNAL_ENTRIES: usize = 38;
/// SIT entries that a journal holds, in the summary of COLD_DATA.
pub const SIT_JOURNAL_ENTRIES: usize = 6;
/// Footer type of a segment of data.
pub const TYPE_DATA: u8 = 0;
/// Footer type of a segment of nodes.
pub const TYPE_NODE: u8 = 1;

const SUMMARY_SIZE: usize = size_of::<RawSummary>();
const FOOTER_SIZE: usize = 5;
const COMPACT_FIRST: usize = (BLOCK_SIZE - FOOTER_SIZE - 2 * JOURNAL_SIZE) / SUMMARY_SIZE;
const COMPACT_NEXT: usize = (BLOCK_SIZE - FOOTER_SIZE) / SUMMARY_SIZE;

/// `struct f2fs_summary`, 7 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct RawSummary {
    /// For data, the node that points to it; for a node, itself.
    pub nid: U32,
    /// For data, the version of that node's NAT entry; else 0.
    pub version: u8,
    /// For data, the slot in that node; else 0.
    pub ofs_in_node: U16,
}
const _: () = assert!(SUMMARY_SIZE == 7 && COMPACT_FIRST == 439 && COMPACT_NEXT == 584);

impl RawSummary {
    /// Summary of data to which slot `slot` of node `nid` points.
    pub fn data(nid: Nid, version: u8, slot: u16) -> Self {
        Self { nid: U32::new(nid), version, ofs_in_node: U16::new(slot) }
    }

    /// Summary of node `nid`.
    pub fn node(nid: Nid) -> Self {
        Self::data(nid, 0, 0)
    }
}

/// `struct f2fs_summary_block`, 4096 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSummaryBlock {
    /// One for each block.
    pub entries: [RawSummary; ENTRIES],
    /// Journal; which kind depends on the log.
    pub journal: [u8; JOURNAL_SIZE],
    /// [`TYPE_NODE`] or [`TYPE_DATA`].
    pub entry_type: u8,
    /// Not used, 0.
    pub check_sum: U32,
}
block_view!(RawSummaryBlock);

/// One journalled NAT entry, 13 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatJournalEntry {
    /// Node number.
    pub nid: U32,
    /// The entry that the table will have.
    pub entry: RawNatEntry,
}

/// `struct f2fs_journal` with NAT entries, 507 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawNatJournal {
    /// Entries in use.
    pub count: U16,
    /// The entries.
    pub entries: [RawNatJournalEntry; NAT_JOURNAL_ENTRIES],
    spare: [u8; 11],
}

/// One journalled SIT entry, 78 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitJournalEntry {
    /// Segment number.
    pub segno: U32,
    /// The entry that the table will have.
    pub entry: RawSitEntry,
}

/// `struct f2fs_journal` with SIT entries, 507 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSitJournal {
    /// Entries in use.
    pub count: U16,
    /// The entries.
    pub entries: [RawSitJournalEntry; SIT_JOURNAL_ENTRIES],
    spare: [u8; 37],
}

const _: () = assert!(size_of::<RawNatJournal>() == JOURNAL_SIZE);
const _: () = assert!(size_of::<RawSitJournal>() == JOURNAL_SIZE);

macro_rules! journal {
    ($raw:ty, $item:ty, $key:ident, $value:ty, $max:expr, $field:literal) => {
        impl $raw {
            /// The entries in use; `at` is the block the journal was read from.
            pub fn used(&self, at: BlockAddr) -> Result<&[$item]> {
                let count = self.count.get();
                let used = self.entries.get(..usize::from(count));
                used.ok_or_else(|| Error::corrupt($field, at, count, format!("0..={}", $max)))
            }

            /// How many entries are in use, at most as many as fit.
            pub fn len(&self) -> usize {
                usize::from(self.count.get()).min($max)
            }

            /// Whether no entry is in use.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Entries that still fit.
            pub fn room(&self) -> usize {
                $max - self.len()
            }

            /// Position of the entry for `key`.
            pub fn position(&self, key: u32) -> Option<usize> {
                self.entries[..self.len()].iter().position(|e| e.$key.get() == key)
            }

            /// Adds or replaces the entry for `key`; `false` if there is no room.
            #[must_use]
            pub fn put(&mut self, key: u32, value: $value) -> bool {
                let len = self.len();
                let at = self.position(key).unwrap_or(len);
                let Some(slot) = self.entries.get_mut(at) else { return false };
                *slot = <$item>::new_zeroed();
                slot.$key.set(key);
                slot.entry = value.into();
                self.count.set(len.max(at + 1) as u16);
                true
            }

            /// Removes the entry for `key`. The last entry takes its place.
            pub fn remove(&mut self, key: u32) -> bool {
                let Some(at) = self.position(key) else { return false };
                let last = self.len() - 1;
                self.entries[at] = self.entries[last];
                self.count.set(last as u16);
                true
            }

            /// Forgets all entries.
            pub fn clear(&mut self) {
                self.count.set(0);
            }
        }
    };
}

journal!(
    RawNatJournal,
    RawNatJournalEntry,
    nid,
    NatEntry,
    NAT_JOURNAL_ENTRIES,
    "nat_journal.n_nats"
);
journal!(
    RawSitJournal,
    RawSitJournalEntry,
    segno,
    &SitEntry,
    SIT_JOURNAL_ENTRIES,
    "sit_journal.n_sits"
);

impl RawNatJournal {
    /// The journal's entry for `nid`, which overrides the table's.
    pub fn get(&self, nid: Nid) -> Option<NatEntry> {
        self.position(nid).map(|i| self.entries[i].entry.into())
    }
}

impl RawSitJournal {
    /// The journal's entry for `segno`, which overrides the table's.
    pub fn get(&self, segno: SegNo) -> Option<&RawSitEntry> {
        self.position(segno).map(|i| &self.entries[i].entry)
    }
}

impl RawSummaryBlock {
    /// An empty summary of a segment of `log`.
    pub fn empty(log: LogType) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        block.entry_type = if log.is_node() { TYPE_NODE } else { TYPE_DATA };
        block
    }

    /// The journal, if this is the hot data log's summary.
    pub fn nat_journal(&self) -> &RawNatJournal {
        zerocopy::transmute_ref!(&self.journal)
    }

    /// The same, to be changed.
    pub fn nat_journal_mut(&mut self) -> &mut RawNatJournal {
        zerocopy::transmute_mut!(&mut self.journal)
    }

    /// The journal, if this is the cold data log's summary.
    pub fn sit_journal(&self) -> &RawSitJournal {
        zerocopy::transmute_ref!(&self.journal)
    }

    /// The same, to be changed.
    pub fn sit_journal_mut(&mut self) -> &mut RawSitJournal {
        zerocopy::transmute_mut!(&mut self.journal)
    }

    /// KiB written in the life of the volume, which the hot node log keeps.
    pub fn lifetime_kbytes(&self) -> u64 {
        let (bytes, _) = self.journal[2..].split_first_chunk::<8>().expect("507 bytes hold it");
        U64::from_bytes(*bytes).get()
    }

    /// Stores [`Self::lifetime_kbytes`].
    pub fn set_lifetime_kbytes(&mut self, kbytes: u64) {
        self.journal[2..10].copy_from_slice(&kbytes.to_le_bytes());
    }

    /// Checks that the footer fits a segment of `log`; `at` is the block from which it was read.
    pub fn check_type(&self, log: LogType, at: BlockAddr) -> Result<()> {
        let allowed = if log.is_node() { TYPE_NODE } else { TYPE_DATA };
        if self.entry_type == allowed {
            return Ok(());
        }
        Err(Error::corrupt("summary_footer.entry_type", at, self.entry_type, allowed))
    }
}

/// How many blocks `entries` compact summaries need. `None` if full ones must be written.
pub fn compact_blocks(entries: usize) -> Option<usize> {
    match entries {
        0..=COMPACT_FIRST => Some(1),
        _ if entries <= COMPACT_FIRST + COMPACT_NEXT => Some(2),
        _ => None,
    }
}

/// Writes the data logs' summaries in compact form: hot data's journal, cold data's journal, then
/// the first `counts[i]` entries of each log without a gap.
pub fn pack_compact(logs: [&RawSummaryBlock; 3], counts: [usize; 3]) -> Vec<Block> {
    let mut cursor = CompactCursor::default();
    let mut blocks = vec![[0; BLOCK_SIZE]];
    blocks[0][..JOURNAL_SIZE].copy_from_slice(&logs[0].journal);
    blocks[0][JOURNAL_SIZE..2 * JOURNAL_SIZE].copy_from_slice(&logs[2].journal);
    for (log, count) in logs.iter().zip(counts) {
        for entry in log.entries.iter().take(count) {
            let (block, at) = cursor.next();
            if block == blocks.len() {
                blocks.push([0; BLOCK_SIZE]);
            }
            blocks[block][at..at + SUMMARY_SIZE].copy_from_slice(entry.as_bytes());
        }
    }
    blocks.into_iter().map(Block::new).collect()
}

/// Reverses [`pack_compact`]. `read` gets the number of a compact block, from 0.
pub fn unpack_compact(
    counts: [usize; 3],
    mut read: impl FnMut(u32) -> Result<Block>,
) -> Result<[Box<RawSummaryBlock>; 3]> {
    let mut logs =
        [LogType::HotData, LogType::WarmData, LogType::ColdData].map(RawSummaryBlock::empty);
    let mut block = read(0)?;
    let mut loaded = 0;
    logs[0].journal.copy_from_slice(&block[..JOURNAL_SIZE]);
    logs[2].journal.copy_from_slice(&block[JOURNAL_SIZE..2 * JOURNAL_SIZE]);
    let mut cursor = CompactCursor::default();
    for (log, count) in logs.iter_mut().zip(counts) {
        for entry in log.entries.iter_mut().take(count) {
            let (number, at) = cursor.next();
            if number != loaded {
                block = read(number as u32)?;
                loaded = number;
            }
            entry.as_mut_bytes().copy_from_slice(&block[at..at + SUMMARY_SIZE]);
        }
    }
    Ok(logs)
}

/// Where the next compact entry goes.
struct CompactCursor {
    block: usize,
    offset: usize,
}

impl Default for CompactCursor {
    fn default() -> Self {
        Self { block: 0, offset: 2 * JOURNAL_SIZE }
    }
}

impl CompactCursor {
    fn next(&mut self) -> (usize, usize) {
        if self.offset + SUMMARY_SIZE > BLOCK_SIZE - FOOTER_SIZE {
            (self.block, self.offset) = (self.block + 1, 0);
        }
        let place = (self.block, self.offset);
        self.offset += SUMMARY_SIZE;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_summaries_come_back() {
        let counts = [300, 512, 100];
        let mut logs =
            [LogType::HotData, LogType::WarmData, LogType::ColdData].map(RawSummaryBlock::empty);
        for (l, log) in logs.iter_mut().enumerate() {
            for i in 0..counts[l] {
                log.entries[i] = RawSummary::data((l * 1000 + i) as u32, l as u8, i as u16);
            }
        }
        assert!(logs[0].nat_journal_mut().put(9, NatEntry { version: 1, ino: 9, addr: 77 }));
        assert!(logs[2].sit_journal_mut().put(4, &SitEntry::empty(LogType::ColdData)));
        let packed = pack_compact([&logs[0], &logs[1], &logs[2]], counts);
        assert_eq!(Some(packed.len()), compact_blocks(counts.iter().sum()));
        let back = unpack_compact(counts, |i| Ok(packed[i as usize].clone())).unwrap();
        for (a, b) in logs.iter().zip(&back) {
            assert_eq!(a.as_bytes(), b.as_bytes());
        }
        assert_eq!([439, 440, 1023, 1024].map(compact_blocks), [Some(1), Some(2), Some(2), None]);
    }

    #[test]
    fn journals_fill_replace_and_shrink() {
        let mut block = RawSummaryBlock::empty(LogType::HotData);
        let journal = block.nat_journal_mut();
        let entry = |addr| NatEntry { version: 0, ino: 1, addr };
        for nid in 0..38 {
            assert!(journal.put(nid, entry(nid)));
        }
        assert!(!journal.put(99, entry(0)) && journal.put(5, entry(500)));
        assert_eq!((journal.get(5), journal.room()), (Some(entry(500)), 0));
        assert!(journal.remove(5) && journal.get(5).is_none() && journal.len() == 37);
        journal.count.set(39);
        assert!(journal.used(1).is_err());
    }
}
