//! `strandline dump`: structures as they are on the drive, with dump.f2fs's options.

use std::path::PathBuf;

use clap::Args;
use drive::Timing;
use drive::linux::Access;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use vfs::kind;
use vfs::record::{Record, Value};

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out;
use crate::target::{Devices, open_volume};

/// Show the structures of a volume, damaged or not, in the kernel's names.
///
/// Without a view: the superblock and, of f2fs, the checkpoint in use. Numbers are decimal, or
/// hexadecimal with 0x. Whatever cannot be read is shown with the error, and the exit status is 1.
#[derive(Args)]
#[command(
    version = crate::VERSION,
    mut_arg("named", |named| named.short('t')),
    after_help = "\
Examples:
  strandline dump disk.img
  strandline dump disk.img inode 4
  strandline dump -n 0~-1 disk.img
  strandline dump --json disk.img dir 3
  strandline dump -t f2fs disk.img superblock     although its magic number is gone"
)]
pub(crate) struct Dump {
    /// Image of a drive
    image: PathBuf,
    #[command(flatten)]
    devices: Devices,
    /// What to show; of f2fs: superblock, checkpoint, nat, sit, ssa, inode, extents, dir, node,
    /// block; of ext4: superblock, group, inode, extents, dir, journal; of pmfs: superblock, inode,
    /// extents, dir, journal
    view: Option<String>,
    /// Which: a number for inode, extents, dir, node and block; FIRST~LAST for nat, sit and ssa
    #[arg(value_name = "WHICH", allow_hyphen_values = true)]
    which: Option<String>,
    /// An inode
    #[arg(short = 'i', value_name = "INO")]
    inode: Option<String>,
    /// NAT entries
    #[arg(short = 'n', value_name = "FIRST~LAST")]
    nat: Option<String>,
    /// SIT entries
    #[arg(short = 's', value_name = "FIRST~LAST")]
    sit: Option<String>,
    /// Segment summaries
    #[arg(short = 'a', value_name = "FIRST~LAST")]
    ssa: Option<String>,
    /// What a block is
    #[arg(short = 'b', value_name = "BLKADDR")]
    block: Option<String>,
    /// With -i, where the file's blocks are
    #[arg(short = 'M', requires = "inode")]
    map: bool,
    /// Debug level, accepted and not used
    #[arg(short = 'd', value_name = "LEVEL")]
    debug: Option<u32>,
    /// One JSON object per record
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub(crate) fn run(self) -> Outcome {
        let opened = open_volume(&self.image, &self.devices, Access::Read, Timing::Instant)?;
        let format =
            self.devices.kind.of(&opened.drive).map_err(Failure::on(self.image.display()))?;
        let mut printer = Printer { json: self.json, failed: false, result: Ok(()) };
        for (view, which) in self.views() {
            let shown =
                format.dump(&opened.drive, view, which, &mut |record| printer.record(record));
            std::mem::replace(&mut printer.result, Ok(()))?;
            shown.map_err(|error| match error {
                kind::Error::Usage(message) => Failure::Usage(message),
                error => {
                    Failure::Problem(format!("{}: {}", self.image.display(), out::plain(error)))
                }
            })?;
        }
        Ok(if printer.failed { PROBLEM } else { 0 })
    }

    /// What to show, in the order of dump.f2fs, and which.
    fn views(&self) -> Vec<(Option<&str>, Option<&str>)> {
        let map = self.inode.as_ref().filter(|_| self.map);
        let short = [
            ("inode", self.inode.as_ref()),
            ("extents", map),
            ("nat", self.nat.as_ref()),
            ("sit", self.sit.as_ref()),
            ("ssa", self.ssa.as_ref()),
            ("block", self.block.as_ref()),
        ];
        let named = self.view.as_deref().map(|view| (Some(view), self.which.as_deref()));
        let short = short
            .into_iter()
            .filter_map(|(view, which)| which.map(|which| (Some(view), Some(which.as_str()))));
        let views: Vec<_> = named.into_iter().chain(short).collect();
        if views.is_empty() { vec![(None, None)] } else { views }
    }
}

/// Writes records, and remembers whether any had an error.
struct Printer {
    json: bool,
    failed: bool,
    result: Outcome<()>,
}

impl Printer {
    /// False if standard output is closed.
    fn record(&mut self, record: Record) -> bool {
        self.failed |= record.get("error").is_some();
        self.result = match self.json {
            true => out::json(&Json(&record)),
            false => out::text(&record.to_string()),
        };
        self.result.is_ok()
    }
}

/// A record for `serde`, fields in their order.
struct Json<'a>(&'a Record);
struct JsonValue<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("structure", &self.0.what)?;
        for (name, value) in &self.0.fields {
            map.serialize_entry(name, &JsonValue(value))?;
        }
        map.end()
    }
}

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => serializer.serialize_u64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Bytes(_) => serializer.serialize_str(&self.0.to_string()),
            Value::Record(record) => Json(record).serialize(serializer),
            Value::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.len()))?;
                for value in list {
                    seq.serialize_element(&JsonValue(value))?;
                }
                seq.end()
            }
        }
    }
}
