//! The settings and counts of a mounted volume, as in the files below `/sys/fs`.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

/// What there is to know of one attribute.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// The version of Linux that brought it; empty if Linux does not have it.
    pub since: &'static str,
    /// What it changes or counts.
    pub about: String,
    /// The values it can be set to; `None` if it only shows something.
    pub allowed: Option<String>,
    /// Its value when the volume was mounted, if it can be set.
    pub default: Option<Value>,
    /// Its value now; `None` without a volume.
    pub value: Option<Value>,
    /// Why setting it has no effect; `None` if it has one.
    pub without_effect: Option<&'static str>,
}

impl Attribute {
    /// One that only shows something.
    pub fn shown(name: &'static str, since: &'static str, about: &str) -> Self {
        Self {
            name,
            since,
            about: about.trim().to_owned(),
            allowed: None,
            default: None,
            value: None,
            without_effect: None,
        }
    }

    /// One that can be set to what is `allowed`.
    pub fn set(name: &'static str, since: &'static str, about: &str, allowed: String) -> Self {
        Self { allowed: Some(allowed), ..Self::shown(name, since, about) }
    }
}

/// A row of the table of what a volume of type `T` only shows.
pub struct Shown<T: 'static> {
    /// [`Attribute::name`].
    pub name: &'static str,
    /// [`Attribute::since`].
    pub since: &'static str,
    /// [`Attribute::about`].
    pub about: &'static str,
    /// Its value.
    pub show: fn(&T) -> Value,
}

impl<T> Shown<T> {
    /// What there is to know of it without a volume.
    pub fn attribute(&self) -> Attribute {
        Attribute::shown(self.name, self.since, self.about)
    }
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// There is no attribute with this name.
    #[error("{name}: no such attribute, or not writable; there are {}", known.join(", "))]
    Unknown {
        /// As it was given.
        name: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// The value is not allowed.
    #[error("{name}: {value:?} is not a value for it; expected {expected}")]
    Value {
        /// The attribute.
        name: &'static str,
        /// As it was given.
        value: String,
        /// The values it can have.
        expected: String,
    },
}

/// The number that `text` sets attribute `name` to, if it lies in `range`.
pub fn number(
    name: &'static str,
    range: &RangeInclusive<u64>,
    text: &str,
) -> Result<u64, AttributeError> {
    let number = text.trim().parse().ok().filter(|n| range.contains(n));
    number.ok_or_else(|| AttributeError::Value {
        name,
        value: text.to_owned(),
        expected: in_words(range),
    })
}

/// A range of values, for people.
pub fn in_words(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (0, &u64::MAX) => "a number".to_owned(),
        (least, &u64::MAX) => format!("{least} or more"),
        (least, most) => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_in_their_range() {
        assert_eq!(number("first", &(0..=u64::MAX), " 7\n"), Ok(7));
        assert_eq!(number("percent", &(0..=100), "100"), Ok(100));
        for (name, range, value, said) in [
            ("first", 0..=u64::MAX, "-1", "first: \"-1\" is not a value for it; expected a number"),
            ("least", 1..=u64::MAX, "0", "least: \"0\" is not a value for it; expected 1 or more"),
            (
                "percent",
                0..=100,
                "101",
                "percent: \"101\" is not a value for it; expected 0 to 100",
            ),
        ] {
            assert_eq!(number(name, &range, value).unwrap_err().to_string(), said);
        }
    }
}
