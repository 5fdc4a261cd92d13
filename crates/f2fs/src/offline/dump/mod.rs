//! What is on a volume, structure by structure, for people who debug: kernel field names and the
//! values as they are, right or wrong.
//!
//! Nothing here trusts what it reads more than it must: a damaged structure is shown with what is
//! wrong with it, and what does not depend on it is shown all the same.

mod file;
mod node;
mod structures;
mod tables;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use drive::{Block, Drive};
use queue::BlockQueue;

use crate::check::volume::Volume;
use crate::error::{Error, Result};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{BlockAddr, Nid};

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
    /// Bytes that are no text: a map, a UUID.
    Bytes(Vec<u8>),
    /// Several of a kind.
    List(Vec<Value>),
    /// A structure within.
    Record(Record),
}

/// How a record is written for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line for each field, as `dump.f2fs -d1` has it.
    Structure,
    /// All on one line: an entry of a table.
    Row,
}

/// Named fields, in the order of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub what: Cow<'static, str>,
    /// How to write it.
    pub shape: Shape,
    /// Names and values.
    pub fields: Vec<(Cow<'static, str>, Value)>,
}

impl Record {
    fn new(what: impl Into<Cow<'static, str>>, shape: Shape) -> Self {
        Self { what: what.into(), shape, fields: Vec::new() }
    }

    fn put(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> &mut Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Says what is wrong with it.
    fn complain(&mut self, error: &Error) -> &mut Self {
        self.put("error", error.to_string())
    }
}

macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}
from_number!(u8, u16, u32, u64);
from_number!(zerocopy::little_endian::U16, zerocopy::little_endian::U32);
from_number!(zerocopy::little_endian::U64);

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(text) => write!(f, "{text}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::List(list) => {
                write!(f, "[")?;
                for (i, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if i > 0 { " " } else { "" })?;
                }
                write!(f, "]")
            }
            Self::Record(record) => {
                write!(f, "{{")?;
                for (i, (name, value)) in record.fields.iter().enumerate() {
                    write!(f, "{}{name}:{value}", if i > 0 { " " } else { "" })?;
                }
                write!(f, "}}")
            }
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shape == Shape::Row {
            for (i, (name, value)) in self.fields.iter().enumerate() {
                write!(f, "{}{name}:{value}", if i > 0 { "\t" } else { "" })?;
            }
            return writeln!(f);
        }
        let rule = "-".repeat(56);
        writeln!(f, "+{rule}+\n| {:<55}|\n+{rule}+", self.what)?;
        for (name, value) in &self.fields {
            match value {
                Value::Number(n) => writeln!(f, "{name:<30}\t\t[0x{n:8x} : {n}]")?,
                Value::Text(_) | Value::Bytes(_) => writeln!(f, "{name:<30}\t\t[{value}]")?,
                Value::List(_) | Value::Record(_) => writeln!(f, "{name:<30}\t\t{value}")?,
            }
        }
        writeln!(f)
    }
}

/// Takes one record; false to see no more.
pub type Emit<'a> = &'a mut dyn FnMut(Record) -> bool;

/// A volume to look at.
pub struct Dump {
    /// Tables and checkpoint, or why there are none.
    volume: Result<Volume>,
    /// To read what does not need them.
    queue: BlockQueue,
    sb: Option<Superblock>,
}

impl Dump {
    /// A look at the volume on `drive`, whatever state it is in.
    pub fn new(drive: &Arc<dyn Drive>) -> Self {
        let queue = BlockQueue::new(Arc::clone(drive));
        let read = |addr: BlockAddr| Ok(queue.read_block(addr.into())?);
        let found = Superblock::select(read).map(|(sb, _)| sb);
        let sb = found.as_ref().ok().cloned();
        let volume = found.and_then(|sb| {
            let mut volume = Volume::open(BlockQueue::new(Arc::clone(drive)), sb)?;
            volume.open_summaries = volume.read_summaries().unwrap_or_default();
            Ok(volume)
        });
        Self { volume, queue, sb }
    }

    /// Number of the root directory.
    pub fn root(&self) -> Nid {
        self.sb.as_ref().map_or(3, |sb| sb.root_ino)
    }

    fn read(&self, addr: BlockAddr) -> Result<Block> {
        let blocks = self.queue.identify().blocks;
        if u64::from(addr) >= blocks {
            return Err(Error::corrupt("block address", addr, addr, format!("0..{blocks}")));
        }
        Ok(self.queue.read_block(addr.into())?)
    }

    fn volume(&mut self) -> Result<&mut Volume> {
        match &mut self.volume {
            Ok(volume) => Ok(volume),
            Err(error) => Err(Error::usage(error.to_string())),
        }
    }
}
