//! Where the six logs write next, from the checkpoint's header.

use zerocopy::little_endian::U16;

use super::checkpoint::RawCheckpoint;
use super::sit::LogType;
use super::superblock::Superblock;
use super::{BlockAddr, SegNo};
use crate::error::{Error, Result};

/// Where a log writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curseg {
    /// Segment.
    pub segno: SegNo,
    /// Next block to write in it, 0..=511. It is free, in an SSR log too.
    pub blkoff: u16,
    /// Whether it fills holes of a used segment instead of appending to a free one.
    pub ssr: bool,
}

/// The six logs. If the volume does not have one of them, it points to data and is ignored.
pub(super) fn decode_cursegs(
    sb: &Superblock,
    raw: &RawCheckpoint,
    at: BlockAddr,
) -> Result<[Curseg; 6]> {
    let mut cursegs = [Curseg { segno: 0, blkoff: 0, ssr: false }; 6];
    for (i, curseg) in cursegs.iter_mut().enumerate() {
        let (segno, blkoff) = match i {
            _ if !sb.has_log(LogType::ALL[i]) => (raw.cur_data_segno[0], U16::new(0)),
            0..3 => (raw.cur_data_segno[i], raw.cur_data_blkoff[i]),
            _ => (raw.cur_node_segno[i - 3], raw.cur_node_blkoff[i - 3]),
        };
        let ssr = match raw.alloc_type[i] {
            0 => false,
            1 => true,
            found => return Err(Error::corrupt("checkpoint.alloc_type", at, found, "0, 1")),
        };
        *curseg = Curseg { segno: segno.get(), blkoff: blkoff.get(), ssr };
    }
    Ok(cursegs)
}
