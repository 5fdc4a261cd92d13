//! Lists of mount options, as `mount -o` takes them. A file system's table says which it has and
//! what each of them sets.

use std::fmt;

use thiserror::Error;

mod block_layer;
pub mod takes;

pub use block_layer::{block_layer, show_block_layer};

/// The mount options of one file system; `T` is what they set.
///
/// ```
/// use vfs::options::{MountOption, Options, Value};
///
/// const OPTIONS: Options<bool> = Options {
///     of: "testfs",
///     table: &[MountOption {
///         name: "sync",
///         value: Value::None { set: |sync| *sync = true },
///     }],
///     block_layer: &[],
/// };
/// let mut sync = false;
/// OPTIONS.set_list(&mut sync, "sync")?;
/// assert!(sync);
/// let error = OPTIONS.set_list(&mut sync, "rw").unwrap_err();
/// assert_eq!(error.to_string(), "rw: not a mount option of testfs");
/// # Ok::<(), vfs::options::OptionError>(())
/// ```
pub struct Options<T: 'static> {
    /// Name of the file system.
    pub of: &'static str,
    /// All of its own.
    pub table: &'static [MountOption<T>],
    /// Those of the [block layer](block_layer()), if they can be given.
    pub block_layer: &'static [MountOption<T>],
}

/// One mount option.
pub struct MountOption<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// What may follow the name.
    pub value: Value<T>,
}

/// What may follow the name of an option.
pub enum Value<T: 'static> {
    /// Nothing.
    None {
        /// Sets it.
        set: fn(&mut T),
    },
    /// `=` and one of these.
    OneOf(&'static [Choice<T>]),
    /// `=` and some other text.
    Text {
        /// What stands for the value where it is missing.
        form: &'static str,
        /// Sets it, or says what it expected.
        set: fn(&mut T, &str) -> Result<(), String>,
    },
}

/// One value of an option.
pub struct Choice<T: 'static> {
    /// As it is written.
    pub name: &'static str,
    /// Sets it.
    pub set: fn(&mut T),
}

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// There is no option with this name.
    #[error("{given}: not a mount option of {of}{}", meant(*.similar))]
    Unknown {
        /// As it was given.
        given: String,
        /// An option whose name is much the same.
        similar: Option<&'static str>,
        /// Name of the file system.
        of: &'static str,
    },
    /// It takes no value.
    #[error("{given}: takes no value")]
    TakesNoValue {
        /// As it was given.
        given: String,
    },
    /// Its value is missing or not one of those allowed.
    #[error("{given}: {what}; expected {expected}")]
    Value {
        /// As it was given.
        given: String,
        /// Missing or unknown.
        what: &'static str,
        /// What is allowed there.
        expected: String,
    },
}

/// How alike two names must be to be taken for each other, as in clap's tips.
const SIMILAR: f64 = 0.8;

/// The name of `known` that is most like `name`, if one is.
pub fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro(name, known);
    let best = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > SIMILAR).then_some(best)
}

fn meant(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

impl<T> Options<T> {
    /// Sets what `list` says, from left to right.
    pub fn set_list(&self, options: &mut T, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|given| !given.is_empty()).try_for_each(|given| {
            match given.split_once('=') {
                Some((name, value)) => self.set(options, given, name, Some(value)),
                None => self.set(options, given, given, None),
            }
        })
    }

    fn set(
        &self,
        options: &mut T,
        given: &str,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), OptionError> {
        let wrong = |expected| {
            let what = if value.is_some() { "unknown value" } else { "value missing" };
            OptionError::Value { given: given.to_owned(), what, expected }
        };
        let option = self.table.iter().chain(self.block_layer).find(|option| option.name == name);
        let option = option.ok_or_else(|| OptionError::Unknown {
            given: given.to_owned(),
            similar: similar(name, self.table.iter().map(|option| option.name)),
            of: self.of,
        })?;
        match &option.value {
            Value::None { set } if value.is_none() => set(options),
            Value::None { .. } => {
                return Err(OptionError::TakesNoValue { given: given.to_owned() });
            }
            Value::OneOf(choices) => {
                let choice = choices.iter().find(|choice| Some(choice.name) == value);
                let choice = choice.ok_or_else(|| wrong(one_of(choices).to_string()))?;
                (choice.set)(options);
            }
            Value::Text { form, set } => match value {
                Some(value) => set(options, value).map_err(wrong)?,
                None => return Err(wrong((*form).to_owned())),
            },
        }
        Ok(())
    }
}

/// A number of bytes, perhaps with `k`, `m` or `g` behind it.
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// `a, b or c`.
fn one_of<T>(choices: &[Choice<T>]) -> impl fmt::Display {
    let names: Vec<_> = choices.iter().map(|choice| choice.name).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Options<(bool, u8)> = Options {
        of: "testfs",
        table: &[
            MountOption { name: "ro", value: Value::None { set: |o| o.0 = true } },
            MountOption {
                name: "mode",
                value: Value::OneOf(&[
                    Choice { name: "low", set: |o| o.1 = 1 },
                    Choice { name: "mid", set: |o| o.1 = 2 },
                    Choice { name: "high", set: |o| o.1 = 3 },
                ]),
            },
            MountOption {
                name: "level",
                value: Value::Text {
                    form: "NUMBER",
                    set: |o, text| {
                        o.1 = text.parse().map_err(|_| "a number below 256".to_owned())?;
                        Ok(())
                    },
                },
            },
        ],
        block_layer: &[],
    };

    #[test]
    fn a_list_is_set_from_left_to_right() {
        let mut options = (false, 0);
        TABLE.set_list(&mut options, "ro,,level=9,mode=mid").unwrap();
        assert_eq!(options, (true, 2));
    }

    #[test]
    fn errors_say_the_option_the_value_and_what_is_allowed() {
        for (list, said) in [
            ("rw", "rw: not a mount option of testfs"),
            ("rw=1", "rw=1: not a mount option of testfs"),
            ("levle=1", "levle=1: not a mount option of testfs; did you mean level?"),
            ("ro=1", "ro=1: takes no value"),
            ("mode", "mode: value missing; expected low, mid or high"),
            ("ro,mode=foo", "mode=foo: unknown value; expected low, mid or high"),
            ("level", "level: value missing; expected NUMBER"),
            ("level=256", "level=256: unknown value; expected a number below 256"),
        ] {
            let error = TABLE.set_list(&mut (false, 0), list).unwrap_err();
            assert_eq!(error.to_string(), said);
        }
    }
}
