//! One field or one bit wrong, in every structure.

use drive::BLOCK_SIZE;
use f2fs::ondisk::superblock::SUPER_OFFSET;
use vfs::{Errno, FileSystem};

use super::{base, refusal, try_mount};
use crate::fuzz_body::{self, Area, Base, MemoryDrive, bases, reseal, survive};

/// Fields of each structure: first byte of the structures in a block, their size and number, and
/// in each the fields as offset and width. Offsets as in the kernel's `f2fs_fs.h`.
struct Fields {
    area: Area,
    first: usize,
    stride: usize,
    count: usize,
    fields: &'static [(usize, usize)],
}

#[rustfmt::skip]
const SUPER: &[(usize, usize)] = &[
    (0x00, 4), (0x08, 4), (0x0c, 4), (0x10, 4), (0x14, 4), (0x18, 4), (0x1c, 4), (0x20, 4),
    (0x24, 8), (0x2c, 4), (0x30, 4), (0x34, 4), (0x38, 4), (0x3c, 4), (0x40, 4), (0x44, 4),
    (0x48, 4), (0x4c, 4), (0x50, 4), (0x54, 4), (0x58, 4), (0x5c, 4), (0x60, 4), (0x64, 4),
    (0x68, 4), (0x47c, 4), (0x680, 4), (0x884, 4), (0x899, 4), (0xab9, 4), (0xac5, 1),
];
#[rustfmt::skip]
const CHECKPOINT: &[(usize, usize)] = &[
    (0x00, 8), (0x08, 8), (0x10, 8), (0x18, 4), (0x1c, 4), (0x20, 4), (0x24, 4), (0x28, 4),
    (0x44, 2), (0x46, 2), (0x54, 4), (0x58, 4), (0x74, 2), (0x76, 2), (0x84, 4), (0x88, 4),
    (0x8c, 4), (0x90, 4), (0x94, 4), (0x98, 4), (0x9c, 4), (0xa0, 4), (0xa4, 4), (0xa8, 8),
    (0xb0, 1), (0xb1, 1), (0xb3, 1), (0xc0, 8), (0x100, 8),
    // As a block of compact summaries or of orphans.
    (507, 2), (509, 4), (0xff0, 4), (0xff4, 4), (0xff8, 4), (0xffc, 4),
];
#[rustfmt::skip]
const NODE: &[(usize, usize)] = &[
    (0x00, 2), (0x02, 1), (0x03, 1), (0x0c, 4), (0x10, 8), (0x18, 8), (0x48, 4), (0x4c, 4),
    (0x50, 4), (0x54, 4), (0x58, 4), (0x5c, 4), (0x15b, 1), (0x15c, 4), (0x160, 4), (0x164, 4),
    (0x168, 2), (0x16a, 2), (0x18c, 4), (0x190, 4), (0x1b0, 4), (0xf20, 4), (0xfd4, 4),
    (0xfd8, 4), (0xfdc, 4), (0xfe4, 4),
    // The footer: nid, ino, flag, cp_ver, next_blkaddr.
    (0xfe8, 4), (0xfec, 4), (0xff0, 4), (0xff4, 8), (0xffc, 4),
];

const STRUCTURES: [Fields; 9] = [
    Fields { area: Area::Super, first: SUPER_OFFSET, stride: 0, count: 1, fields: SUPER },
    Fields { area: Area::Checkpoint, first: 0, stride: 0, count: 1, fields: CHECKPOINT },
    Fields { area: Area::Sit, first: 0, stride: 74, count: 8, fields: &[(0, 2), (2, 8), (66, 8)] },
    Fields { area: Area::Nat, first: 0, stride: 9, count: 12, fields: &[(0, 1), (1, 4), (5, 4)] },
    Fields { area: Area::Ssa, first: 0, stride: 7, count: 3, fields: &[(0, 4), (4, 1), (5, 2)] },
    // A summary's journal: count, first entries; and its footer.
    Fields {
        area: Area::Ssa,
        first: 3584,
        stride: 0,
        count: 1,
        fields: &[(0, 2), (2, 4), (507, 1)],
    },
    Fields { area: Area::Node, first: 0, stride: 0, count: 1, fields: NODE },
    // Directory entries: hash, ino, length, type; their bitmap; the names.
    Fields {
        area: Area::Data,
        first: 30,
        stride: 11,
        count: 4,
        fields: &[(0, 4), (4, 4), (8, 2), (10, 1)],
    },
    Fields {
        area: Area::Data,
        first: 0,
        stride: 0,
        count: 1,
        fields: &[(0, 1), (26, 1), (2384, 1)],
    },
];

/// A field's damaged value: an edge case, or one bit wrong.
fn wrong_values(old: u64, width: usize) -> Vec<u64> {
    let top = 8 * width as u32 - 1;
    let all = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
    let values =
        [0, 1, all, all >> 1, all - 1, old ^ 1, old ^ 4, old ^ 1 << top, old ^ 1 << (top / 2)];
    let mut values: Vec<u64> = values.into_iter().filter(|v| *v != old).collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn field(bytes: &[u8; BLOCK_SIZE], at: usize, width: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(wide)
}

/// Every field of one structure, in every block that holds one, with its checksum made right.
fn corrupt_fields(base: &Base, table: &Fields) -> (u64, u64) {
    let (mut cases, mut refused) = (0, 0);
    for &addr in base.part(table.area).blocks.iter().take(4) {
        let places = (0..table.count).flat_map(|i| {
            table
                .fields
                .iter()
                .map(move |(at, width)| (table.first + i * table.stride + at, *width))
        });
        for (at, width) in places {
            let old = field(&base.snapshot.media.read(addr.into()), at, width);
            for (i, value) in wrong_values(old, width).into_iter().enumerate() {
                let mut snapshot = base.snapshot.clone();
                snapshot.change(addr, |bytes| {
                    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                });
                reseal(base, &mut snapshot, table.area, addr);
                let outcome = survive(snapshot, if i % 3 == 0 { "ro" } else { "" });
                cases += 1;
                refused += u64::from(!outcome.mounted || outcome.errors > 0);
            }
        }
    }
    (cases, refused)
}

#[test]
fn every_field_of_every_structure() {
    for base in bases() {
        let (mut cases, mut noticed) = (0, 0);
        for table in &STRUCTURES {
            let (some, refused) = corrupt_fields(base, table);
            assert!(some > 0, "{:?} {:?}: no cases", base.kind, table.area);
            cases += some;
            noticed += refused;
        }
        println!("{:?}: {cases} cases, {noticed} noticed", base.kind);
        // Not every field: names, times, and tables that a journal overrides do not matter.
        assert!(noticed > cases / 20, "{:?}: {noticed} of {cases} noticed", base.kind);
    }
}

/// Every bit of a block's first bytes and its last ones, checksums left wrong and made right.
#[test]
fn single_bits() {
    for base in bases() {
        for part in &base.parts {
            for (i, &addr) in part.blocks.iter().take(4).enumerate() {
                let front = if part.area == Area::Super { SUPER_OFFSET } else { 0 };
                let bytes = (front..front + 24).chain(BLOCK_SIZE - 24..BLOCK_SIZE);
                for byte in bytes.skip(i % 4).step_by(4) {
                    for bit in 0..8 {
                        let mut snapshot = base.snapshot.clone();
                        snapshot.change(addr, |bytes| bytes[byte] ^= 1 << bit);
                        if bit % 2 == 0 {
                            reseal(base, &mut snapshot, part.area, addr);
                        }
                        survive(snapshot, if bit % 3 == 0 { "ro" } else { "" });
                    }
                }
            }
        }
    }
}

/// The error names what is corrupt, and its errno is `EUCLEAN`, or `EBADMSG` if it is the checksum
/// of an inode.
#[test]
fn corruption_is_named() {
    let base = base(fuzz_body::Kind::Clean);
    let (sb, cp) = (&base.sb, &base.checkpoint);
    let cases: [(&str, &[u32], usize); 4] = [
        ("superblock.magic", &[0, 1], SUPER_OFFSET),
        ("superblock", &[0, 1], SUPER_OFFSET + 0x5c),
        ("checkpoint", &[sb.cp_pack(0), sb.cp_pack(1)], 8),
        (
            "checkpoint",
            &[
                sb.cp_pack(0) + cp.pack_total - 1,
                sb.cp_pack(1) + cp.pack_total - 1,
                sb.cp_pack(0),
                sb.cp_pack(1),
            ],
            0x20,
        ),
    ];
    for (structure, blocks, byte) in cases {
        let mut snapshot = base.snapshot.clone();
        blocks.iter().for_each(|addr| snapshot.change(*addr, |bytes| bytes[byte] ^= 0x40));
        let (errno, line) = refusal(MemoryDrive::on(snapshot), "");
        assert_eq!(errno, Errno::UCLEAN, "{line}");
        assert!(line.contains(structure) && !line.contains('\n'), "{line}");
    }
    let mut snapshot = base.snapshot.clone();
    // Its older versions too: any of them may be the first.
    for &addr in &base.part(Area::Node).blocks {
        let ino = sb.root_ino.to_le_bytes();
        snapshot.change(addr, |bytes| bytes[0x20] ^= u8::from(bytes[0xfe8..0xfec] == ino));
    }
    let fs = try_mount(MemoryDrive::on(snapshot), "").unwrap();
    let error = fs.getattr(fs.root()).expect_err("the inode's checksum is wrong");
    assert_eq!(error.errno(), Errno::BADMSG);
    assert!(error.to_string().contains("inode"), "{error}");
}
