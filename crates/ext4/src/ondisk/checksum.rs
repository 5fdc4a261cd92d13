//! CRC-32C as ext4 and JBD2 use it, the CRC-16 of `uninit_bg`, and what a volume's checksums start
//! from.

use super::{FsBlock, Ino};
use crate::error::{Error, Result};

/// `ext4_chksum`: CRC-32C that continues from `state`, inverting neither at the start nor the end.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!state, bytes)
}

/// `crc16` of the kernel (polynomial 0x8005, reflected), which continues from `state`.
pub fn crc16(state: u16, bytes: &[u8]) -> u16 {
    let shift = |crc: u16, _| if crc & 1 == 1 { crc >> 1 ^ 0xa001 } else { crc >> 1 };
    bytes.iter().fold(state, |crc, byte| (0..8).fold(crc ^ u16::from(*byte), shift))
}

/// Fails unless the checksum that was found in a `field`, read from block `at`, is the right one.
#[inline]
pub(crate) fn compare(field: &'static str, at: FsBlock, found: u32, right: u32) -> Result<()> {
    if found == right { Ok(()) } else { Err(Error::checksum(field, at, found, right)) }
}

/// What a volume protects with checksums, and what they start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing.
    None,
    /// `uninit_bg`: group descriptors, with a CRC-16 that starts from that of the UUID.
    Descriptors(u16),
    /// `metadata_csum`: everything, from this seed (`s_csum_seed`).
    Metadata(u32),
}

impl Checksums {
    /// The seed of all metadata, if metadata has checksums.
    pub fn seed(self) -> Option<u32> {
        match self {
            Self::Metadata(seed) => Some(seed),
            Self::None | Self::Descriptors(_) => None,
        }
    }

    /// `i_csum_seed`: what the checksums of an inode's structures start from. Its own blocks (map,
    /// directory, orphan file) use it too.
    pub fn inode_seed(self, ino: Ino, generation: u32) -> Option<u32> {
        let state = crc32c(self.seed()?, &ino.to_le_bytes());
        Some(crc32c(state, &generation.to_le_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crcs_match_their_catalogue_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
        assert_eq!(crc16(0xffff, b"123456789"), 0x4b37, "CRC-16/MODBUS");
    }
}
