//! Compressed clusters: how an inode says that it is compressed, and the header in front of a
//! cluster's data (`struct compress_data`, 24 bytes).
//!
//! A cluster of 2^n blocks is compressed if its first slot is `COMPRESS_ADDR`. The next slots then
//! name the blocks that hold header and data, in order. Any other cluster is plain.

use bitflags::bitflags;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::RawExtraAttr;
use super::{BLOCK_SIZE, BlockAddr};
use crate::error::{Error, Result};

/// Smallest and largest `i_log_cluster_size` (`MIN_COMPRESS_LOG_SIZE`, `MAX_COMPRESS_LOG_SIZE`).
const LOG_CLUSTER: std::ops::RangeInclusive<u8> = 2..=8;

/// `struct compress_data` up to its data, 24 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawCompressHeader {
    /// Bytes of compressed data behind the header.
    pub clen: U32,
    /// The data's checksum, if the inode says that there is one.
    pub chksum: U32,
    reserved: [U32; 4],
}
/// Bytes of the header.
pub const HEADER_SIZE: usize = size_of::<RawCompressHeader>();
const _: () = assert!(HEADER_SIZE == 24);

/// `i_compress_algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// LZO1X.
    Lzo,
    /// LZ4, raw blocks.
    Lz4,
    /// Zstandard, one frame.
    Zstd,
    /// LZO1X with runs of zeroes.
    LzoRle,
}

bitflags! {
    /// `i_compress_flag`; the level is in the upper byte.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct CompressFlags: u16 {
        /// Clusters carry a checksum.
        const CHKSUM = 1;
        const _ = !0;
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Clusters carry a checksum.
    pub has_checksum: bool,
    log_cluster: u8,
}

impl Compression {
    /// Decodes the extra attributes of an inode in block `at`, which has `blocks` blocks in all.
    pub(super) fn decode(extra: &RawExtraAttr, blocks: u64, at: BlockAddr) -> Result<Self> {
        let algorithm = match extra.compress_algorithm {
            0 => Algorithm::Lzo,
            1 => Algorithm::Lz4,
            2 => Algorithm::Zstd,
            3 => Algorithm::LzoRle,
            other => {
                return Err(Error::corrupt("inode.i_compress_algorithm", at, other, "0..=3"));
            }
        };
        let log_cluster = extra.log_cluster_size;
        if !LOG_CLUSTER.contains(&log_cluster) {
            return Err(Error::corrupt("inode.i_log_cluster_size", at, log_cluster, "2..=8"));
        }
        let saved = extra.compr_blocks.get();
        if saved > blocks {
            let allowed = format!("0..={blocks}, i_blocks");
            return Err(Error::corrupt("inode.i_compr_blocks", at, saved, allowed));
        }
        let flags = CompressFlags::from_bits_retain(extra.compress_flag.get());
        Ok(Self { algorithm, has_checksum: flags.contains(CompressFlags::CHKSUM), log_cluster })
    }

    /// Blocks in a cluster.
    pub fn cluster(self) -> u16 {
        1 << self.log_cluster
    }

    /// Bytes in a cluster, at most 1 MiB.
    pub fn cluster_bytes(self) -> usize {
        BLOCK_SIZE << self.log_cluster
    }
}
