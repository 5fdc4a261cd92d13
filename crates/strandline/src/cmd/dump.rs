//! `strandline dump`: structures as they are on the drive, with dump.f2fs's options.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use drive::Timing;
use drive::linux::Access;
use f2fs::dump::{Dump as Look, Record, Value};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use crate::failure::{Failure, Outcome, PROBLEM};
use crate::out;
use crate::target::{Devices, open_volume};

/// Show the structures of a volume, damaged or not, in the kernel's names.
///
/// Without a view: the superblock and the checkpoint in use. Numbers are decimal, or hexadecimal
/// with 0x. Whatever cannot be read is shown with the error, and the exit status is 1.
#[derive(Args)]
#[command(
    version,
    after_help = "\
Examples:
  strandline dump disk.img
  strandline dump disk.img inode 4
  strandline dump -n 0~-1 disk.img
  strandline dump --json disk.img dir 3"
)]
pub(crate) struct Dump {
    /// Image of a drive
    image: PathBuf,
    #[command(flatten)]
    devices: Devices,
    /// What to show
    view: Option<View>,
    /// Which: a number for inode, dir, node and block; FIRST~LAST for nat, sit and ssa
    #[arg(value_name = "WHICH", allow_hyphen_values = true)]
    which: Option<String>,
    /// An inode
    #[arg(short = 'i', value_name = "INO", value_parser = number)]
    inode: Option<u32>,
    /// NAT entries
    #[arg(short = 'n', value_name = "FIRST~LAST", value_parser = range)]
    nat: Option<Range<u32>>,
    /// SIT entries
    #[arg(short = 's', value_name = "FIRST~LAST", value_parser = range)]
    sit: Option<Range<u32>>,
    /// Segment summaries
    #[arg(short = 'a', value_name = "FIRST~LAST", value_parser = range)]
    ssa: Option<Range<u32>>,
    /// What a block is
    #[arg(short = 'b', value_name = "BLKADDR", value_parser = number)]
    block: Option<u32>,
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

#[derive(Clone, Copy, ValueEnum)]
enum View {
    /// Both superblocks
    Superblock,
    /// Both checkpoint packs
    Checkpoint,
    /// Node address table
    Nat,
    /// Segment information table
    Sit,
    /// Segment summaries
    Ssa,
    /// An inode
    Inode,
    /// A directory's entries
    Dir,
    /// A node
    Node,
    /// A block, by address
    Block,
}

impl Dump {
    pub(crate) fn run(self) -> Outcome {
        let mut look = Look::new(
            &open_volume(&self.image, &self.devices, Access::Read, Timing::Instant)?.drive,
        );
        let mut printer = Printer { json: self.json, failed: false, result: Ok(()) };
        let shown = self.show(&mut look, &mut printer);
        printer.result?;
        shown.map_err(|error| Failure::Problem(format!("{}: {error}", self.image.display())))?;
        Ok(if printer.failed { PROBLEM } else { 0 })
    }

    fn show(&self, look: &mut Look, to: &mut Printer) -> Result<(), String> {
        let mut any = false;
        if let Some(view) = self.view {
            any = true;
            self.view(view, look, to)?;
        }
        if let Some(ino) = self.inode {
            any = true;
            to.take(look.inode(ino))?;
            if self.map {
                told(look.extents(ino, &mut |record| to.record(record)))?;
            }
        }
        if let Some(nids) = self.nat.clone() {
            any = true;
            told(look.nat(nids, &mut |record| to.record(record)))?;
        }
        if let Some(segments) = self.sit.clone() {
            any = true;
            told(look.sit(segments, &mut |record| to.record(record)))?;
        }
        if let Some(segments) = self.ssa.clone() {
            any = true;
            told(look.ssa(segments, &mut |record| to.record(record)))?;
        }
        if let Some(addr) = self.block {
            any = true;
            to.take(look.block(addr))?;
        }
        if !any {
            for found in [look.superblock(), look.checkpoint()] {
                let best = found.iter().position(in_use).unwrap_or(0);
                to.records(found.into_iter().skip(best).take(1));
            }
        }
        Ok(())
    }

    fn view(&self, view: View, look: &mut Look, to: &mut Printer) -> Result<(), String> {
        let one = || match &self.which {
            Some(which) => number(which),
            None => Err("which one? a number is missing".into()),
        };
        let several = || self.which.as_deref().map_or(Ok(0..u32::MAX), range);
        match view {
            View::Superblock => to.records(look.superblock()),
            View::Checkpoint => to.records(look.checkpoint()),
            View::Nat => told(look.nat(several()?, &mut |record| to.record(record)))?,
            View::Sit => told(look.sit(several()?, &mut |record| to.record(record)))?,
            View::Ssa => told(look.ssa(several()?, &mut |record| to.record(record)))?,
            View::Inode => to.take(look.inode(one()?))?,
            View::Node => to.take(look.node(one()?))?,
            View::Block => to.take(look.block(one()?))?,
            View::Dir => {
                let ino = if self.which.is_some() { one()? } else { look.root() };
                told(look.dir(ino, &mut |record| to.record(record)))?;
            }
        }
        Ok(())
    }
}

/// Whether a mount uses this copy: a table's by the checkpoint, a superblock's if it is sound.
fn in_use(record: &Record) -> bool {
    match record.get("current") {
        Some(current) => *current == Value::Number(1),
        None => record.get("error").is_none(),
    }
}

fn told(result: f2fs::Result<()>) -> Result<(), String> {
    result.map_err(out::plain)
}

/// Writes records, and remembers whether any had an error.
struct Printer {
    json: bool,
    failed: bool,
    result: Outcome<()>,
}

impl Printer {
    fn take(&mut self, record: f2fs::Result<Record>) -> Result<(), String> {
        self.record(record.map_err(out::plain)?);
        Ok(())
    }

    fn records(&mut self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            if !self.record(record) {
                break;
            }
        }
    }

    /// False if nobody takes more.
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

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number"))
}

/// `FIRST~LAST`; -1 is the last one.
fn range(text: &str) -> Result<Range<u32>, String> {
    let Some((first, last)) = text.split_once('~') else {
        let one = number(text)?;
        return Ok(one..one.saturating_add(1));
    };
    let end = if last == "-1" { u32::MAX } else { number(last)?.saturating_add(1) };
    Ok(number(first)?..end)
}
