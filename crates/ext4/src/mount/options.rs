//! Mount options, under their names in `mount -t ext4 -o …`.

use std::fmt;
use std::str::FromStr;

use vfs::options::{MountOption, Options, Value};

use crate::error::Error;

/// How a volume is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`: nothing is written.
    pub read_only: bool,
    /// `noload`: the journal is not replayed, with `ro` only.
    pub no_load: bool,
}

const OPTIONS: Options<MountOptions> = Options {
    of: "ext4",
    table: &[
        MountOption { name: "ro", value: Value::None { set: |to| to.read_only = true } },
        MountOption { name: "rw", value: Value::None { set: |to| to.read_only = false } },
        MountOption { name: "noload", value: Value::None { set: |to| to.no_load = true } },
        MountOption { name: "norecovery", value: Value::None { set: |to| to.no_load = true } },
    ],
    block_layer: &[],
};

impl MountOptions {
    /// Whether there is an option of this name.
    pub(crate) fn has(name: &str) -> bool {
        OPTIONS.table.iter().any(|option| option.name == name)
    }
}

impl FromStr for MountOptions {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        OPTIONS.set_list(&mut options, list)?;
        if options.no_load && !options.read_only {
            return Err(Error::usage("noload: only together with ro"));
        }
        Ok(options)
    }
}

/// As in `mount -o`.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_only { "ro" } else { "rw" })?;
        f.write_str(if self.no_load { ",noload" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_shown_as_they_are_given() {
        for given in ["ro", "ro,noload", "rw"] {
            assert_eq!(given.parse::<MountOptions>().unwrap().to_string(), given);
        }
        assert!(
            "noload".parse::<MountOptions>().is_err() && "fast".parse::<MountOptions>().is_err()
        );
    }
}
