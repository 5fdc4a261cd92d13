//! The superblock, twice: in the first block and in the last.
//!
//! The first 128 bytes never change but for a new label, and carry a checksum; of two copies one is
//! always whole, because they are written one after the other. The state word has a line of its
//! own, in the first copy only.

use std::ops::Range;

use drive::pm::{LINE, Pm};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::INODE_SIZE;
use super::record::SLOT_SIZE;
use super::{BLOCK, Corrupt};

/// Intel's PMFS is another file system, and has another magic.
pub(crate) const MAGIC: [u8; 8] = *b"strandPM";
const VERSION: u32 = 1;
/// Where the state word is.
pub(crate) const STATE_AT: u64 = 2 * LINE;
/// The state after an unmount.
pub(crate) const CLEAN: u64 = 1;
/// Cores and nodes that a volume can be made for.
pub(crate) const CORES_MAX: u32 = 1024;
/// Smallest volume.
pub(crate) const BLOCKS_MIN: u64 = 32;

/// `design=` of mkfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    /// Data in place, metadata by a redo record.
    Inplace,
    /// A log per inode, data copied on write.
    Nova,
}

impl Design {
    pub(crate) const ALL: [Self; 2] = [Self::Inplace, Self::Nova];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Inplace => "inplace",
            Self::Nova => "nova",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Inplace => 1,
            Self::Nova => 2,
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    /// CRC32C of the structure with zero here.
    pub(crate) crc: U32,
    pub(crate) blocks: U64,
    pub(crate) cores: U32,
    pub(crate) design: U32,
    pub(crate) table_block: U64,
    pub(crate) data_block: U64,
    pub(crate) nodes: U32,
    pub(crate) reserved: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) label: [u8; 48],
    pub(crate) reserved_end: [u8; 8],
}

const _: () = assert!(size_of::<RawSuperblock>() == 128);

impl RawSuperblock {
    /// The same with the checksum that belongs to it.
    pub(crate) fn summed(mut self) -> Self {
        self.crc = self.sum();
        self
    }

    fn sum(&self) -> U32 {
        let bare = Self { crc: U32::ZERO, ..*self };
        crc32c::crc32c(bare.as_bytes()).into()
    }

    /// The label, up to its NUL.
    pub(crate) fn label(&self) -> String {
        let end = self.label.iter().position(|&byte| byte == 0).unwrap_or(self.label.len());
        String::from_utf8_lossy(&self.label[..end]).into_owned()
    }
}

/// What a superblock says, checked: every address made from it lies on the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) blocks: u64,
    pub(crate) cores: u32,
    pub(crate) design: Design,
    table_block: u64,
    data_block: u64,
}

impl Layout {
    /// The layout of a new volume of `blocks` blocks. `None` if it is too small.
    pub(crate) fn new(blocks: u64, cores: u32, inodes: u64, design: Design) -> Option<Self> {
        let table_block = 1 + u64::from(cores) * SLOT_SIZE / BLOCK;
        let data_block = table_block + (inodes * INODE_SIZE).div_ceil(BLOCK);
        let fits = blocks >= BLOCKS_MIN && data_block + 2 <= blocks && inodes >= 2;
        fits.then_some(Self { blocks, cores, design, table_block, data_block })
    }

    pub(crate) fn raw(&self) -> RawSuperblock {
        RawSuperblock {
            magic: MAGIC,
            version: VERSION.into(),
            crc: U32::ZERO,
            blocks: self.blocks.into(),
            cores: self.cores.into(),
            design: self.design.number().into(),
            table_block: self.table_block.into(),
            data_block: self.data_block.into(),
            nodes: U32::ZERO,
            reserved: U32::ZERO,
            uuid: [0; 16],
            label: [0; 48],
            reserved_end: [0; 8],
        }
    }

    /// Reads the copy at `at`. `None` if there is none, sound or damaged.
    fn parse(pm: &dyn Pm, at: u64) -> Option<Result<(RawSuperblock, Self), Corrupt>> {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        pm.read(at, &mut bytes);
        let raw = RawSuperblock::read_from_bytes(&bytes).ok()?;
        (raw.magic == MAGIC).then(|| Self::check(pm, at, &raw).map(|layout| (raw, layout)))
    }

    fn check(pm: &dyn Pm, at: u64, raw: &RawSuperblock) -> Result<Self, Corrupt> {
        let wrong = |what, found, allowed| {
            Err(Corrupt { structure: "superblock", at, what, found, allowed })
        };
        if raw.crc != raw.sum() {
            return wrong("checksum", raw.crc.get().into(), "that of its bytes");
        }
        if raw.version.get() != VERSION {
            return wrong("version", raw.version.get().into(), "1");
        }
        let design = Design::ALL.into_iter().find(|design| design.number() == raw.design.get());
        let Some(design) = design else {
            return wrong("design", raw.design.get().into(), "1 (inplace) or 2 (nova)");
        };
        let (blocks, cores) = (raw.blocks.get(), raw.cores.get());
        if blocks < BLOCKS_MIN || blocks > pm.info().bytes / BLOCK {
            return wrong("blocks", blocks, "32 or more, and no more than there are");
        }
        if !(1..=CORES_MAX).contains(&cores) {
            return wrong("cores", cores.into(), "1 to 1024");
        }
        let (table_block, data_block) = (raw.table_block.get(), raw.data_block.get());
        if table_block != 1 + u64::from(cores) * SLOT_SIZE / BLOCK {
            return wrong("table_block", table_block, "behind the journal");
        }
        if data_block <= table_block || data_block + 2 > blocks {
            return wrong("data_block", data_block, "behind the table and before the end");
        }
        Ok(Self { blocks, cores, design, table_block, data_block })
    }

    /// Reads the volume's superblock: the first copy, or the second if the first is damaged.
    /// `None` if neither is one.
    pub(crate) fn load(pm: &dyn Pm) -> Option<Result<(RawSuperblock, Self), Corrupt>> {
        let first = Self::parse(pm, 0);
        if let Some(Ok(_)) = first {
            return first;
        }
        let blocks = pm.info().bytes / BLOCK;
        let second = Self::parse(pm, (blocks - 1) * BLOCK);
        match second {
            Some(Ok((_, layout))) if layout.blocks == blocks => second,
            _ => first,
        }
    }

    /// Where the second superblock is.
    pub(crate) fn copy_at(&self) -> u64 {
        (self.blocks - 1) * BLOCK
    }

    /// The journal slot of a core.
    pub(crate) fn slot_at(&self, core: u32) -> u64 {
        BLOCK + u64::from(core % self.cores) * SLOT_SIZE
    }

    /// Inode numbers, from the root on.
    pub(crate) fn inodes(&self) -> Range<u64> {
        1..(self.data_block - self.table_block) * (BLOCK / INODE_SIZE)
    }

    /// Where an inode is, if there is one of this number.
    pub(crate) fn inode_at(&self, ino: u64) -> Option<u64> {
        self.inodes().contains(&ino).then(|| self.table_block * BLOCK + ino * INODE_SIZE)
    }

    /// The inode table, in bytes.
    pub(crate) fn table(&self) -> Range<u64> {
        self.table_block * BLOCK..self.data_block * BLOCK
    }

    /// Blocks for everything that inodes point to.
    pub(crate) fn data(&self) -> Range<u64> {
        self.data_block..self.blocks - 1
    }

    /// Blocks that only calls may take which free something: for the log entries or the map of what
    /// is left.
    pub(crate) fn reserve(&self) -> u64 {
        let blocks = self.data().end - self.data().start;
        (blocks / 256).clamp(4, 1024)
    }

    /// Whether a record may change these bytes: words of the table or of data blocks.
    pub(crate) fn may_change(&self, at: u64, len: u64) -> bool {
        let end = at.checked_add(len);
        at >= self.table_block * BLOCK && end.is_some_and(|end| end <= self.copy_at())
    }
}
