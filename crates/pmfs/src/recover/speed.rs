//! Long logs, to see how long recovery takes to read them.

use std::sync::Arc;

use drive::Drive;
use vfs::kind::{self, Error};
use vfs::{Creator, FileSystem, Result};

use super::Image;
use crate::commit::Change;
use crate::log::written;
use crate::mount::Pmfs;
use crate::mount::options::MountOptions;
use crate::ondisk::BLOCK;
use crate::ondisk::extent::Extent;
use crate::ondisk::log::LINES;

/// Files whose logs are filled.
pub const FILES: u64 = 64;

/// Gives an empty volume of design `nova` files with logs of `bytes` bytes in all, which no call
/// could do: a log that is mostly history is cleaned. Says how many entries these are. The volume
/// is not unmounted.
///
/// # Errors
///
/// What a mount fails with; too little space; a volume without logs.
pub fn fill_logs(drive: &Arc<dyn Drive>, bytes: u64) -> kind::Result<u64> {
    let pm = drive.pm().ok_or_else(|| Error::Usage("logs are in persistent memory".into()))?;
    let recovered = Image::open(pm)?.recover().map_err(vfs::Error::from)?;
    let fs = Pmfs::new(recovered, MountOptions::default());
    let entries = bytes / FILES / BLOCK * (LINES - 1);
    let mut all = 0;
    for number in 0..FILES {
        fill(&fs, number, entries)?;
        all += entries;
    }
    Ok(all)
}

/// Fills the log of a new file with overwrites of its two pages.
fn fill(fs: &Pmfs, number: u64, entries: u64) -> Result<()> {
    let name = format!("file-{number}");
    let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default())?.ino;
    let node = fs.node(ino)?;
    let mut inode = node.lock.write();
    let taken = fs.space.take_run(4).ok_or(vfs::Errno::NOSPC)?;
    let blocks = taken.keep().first().map_or(0, |run| run.0);
    inode.raw.size = (2 * BLOCK).into();
    let raw = inode.raw;
    let log = inode.log.as_mut().ok_or(vfs::Errno::INVAL)?;
    log.reserve(&fs.space, entries + LINES, false)?;
    for entry in 0..entries {
        log.stage(&written(&raw, Extent { page: entry % 2, block: blocks + entry % 4, len: 1 }));
    }
    let mut change = Change::new(&*fs.pm);
    inode.flush(&mut change);
    let _done = fs.journal.commit(change);
    Ok(())
}

#[cfg(test)]
mod tests {
    use drive::pm::{Domain, PmAccess, PmDrive, PmSim, PmState};
    use vfs::kind::Format;

    use super::*;

    #[test]
    fn logs_of_a_length_are_recovered() {
        let pm = PmSim::power_on(PmState::new(16 << 20), Domain::Process);
        let drive: Arc<dyn Drive> = PmDrive::new(pm, PmAccess::Write);
        crate::Format.make_with(&drive, "design=nova").expect("a volume");
        assert_eq!(fill_logs(&drive, 4 << 20).expect("space"), 64 * 16 * (LINES - 1));
        let volume = crate::Format.mount(drive.clone(), "").expect("recovers");
        assert!(!volume.recovery().clean);
        let attr = volume.lookup(volume.root(), b"file-63").expect("there");
        assert_eq!(attr.size, 2 * BLOCK);
        volume.unmount().expect("unmounts");
        assert!(crate::Format.check(&drive).expect("a volume").findings.is_empty());
        assert!(fill_logs(&drive, 1 << 30).is_err(), "no space");
    }
}
