//! What `dump` can show of ext4, under the names of its views.

use std::sync::Arc;

use drive::Drive;
use journal::ondisk::superblock::Incompat;
use journal::recover::{Transaction, judge};
use journal::{Id, Log};
use queue::BlockQueue;
use vfs::kind::{Error, Result};
use vfs::record::{Record, Shape, Value};

use crate::dir::entries::{block_count, dir_block};
use crate::inode::map::{self, Mapped};
use crate::inode::xattr;
use crate::ondisk::dirent::{Dirent, Dirents};
use crate::ondisk::inode::{Flags, RawInode};
use crate::ondisk::superblock::RawSuperblock;
use crate::ondisk::{Group, Ino, ROOT_INO};
use crate::reader::{self, Reader};
use crate::recover::with_log;

/// The views.
const VIEWS: [&str; 6] = ["superblock", "group", "inode", "extents", "dir", "journal"];

/// Where records go; false to stop.
type Emit<'a> = &'a mut dyn FnMut(Record) -> bool;

/// Shows a view or, if none is named, the superblock.
pub(super) fn dump(
    drive: &Arc<dyn Drive>,
    view: Option<&str>,
    which: Option<&str>,
    see: Emit<'_>,
) -> Result<()> {
    let open = || reader::open(drive.clone(), reader::CACHE);
    let one = || match which {
        Some(which) => number(which),
        None => Err(Error::Usage("which one? a number is missing".into())),
    };
    let volume_with = |ino: Ino| {
        let reader = open()?;
        let last = reader.sb.raw.inodes_count.get();
        match (1..=last).contains(&ino) {
            true => Ok((reader, ino)),
            false => Err(Error::Usage(format!("there are inodes 1 to {last}"))),
        }
    };
    match view {
        None | Some("superblock") => {
            see(superblock(&reader::superblock(&BlockQueue::new(drive.clone()))?));
        }
        Some("group") => match which {
            Some(which) => drop(see(group(&open()?, number(which)?)?)),
            None => {
                let reader = open()?;
                for number in 0..reader.sb.groups {
                    if !see(group(&reader, number)?) {
                        break;
                    }
                }
            }
        },
        Some("inode") => {
            let (reader, ino) = volume_with(one()?)?;
            see(inode(&reader, ino)?);
        }
        Some("extents") => {
            let (reader, ino) = volume_with(one()?)?;
            extents(&reader, ino, see)?;
        }
        Some("journal") => {
            let which = which.map(number).transpose()?;
            with_log(drive, |log| journal(log, which, see))?;
        }
        Some("dir") => {
            let (reader, ino) = volume_with(which.map_or(Ok(ROOT_INO), number)?)?;
            dir(&reader, ino, see)?;
        }
        Some(other) => {
            let known = VIEWS.join(", ");
            return Err(Error::Usage(format!("unknown view '{other}'; expected {known}")));
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Error::Usage(format!("'{text}' is not a number")))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Puts fields of a structure under their own names.
macro_rules! put {
    ($record:ident, $raw:expr, $prefix:literal: $($field:ident)*) => {
        $($record.put(concat!($prefix, stringify!($field)), $raw.$field);)*
    };
}

fn superblock(raw: &RawSuperblock) -> Record {
    let mut record = Record::new("superblock", Shape::Structure);
    record.put("s_blocks_count", raw.blocks_count());
    record.put("s_r_blocks_count", raw.r_blocks_count());
    record.put("s_free_blocks_count", raw.free_blocks_count());
    put!(record, raw, "s_": inodes_count free_inodes_count first_data_block log_block_size
        log_cluster_size blocks_per_group clusters_per_group inodes_per_group mtime wtime mnt_count
        max_mnt_count magic state errors minor_rev_level lastcheck checkinterval creator_os
        rev_level def_resuid def_resgid first_ino inode_size block_group_nr);
    record.put("s_feature_compat", raw.compat().to_string());
    record.put("s_feature_incompat", raw.incompat().to_string());
    record.put("s_feature_ro_compat", raw.ro_compat().to_string());
    record.put("s_uuid", &raw.uuid[..]);
    record.put("s_volume_name", text(&raw.volume_name));
    record.put("s_last_mounted", text(&raw.last_mounted));
    put!(record, raw, "s_": reserved_gdt_blocks journal_inum journal_dev last_orphan);
    record.put("s_hash_seed", Value::List(raw.hash_seed.map(Value::from).to_vec()));
    put!(record, raw, "s_": def_hash_version jnl_backup_type desc_size default_mount_opts
        first_meta_bg mkfs_time);
    record.put("s_jnl_blocks", Value::List(raw.jnl_blocks.map(Value::from).to_vec()));
    put!(record, raw, "s_": min_extra_isize want_extra_isize flags raid_stride mmp_interval
        mmp_block raid_stripe_width log_groups_per_flex checksum_type kbytes_written error_count
        first_error_time first_error_ino first_error_block last_error_time last_error_ino
        last_error_block usr_quota_inum grp_quota_inum overhead_clusters lpf_ino prj_quota_inum
        checksum_seed encoding encoding_flags orphan_file_inum checksum);
    if let Err(error) = crate::ondisk::superblock::Superblock::parse(raw.clone(), 0) {
        record.complain(&error);
    }
    record
}

fn group(reader: &Reader, group: Group) -> Result<Record> {
    if group >= reader.sb.groups {
        let last = reader.sb.groups - 1;
        return Err(Error::Usage(format!("there are groups 0 to {last}")));
    }
    let (raw, at) = reader.raw_group(group)?;
    let mut record = Record::new(format!("group {group}"), Shape::Structure);
    record.put("descriptor", at);
    record.put("first_block", reader.sb.group_start(group));
    record.put("bg_block_bitmap", raw.block_bitmap());
    record.put("bg_inode_bitmap", raw.inode_bitmap());
    record.put("bg_inode_table", raw.inode_table());
    record.put("bg_free_blocks_count", raw.free_clusters());
    record.put("bg_free_inodes_count", raw.free_inodes());
    record.put("bg_used_dirs_count", raw.used_dirs());
    record.put("bg_flags", raw.flags);
    record.put("bg_itable_unused", raw.itable_unused());
    record.put("bg_block_bitmap_csum", raw.block_bitmap_csum());
    record.put("bg_inode_bitmap_csum", raw.inode_bitmap_csum());
    record.put("bg_checksum", raw.checksum);
    if let Err(error) = reader.group(group) {
        record.complain(&error);
    }
    Ok(record)
}

fn inode(reader: &Reader, ino: Ino) -> Result<Record> {
    let (bytes, at) = reader.inode_bytes(ino)?;
    let raw = RawInode::read(&bytes, at)?;
    let mut record = Record::new(format!("inode {ino}"), Shape::Structure);
    record.put("block", at);
    record.put("i_mode", format!("{:#o}", raw.mode.get()));
    record.put("i_uid", raw.uid());
    record.put("i_gid", raw.gid());
    record.put("i_size", raw.size());
    put!(record, raw, "i_": links_count atime ctime mtime crtime dtime);
    record.put("i_blocks", raw.sectors(reader.sb.block_size));
    record.put("i_flags", format!("{:#x}", raw.flags().bits()));
    record.put("i_block", &raw.block[..]);
    put!(record, raw, "i_": generation);
    record.put("i_file_acl", raw.file_acl());
    put!(record, raw, "i_": extra_isize atime_extra ctime_extra mtime_extra crtime_extra projid
        checksum_lo checksum_hi);
    match reader.read_inode(ino) {
        Err(error) => drop(record.complain(&error)),
        Ok(inode) => match xattr::list(reader, &inode) {
            Ok(names) => {
                let names = names.iter().map(|name| text(name).into()).collect();
                record.put("xattrs", Value::List(names));
            }
            Err(error) => drop(record.complain(&error)),
        },
    }
    Ok(record)
}

/// Where a file's blocks are; holes are left out.
fn extents(reader: &Reader, ino: Ino, see: Emit<'_>) -> Result<()> {
    let inode = reader.read_inode(ino)?;
    if inode.flags().contains(Flags::INLINE_DATA) || inode.is_fast_symlink(&reader.sb) {
        return Ok(());
    }
    let mut block = 0_u64;
    // Blocks may be allocated behind the end.
    while let Ok(at) = u32::try_from(block) {
        let found = map::find(reader, &inode, at)?;
        if let Mapped::Extent(extent) = found {
            let rest = extent.part(block..extent.end());
            let mut record = Record::new("extent", Shape::Row);
            record.put("file_block", block).put("blocks", rest.len).put("block", rest.start);
            record.put("unwritten", u8::from(extent.unwritten));
            if !see(record) {
                break;
            }
        }
        block = found.end();
    }
    Ok(())
}

/// The log's superblock, its transactions, what counts of records of files, and the tags of fast
/// commits; or the images of the
/// transactions with one number.
fn journal(mut log: Log<'_>, which: Option<u32>, see: Emit<'_>) -> crate::Result<()> {
    let scanned = log.scan()?;
    if let Some(tid) = which {
        let all = scanned.iter().flat_map(|area| &area.transactions);
        let found: Vec<&Transaction> = all.filter(|found| found.tid.0 == tid).collect();
        if found.is_empty() {
            return Err(crate::Error::usage(format!("the journal has no transaction {tid}")));
        }
        found.into_iter().flat_map(images).all(see);
        return Ok(());
    }
    let sb = log.superblock();
    let has_areas = sb.incompat().contains(Incompat::AREAS);
    let mut record = Record::new("journal", Shape::Structure);
    record.put("s_blocksize", sb.block_size()).put("s_sequence", sb.sequence().0);
    record.put("s_start", sb.start().unwrap_or(0)).put("s_errno", sb.errno());
    record.put("s_feature_incompat", format!("{:#x}", sb.incompat().bits()));
    record.put("s_uuid", &sb.uuid()[..]);
    record.put("log_blocks", format!("{}..{}", sb.ring().start, sb.ring().end));
    if has_areas {
        record.put("areas", scanned.len() as u64);
    }
    let count: usize = scanned.iter().map(|area| area.transactions.len()).sum();
    record.put("transactions", count as u64);
    let first = scanned.first().cloned().unwrap_or_default();
    let fast = log.fast_commits(&first)?;
    record.put("fast_commit_changes", fast.len() as u64);
    for damage in scanned.iter().filter_map(|area| area.damage) {
        record.put("damage", format!("{damage:?}"));
    }
    let judged = judge(scanned.clone());
    let rows = (0_u16..).zip(&scanned).flat_map(|(area, scanned)| {
        let judged = &judged;
        scanned.transactions.iter().map(move |found| {
            let mut record = transaction(found);
            if has_areas {
                let marks = found.link.marks.iter();
                let marks = marks.map(|id| format!("{}:{}", id.area, id.tid).into()).collect();
                record.put("area", area).put("stamp", found.link.stamp.0);
                record.put("names", Value::List(marks));
                record.put("valid", u8::from(judged.counts(Id { area, tid: found.tid })));
            }
            record
        })
    });
    let floors = log.floors(&judged)?;
    let files = log.live_records(&floors)?;
    record.put("records", files.len() as u64);
    let files = files.iter().flat_map(entries);
    let goes_on = std::iter::once(record).chain(rows).chain(files).all(&mut *see);
    if goes_on { super::dump_fast::tags(&mut log, see) } else { Ok(()) }
}

fn transaction(found: &Transaction) -> Record {
    let mut record = Record::new("transaction", Shape::Row);
    record.put("tid", found.tid.0).put("log_block", found.start);
    record.put("log_blocks", found.blocks).put("committed", found.time.0);
    record.put("images", found.images.len() as u64);
    record.put("revoked", found.revoked.len() as u64);
    record
}

/// What a record says of each of its files.
fn entries(found: &journal::Record) -> impl Iterator<Item = Record> + '_ {
    found.entries.iter().map(|entry| {
        let mut record = Record::new("record", Shape::Row);
        record.put("sub", found.sub).put("ino", entry.ino);
        record.put("area", entry.of.area).put("tid", entry.of.tid.0);
        record.put("new", u8::from(entry.is_new)).put("parent", entry.parent);
        record.put("name", String::from_utf8_lossy(&entry.name).into_owned());
        record.put("images", entry.images.len() as u64);
        record
    })
}

fn images(found: &Transaction) -> impl Iterator<Item = Record> + '_ {
    let images = found.images.iter().map(|image| {
        let mut record = Record::new("image", Shape::Row);
        record.put("block", image.home).put("log_block", image.at);
        record.put("escaped", u8::from(image.escaped)).put("sound", u8::from(image.sound));
        record
    });
    images.chain(found.revoked.iter().map(|block| {
        let mut record = Record::new("revoked", Shape::Row);
        record.put("revoked", *block);
        record
    }))
}

/// The records of a directory, free ones too.
fn dir(reader: &Reader, ino: Ino, see: Emit<'_>) -> Result<()> {
    let inode = reader.read_inode(ino)?;
    inode.check_directory()?;
    let mut show = |at, records: &mut dyn Iterator<Item = crate::Result<Dirent<'_>>>| {
        for dirent in records {
            let mut record = Record::new("dirent", Shape::Row);
            record.put("block", at);
            match dirent {
                Ok(dirent) => record
                    .put("offset", dirent.offset as u64)
                    .put("inode", dirent.ino)
                    .put("rec_len", dirent.rec_len as u64)
                    .put("file_type", dirent.file_type)
                    .put("name", String::from_utf8_lossy(dirent.name).into_owned()),
                Err(error) => record.complain(&error),
            };
            if !see(record) {
                return false;
            }
        }
        true
    };
    if inode.flags().contains(Flags::INLINE_DATA) {
        let (_, areas) = reader.inline_records(&inode)?;
        areas.iter().all(|area| show(inode.at, &mut Dirents::new(area, inode.at)));
        return Ok(());
    }
    for block in 0..block_count(&reader.sb, &inode) {
        let goes_on = match dir_block(reader, &inode, block) {
            Ok((at, block)) => show(at, &mut Dirents::new(reader.sb.bytes(&block), at)),
            Err(error) => show(inode.at, &mut std::iter::once(Err(error))),
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}
