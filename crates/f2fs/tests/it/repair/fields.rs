//! Every field of every structure, wrong in several ways, its checksum made right again where there
//! is one: only the field itself is wrong.

use std::collections::BTreeMap;

use f2fs::ondisk::node::{NodeKind, RawNodeFooter};
use f2fs::repair::RepairOptions;

use super::kit::{judge, repaired, tree_of};
use crate::fuzz_body::{Area, Base, Kind, Snapshot, bases, reseal};

/// A field: name, offset in its block, bytes.
type Field = (&'static str, usize, usize);

const SUPER: [Field; 21] = [
    ("magic", 1024, 4),
    ("log_sectorsize", 1032, 4),
    ("log_blocksize", 1040, 4),
    ("segs_per_sec", 1048, 4),
    ("secs_per_zone", 1052, 4),
    ("checksum_offset", 1056, 4),
    ("block_count", 1060, 8),
    ("section_count", 1068, 4),
    ("segment_count", 1072, 4),
    ("segment_count_sit", 1080, 4),
    ("segment_count_nat", 1084, 4),
    ("segment_count_ssa", 1088, 4),
    ("segment_count_main", 1092, 4),
    ("segment0_blkaddr", 1096, 4),
    ("sit_blkaddr", 1104, 4),
    ("main_blkaddr", 1116, 4),
    ("root_ino", 1120, 4),
    ("uuid", 1132, 16),
    ("cp_payload", 1024 + 0x680, 4),
    ("feature", 1024 + 0x884, 4),
    ("crc", 1024 + 0xbfc, 4),
];

const CHECKPOINT: [Field; 22] = [
    ("checkpoint_ver", 0, 8),
    ("user_block_count", 8, 8),
    ("valid_block_count", 0x10, 8),
    ("rsvd_segment_count", 0x18, 4),
    ("overprov_segment_count", 0x1c, 4),
    ("free_segment_count", 0x20, 4),
    ("cur_node_segno", 0x24, 4),
    ("cur_node_blkoff", 0x44, 2),
    ("cur_data_segno", 0x54, 4),
    ("cur_data_blkoff", 0x74, 2),
    ("ckpt_flags", 0x84, 4),
    ("cp_pack_total_block_count", 0x88, 4),
    ("cp_pack_start_sum", 0x8c, 4),
    ("valid_node_count", 0x90, 4),
    ("valid_inode_count", 0x94, 4),
    ("next_free_nid", 0x98, 4),
    ("sit_ver_bitmap_bytesize", 0x9c, 4),
    ("nat_ver_bitmap_bytesize", 0xa0, 4),
    ("checksum_offset", 0xa4, 4),
    ("alloc_type", 0xb0, 1),
    ("bitmap", 0xc0, 1),
    ("checksum", 0xffc, 4),
];

const INODE: [Field; 26] = [
    ("i_mode", 0, 2),
    ("i_advise", 2, 1),
    ("i_inline", 3, 1),
    ("i_links", 0xc, 4),
    ("i_size", 0x10, 8),
    ("i_blocks", 0x18, 8),
    ("i_generation", 0x44, 4),
    ("i_current_depth", 0x48, 4),
    ("i_xattr_nid", 0x4c, 4),
    ("i_flags", 0x50, 4),
    ("i_pino", 0x54, 4),
    ("i_namelen", 0x58, 4),
    ("i_name", 0x5c, 1),
    ("i_dir_level", 0x15b, 1),
    ("i_ext.fofs", 0x15c, 4),
    ("i_ext.blk", 0x160, 4),
    ("i_ext.len", 0x164, 4),
    ("i_addr[0]", 0x168, 4),
    ("i_inline_xattr_size", 0x16a, 2),
    ("i_inode_checksum", 0x170, 4),
    ("i_addr[9]", 0x168 + 36, 4),
    ("i_addr[10]", 0x168 + 40, 4),
    ("i_addr[900]", 0x168 + 3600, 4),
    ("i_nid[0]", 0xfd4, 4),
    ("i_nid[2]", 0xfdc, 4),
    ("i_nid[4]", 0xfe4, 4),
];

const FOOTER: [Field; 5] = [
    ("nid", 0xfe8, 4),
    ("ino", 0xfec, 4),
    ("flag", 0xff0, 4),
    ("cp_ver", 0xff4, 8),
    ("next_blkaddr", 0xffc, 4),
];

const FIRST_WORDS: [Field; 8] = [
    ("0", 0, 4),
    ("4", 4, 4),
    ("8", 8, 4),
    ("12", 12, 4),
    ("27", 27, 4),
    ("36", 36, 4),
    ("507", 507, 4),
    ("4091", 4091, 1),
];

/// The ways a field is set wrong.
const WAYS: [fn(u8, usize) -> u8; 5] = [
    |byte, i| if i == 0 { byte ^ 1 } else { byte },
    |byte, i| if i == 1 { byte ^ 0x10 } else { byte },
    |_, _| 0,
    |_, _| 0xff,
    |byte, i| byte.wrapping_add(if i == 0 { 5 } else { 0 }),
];

fn fields(base: &Base, area: Area, addr: u32) -> Vec<Field> {
    let block = base.snapshot.media.read(addr.into());
    match area {
        Area::Super => SUPER.to_vec(),
        Area::Checkpoint => CHECKPOINT.iter().chain(&FIRST_WORDS).copied().collect(),
        Area::Node => {
            let offset = RawNodeFooter::of(&block).node_offset();
            let own: &[Field] =
                if NodeKind::of(offset) == Some(NodeKind::Inode) { &INODE } else { &FIRST_WORDS };
            own.iter().chain(&FOOTER).copied().collect()
        }
        _ => FIRST_WORDS.to_vec(),
    }
}

/// One case: the change and its result.
fn attempt(base: &Base, held: Snapshot, judged: bool) -> Result<Vec<String>, String> {
    let after = repaired(held, &RepairOptions::default())?;
    if judged && !base.kind.is_zoned() {
        let scratch = tempfile::tempdir().unwrap();
        judge(&after.held, scratch.path())?;
    }
    Ok(tree_of(&base.snapshot)?.diff(&after.tree))
}

fn run(kinds: &[Kind], sample: usize) {
    let (mut failed, mut count, mut number) = (Vec::new(), 0_u32, 0_usize);
    let mut touched = BTreeMap::<String, u32>::new();
    for base in bases().iter().filter(|base| kinds.contains(&base.kind)) {
        for part in &base.parts {
            for &addr in &part.blocks {
                for (name, offset, len) in fields(base, part.area, addr) {
                    for (way, change) in WAYS.iter().enumerate() {
                        number += 1;
                        if number % sample != 0 {
                            continue;
                        }
                        let mut held = base.snapshot.clone();
                        held.change(addr, |bytes| {
                            for i in 0..len {
                                bytes[offset + i] = change(bytes[offset + i], i);
                            }
                        });
                        if way % 2 == 0 {
                            reseal(base, &mut held, part.area, addr);
                        }
                        count += 1;
                        let what = format!(
                            "{:?} {:?} block {addr:#x} {name} way {way}",
                            base.kind, part.area
                        );
                        match attempt(base, held, number % (7 * sample) == 0) {
                            Ok(differences) if differences.is_empty() => {}
                            Ok(_) => *touched.entry(format!("{:?}", part.area)).or_default() += 1,
                            Err(why) => failed.push(format!("{what}: {why}")),
                        }
                    }
                }
            }
        }
    }
    println!("{count} cases, {} failed, trees that changed: {touched:?}", failed.len());
    let shown = failed.iter().take(8).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failed.is_empty(), "{} of {count}:\n{shown}", failed.len());
}

#[test]
fn some_fields() {
    run(&Kind::ALL, 97);
}

#[test]
#[ignore = "long: every field of every block"]
fn every_field() {
    run(&Kind::ALL, 1);
}
