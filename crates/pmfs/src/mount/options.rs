//! Mount options.

use vfs::kind::{Error, Result};
use vfs::options::{MountOption, Options, Value};

/// What a mount asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MountOptions {
    pub(crate) read_only: bool,
}

pub(crate) const OPTIONS: Options<MountOptions> = Options {
    of: "pmfs",
    table: &[
        MountOption { name: "ro", value: Value::None { set: |options| options.read_only = true } },
        MountOption { name: "rw", value: Value::None { set: |options| options.read_only = false } },
    ],
    block_layer: &[],
};

impl MountOptions {
    pub(crate) fn parse(list: &str) -> Result<Self> {
        let mut options = Self::default();
        let set = OPTIONS.set_list(&mut options, list);
        set.map(|()| options).map_err(|error| Error::Usage(error.to_string()))
    }

    pub(crate) fn show(self) -> String {
        if self.read_only { "ro" } else { "rw" }.into()
    }
}
