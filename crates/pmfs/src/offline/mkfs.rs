//! Makes an empty volume.
//!
//! The old superblocks go first and the new ones come last, durably, so an interrupted mkfs leaves
//! no volume rather than half of one.

use drive::pm::Pm;
use vfs::FileKind;
use vfs::kind::{Error, Result};
use zerocopy::IntoBytes;

use crate::commit::slots;
use crate::mount::ROOT;
use crate::ondisk::BLOCK;
use crate::ondisk::inode::{RawInode, now};
use crate::ondisk::superblock::{CLEAN, CORES_MAX, Design, Layout, STATE_AT};

/// An inode for every so many bytes.
const BYTES_PER_INODE: u64 = 16 << 10;
const INODES_MIN: u64 = 64;
/// Journal slots, unless given.
const CORES_DEFAULT: u32 = 16;
/// The journal takes at most one block of so many.
const JOURNAL_PART: u64 = 32;

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// `design=` and so on, as for `-O`.
    pub features: String,
    /// Volume label, at most 47 bytes.
    pub label: String,
    /// UUID; random if not given.
    pub uuid: Option<[u8; 16]>,
    /// Owner of the root directory.
    pub root_owner: (u32, u32),
    /// Overwrite another volume.
    pub force: bool,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            features: String::new(),
            label: String::new(),
            uuid: None,
            root_owner: (0, 0),
            force: true,
        }
    }
}

/// What `-O` says.
#[derive(Default)]
struct Features {
    design: Option<Design>,
    cores: Option<u32>,
    inodes: Option<u64>,
}

impl Features {
    fn parse(list: &str) -> Result<Self> {
        let mut features = Self::default();
        for given in list.split(',').filter(|given| !given.is_empty()) {
            let wrong = |allowed: &str| Error::Usage(format!("-O {given}: expected {allowed}"));
            match given.split_once('=') {
                Some(("design", name)) => {
                    let known = Design::ALL.into_iter().find(|design| design.name() == name);
                    features.design =
                        Some(known.ok_or_else(|| wrong("design=inplace or design=nova"))?);
                }
                Some(("cores", number)) => {
                    let number = number.parse().ok().filter(|n| (1..=CORES_MAX).contains(n));
                    features.cores = Some(number.ok_or_else(|| wrong("cores=1 to 1024"))?);
                }
                Some(("inodes", number)) => {
                    let number = number.parse().ok().filter(|n| (2..1 << 40).contains(n));
                    features.inodes = Some(number.ok_or_else(|| wrong("inodes=2 or more"))?);
                }
                _ => return Err(wrong("design=, cores= or inodes=")),
            }
        }
        Ok(features)
    }
}

/// Makes an empty volume of all of `pm`.
///
/// # Errors
///
/// Usage: options that are not known or do not fit, too little memory, a volume that is there.
pub fn make(pm: &dyn Pm, options: &MkfsOptions) -> Result<()> {
    let features = Features::parse(&options.features)?;
    if !options.force && Layout::load(pm).is_some() {
        return Err(Error::Usage("there is a pmfs volume; -f overwrites it".into()));
    }
    if options.label.len() >= 48 {
        return Err(Error::Usage("a label has at most 47 bytes".into()));
    }
    let blocks = pm.info().bytes / BLOCK;
    let cores = features.cores.unwrap_or_else(|| {
        u32::try_from(blocks / JOURNAL_PART / 2).unwrap_or(u32::MAX).clamp(1, CORES_DEFAULT)
    });
    let inodes = features.inodes.unwrap_or(blocks * BLOCK / BYTES_PER_INODE).max(INODES_MIN);
    let design = features.design.unwrap_or(Design::Inplace);
    let layout = Layout::new(blocks, cores, inodes, design);
    let layout = layout.ok_or_else(|| {
        let kib = blocks * BLOCK / 1024;
        Error::Usage(format!("{kib} KiB are too few for pmfs; 128 KiB and more, or fewer inodes"))
    })?;
    clear(pm, &layout);
    put_root(pm, &layout, options.root_owner);
    let mut raw = layout.raw();
    raw.uuid = options.uuid.unwrap_or_else(|| *uuid::Uuid::new_v4().as_bytes());
    raw.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let raw = raw.summed();
    pm.store(STATE_AT, &CLEAN.to_le_bytes());
    pm.write_back(STATE_AT, 8);
    super::label::write(pm, &raw, &layout)
}

/// Makes the memory no volume, then an empty journal and an empty table.
fn clear(pm: &dyn Pm, layout: &Layout) {
    let zeroes = [0; BLOCK as usize];
    for at in [0, layout.copy_at()] {
        pm.stream(at, &zeroes);
    }
    pm.fence();
    for core in 0..layout.cores {
        let slot = slots::to_clear(layout.slot_at(core));
        pm.stream(slot.start, &zeroes[..(slot.end - slot.start) as usize]);
    }
    for at in layout.table().step_by(BLOCK as usize) {
        pm.stream(at, &zeroes);
    }
    pm.fence();
}

/// An empty root directory. Its place in the table is zero.
pub(crate) fn put_root(pm: &dyn Pm, layout: &Layout, (uid, gid): (u32, u32)) {
    let mut root = RawInode::free(0);
    root.mode = (FileKind::Directory.mode_bits() | 0o755).into();
    root.links = 2.into();
    (root.uid, root.gid) = (uid.into(), gid.into());
    root.parent = ROOT.into();
    root.born(now());
    if let Some(at) = layout.inode_at(ROOT) {
        pm.stream(at, root.as_bytes());
        pm.fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_checked() {
        for wrong in ["design=pmfs", "cores=0", "cores=x", "inodes=1", "fast"] {
            assert!(Features::parse(wrong).is_err(), "{wrong}");
        }
        let features = Features::parse("design=inplace,cores=4,inodes=99").expect("known");
        assert_eq!((features.cores, features.inodes), (Some(4), Some(99)));
    }
}
