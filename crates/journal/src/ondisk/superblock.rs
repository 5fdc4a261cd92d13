//! The journal's superblock, its first block (`journal_superblock_t`, 1,024 bytes).

use bitflags::bitflags;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c_without;
use super::header::{MAGIC, RawHeader, Tid};
use crate::error::{Error, Result};

/// Bytes of the superblock. A larger block has nothing behind it.
pub const SUPERBLOCK_SIZE: usize = 1024;
const CHECKSUM_AT: usize = 0xfc;
/// `JBD2_CRC32C_CHKSUM`
const CRC32C: u8 = 4;
/// `JBD2_MIN_JOURNAL_BLOCKS`: the ring is never made shorter by an area for fast commits.
const MIN_RING: u32 = 1024;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`
const DEFAULT_FAST_BLOCKS: u32 = 256;
/// A log below this many blocks keeps most of them for its ring: an operation may want 200 credits,
/// and a transaction has a quarter of the ring.
const SMALL_LOG: u32 = 4096;
/// `JBD2_FEATURE_COMPAT_CHECKSUM`: a CRC-32 of each transaction in its commit block, as kernels
/// wrote before 3.5.
const COMPAT_CHECKSUM: u32 = 1;

bitflags! {
    /// `s_feature_incompat`
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Revoke blocks may occur. The kernel does not always record that.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// A commit block may reach the drive before its transaction's other blocks.
        const ASYNC_COMMIT = 0x4;
        /// Checksums of 16 bits for images.
        const CSUM_V2 = 0x8;
        /// Checksums of 32 bits for images.
        const CSUM_V3 = 0x10;
        /// There is an area for fast commits behind the ring.
        const FAST_COMMIT = 0x20;
        /// The ring is divided into areas (ours, see [`super::areas`]). Set while the journal is in
        /// use, so that others refuse it; gone after recovery or a clean unmount.
        const AREAS = 0x4000_0000;
        /// Ours: areas of [records](crate::ondisk::record) lie behind the ring. Other
        /// implementations do not know the bit and refuse such a log; it is set only while the
        /// volume is mounted or has to be recovered.
        const RECORDS = 0x2000_0000;
        const _ = !0;
    }
}

impl Incompat {
    /// What this crate reads.
    const KNOWN: Self = Self::REVOKE
        .union(Self::BIT64)
        .union(Self::ASYNC_COMMIT)
        .union(Self::CSUM_V2)
        .union(Self::CSUM_V3)
        .union(Self::FAST_COMMIT)
        .union(Self::AREAS)
        .union(Self::RECORDS);
    /// Log blocks carry checksums.
    const SUMS: Self = Self::CSUM_V2.union(Self::CSUM_V3);

    /// Whether log blocks carry checksums (`jbd2_journal_has_csum_v2or3`).
    pub fn has_sums(self) -> bool {
        self.intersects(Self::SUMS)
    }
}

/// `journal_superblock_t`, 1,024 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; what matters is said at `Superblock`")]
pub struct RawSuperblock {
    pub header: RawHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 34],
    pub s_rec_first: U32,
    pub s_rec_blocks: U32,
    pub s_rec_areas: U32,
    pub s_rec_has_floor: U32,
    pub s_rec_padding: [U32; 2],
    pub s_checksum: U32,
    pub s_users: [u8; 768],
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
    assert!(std::mem::offset_of!(RawSuperblock, s_start) == 0x1c);
    assert!(std::mem::offset_of!(RawSuperblock, s_uuid) == 0x30);
    assert!(std::mem::offset_of!(RawSuperblock, s_num_fc_blks) == 0x54);
    assert!(std::mem::offset_of!(RawSuperblock, s_rec_first) == 0xe4);
    assert!(std::mem::offset_of!(RawSuperblock, s_checksum) == CHECKSUM_AT);
};

/// The log's blocks behind the ring that hold records: areas of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpace {
    /// First block of the first area.
    pub first: u32,
    /// Blocks of an area.
    pub blocks: u32,
    /// Areas.
    pub areas: u32,
}

impl RecordSpace {
    /// The block for the [floors](crate::ondisk::record::Floors), behind the last area.
    pub fn floors_at(self) -> u32 {
        self.first.saturating_add(self.areas.saturating_mul(self.blocks))
    }

    /// The block behind all of it.
    pub fn end(self) -> u32 {
        self.floors_at().saturating_add(1)
    }
}

/// A superblock whose values have been checked. All that is not changed here is kept as it was.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: Box<RawSuperblock>,
}

impl std::fmt::Debug for RawSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawSuperblock")
            .field("maxlen", &self.s_maxlen.get())
            .field("first", &self.s_first.get())
            .field("sequence", &self.s_sequence.get())
            .field("start", &self.s_start.get())
            .field("incompat", &Incompat::from_bits_retain(self.s_feature_incompat.get()))
            .finish_non_exhaustive()
    }
}

impl Superblock {
    /// The superblock of a new, empty log of `maxlen` blocks, with 64-bit numbers and checksums of
    /// 32 bits: what the kernel makes of a journal at its first mount.
    pub fn new(block_size: u32, maxlen: u32, uuid: [u8; 16]) -> Self {
        let mut raw = RawSuperblock::read_from_bytes(&[0; SUPERBLOCK_SIZE]).expect("its size");
        raw.header.h_magic = MAGIC.into();
        raw.header.h_blocktype = 4.into();
        (raw.s_blocksize, raw.s_maxlen) = (block_size.into(), maxlen.into());
        (raw.s_first, raw.s_sequence, raw.s_nr_users) = (1.into(), 1.into(), 1.into());
        raw.s_uuid = uuid;
        let mut superblock = Self { raw: Box::new(raw) };
        superblock.use_sums();
        superblock
    }

    /// Reads the superblock `bytes` of a journal whose file has `file_blocks` blocks of
    /// `block_size` bytes. `block` is where it was read, for errors. Fails if
    /// - the magic, the type, the size of blocks or the checksum is wrong;
    /// - the ring does not lie in the file, or the log does not begin in the ring;
    /// - it has features that are unknown or exclude one another.
    pub fn parse(bytes: &[u8], block: u64, block_size: u32, file_blocks: u32) -> Result<Self> {
        let raw = RawSuperblock::read_from_prefix(bytes);
        let Ok((mut raw, _)) = raw else {
            return Err(Error::corrupt("superblock", block, bytes.len(), SUPERBLOCK_SIZE));
        };
        let want = |what, found: u32, is_good: bool, allowed: &dyn std::fmt::Display| {
            if is_good { Ok(()) } else { Err(Error::corrupt(what, block, found, allowed)) }
        };
        let (magic, kind) = (raw.header.h_magic.get(), raw.header.h_blocktype.get());
        want("h_magic", magic, magic == MAGIC, &MAGIC)?;
        want("h_blocktype", kind, kind == 3 || kind == 4, &"3 or 4")?;
        if kind == 3 {
            // Version 1 ends before the features (`load_superblock`).
            let fields = [&mut raw.s_feature_compat, &mut raw.s_feature_incompat];
            fields.into_iter().for_each(|field| *field = 0.into());
            raw.s_feature_ro_compat = 0.into();
        }
        let size = raw.s_blocksize.get();
        want("s_blocksize", size, size == block_size, &block_size)?;
        let superblock = Self { raw: Box::new(raw) };
        superblock.check_features()?;
        if superblock.incompat().has_sums() {
            let (found, right) = (superblock.raw.s_checksum.get(), superblock.checksum());
            if found != right {
                return Err(Error::checksum("s_checksum", block, found, right));
            }
        }
        let (maxlen, first) = (superblock.raw.s_maxlen.get(), superblock.raw.s_first.get());
        want("s_maxlen", maxlen, maxlen <= file_blocks, &format_args!("up to {file_blocks}"))?;
        let (ring, start) = (superblock.ring(), superblock.raw.s_start.get());
        want("s_first", first, first > 0 && !ring.is_empty(), &format_args!("1..{}", ring.end))?;
        let is_good = start == 0 || ring.contains(&start);
        want("s_start", start, is_good, &format_args!("0 or {ring:?}"))?;
        let records = superblock.records();
        let is_good = records.is_none_or(|space| space.end() <= maxlen);
        want("s_rec_areas", superblock.raw.s_rec_areas.get(), is_good, &"areas within the log")?;
        Ok(superblock)
    }

    fn check_features(&self) -> Result<()> {
        let (incompat, compat) = (self.incompat(), self.raw.s_feature_compat.get());
        let unknown = incompat.difference(Incompat::KNOWN);
        let ro_compat = self.raw.s_feature_ro_compat.get();
        if !unknown.is_empty() || ro_compat != 0 {
            let bits = unknown.bits();
            let feature = format!("journal features {bits:#x}, read-only features {ro_compat:#x}");
            return Err(Error::unsupported(feature));
        }
        if incompat.contains(Incompat::SUMS) || incompat.has_sums() && compat & COMPAT_CHECKSUM != 0
        {
            return Err(Error::unsupported("a journal with checksums of several versions"));
        }
        if incompat.has_sums() && self.raw.s_checksum_type != CRC32C {
            let kind = self.raw.s_checksum_type;
            return Err(Error::unsupported(format!("journal checksums of type {kind}")));
        }
        if incompat.contains(Incompat::ASYNC_COMMIT) && !incompat.has_sums() {
            // Only the old checksum says whether such a transaction is complete.
            return Err(Error::unsupported("journal_async_commit without checksums v2 or v3"));
        }
        if incompat.contains(Incompat::AREAS) && !incompat.contains(Incompat::CSUM_V3) {
            return Err(Error::unsupported("journal areas without checksums v3"));
        }
        Ok(())
    }

    fn checksum(&self) -> u32 {
        crc32c_without(!0, self.raw.as_bytes(), CHECKSUM_AT)
    }

    /// The bytes to write, with their checksum.
    pub fn emit(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = *self.raw;
        if self.incompat().has_sums() {
            raw.s_checksum = self.checksum().into();
        }
        raw.as_bytes().try_into().expect("its size")
    }

    /// What the log uses.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.raw.s_feature_incompat.get())
    }

    /// From now on blocks have 64-bit numbers and checksums of 32 bits, as the kernel sees to when
    /// it mounts a volume with `metadata_csum`. Only an empty log can be changed so.
    pub fn use_sums(&mut self) {
        let incompat = self.incompat().difference(Incompat::SUMS);
        let incompat = incompat | Incompat::CSUM_V3 | Incompat::BIT64;
        self.raw.header.h_blocktype = 4.into();
        self.raw.s_feature_incompat = incompat.bits().into();
        self.raw.s_feature_compat = (self.raw.s_feature_compat.get() & !COMPAT_CHECKSUM).into();
        self.raw.s_checksum_type = CRC32C;
    }

    /// The log is divided into areas from here on, and in use; or, with `None`, one log again that
    /// is closed. In use, `s_sequence` only tells tables of areas from older ones.
    pub fn set_areas(&mut self, in_use: Option<u32>, sequence: Tid) {
        let mut incompat = self.incompat();
        incompat.set(Incompat::AREAS, in_use.is_some());
        self.raw.s_feature_incompat = incompat.bits().into();
        self.set_tail(in_use, sequence);
    }

    /// Seed of the checksums of log blocks and images: of the *journal's* UUID.
    pub fn seed(&self) -> u32 {
        super::crc32c(!0, &self.raw.s_uuid)
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.raw.s_blocksize.get()
    }

    /// The blocks in which the log circulates: without the superblock and the area for fast
    /// commits. Empty if there are none.
    pub fn ring(&self) -> std::ops::Range<u32> {
        let end = self.fast_start();
        let end = self.records().map_or(end, |space| end.min(space.first));
        self.raw.s_first.get()..end
    }

    /// Where the area for fast commits begins, with the block that is not used.
    fn fast_start(&self) -> u32 {
        let maxlen = self.raw.s_maxlen.get();
        match maxlen.checked_sub(self.fast_blocks()) {
            Some(end) if end >= MIN_RING => end,
            _ => maxlen,
        }
    }

    /// Whether other implementations refuse the log: it has areas, or records.
    pub fn is_ours(&self) -> bool {
        self.incompat().intersects(Incompat::AREAS | Incompat::RECORDS)
    }

    /// Where records are, while there are any.
    pub fn records(&self) -> Option<RecordSpace> {
        let raw = &self.raw;
        self.incompat().contains(Incompat::RECORDS).then(|| RecordSpace {
            first: raw.s_rec_first.get(),
            blocks: raw.s_rec_blocks.get(),
            areas: raw.s_rec_areas.get(),
        })
    }

    /// Takes the end of the ring, an eighth of a small log and a quarter of a large one, for
    /// `areas` areas of records. Only an empty log can be changed so.
    pub fn use_records(&mut self, areas: u32) {
        self.drop_records();
        let ring = self.ring();
        let share = if ring.end < SMALL_LOG { 8 } else { 4 };
        let blocks = ring.end / share / areas.max(1);
        let incompat = self.incompat() | Incompat::RECORDS;
        self.raw.s_feature_incompat = incompat.bits().into();
        self.raw.s_rec_first = (ring.end - blocks * areas - 1).into();
        (self.raw.s_rec_blocks, self.raw.s_rec_areas) = (blocks.into(), areas.into());
    }

    /// No records count any more: the ring has all of the log, as JBD2 knows it.
    pub fn drop_records(&mut self) {
        let incompat = self.incompat().difference(Incompat::RECORDS);
        let raw = &mut self.raw;
        raw.s_feature_incompat = incompat.bits().into();
        (raw.s_rec_first, raw.s_rec_blocks, raw.s_rec_areas) = (0.into(), 0.into(), 0.into());
        raw.s_rec_has_floor = 0.into();
    }

    /// While recovery brings records home: which count is what the block of floors says, whatever
    /// recovery itself commits.
    pub fn has_record_floors(&self) -> bool {
        self.raw.s_rec_has_floor.get() != 0
    }

    /// From here on the block of floors counts, which is durable.
    pub fn use_record_floors(&mut self) {
        self.raw.s_rec_has_floor = 1.into();
    }

    /// Blocks of the area for fast commits, of which the first is not used.
    fn fast_blocks(&self) -> u32 {
        match self.raw.s_num_fc_blks.get() {
            _ if !self.incompat().contains(Incompat::FAST_COMMIT) => 0,
            0 => DEFAULT_FAST_BLOCKS,
            blocks => blocks,
        }
    }

    /// The area for fast commits; empty if there is none. It begins one block behind the ring's
    /// end (`j_fc_first`).
    pub fn fast_commit_area(&self) -> std::ops::Range<u32> {
        let (start, maxlen) = (self.fast_start(), self.raw.s_maxlen.get());
        start.saturating_add(1).min(maxlen)..maxlen
    }

    /// From now on there is an area for fast commits. False if the log is too short for one. Only
    /// an empty log can be changed so.
    pub fn use_fast_commits(&mut self) -> bool {
        let incompat = self.incompat();
        self.raw.s_feature_incompat = (incompat | Incompat::FAST_COMMIT).bits().into();
        let has_area = self.fast_commit_area().len() > 1;
        if !has_area {
            self.raw.s_feature_incompat = incompat.bits().into();
        }
        has_area
    }

    /// Number of the oldest transaction in the log, or of the next one if the log is empty.
    pub fn sequence(&self) -> Tid {
        Tid(self.raw.s_sequence.get())
    }

    /// Where the oldest transaction begins; `None` if the log was closed in good order.
    pub fn start(&self) -> Option<u32> {
        Some(self.raw.s_start.get()).filter(|start| *start != 0)
    }

    /// Opens the empty log for the transactions that apply what recovery has found besides the
    /// log's own: for their writer it is as if the log were closed.
    pub fn take_over(&mut self) {
        self.set_tail(None, self.sequence());
    }

    /// The errno with which the journal was aborted, or 0.
    pub fn errno(&self) -> u32 {
        self.raw.s_errno.get()
    }

    /// The journal's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// The log begins at `start` with `sequence`; `None` closes it: nothing is to be recovered.
    pub fn set_tail(&mut self, start: Option<u32>, sequence: Tid) {
        self.raw.s_start = start.unwrap_or(0).into();
        self.raw.s_sequence = sequence.0.into();
    }
}
