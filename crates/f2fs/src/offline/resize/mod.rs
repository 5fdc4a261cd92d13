//! Growing and shrinking a volume that is not mounted (`resize.f2fs`).
//!
//! What can tear: nothing on which a mount relies. The new tables never lie where the old ones do.
//! First the blocks that the volume gives up are emptied (`evacuate`). Then all tables are written
//! behind both the old ones and their final place, and the superblock points there. Then they are
//! written to their final place, and the superblock points to that (`relocate`). A volume that
//! grows beyond what this has room for does it in several steps (`steps`). What orders it: each
//! superblock is written when everything to which it points is stable. Who repairs: nothing needs
//! repair, because at every moment the superblock in use describes a complete volume.

mod evacuate;
mod relocate;
mod steps;

use std::ops::Range;
use std::sync::Arc;

use drive::Drive;
use queue::BlockQueue;
use vfs::FileSystem;

use crate::check::view::View;
use crate::error::{Error, Result};
use crate::offline::super_write;
use crate::ondisk::feature;
use crate::ondisk::superblock::{Features, Superblock};
use crate::ondisk::{BlockAddr, SEGMENT_SIZE};
use crate::{F2fs, MountOptions};

/// How to resize.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResizeOptions {
    /// `-t`: how many blocks the volume will have; `None` takes the device.
    pub blocks: Option<u64>,
    /// `-i`: a NAT bitmap that can grow.
    pub large_nat_bitmap: bool,
    /// `-o`: percentage kept from users; `None` picks the one that leaves the most space.
    pub overprovision: Option<f64>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeReport {
    /// As it was.
    pub before: Superblock,
    /// As it is.
    pub after: Superblock,
    /// How many segments were emptied to make room.
    pub evacuated: u32,
}

/// Makes the volume on `drive` as large as requested. What can be known beforehand is refused
/// before anything is written.
pub fn resize(drive: &Arc<dyn Drive>, options: &ResizeOptions) -> Result<ResizeReport> {
    let queue = BlockQueue::new(Arc::clone(drive));
    let (_, before) = super_write::read(&queue)?;
    check_possible(&queue, &before)?;
    if steps::plan(&mut View::open(queue_on(drive), before.clone())?, options)?.is_none() {
        return Ok(ResizeReport { after: before.clone(), before, evacuated: 0 });
    }
    // This leaves a clean checkpoint.
    unmount(&F2fs::mount(Arc::clone(drive), &MountOptions::default())?)?;
    let mut evacuated = 0;
    loop {
        let (_, now) = super_write::read(&queue)?;
        let mut view = View::open(queue_on(drive), now)?;
        let step = steps::plan(&mut view, options)?.ok_or(Error::usage("nothing to do"))?;
        let now = step.extend(&queue, &view)?;
        let aside = step.aside;
        evacuated += evacuate_around(drive, &now, aside.main_blkaddr..aside.end())?;
        relocate::relocate(&queue, &aside)?;
        relocate::relocate(&queue, &step.target)?;
        if step.is_last {
            let (_, after) = super_write::read(&queue)?;
            return Ok(ResizeReport { before, after, evacuated });
        }
    }
}

fn queue_on(drive: &Arc<dyn Drive>) -> BlockQueue {
    BlockQueue::new(Arc::clone(drive))
}

fn check_possible(queue: &BlockQueue, sb: &Superblock) -> Result<()> {
    if queue.identify().read_only {
        return Err(Error::ReadOnly);
    }
    if queue.identify().zones.is_some() || sb.features.contains(Features::BLKZONED) {
        let why = "resizing a zoned volume: its tables cannot move over sequential zones";
        return Err(Error::unsupported(why));
    }
    if !sb.devices.is_empty() {
        return Err(Error::unsupported("resizing a volume over several devices"));
    }
    let fixed = sb.features & feature::all(|f| f.mount == feature::Mount::ReadOnly);
    if !fixed.is_empty() {
        let names = feature::names(fixed);
        return Err(Error::unsupported(format!("resizing a volume with {names}")));
    }
    Ok(())
}

fn unmount(fs: &F2fs) -> Result<()> {
    fs.unmount().map_err(|error| Error::Posix(error.errno()))
}

/// Empties every section of the main area that is not wholly within `keep`. Returns how many
/// segments there were.
fn evacuate_around(drive: &Arc<dyn Drive>, sb: &Superblock, keep: Range<BlockAddr>) -> Result<u32> {
    let blocks = sb.blocks_per_section();
    let leaves = |section: &u32| {
        let start = sb.seg_start(sb.section_start(*section));
        start < keep.start || start + blocks > keep.end
    };
    let sections: Vec<u32> = (0..sb.main_sections()).filter(leaves).collect();
    if sections.len() as u32 == sb.main_sections() {
        return Err(Error::usage("nothing of the volume would stay where it is: too small"));
    }
    let fs = F2fs::mount(Arc::clone(drive), &MountOptions::default())?;
    let emptied = fs.settled().evacuate(&sections);
    // Blocks that were moved before the space ran out stay where they are now.
    let unmounted = unmount(&fs);
    emptied.and_then(|emptied| unmounted.map(|()| emptied)).map_err(|error| match error {
        Error::NoSpace => Error::usage(format!(
            "{} MiB have to be emptied, and there is not as much free space",
            (sections.len() as u64 * u64::from(sb.segs_per_sec) * SEGMENT_SIZE) >> 20
        )),
        other => other,
    })
}
