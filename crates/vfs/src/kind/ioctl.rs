//! ioctl(2) on a file of a mounted volume (`include/uapi/linux/fs.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Errno, Result};

/// `FS_IOC_GETVERSION`: the generation of an inode, which tells files apart that had its number.
pub const GETVERSION: u32 = 0x8008_7601;
/// `FITRIM`: discards what is free.
pub const FITRIM: u32 = 0xc018_5879;

/// A call of ioctl(2) on an inode.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    /// Its number.
    pub number: u32,
    /// The bytes passed in.
    pub input: &'a [u8],
    /// The caller is root, or is the user who mounted the volume.
    pub privileged: bool,
    /// The mount offers atomic writes.
    pub atomic_writes: bool,
}

impl Ioctl<'_> {
    /// What the call passes in. `EINVAL` if that is too short.
    pub fn input<T: FromBytes>(&self) -> Result<T> {
        T::read_from_prefix(self.input).map(|(input, _)| input).map_err(|_| Errno::INVAL.into())
    }

    /// Answers `FITRIM` by what `trim` discards of a range of bytes, in runs of at least so many.
    pub fn trim<E>(
        &self,
        trim: impl FnOnce(std::ops::Range<u64>, u64) -> Result<u64, E>,
    ) -> Result<Vec<u8>>
    where
        crate::Error: From<E>,
    {
        let range: FstrimRange = self.input()?;
        let end = range.start.saturating_add(range.len);
        let len = trim(range.start..end, range.minlen)?;
        Ok(FstrimRange { len, ..range }.as_bytes().to_vec())
    }
}

/// `struct fstrim_range`, 24 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FstrimRange {
    start: u64,
    len: u64,
    minlen: u64,
}

const _: () = assert!(size_of::<FstrimRange>() == 24);
