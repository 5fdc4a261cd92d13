//! Mount options.

use vfs::kind::{Error, Result};
use vfs::options::Options;

use super::technique::{FAULTS, Forget};
use crate::ondisk::superblock::Design;

/// What a mount asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MountOptions {
    pub(crate) read_only: bool,
    /// Overwrites lock segments of a file (`range_lock=segment`), not the inode.
    pub(crate) segments: bool,
    /// Overwrites go to a log of the core (`log=core`), not of the inode.
    pub(crate) core_logs: bool,
    /// Blocks come from the core's own part of the memory (`place=local`), not from node 0.
    pub(crate) local: bool,
    /// What to forget, so that a campaign finds it (`inject=`).
    pub(crate) inject: Option<Forget>,
}

type Row<V> = vfs::options::Row<MountOptions, V>;

pub(crate) const OPTIONS: Options<MountOptions> = Options {
    of: "pmfs",
    table: &[
        &Row::words(&[("ro", true), ("rw", false)], |o| &mut o.read_only).shown_if(|_| true),
        &Row::one_of("range_lock", &[("inode", false), ("segment", true)], |o| &mut o.segments),
        &Row::one_of("log", &[("inode", false), ("core", true)], |o| &mut o.core_logs),
        &Row::one_of("place", &[("node0", false), ("local", true)], |o| &mut o.local),
        &Row::one_of("inject", FAULTS, |o| &mut o.inject).shown_if(|_| false),
    ],
};

impl MountOptions {
    pub(crate) fn parse(list: &str) -> Result<Self> {
        let mut options = Self::default();
        OPTIONS.set_list(&mut options, list)?;
        Ok(options)
    }

    /// Fails if a volume of this design does not have what was asked for.
    pub(crate) fn check(self, design: Design) -> Result<()> {
        if design == Design::Inplace && (self.segments || self.core_logs) {
            let what = "range_lock=segment and log=core: only with mkfs -O design=nova";
            return Err(Error::Usage(what.into()));
        }
        Ok(())
    }

    /// Whether overwrites go their own way.
    pub(crate) fn shares(self) -> bool {
        self.segments || self.core_logs
    }
}
