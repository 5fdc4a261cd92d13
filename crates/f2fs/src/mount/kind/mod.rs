//! F2FS as the layers above know it: the traits of [`vfs::kind`].

mod dump;
mod ioctl;
mod report;
mod volume;

use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Drive, Lba};
use queue::BlockQueue;
use vfs::Ino;
use vfs::attributes::Attribute;
use vfs::kind::{self, Checked, Device, Finding, Habits, Label, Repaired, Result, Technique};
use vfs::options::fault_names;
use vfs::record::Record;

use crate::F2fs;
use crate::Inject;
use crate::MountOptions;
use crate::check::{CheckOptions, check, state};
use crate::devices::join;
use crate::error::Error;
use crate::fsync::technique;
use crate::label;
use crate::mkfs::{MkfsOptions, format};
use crate::mount::attributes;
use crate::mount::linux_options::has_no_effect;
use crate::ondisk::MAGIC;
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::superblock::{COPIES, RawSuperblock, Superblock};
use crate::repair::{RepairOptions, repair};

/// The Flash-Friendly File System, on the kernel's disk format.
///
/// ```
/// use f2fs::prelude::*;
/// use vfs::kind::Format;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let f2fs: &dyn Format = &f2fs::Format;
/// let drive: Arc<dyn Drive> = drive::ram(1 << 15);
/// f2fs.make(&drive)?;
/// assert!(f2fs.probe(&drive)?);
/// for technique in f2fs.techniques() {
///     let promise = (technique.promise)(drive.identify());
///     println!("-o {}: {promise:?}", technique.options);
/// }
/// f2fs.mount(drive, "fsync_mode=strict")?.unmount()?;
/// # Ok(())
/// # }
/// ```
pub struct Format;

/// Policies and attributes, each with values far from its default. Those of the gc thread are left
/// out: a load without pauses never meets it.
const ADVISABLE: [&str; 30] = [
    "inline_data",
    "noinline_data",
    "noinline_dentry",
    "noinline_xattr",
    "flush_merge",
    "noflush_merge",
    "extent_cache",
    "noextent_cache",
    "mode=adaptive",
    "mode=lfs",
    "nodiscard",
    "ipu_policy=0",
    "ipu_policy=1",
    "ipu_policy=2",
    "ipu_policy=16",
    "ipu_policy=32",
    "min_fsync_blocks=0",
    "min_fsync_blocks=64",
    "min_hot_blocks=0",
    "min_hot_blocks=256",
    "min_seq_blocks=64",
    "min_ssr_sections=0",
    "reclaim_segments=100000",
    "max_small_discards=0",
    "discard_granularity=512",
    "ram_thresh=10",
    "dir_level=3",
    "ra_node_pages=0",
    "readdir_ra=0",
    "dirty_nats_ratio=50",
];

impl kind::Format for Format {
    fn name(&self) -> &'static str {
        "f2fs"
    }

    /// By the magic number of either superblock, whatever else is in it.
    fn probe(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        let queue = BlockQueue::new(drive.clone());
        let copies = COPIES.map(u64::from).into_iter();
        let mut unreadable = Ok(false);
        for copy in copies.filter(|copy| *copy < queue.identify().blocks) {
            match queue.read_block(copy) {
                Ok(block) if RawSuperblock::of(&block).magic.get() == MAGIC => return Ok(true),
                Ok(_) => {}
                // The other copy may still be there.
                Err(error) => unreadable = Err(Error::from(error).into()),
            }
        }
        unreadable
    }

    fn join(&self, devices: Vec<Device>) -> Result<Arc<dyn Drive>> {
        Ok(join(devices)?)
    }

    fn make(&self, drive: &Arc<dyn Drive>) -> Result<()> {
        self.make_with(drive, "")
    }

    fn make_with(&self, drive: &Arc<dyn Drive>, features: &str) -> Result<()> {
        let mut options = MkfsOptions::default();
        options.add_features(features)?;
        // Joined drives have no names here. Those in the superblock are only shown.
        let joined = 1..=drive.identify().joined.len();
        options.devices = joined.map(|number| format!("device {number}")).collect();
        Ok(format(drive, &options).map(drop)?)
    }

    fn features_for(&self, options: &str) -> &'static str {
        let limits = options.parse().map(|options: MountOptions| options.quota_limits);
        match limits {
            Ok([false, false, false]) | Err(_) => "",
            Ok(_) => "extra_attr,quota,project_quota",
        }
    }

    fn check_options(&self, options: &str) -> Result<String> {
        Ok(options.parse::<MountOptions>()?.to_string())
    }

    fn without_effect(&self, option: &str) -> bool {
        has_no_effect(option)
    }

    fn mount(&self, drive: Arc<dyn Drive>, options: &str) -> Result<Arc<dyn kind::Volume>> {
        Ok(Arc::new(F2fs::mount(drive, &options.parse()?)?))
    }

    fn is_clean(&self, drive: &Arc<dyn Drive>) -> Result<bool> {
        Ok(state(drive)?.needs_no_check())
    }

    fn check(&self, drive: &Arc<dyn Drive>) -> Result<Checked> {
        Ok(check(drive, &CheckOptions::default())?.into())
    }

    /// Whether blocks that the volume counts as valid lie above the zone's write pointer.
    fn is_about_data(&self, finding: &Finding) -> bool {
        finding.what == "write pointer" && finding.allowed.starts_with("above ")
    }

    fn log_entry(&self) -> &'static str {
        "node"
    }

    fn rescued_from(&self) -> Option<&'static str> {
        Some("its nodes")
    }

    fn repair(&self, drive: &Arc<dyn Drive>, rescue: bool) -> Result<Repaired> {
        Ok(repair(drive, &RepairOptions { rescue, ..RepairOptions::default() })?.into())
    }

    fn advisable(&self) -> &'static [&'static str] {
        &ADVISABLE
    }

    fn techniques(&self) -> &'static [&'static Technique] {
        &technique::ALL
    }

    fn faults(&self) -> Vec<String> {
        fault_names(&Inject::all())
    }

    fn attributes(&self) -> Vec<Attribute> {
        attributes::table()
    }

    /// An fsync may turn into a checkpoint, which makes everything durable. Roll-forward takes each
    /// node as it finds it, and makes the file as long as the blocks that it points to
    /// (`recover_data`). Small contents are in the inode.
    fn habits(&self, _: &Technique) -> Habits {
        let small_file = BLOCK_SIZE as u64;
        Habits {
            takes_others_along: true,
            blocks_may_set_size: true,
            small_file,
            maps_ahead: false,
            writes_again: false,
        }
    }

    fn describe(&self, block: &Block, lba: Lba, ino: Ino) -> Option<&'static str> {
        let (footer, ino) = (RawNodeFooter::of(block), u32::try_from(ino).ok()?);
        let at = u32::try_from(lba).ok()?;
        footer.check(footer.nid.get(), ino, at).ok()?;
        Some(match (footer.is_inode(), footer.is_fsync()) {
            (true, true) => "the inode with the mark of the fsync",
            (true, false) => "the inode",
            (false, true) => "a direct node with the mark of the fsync",
            (false, false) => "a node",
        })
    }

    fn dump(
        &self,
        drive: &Arc<dyn Drive>,
        view: Option<&str>,
        which: Option<&str>,
        see: &mut dyn FnMut(Record) -> bool,
    ) -> Result<()> {
        dump::dump(drive, view, which, see)
    }

    fn label(&self, drive: &Arc<dyn Drive>) -> Result<Label> {
        Ok(named(label::superblock(drive)?))
    }

    fn set_label(&self, drive: &Arc<dyn Drive>, label: &str) -> Result<Label> {
        Ok(named(label::set(drive, label)?))
    }
}

fn named(sb: Superblock) -> Label {
    Label { label: sb.label, uuid: sb.uuid }
}
