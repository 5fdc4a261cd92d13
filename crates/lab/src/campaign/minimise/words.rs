//! What a cut left on the drive, in words: what was being done, how far each zone came, where the
//! damaged blocks are, and the node that says so.

use std::iter::once;
use std::ops::Range;

use drive::Lba;
use vfs::path::resolve;

use crate::campaign::{Cut, Job, Recording};
use crate::oracle::{Model, Verdict};
use crate::report::ZoneMark;
use crate::rig::Medium;
use crate::{Result, machine, rig};
use vfs::kind::{PageAt, Volume};

/// Blocks below a write pointer that are looked at for nodes.
const NODES: u64 = 64;

/// Describes the one cut of `recording` that `verdicts` are about.
pub fn words(job: &Job, recording: &Recording, verdicts: &[Verdict]) -> Result<Vec<String>> {
    let Some(cut) = recording.cuts.first() else { return Ok(Vec::new()) };
    let mut model = Model::default();
    model.advance(&recording.log, cut.position);
    let mut out = vec![when(&model, cut, recording.total)];
    let zones = recording.zone_map.as_ref().map_or(&[][..], |map| &map.zones);
    let size = cut.zone_size();
    out.extend(zones.iter().map(pointers));
    out.extend(machine(job.seed)?.run(|| found(job, cut, zones, size, verdicts))?);
    Ok(out)
}

fn when(model: &Model, cut: &Cut, total: usize) -> String {
    let busy = model.objects.iter().enumerate().filter(|(_, object)| object.is_syncing());
    let busy: Vec<String> =
        busy.map(|(obj, _)| format!("the fsync of {}", model.path(obj))).collect();
    let during = if busy.is_empty() { String::new() } else { format!(", in {}", busy.join(", ")) };
    if cut.at_ns == 0 {
        return format!("the power goes{during}, and leaves state {} of {total}", cut.index);
    }
    let ms = cut.at_ns as f64 / 1e6;
    format!("the power goes {ms:.3} ms after 'begin' (cut {} of {total}){during}", cut.index)
}

fn pointers(zone: &ZoneMark) -> String {
    let ZoneMark { zone, wp_zns, wp_nand, .. } = zone;
    match wp_zns - wp_nand {
        0 => format!("zone {zone}: all {wp_nand} blocks that were written are on NAND"),
        gone => format!(
            "zone {zone}: the host has written up to block {wp_zns}, NAND has up to {wp_nand}: \
             {gone} not there, and the write pointer is {wp_nand} again"
        ),
    }
}

/// For each damaged file: where its block is, and which node says so.
fn found(job: &Job, cut: &Cut, zones: &[ZoneMark], size: u64, verdicts: &[Verdict]) -> Vec<String> {
    let mut out = Vec::new();
    let drive = cut.power_on(job);
    let before = cut.power_on(job);
    let mounted = rig::mount(job.format, drive.drive(), &job.mount_options());
    for verdict in verdicts {
        out.push(verdict.to_string());
        let Ok(mounted) = &mounted else { continue };
        let Some(index) = verdict.block else { continue };
        let Ok(attr) = resolve(&**mounted, verdict.path.as_bytes(), false) else { continue };
        let name = format!("block {index} of {}", verdict.path);
        out.push(place(&**mounted, attr.ino, index, &name, zones, size));
        out.extend(nodes(job, &before, attr.ino, &verdict.path, zones, size));
    }
    out
}

fn place(
    fs: &dyn Volume,
    ino: u64,
    index: u64,
    name: &str,
    zones: &[ZoneMark],
    size: u64,
) -> String {
    let mut at = None;
    let shown = fs.pages(ino, index..index + 1, &mut |_, page| {
        if let PageAt::Drive(lba) = page {
            at = Some(lba);
        }
    });
    let Some(lba) = at else {
        let all = shown.is_ok_and(|all| all);
        let why = if all { "is a hole" } else { "is within its inode" };
        return format!("{name} {why} after recovery");
    };
    let zone = zones.iter().find(|zone| size > 0 && u64::from(zone.zone) == lba / size);
    let Some(zone) = zone else { return format!("{name} is at LBA {lba} after recovery") };
    let (number, offset) = (zone.zone, lba % size);
    let there = if offset < zone.wp_nand {
        "on NAND, below the write pointer"
    } else {
        "at or above the write pointer: it never was on NAND"
    };
    format!("{name} is at zone {number} block {offset} after recovery, {there}")
}

/// The newest node of inode `ino` on NAND, of those last written to a zone.
fn nodes(
    job: &Job,
    drive: &Medium,
    ino: u64,
    path: &str,
    zones: &[ZoneMark],
    size: u64,
) -> Option<String> {
    let last = |zone: &ZoneMark| -> Range<Lba> {
        let start = u64::from(zone.zone) * size;
        start + zone.wp_nand.saturating_sub(NODES)..start + zone.wp_nand
    };
    let node = |lba: Lba| {
        let mut what = None;
        drive.look(&mut once(lba), &mut |block| what = job.format.describe(block, lba, ino));
        let what = what?;
        let (zone, offset) = (lba / size, lba % size);
        Some(format!("{what} of {path}, at zone {zone} block {offset}, is on NAND"))
    };
    zones.iter().find_map(|zone| last(zone).rev().find_map(node))
}
