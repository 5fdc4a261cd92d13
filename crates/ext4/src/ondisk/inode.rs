//! Inodes (`struct ext4_inode`: 128 bytes, `i_extra_isize` more, then extended attributes).

use std::mem::offset_of;

use bitflags::bitflags;
use vfs::{Attr, Corrupt, FileKind, Timespec};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::crc32c;
use super::{FsBlock, Ino, le32};
use crate::error::{Error, Result};

/// Bytes of `i_block`: the map, a short symlink's target, or the start of inline data.
pub const I_BLOCK_SIZE: usize = 60;
/// Bytes of an inode of the second extended file system, and of the first part of ours.
pub const GOOD_OLD_SIZE: usize = 128;
/// `i_extra_isize` of a new inode: all fields known today.
pub const EXTRA_ISIZE: u16 = (size_of::<RawInode>() - GOOD_OLD_SIZE) as u16;
/// Byte of `i_checksum_lo` (in `osd2`).
const CHECKSUM_LO_AT: usize = offset_of!(RawInode, checksum_lo);
/// Byte of `i_checksum_hi`.
const CHECKSUM_HI_AT: usize = offset_of!(RawInode, checksum_hi);

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// To be wiped when it is removed: a mark only.
        const SECRM = 0x1;
        /// To be kept when it is removed: a mark only.
        const UNRM = 0x2;
        /// To be compressed: a mark only.
        const COMPR = 0x4;
        /// What is written is durable before the call returns.
        const SYNC = 0x8;
        /// Nothing about it may change.
        const IMMUTABLE = 0x10;
        /// It can only be appended to.
        const APPEND = 0x20;
        /// dump(8) skips it.
        const NODUMP = 0x40;
        /// Reading does not change its access time.
        const NOATIME = 0x80;
        /// Contents or names are encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hash tree.
        const INDEX = 0x1000;
        /// Its data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Its tail is not to be merged: a mark only.
        const NOTAIL = 0x8000;
        /// As `SYNC`, for a directory's names.
        const DIRSYNC = 0x1_0000;
        /// The top of a directory hierarchy, to the allocator.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts file system blocks.
        const HUGE_FILE = 0x4_0000;
        /// It maps blocks with extents.
        const EXTENTS = 0x8_0000;
        /// It has a hash tree over its contents, behind their end.
        const VERITY = 0x10_0000;
        /// It holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Contents are in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New entries inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// A directory that ignores case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// `struct ext4_inode`, 160 bytes: the fixed 128 and the extra fields known today.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the kernel's names; the accessors say what they are")]
pub struct RawInode {
    pub mode: U16,
    pub uid_lo: U16,
    pub size_lo: U32,
    pub atime: U32,
    pub ctime: U32,
    pub mtime: U32,
    pub dtime: U32,
    pub gid_lo: U16,
    pub links_count: U16,
    pub blocks_lo: U32,
    pub flags: U32,
    pub version_lo: U32,
    pub block: [u8; I_BLOCK_SIZE],
    pub generation: U32,
    pub file_acl_lo: U32,
    pub size_hi: U32,
    pub obso_faddr: U32,
    pub blocks_hi: U16,
    pub file_acl_hi: U16,
    pub uid_hi: U16,
    pub gid_hi: U16,
    pub checksum_lo: U16,
    pub reserved: U16,
    pub extra_isize: U16,
    pub checksum_hi: U16,
    pub ctime_extra: U32,
    pub mtime_extra: U32,
    pub atime_extra: U32,
    pub crtime: U32,
    pub crtime_extra: U32,
    pub version_hi: U32,
    pub projid: U32,
}
const _: () = assert!(size_of::<RawInode>() == 160);
const _: () = assert!(offset_of!(RawInode, block) == 0x28);
const _: () = assert!(offset_of!(RawInode, extra_isize) == GOOD_OLD_SIZE);

/// Bytes of the inode that are fields: up to where extended attributes may begin. Fails if
/// `i_extra_isize` of the inode in `bytes`, read from block `at`, is not allowed.
pub fn fields_len(bytes: &[u8], at: FsBlock) -> Result<usize> {
    let Some(extra) = bytes.get(GOOD_OLD_SIZE..GOOD_OLD_SIZE + 2) else {
        return Ok(GOOD_OLD_SIZE.min(bytes.len()));
    };
    let extra = usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    let len = GOOD_OLD_SIZE + extra;
    if len > bytes.len() || !extra.is_multiple_of(4) {
        return Err(Error::corrupt("inode.i_extra_isize", at, extra, "up to the inode's size"));
    }
    Ok(len)
}

/// Times: the getter and the setter of each.
macro_rules! times {
    ($($(#[$doc:meta])* $time:ident $set:ident $extra:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $time(&self) -> Timespec {
                time(self.$time, self.$extra)
            }
            $(#[$doc])*
            pub fn $set(&mut self, at: Timespec) {
                (self.$time, self.$extra) = self.split_time(at, offset_of!(Self, $extra));
            }
        )*
    };
}

impl RawInode {
    /// Whether `other` is the same but for times, and checksums.
    pub fn differs_in_times_only(&self, other: &Self) -> bool {
        let timeless = |raw: &Self| {
            let mut raw = *raw;
            for field in [&mut raw.atime, &mut raw.ctime, &mut raw.mtime] {
                *field = 0.into();
            }
            for field in [&mut raw.ctime_extra, &mut raw.mtime_extra, &mut raw.atime_extra] {
                *field = 0.into();
            }
            (raw.checksum_lo, raw.checksum_hi) = (0.into(), 0.into());
            raw
        };
        timeless(self).as_bytes() == timeless(other).as_bytes()
    }

    /// The inode in `bytes`, which are as long as `s_inode_size`, read from block `at`. Fields that
    /// it does not have are zero.
    pub fn read(bytes: &[u8], at: FsBlock) -> Result<Self> {
        let mut raw = Self::new_zeroed();
        let len = fields_len(bytes, at)?.min(size_of::<Self>());
        raw.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
        Ok(raw)
    }

    /// Writes the fields to the start of `out`, which is as long as `s_inode_size`: those up to
    /// `i_extra_isize`, because extended attributes follow. [`seal`] then sets the checksum.
    pub fn emit(&self, out: &mut [u8]) {
        let fields = GOOD_OLD_SIZE + usize::from(self.extra_isize.get());
        let len = fields.min(size_of::<Self>()).min(out.len());
        out[..len].copy_from_slice(&self.as_bytes()[..len]);
    }

    /// `i_flags`.
    pub fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.flags.get())
    }

    /// The type, from `i_mode`.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.get().into())
    }

    halves! {
        /// Bytes of the contents.
        size set_size size_lo size_hi: u64, u32;
        /// Owner.
        uid set_uid uid_lo uid_hi: u32, u16;
        /// Owning group.
        gid set_gid gid_lo gid_hi: u32, u16;
    }

    /// Allocated units of 512 bytes, map and attribute blocks included, on a volume with blocks of
    /// `block_size` bytes.
    pub fn sectors(&self, block_size: u32) -> u64 {
        let count = u64::from(self.blocks_hi.get()) << 32 | u64::from(self.blocks_lo.get());
        let huge = self.flags().contains(Flags::HUGE_FILE);
        if huge { count * u64::from(block_size / 512) } else { count }
    }

    /// Sets the allocated units of 512 bytes. Counts that do not fit 48 bits are in blocks
    /// (`ext4_inode_blocks_set`).
    pub fn set_sectors(&mut self, sectors: u64, block_size: u32) {
        let huge = sectors >> 48 != 0;
        let count = if huge { sectors / u64::from(block_size / 512) } else { sectors };
        self.blocks_lo = (count as u32).into();
        self.blocks_hi = ((count >> 32) as u16).into();
        let mut flags = self.flags();
        flags.set(Flags::HUGE_FILE, huge);
        self.flags = flags.bits().into();
    }

    /// The block with extended attributes; 0 if there is none.
    pub fn file_acl(&self) -> FsBlock {
        u64::from(self.file_acl_hi.get()) << 32 | u64::from(self.file_acl_lo.get())
    }

    /// Sets the block with extended attributes.
    pub fn set_file_acl(&mut self, block: FsBlock) {
        self.file_acl_lo = (block as u32).into();
        self.file_acl_hi = ((block >> 32) as u16).into();
    }

    times! {
        /// Last access.
        atime set_atime atime_extra;
        /// Last inode change.
        ctime set_ctime ctime_extra;
        /// Last data change.
        mtime set_mtime mtime_extra;
        /// Creation; zero where the inode does not have it.
        crtime set_crtime crtime_extra;
    }

    /// A time as it is stored, and as memory has it, so that the next mount finds the same: within
    /// what there are bits for (`timestamp_truncate`). If the inode does not have the field at byte
    /// `extra_at`, 32 bits of seconds are all there is.
    fn split_time(&self, at: Timespec, extra_at: usize) -> (U32, U32) {
        let has_extra = GOOD_OLD_SIZE + usize::from(self.extra_isize.get()) >= extra_at + 4;
        let last = if has_extra { SECS_MAX } else { i32::MAX.into() };
        let secs = at.secs.clamp(i32::MIN.into(), last);
        let epoch = (secs - i64::from(secs as i32)) >> 32 & 3;
        let is_end = secs == last || secs == i64::from(i32::MIN);
        let nanos = if is_end { 0 } else { at.nanos };
        let extra = if has_extra { nanos << 2 | epoch as u32 } else { 0 };
        ((secs as u32).into(), extra.into())
    }

    /// What stat(2) says of it: `ino`, of this kind, on a volume with blocks of `block_size` bytes.
    pub fn attr(&self, ino: Ino, kind: FileKind, block_size: u32) -> Attr {
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Attr {
            ino: ino.into(),
            kind,
            perm: self.mode.get() & 0o7777,
            nlink: self.links_count.get().into(),
            uid: self.uid(),
            gid: self.gid(),
            rdev: if is_device { self.rdev() } else { 0 },
            size: self.size(),
            blocks: self.sectors(block_size),
            atime: self.atime(),
            mtime: self.mtime(),
            ctime: self.ctime(),
            crtime: self.crtime(),
            generation: self.generation.get(),
        }
    }

    /// Device number of a device node, in Linux's encoding of user space (`new_encode_dev`).
    pub fn rdev(&self) -> u64 {
        let (old, new) = (le32(&self.block, 0), le32(&self.block, 4));
        // The old form has 8 bits each, which the new one has in the same places.
        u64::from(if old != 0 { old & 0xffff } else { new })
    }

    /// Sets the device number, which is in Linux's encoding of user space.
    pub fn set_rdev(&mut self, rdev: u64) {
        let rdev = rdev as u32;
        let (old, new) = if rdev <= 0xffff { (rdev, 0) } else { (0, rdev) };
        self.block = [0; I_BLOCK_SIZE];
        self.block[..4].copy_from_slice(&old.to_le_bytes());
        self.block[4..8].copy_from_slice(&new.to_le_bytes());
    }
}

/// The last second that 34 bits have (`EXT4_EXTRA_TIMESTAMP_MAX`), in 2446.
const SECS_MAX: i64 = (3 << 32) + i32::MAX as i64;

/// Seconds have two more bits, above the nanoseconds (`ext4_decode_extra_time`).
fn time(secs: U32, extra: U32) -> Timespec {
    let (secs, extra) = (secs.get() as i32, extra.get());
    Timespec {
        secs: i64::from(secs) + (i64::from(extra & 3) << 32),
        nanos: (extra >> 2).min(999_999_999),
    }
}

/// The right checksum of the inode in `bytes`, and the bits of it that the inode keeps
/// (`ext4_inode_csum`). `seed` is that of the inode.
fn right_checksum(bytes: &[u8], seed: u32) -> (u32, u32) {
    let has_high = bytes.get(GOOD_OLD_SIZE).is_some_and(|extra| *extra >= 4);
    let (front, rest) = bytes.split_at(CHECKSUM_LO_AT.min(bytes.len()));
    let mut state = crc32c(crc32c(seed, front), &[0; 2]);
    let behind = rest.get(2..).unwrap_or_default();
    let high = CHECKSUM_HI_AT - CHECKSUM_LO_AT - 2;
    if has_high && behind.len() >= high + 2 {
        state = crc32c(crc32c(state, &behind[..high]), &[0; 2]);
        (crc32c(state, &behind[high + 2..]), !0)
    } else {
        (crc32c(state, behind), 0xffff)
    }
}

/// Sets the checksum of the inode in `bytes`, which are as long as `s_inode_size`. The checksum
/// covers its extended attributes too, so do this last. `seed` is that of the inode.
pub fn seal(bytes: &mut [u8], seed: u32) {
    let (right, kept) = right_checksum(bytes, seed);
    bytes[CHECKSUM_LO_AT..CHECKSUM_LO_AT + 2].copy_from_slice(&(right as u16).to_le_bytes());
    if kept == !0 {
        let high = (right >> 16) as u16;
        bytes[CHECKSUM_HI_AT..CHECKSUM_HI_AT + 2].copy_from_slice(&high.to_le_bytes());
    }
}

/// Fails if the checksum of inode `ino` in `bytes`, read from block `at`, is wrong. `seed` is that
/// of the inode.
pub fn verify(bytes: &[u8], seed: u32, ino: Ino, at: FsBlock) -> Result<()> {
    let (right, kept) = right_checksum(bytes, seed);
    // Both are in front of a field of 16 bits.
    let half = |at| le32(bytes, at) & 0xffff;
    let found = (half(CHECKSUM_LO_AT) | half(CHECKSUM_HI_AT) << 16) & kept;
    if found == right & kept {
        return Ok(());
    }
    let found = format!("{found:#x} in inode {ino}");
    let right = format!("{:#x}", right & kept);
    Err(Error::Corrupt(Corrupt::checksum("inode.i_checksum", at, found, right)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(at: Timespec) -> (u32, u32) {
        let mut raw = RawInode::new_zeroed();
        raw.extra_isize = 32.into();
        raw.set_mtime(at);
        assert_eq!(raw.mtime(), at);
        (raw.mtime.get(), raw.mtime_extra.get())
    }

    /// Values the kernel wrote.
    #[test]
    fn times_reach_from_1901_to_2446() {
        assert_eq!(round_trip(Timespec { secs: 7_258_118_400, nanos: 0 }), (0xb09e_1900, 2));
        assert_eq!(round_trip(Timespec { secs: -315_619_200, nanos: 0 }), (0xed30_0880, 0));
        assert_eq!(round_trip(Timespec { secs: 0, nanos: 999_999_999 }).1, 999_999_999 << 2);
        round_trip(Timespec { secs: i64::from(i32::MIN) + 1, nanos: 1 });
        round_trip(Timespec { secs: (1 << 34) - (1 << 31) - 2, nanos: 1 });
    }

    #[test]
    fn huge_files_count_in_blocks() {
        let mut raw = RawInode::new_zeroed();
        raw.set_sectors(1 << 33, 4096);
        assert!(!raw.flags().contains(Flags::HUGE_FILE));
        assert_eq!(raw.sectors(4096), 1 << 33);
        raw.set_sectors(1 << 48, 4096);
        assert!(raw.flags().contains(Flags::HUGE_FILE));
        assert_eq!((raw.blocks_hi.get(), raw.sectors(4096)), (1 << 13, 1 << 48));
    }

    #[test]
    fn device_numbers_have_two_forms() {
        let mut raw = RawInode::new_zeroed();
        for (rdev, word) in [(0x0801, 0), (0x1234_5678, 1)] {
            raw.set_rdev(rdev);
            assert_eq!(raw.rdev(), rdev);
            assert_ne!(raw.block[4 * word..4 * word + 4], [0; 4]);
        }
    }

    #[test]
    fn extra_fields_are_read_as_far_as_they_go() {
        let mut bytes = [0xff; 256];
        bytes[GOOD_OLD_SIZE..GOOD_OLD_SIZE + 2].copy_from_slice(&4_u16.to_le_bytes());
        let raw = RawInode::read(&bytes, 0).unwrap();
        assert_eq!((raw.checksum_hi.get(), raw.ctime_extra.get()), (0xffff, 0));
        bytes[GOOD_OLD_SIZE..GOOD_OLD_SIZE + 2].copy_from_slice(&132_u16.to_le_bytes());
        assert!(RawInode::read(&bytes, 0).is_err());
        assert!(RawInode::read(&bytes[..128], 0).is_ok());
    }

    #[test]
    fn a_sealed_inode_verifies() {
        for (size, extra) in [(128, 0), (256, 0_u8), (256, 32)] {
            let mut bytes = vec![7; size];
            if size > 128 {
                bytes[GOOD_OLD_SIZE..GOOD_OLD_SIZE + 2].copy_from_slice(&[extra, 0]);
            }
            seal(&mut bytes, 1);
            verify(&bytes, 1, 12, 0).unwrap();
            bytes[size - 1] ^= 1;
            verify(&bytes, 1, 12, 0).unwrap_err();
        }
    }
}
