//! Damage: some bytes wrong in some blocks, and in most cases the checksums made right again, so
//! that what lies behind them is reached too.

use drive::{BLOCK_SIZE, Block};
use f2fs::ondisk::inode::RawInodeBlock;
use f2fs::ondisk::node::{FOOTER_OFFSET, RawNodeFooter};
use f2fs::ondisk::superblock::{CRC_OFFSET, SUPER_OFFSET};
use f2fs::ondisk::{MAGIC, crc32};

use super::base::{Area, Base};
use super::memory_drive::Snapshot;
use super::tape::Tape;

type Bytes = [u8; BLOCK_SIZE];

/// Where damage goes: to nodes twice as often as to anything else.
const AIM: [Area; 8] = [
    Area::Node,
    Area::Node,
    Area::Checkpoint,
    Area::Nat,
    Area::Sit,
    Area::Data,
    Area::Ssa,
    Area::Super,
];

/// Numbers that are often the edge of something.
const EDGES: [u32; 16] = [
    0,
    1,
    2,
    3,
    4,
    0x1ff,
    0x200,
    1017,
    1018,
    4095,
    4096,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffd,
    0xffff_fffe,
    0xffff_ffff,
];

/// The volume, damaged as the tape says. An empty tape damages nothing.
pub fn apply(base: &Base, tape: &mut Tape<'_>) -> Snapshot {
    let mut snapshot = base.snapshot.clone();
    let count = tape.below(6);
    let seal = tape.below(4) != 0;
    let mut touched = Vec::with_capacity(count);
    for _ in 0..count {
        let area = *tape.pick(&AIM);
        let addr = *tape.pick(&base.part(area).blocks);
        let value = number(base, tape);
        let other = snapshot.media.read((*tape.pick(&base.part(area).blocks)).into());
        let offset = offset(area, tape);
        let how = tape.byte();
        snapshot.change(addr, |bytes| poke(bytes, offset, value, how, &other));
        touched.push((area, addr));
    }
    if seal {
        touched.into_iter().for_each(|(area, addr)| reseal(base, &mut snapshot, area, addr));
    }
    snapshot
}

/// A number worth trying: an edge, a node, a block, or anything.
fn number(base: &Base, tape: &mut Tape<'_>) -> u32 {
    match tape.below(5) {
        0 | 1 => *tape.pick(&EDGES),
        2 => tape.byte().into(),
        3 => {
            let area = *tape.pick(&AIM);
            *tape.pick(&base.part(area).blocks)
        }
        _ => tape.word(),
    }
}

/// Where in a block: half of the time in what that part has at its front or its end.
fn offset(area: Area, tape: &mut Tape<'_>) -> usize {
    let (start, front) = match area {
        Area::Super => (SUPER_OFFSET, 112),
        Area::Checkpoint => (0, 192),
        Area::Sit => (0, 40 * 74),
        Area::Nat => (0, 60 * 9),
        Area::Ssa => (0, 300),
        Area::Node => (0, 0x190),
        Area::Data => (0, 300),
    };
    match tape.below(4) {
        0 | 1 => start + tape.below(front),
        2 => BLOCK_SIZE - 1 - tape.below(48),
        _ => tape.below(BLOCK_SIZE),
    }
}

fn poke(bytes: &mut Bytes, offset: usize, value: u32, how: u8, other: &Block) {
    let word = value.to_le_bytes();
    let mut put = |from: &[u8]| {
        let end = (offset + from.len()).min(BLOCK_SIZE);
        bytes[offset..end].copy_from_slice(&from[..end - offset]);
    };
    match how % 8 {
        0 => bytes[offset] ^= 1 << (how >> 5),
        1 => put(&word[..1]),
        2 => put(&word[..2]),
        3 | 4 => put(&word),
        5 => put(&u64::from(value).wrapping_mul(0x1_0000_0001).to_le_bytes()),
        6 => {
            let end = (offset + 1 + usize::from(how >> 3)).min(BLOCK_SIZE);
            put(&other[offset..end]);
        }
        _ if how >> 3 == 0 => *bytes = *other.bytes(),
        _ if how >> 3 == 1 => bytes[offset..].fill(0),
        _ => {
            let old = bytes[offset];
            bytes[offset] = old.wrapping_add(word[0] | 1);
        }
    }
}

fn get32(bytes: &Bytes, offset: usize) -> u32 {
    bytes[offset..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// Makes the checksum that covers block `addr` right again, if there is one.
pub fn reseal(base: &Base, snapshot: &mut Snapshot, area: Area, addr: u32) {
    match area {
        Area::Super => snapshot.change(addr, |bytes| {
            let end = SUPER_OFFSET + CRC_OFFSET;
            let crc = crc32(MAGIC, &bytes[SUPER_OFFSET..end]);
            bytes[end..].copy_from_slice(&crc.to_le_bytes());
        }),
        Area::Node => snapshot.change(addr, |bytes| {
            let footer = RawNodeFooter::of(bytes);
            if footer.nid == footer.ino {
                RawInodeBlock::of_mut(bytes).seal(&base.sb);
            }
        }),
        Area::Checkpoint => reseal_checkpoint(base, snapshot, addr),
        Area::Sit | Area::Nat | Area::Ssa | Area::Data => {}
    }
}

/// Both ends of the pack become the changed block, and the chain its own again.
fn reseal_checkpoint(base: &Base, snapshot: &mut Snapshot, addr: u32) {
    let pack = usize::from(addr >= base.sb.cp_pack(1));
    let (head, total) = (base.sb.cp_pack(pack), base.checkpoint.pack_total);
    if addr != head && addr != head + total - 1 {
        return;
    }
    let mut block = snapshot.media.read(addr.into());
    let bytes = block.make_mut();
    let crc_at = usize::try_from(get32(bytes, 0xa4)).unwrap_or(usize::MAX);
    if !(192..=4092).contains(&crc_at) {
        return;
    }
    let crc = crc32(MAGIC, &bytes[..crc_at]);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    let tail = head.saturating_add(get32(bytes, 0x88)).saturating_sub(1);
    let version = u64::from_le_bytes(std::array::from_fn(|i| bytes[i])) | u64::from(crc) << 32;
    snapshot.media.write(head.into(), block.clone());
    if (head..base.sb.sit_blkaddr).contains(&tail) {
        snapshot.media.write(tail.into(), block);
    }
    for &link in &base.chain {
        snapshot.change(link, |bytes| {
            // `cp_ver` is the footer's fourth field.
            let at = FOOTER_OFFSET + 12;
            bytes[at..at + 8].copy_from_slice(&version.to_le_bytes());
        });
    }
}
