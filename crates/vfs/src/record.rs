//! The contents of a volume, for people who debug it: records of named fields, as `dump.f2fs` and
//! `debugfs` print them.

use std::borrow::Cow;
use std::fmt;

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
    /// Bytes that are not text: a map, a UUID.
    Bytes(Vec<u8>),
    /// Several values of one kind.
    List(Vec<Value>),
    /// A structure within.
    Record(Record),
}

/// How a record is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One line for each field, as `dump.f2fs -d1` prints it.
    Structure,
    /// All on one line: an entry of a table.
    Row,
}

/// Named fields, in the order of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub what: Cow<'static, str>,
    /// How to print it.
    pub shape: Shape,
    /// Names and values.
    pub fields: Vec<(Cow<'static, str>, Value)>,
}

impl Record {
    /// A record without fields yet.
    pub fn new(what: impl Into<Cow<'static, str>>, shape: Shape) -> Self {
        Self { what: what.into(), shape, fields: Vec::new() }
    }

    /// Adds a field.
    pub fn put(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Value>,
    ) -> &mut Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Adds a field that says what is wrong with the record.
    pub fn complain(&mut self, error: &dyn fmt::Display) -> &mut Self {
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
