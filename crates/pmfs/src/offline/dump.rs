//! What `dump` shows of a volume: structures as they are on the medium. Records that a cut left in
//! the journal are shown, not repeated.

use drive::pm::Pm;
use vfs::Ino;
use vfs::kind::{Error, Result};
use vfs::record::{Record, Shape, Value};

use crate::commit::slots;
use crate::inode::node::{Inode, read_raw};
use crate::mount::format::load;
use crate::mount::{ROOT, is_clean};
use crate::ondisk::inode::RawInode;
use crate::ondisk::superblock::{Layout, RawSuperblock};

const VIEWS: [&str; 5] = ["superblock", "inode", "extents", "dir", "journal"];

/// Where records go; false to stop.
type Emit<'a> = &'a mut dyn FnMut(Record) -> bool;

/// For [`vfs::kind::Format::dump`].
pub(crate) fn dump(
    pm: &dyn Pm,
    view: Option<&str>,
    which: Option<&str>,
    see: Emit<'_>,
) -> Result<()> {
    let (raw, layout) = load(pm)?;
    let ino = || which.map_or(Ok(ROOT), number);
    match view {
        None | Some("superblock") => drop(see(superblock(&raw, &layout, is_clean(pm)))),
        Some("inode") => drop(see(inode(pm, &layout, ino()?)?)),
        Some("extents") => extents(&read(pm, &layout, ino()?)?, see),
        Some("dir") => names(&read(pm, &layout, ino()?)?, see),
        Some("journal") => journal(pm, &layout, see),
        Some(other) => {
            let known = VIEWS.join(", ");
            return Err(Error::Usage(format!("unknown view '{other}'; expected {known}")));
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<Ino> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => Ino::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Error::Usage(format!("'{text}' is not a number")))
}

fn none(ino: Ino) -> Error {
    Error::Usage(format!("there is no inode {ino}"))
}

fn read(pm: &dyn Pm, layout: &Layout, ino: Ino) -> Result<Inode> {
    Inode::load(pm, layout, ino)?.ok_or_else(|| none(ino))
}

fn superblock(raw: &RawSuperblock, layout: &Layout, clean: bool) -> Record {
    let mut record = Record::new("superblock", Shape::Structure);
    record
        .put("magic", String::from_utf8_lossy(&raw.magic).into_owned())
        .put("version", raw.version)
        .put("crc", raw.crc)
        .put("blocks", raw.blocks)
        .put("cores", raw.cores)
        .put("design", layout.design.name())
        .put("inodes", layout.inodes().end - 1)
        .put("table_at", layout.table().start)
        .put("data_block", layout.data().start)
        .put("uuid", &raw.uuid[..])
        .put("label", raw.label())
        .put("state", if clean { "clean" } else { "in use" });
    record
}

fn inode(pm: &dyn Pm, layout: &Layout, ino: Ino) -> Result<Record> {
    let at = layout.inode_at(ino).ok_or_else(|| none(ino))?;
    let raw = read_raw(pm, at);
    let mut record = Record::new("inode", Shape::Structure);
    record.put("ino", ino).put("at", at);
    fields(&mut record, &raw);
    if raw.mode.get() != 0
        && let Err(error) = raw.check(at)
    {
        record.complain(&error);
    }
    Ok(record)
}

fn fields(record: &mut Record, raw: &RawInode) {
    let time = |secs: i64, nanos: u32| Value::Text(format!("{secs}.{nanos:09}"));
    record
        .put("mode", format!("{:o}", raw.mode.get()))
        .put("links", raw.links)
        .put("uid", raw.uid)
        .put("gid", raw.gid)
        .put("size", raw.size)
        .put("atime", time(raw.atime.get(), raw.atime_nanos.get()))
        .put("mtime", time(raw.mtime.get(), raw.mtime_nanos.get()))
        .put("ctime", time(raw.ctime.get(), raw.ctime_nanos.get()))
        .put("crtime", time(raw.crtime.get(), raw.crtime_nanos.get()))
        .put("generation", raw.generation)
        .put("flags", raw.flags)
        .put("rdev", raw.rdev)
        .put("parent", raw.parent)
        .put("xattrs", raw.xattrs)
        .put("map", raw.map);
}

fn extents(inode: &Inode, see: Emit<'_>) {
    for extent in inode.map.extents() {
        let mut record = Record::new("extent", Shape::Row);
        record.put("page", extent.page).put("block", extent.block).put("len", extent.len);
        if !see(record) {
            return;
        }
    }
}

fn names(inode: &Inode, see: Emit<'_>) {
    let mut all: Vec<_> = inode.index.all().collect();
    all.sort_unstable();
    for (name, ino, kind) in all {
        let mut record = Record::new("entry", Shape::Row);
        record.put("ino", ino).put("kind", format!("{kind:?}"));
        record.put("name", String::from_utf8_lossy(name).into_owned());
        if !see(record) {
            return;
        }
    }
}

fn journal(pm: &dyn Pm, layout: &Layout, see: Emit<'_>) {
    for core in 0..layout.cores {
        let slot_at = layout.slot_at(core);
        let mut record = Record::new("slot", Shape::Row);
        record.put("core", core).put("at", slot_at).put("mark", pm.load(slot_at));
        match slots::left_in(pm, layout, slot_at) {
            Ok(left) => drop(record.put("bytes", left.map_or(0, |left| left.bytes()))),
            Err(error) => drop(record.complain(&error)),
        }
        if !see(record) {
            return;
        }
    }
}
