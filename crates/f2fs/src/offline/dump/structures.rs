//! Superblock and checkpoint: every field, of both copies.

use zerocopy::FromBytes;

use super::{Dump, Record, Shape, Value};
use crate::ondisk::checkpoint::{Checkpoint, RawCheckpoint};
use crate::ondisk::feature;
use crate::ondisk::superblock::{COPIES, Features, MAX_EXTENSIONS, RawSuperblock, Superblock};

/// The text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

macro_rules! fields {
    ($record:expr, $raw:expr; $($name:ident),* $(,)?) => {
        $($record.put(stringify!($name), $raw.$name);)*
    };
}

impl Dump {
    /// Both superblocks.
    pub fn superblock(&self) -> Vec<Record> {
        let one = |copy: u32| {
            let mut record = Record::new("Super block", Shape::Structure);
            record.put("copy", copy);
            match self.read(copy) {
                Ok(block) => {
                    raw_superblock(&mut record, RawSuperblock::of(&block));
                    if let Err(error) = Superblock::parse(&block, copy) {
                        record.complain(&error);
                    }
                }
                Err(error) => {
                    record.complain(&error);
                }
            }
            record
        };
        COPIES.map(one).into()
    }

    /// Both checkpoint packs' headers.
    pub fn checkpoint(&self) -> Vec<Record> {
        let Some(sb) = &self.sb else {
            let mut record = Record::new("Checkpoint", Shape::Structure);
            record.put("error", "there is no superblock to say where it is");
            return vec![record];
        };
        let selected = Checkpoint::select(sb, |addr| self.read(addr));
        let one = |pack: usize| {
            let mut record = Record::new("Checkpoint", Shape::Structure);
            let at = sb.cp_pack(pack);
            record.put("pack", pack as u64 + 1).put("blkaddr", at);
            match self.read(at) {
                Ok(block) => raw_checkpoint(&mut record, block.bytes()),
                Err(error) => {
                    record.complain(&error);
                }
            }
            match &selected {
                Ok(found) => {
                    record.put("current", u64::from(found.pack == pack));
                }
                Err(error) => {
                    record.complain(error);
                }
            }
            record
        };
        [0, 1].map(one).into()
    }
}

fn raw_superblock(record: &mut Record, raw: &RawSuperblock) {
    fields!(record, raw; magic, major_ver, minor_ver);
    record.put("volume_name", raw.label());
    record.put("uuid", &raw.uuid[..]);
    fields!(record, raw;
        log_sectorsize, log_sectors_per_block, log_blocksize);
    record.put("log_blocks_per_seg", raw.log_blocks_per_seg);
    fields!(record, raw;
        segs_per_sec, secs_per_zone, checksum_offset, block_count, section_count, segment_count,
        segment_count_ckpt, segment_count_sit, segment_count_nat, segment_count_ssa,
        segment_count_main, segment0_blkaddr, cp_blkaddr, sit_blkaddr, nat_blkaddr, ssa_blkaddr,
        main_blkaddr, root_ino, node_ino, meta_ino, cp_payload, extension_count, hot_ext_count);
    let count = raw.extension_count.get().saturating_add(raw.hot_ext_count.into()) as usize;
    let extensions = raw.extension_list.iter().take(count.min(MAX_EXTENSIONS));
    record.put("extension_list", Value::List(extensions.map(|e| text(e).into()).collect()));
    fields!(record, raw; feature);
    record.put("features", feature::names(Features::from_bits_truncate(raw.feature.get())));
    fields!(record, raw; encryption_level);
    record.put("encrypt_pw_salt", &raw.encrypt_pw_salt[..]);
    for (i, device) in raw.devs.iter().enumerate().filter(|(_, d)| d.path[0] != 0) {
        record.put(format!("devs[{i}].path"), text(&device.path));
        record.put(format!("devs[{i}].total_segments"), device.total_segments);
    }
    record.put("qf_ino", Value::List(raw.qf_ino.iter().map(|ino| ino.get().into()).collect()));
    fields!(record, raw; s_encoding, s_encoding_flags);
    record.put("s_stop_reason", &raw.s_stop_reason[..]);
    record.put("s_errors", &raw.s_errors[..]);
    fields!(record, raw; crc);
    record.put("version", text(&raw.version)).put("init_version", text(&raw.init_version));
}

fn raw_checkpoint(record: &mut Record, bytes: &[u8]) {
    let Ok((raw, _)) = RawCheckpoint::ref_from_prefix(bytes) else { return };
    fields!(record, raw;
        checkpoint_ver, user_block_count, valid_block_count, rsvd_segment_count,
        overprov_segment_count, free_segment_count);
    let logs = ["HOT_DATA", "WARM_DATA", "COLD_DATA", "HOT_NODE", "WARM_NODE", "COLD_NODE"];
    for (name, kind) in logs.iter().zip(raw.alloc_type) {
        record.put(format!("alloc_type[CURSEG_{name}]"), kind);
    }
    for i in 0..3 {
        record.put(format!("cur_node_segno[{i}]"), raw.cur_node_segno[i]);
        record.put(format!("cur_node_blkoff[{i}]"), raw.cur_node_blkoff[i]);
    }
    for i in 0..3 {
        record.put(format!("cur_data_segno[{i}]"), raw.cur_data_segno[i]);
        record.put(format!("cur_data_blkoff[{i}]"), raw.cur_data_blkoff[i]);
    }
    fields!(record, raw;
        ckpt_flags, cp_pack_total_block_count, cp_pack_start_sum, valid_node_count,
        valid_inode_count, next_free_nid, sit_ver_bitmap_bytesize, nat_ver_bitmap_bytesize,
        checksum_offset, elapsed_time);
}
