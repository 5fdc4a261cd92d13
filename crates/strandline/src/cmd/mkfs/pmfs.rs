//! The options of a volume on persistent memory.

use std::path::PathBuf;

use clap::Args;
use pmfs::mkfs::{MkfsOptions, make};
use serde::Serialize;

use super::{KINDS, parse_owner, parse_uuid};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::target::{Devices, open_for_mkfs};

/// Make a pmfs volume: a file system for persistent memory.
#[derive(Args)]
#[command(
    version,
    after_help = "\
Examples:
  strandline drive create --pm --size 1g /dev/shm/m.pm
  strandline mkfs --fs pmfs -O design=inplace,cores=4 /dev/shm/m.pm

Every call is durable when it returns. Files survive the end of a process, kill -9 included; what \
survives a power cut depends on the memory: `strandline drive info` shows its domain."
)]
pub(crate) struct Mkfs {
    /// A file whose name ends in .pm, or /dev/dax*
    memory: PathBuf,
    /// Kind of file system
    #[arg(long, alias = "fs-type", value_name = "NAME")]
    #[arg(default_value = "pmfs", value_parser = KINDS)]
    fs: String,
    /// design=inplace (data in place, a metadata journal) or design=nova (a log per inode, data
    /// copied on write), cores=N (journal slots), inodes=N; separated by commas
    #[arg(short = 'O', value_name = "OPTIONS", default_value = "")]
    features: String,
    /// Volume label, up to 47 bytes
    #[arg(short = 'L', value_name = "LABEL", default_value = "")]
    label: String,
    /// UUID of the volume; random by default
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Owner of the root directory
    #[arg(short = 'R', value_name = "UID:GID", default_value = "0:0")]
    root_owner: String,
    /// Overwrite an existing volume
    #[arg(short = 'f')]
    force: bool,
    /// Say nothing
    #[arg(short = 'q')]
    quiet: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    image: String,
    label: String,
    bytes: u64,
}

impl Mkfs {
    pub(crate) fn run(self) -> Outcome {
        let options = MkfsOptions {
            features: self.features,
            label: self.label.clone(),
            uuid: self.uuid.map(|uuid| parse_uuid("-U", &uuid)).transpose()?,
            root_owner: parse_owner("-R", &self.root_owner)?,
            force: self.force,
        };
        let no_join = |_| Err(vfs::kind::Error::Usage("pmfs volumes are on one memory".into()));
        let opened = open_for_mkfs(&self.memory, &Devices::default(), no_join)?;
        let name = self.memory.display().to_string();
        let memory = opened.drive.pm().ok_or_else(|| {
            let what = "not persistent memory: a file whose name ends in .pm, or /dev/dax*";
            Failure::Usage(format!("{name}: {what}"))
        })?;
        make(&*memory, &options).map_err(Failure::on(&name))?;
        let made = Made { image: name, label: self.label, bytes: memory.info().bytes };
        opened.close()?;
        if self.json {
            out::json(&made)?;
        } else if !self.quiet {
            out::line(format!("{}: pmfs, {} MiB", made.image, made.bytes >> 20))?;
        }
        Ok(0)
    }
}
