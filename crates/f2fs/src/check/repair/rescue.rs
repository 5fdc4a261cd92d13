//! A checkpoint for a volume that has lost both of its own. It reserves what `mkfs.f2fs` would have
//! reserved on this drive, and says that nothing is in use.

use crate::error::Result;
use crate::offline::mkfs::{Request, layout};
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::curseg::Curseg;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// How many bytes after the header's fields the bitmaps can take without payload.
const BITMAP_ROOM: u32 = 3900;

/// A checkpoint of `version` for the volume `sb` describes, on a drive of `blocks` blocks.
pub(super) fn checkpoint(blocks: u64, sb: &Superblock, version: u64) -> Result<Checkpoint> {
    let large = sb.cp_payload == 0 && sb.sit_bitmap_size() + sb.nat_bitmap_size() > BITMAP_ROOM
        || sb.cp_payload > 0 && sb.sit_bitmap_size() <= BITMAP_ROOM;
    let request = Request {
        segs_per_sec: sb.segs_per_sec,
        secs_per_zone: sb.secs_per_zone,
        large_nat_bitmap: large,
        zoned: sb.features.contains(Features::BLKZONED),
        ..Request::new(blocks.max(sb.block_count) * BLOCK_SIZE as u64)
    };
    let main = sb.segment_count_main;
    let (reserved, overprov) = match layout(&request) {
        Ok(geometry) => (geometry.reserved, geometry.overprov),
        // No mkfs makes such a volume today. A tenth of it is kept back.
        Err(_) => ((main / 20).max(8), (main / 10).max(12)),
    };
    let overprov = overprov.clamp(1, main.saturating_sub(2).max(1));
    let mut flags = CpFlags::UMOUNT | CpFlags::CRC_RECOVERY;
    flags.set(CpFlags::LARGE_NAT_BITMAP, large);
    Ok(Checkpoint {
        version,
        user_block_count: u64::from(main - overprov) * u64::from(BLOCKS_PER_SEGMENT),
        valid_block_count: 0,
        rsvd_segment_count: reserved.clamp(1, overprov),
        overprov_segment_count: overprov,
        free_segment_count: 0,
        cursegs: std::array::from_fn(|i| Curseg { segno: i as u32, blkoff: 0, ssr: false }),
        flags,
        pack_total: 8 + sb.cp_payload,
        start_sum: 1 + sb.cp_payload,
        valid_node_count: 0,
        valid_inode_count: 0,
        next_free_nid: sb.root_ino,
        elapsed_time: 0,
        ours: false,
        sealed: false,
        sit_bitmap: vec![0; sb.sit_bitmap_size() as usize],
        nat_bitmap: vec![0; sb.nat_bitmap_size() as usize],
        crc: 0,
    })
}
