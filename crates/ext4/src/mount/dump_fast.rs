//! The area for fast commits, as `dump` shows it: a row for each tag.

use journal::Log;
use journal::ondisk::fast::{Change, Naming, Tag};
use vfs::record::{Record, Shape};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::ondisk::extent::{Extent, RawExtent};

/// Shows the tags, whether they count or not.
pub(super) fn tags(log: &mut Log<'_>, see: &mut dyn FnMut(Record) -> bool) -> Result<()> {
    Ok(log.fast_tags(|log_block, offset, tag| {
        let mut record = Record::new("fast commit", Shape::Row);
        record.put("log_block", log_block).put("offset", offset as u64);
        show(&mut record, &tag);
        see(record)
    })?)
}

fn show(record: &mut Record, tag: &Tag) {
    match tag {
        Tag::Head { features, tid } => {
            record.put("fc_tag", "HEAD").put("fc_features", *features).put("fc_tid", tid.0);
        }
        Tag::Tail { tid, sum } => {
            record.put("fc_tag", "TAIL").put("fc_tid", tid.0).put("fc_crc", *sum);
        }
        Tag::Pad => drop(record.put("fc_tag", "PAD")),
        Tag::Change(Change::AddRange { ino, extent }) => {
            record.put("fc_tag", "ADD_RANGE").put("fc_ino", *ino);
            if let Ok(raw) = RawExtent::read_from_bytes(extent) {
                let Extent { block, len, start, unwritten } = raw.into();
                record.put("ee_block", block).put("ee_len", len).put("ee_start", start);
                record.put("unwritten", u8::from(unwritten));
            }
        }
        Tag::Change(Change::DelRange { ino, block, count }) => {
            record.put("fc_tag", "DEL_RANGE").put("fc_ino", *ino);
            record.put("fc_lblk", *block).put("fc_len", *count);
        }
        Tag::Change(Change::Name { how, parent, ino, name }) => {
            let tag = match how {
                Naming::Create => "CREAT",
                Naming::Link => "LINK",
                Naming::Unlink => "UNLINK",
            };
            record.put("fc_tag", tag).put("fc_parent_ino", *parent).put("fc_ino", *ino);
            record.put("fc_dname", String::from_utf8_lossy(name).into_owned());
        }
        Tag::Change(Change::Inode { ino, raw }) => {
            record.put("fc_tag", "INODE").put("fc_ino", *ino).put("bytes", raw.len() as u64);
        }
    }
}
