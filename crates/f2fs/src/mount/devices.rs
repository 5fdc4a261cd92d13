//! Volumes on several devices (`mkfs.f2fs -c`, `FDEV` in fs/f2fs): a conventional one for the
//! metadata, and others, zoned or not, for more of the main area.
//!
//! The superblock says how many segments are on each and where each was when the volume was made.
//! Those names are shown but never trusted. The caller of mount names the devices, in the same
//! order, and they are joined into one drive ([`drive::Concat`]) whose addresses are the volume's.
//! A drive with both kinds of zones that a kernel saw as two namespaces need not be joined.

use std::sync::Arc;

use drive::{Concat, Drive, Identify};
use queue::BlockQueue;
use vfs::kind::Device as Named;

use crate::error::{Error, Result};
use crate::mount::engine::Engine;
use crate::offline::mkfs::{MkfsOptions, check_blank};
use crate::ondisk::sit::LogType;
use crate::ondisk::superblock::{COPIES, Device, Features, Superblock};
use crate::ondisk::{BLOCKS_PER_SEGMENT, BlockAddr};

/// Joins the drives of an existing volume, in the volume's order.
pub fn join(drives: Vec<Named>) -> Result<Arc<dyn Drive>> {
    let Some(first) = drives.first() else { return Err(Error::usage("no device given")) };
    let sb = superblock(&first.drive)?;
    if drives.len() == 1 && (sb.devices.is_empty() || is_on_one(&sb, first.drive.identify())) {
        return Ok(first.drive.clone());
    }
    if sb.devices.len().max(1) != drives.len() {
        return Err(wrong_number(&sb, drives.len()));
    }
    for other in &drives[1..] {
        check_has_no_volume(other)?;
        check_zones(other, &sb)?;
    }
    concat(&drives, &lengths(&sb))
}

/// Joins the drives for a new volume, each cut to whole zones.
pub fn join_for_mkfs(drives: Vec<Named>, options: &MkfsOptions) -> Result<Arc<dyn Drive>> {
    if let [only] = &drives[..] {
        return Ok(only.drive.clone());
    }
    if options.sectors.is_some() {
        return Err(Error::usage("a number of sectors goes with one device only"));
    }
    for other in drives.iter().skip(1).filter(|_| !options.force) {
        check_blank(&other.drive)
            .map_err(|error| Error::usage(format!("{}: {error}", other.name)))?;
    }
    let zone = drives.iter().find_map(|named| named.drive.identify().zones);
    let per_zone = u64::from(options.segs_per_sec) * u64::from(options.secs_per_zone);
    let unit = zone.map_or(per_zone * u64::from(BLOCKS_PER_SEGMENT), |zones| zones.size).max(1);
    let whole = |named: &Named| named.drive.identify().blocks / unit * unit;
    if let Some(small) = drives.iter().find(|named| whole(named) == 0) {
        let (name, mib) = (&small.name, unit >> 8);
        return Err(Error::usage(format!("{name}: smaller than a zone of {mib} MiB")));
    }
    let lengths: Vec<u64> = drives.iter().map(whole).collect();
    concat(&drives, &lengths)
}

/// Fails unless `drive` is the whole volume that `sb` describes, and nothing else.
pub(crate) fn check_complete(sb: &Superblock, drive: &Identify) -> Result<()> {
    if lengths(sb) != drive.joined && !is_on_one(sb, drive) {
        return Err(wrong_number(sb, drive.joined.len().max(1)));
    }
    check_size(sb, drive)
}

/// Fails if the volume is larger than `drive`.
pub(crate) fn check_size(sb: &Superblock, drive: &Identify) -> Result<()> {
    let (volume, drive) = (sb.main_end().into(), drive.blocks);
    if volume > drive {
        return Err(Error::Truncated { volume, drive, unit: "blocks" });
    }
    Ok(())
}

/// Whether the volume's two devices are the conventional zones and then the other zones of one
/// `drive`, which `drive serve` shows as two namespaces.
fn is_on_one(sb: &Superblock, drive: &Identify) -> bool {
    let (Some(zones), [conventional, others]) = (drive.zones, &lengths(sb)[..]) else {
        return false;
    };
    let boundary = u64::from(zones.conventional) * zones.size;
    drive.joined.is_empty() && *conventional == boundary && boundary + others <= drive.blocks
}

fn wrong_number(sb: &Superblock, given: usize) -> Error {
    let (wanted, known) = (sb.devices.len().max(1), names(&sb.devices));
    let how =
        if given < wanted { ": name the others too, with --device in that order" } else { "" };
    Error::usage(format!("the volume is on {wanted} devices{known}; {given} given{how}"))
}

/// Blocks of each device; empty for a volume on a single one.
fn lengths(sb: &Superblock) -> Vec<u64> {
    let blocks = |device: &Device| u64::from(device.segments) * u64::from(BLOCKS_PER_SEGMENT);
    let mut lengths: Vec<u64> = sb.devices.iter().map(blocks).collect();
    if let Some(first) = lengths.first_mut() {
        *first += u64::from(sb.segment0_blkaddr);
    }
    lengths
}

/// hybridF2FS: the first section that is not wholly on the first device, which has the nodes.
pub(crate) fn nodes_end(sb: &Superblock) -> Result<u32> {
    let blocks = match lengths(sb)[..] {
        [first, _, ..] => first.saturating_sub(sb.main_blkaddr.into()),
        _ => {
            return Err(Error::usage("hybrid: a volume on several devices has nodes on the first"));
        }
    };
    let section = u64::from(sb.segs_per_sec) * u64::from(BLOCKS_PER_SEGMENT);
    match u32::try_from(blocks / section) {
        Ok(sections) if sections > 3 => Ok(sections),
        _ => Err(Error::usage("hybrid: the first device has no room for the three logs of nodes")),
    }
}

impl Engine {
    /// hybridF2FS: the logs of data leave the device of the nodes, where mkfs or another mount has
    /// put them. Those of nodes stay, because roll-forward begins where the checkpoint says.
    pub(crate) fn part_logs(&mut self) -> Result<()> {
        let Some(end) = self.logs.get_mut().nodes_end.filter(|_| !self.options.read_only) else {
            return Ok(());
        };
        for log in [LogType::HotData, LogType::WarmData, LogType::ColdData] {
            let (logs, segments) = (self.logs.get_mut(), self.segments.get_mut());
            let at = logs.next_addr(&self.sb, log);
            let is_there = self.sb.locate(at).is_some_and(|(s, _)| self.sb.section_of(s) < end);
            match is_there.then(|| logs.start_afresh(segments, &self.io, log)) {
                // A full volume has no other place.
                None | Some(Ok(()) | Err(Error::NoSpace)) => {}
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

fn names(devices: &[Device]) -> String {
    let names: Vec<String> = devices.iter().map(|device| printable(&device.path)).collect();
    if names.is_empty() { String::new() } else { format!(" (once {})", names.join(", ")) }
}

/// A name from a superblock may hold anything.
fn printable(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn superblock(drive: &Arc<dyn Drive>) -> Result<Superblock> {
    let queue = BlockQueue::new(drive.clone());
    Ok(Superblock::select(|addr| Ok(queue.read_block(addr.into())?))?.0)
}

/// Fails if a device other than the first begins with a superblock. If both copies are on such a
/// device, the devices are out of order, or one belongs to another volume, which a write would
/// destroy.
fn check_has_no_volume(named: &Named) -> Result<()> {
    let queue = BlockQueue::new(named.drive.clone());
    let has = |copy: BlockAddr| match queue.read_block(copy.into()) {
        Ok(block) => Superblock::parse(&block, copy).is_ok(),
        Err(_) => false,
    };
    if COPIES.into_iter().all(has) {
        let name = &named.name;
        return Err(Error::usage(format!("{name}: begins with a volume of its own; wrong order?")));
    }
    Ok(())
}

fn check_zones(named: &Named, sb: &Superblock) -> Result<()> {
    let Some(zones) = named.drive.identify().zones else { return Ok(()) };
    let (name, found, wanted) = (&named.name, zones.size, u64::from(sb.blocks_per_section()));
    if !sb.features.contains(Features::BLKZONED) {
        return Err(Error::usage(format!("{name}: has zones, which the volume was not made for")));
    }
    if found != wanted {
        return Err(Error::usage(format!(
            "{name}: zones of {found} blocks, the volume has {wanted}"
        )));
    }
    Ok(())
}

fn concat(drives: &[Named], lengths: &[u64]) -> Result<Arc<dyn Drive>> {
    let members = drives.iter().zip(lengths).map(|(named, blocks)| (named.drive.clone(), *blocks));
    let joined = Concat::new(members.collect()).map_err(|error| {
        let name = drives.get(error.member).map_or("devices", |named| named.name.as_str());
        Error::usage(format!("{name}: {}", error.what))
    })?;
    Ok(Arc::new(joined))
}
