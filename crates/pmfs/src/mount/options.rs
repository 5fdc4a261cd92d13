//! Mount options.

use vfs::kind::{Error, Result};
use vfs::options::{Choice, MountOption, Options, Value};

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

pub(crate) const OPTIONS: Options<MountOptions> = Options {
    of: "pmfs",
    table: &[
        MountOption { name: "ro", value: Value::None { set: |options| options.read_only = true } },
        MountOption { name: "rw", value: Value::None { set: |options| options.read_only = false } },
        MountOption {
            name: "range_lock",
            value: Value::OneOf(&[
                Choice { name: "inode", set: |options| options.segments = false },
                Choice { name: "segment", set: |options| options.segments = true },
            ]),
        },
        MountOption {
            name: "log",
            value: Value::OneOf(&[
                Choice { name: "inode", set: |options| options.core_logs = false },
                Choice { name: "core", set: |options| options.core_logs = true },
            ]),
        },
        MountOption {
            name: "place",
            value: Value::OneOf(&[
                Choice { name: "node0", set: |options| options.local = false },
                Choice { name: "local", set: |options| options.local = true },
            ]),
        },
        MountOption {
            name: "inject",
            value: Value::Text {
                form: "FAULT",
                set: |options, fault| {
                    let found = FAULTS.iter().find(|(name, _)| *name == fault);
                    options.inject = Some(found.ok_or_else(|| FAULTS.map(|it| it.0).join(", "))?.1);
                    Ok(())
                },
            },
        },
    ],
    block_layer: &[],
};

impl MountOptions {
    pub(crate) fn parse(list: &str) -> Result<Self> {
        let mut options = Self::default();
        let set = OPTIONS.set_list(&mut options, list);
        set.map(|()| options).map_err(|error| Error::Usage(error.to_string()))
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

    pub(crate) fn show(self) -> String {
        let all = [
            (true, if self.read_only { "ro" } else { "rw" }),
            (self.segments, "range_lock=segment"),
            (self.core_logs, "log=core"),
            (self.local, "place=local"),
        ];
        let set: Vec<_> = all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        set.join(",")
    }
}
