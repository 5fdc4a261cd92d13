//! Lists of mount options, as `mount -o` takes them and `/proc/mounts` shows them. A file system's
//! table says which it has, and what each of them sets.

use thiserror::Error;

use crate::attributes::AttributeError;

mod block_layer;
mod row;
pub mod takes;

pub use block_layer::BlockLayer;
pub use row::{Row, fault_names, put, put_number, set_faults, show_some};

/// The mount options of one file system; `T` is what they set.
///
/// ```
/// use vfs::options::{Options, Row};
///
/// const OPTIONS: Options<bool> = Options {
///     of: "testfs",
///     table: &[&Row::words(&[("sync", true), ("async", false)], |sync| sync)],
/// };
/// let mut sync = false;
/// OPTIONS.set_list(&mut sync, "sync")?;
/// assert!(sync);
/// assert_eq!(OPTIONS.show(&sync), "sync");
/// let error = OPTIONS.set_list(&mut sync, "rw").unwrap_err();
/// assert_eq!(error.to_string(), "rw: not a mount option of testfs");
/// # Ok::<(), vfs::options::OptionError>(())
/// ```
pub struct Options<T: 'static> {
    /// Name of the file system.
    pub of: &'static str,
    /// All that it has, in the order in which they are shown.
    pub table: &'static [&'static dyn MountOption<T>],
}

/// A mount option, or several that set the same.
pub trait MountOption<T>: Sync {
    /// What can be given: each name, and each of its values, or a word for what they are.
    fn forms(&self) -> Vec<(&'static str, Option<&'static str>)>;

    /// Sets what was `given`; `None` if it has another name.
    fn set(&self, options: &mut T, given: Given<'_>) -> Option<Result<(), OptionError>>;

    /// What must be given to have the same as `options`, after what was `said` already, to which it
    /// is added; `None` if nothing.
    fn show(&self, options: &mut T, said: &mut T) -> Option<String>;
}

/// An option as it was given.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// All of it.
    pub text: &'a str,
    /// Up to the `=`.
    pub name: &'a str,
    /// Behind it.
    pub value: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn new(text: &'a str) -> Self {
        match text.split_once('=') {
            Some((name, value)) => Self { text, name, value: Some(value) },
            None => Self { text, name: text, value: None },
        }
    }

    /// Its value is missing or wrong.
    pub fn wrong(self, expected: impl ToString) -> OptionError {
        let what = if self.value.is_some() { "unknown value" } else { "value missing" };
        OptionError::Value { given: self.text.to_owned(), what, expected: expected.to_string() }
    }
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
    /// It sets an attribute, which does not have such a value.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
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
        let mut all = list.split(',').filter(|given| !given.is_empty()).map(Given::new);
        all.try_for_each(|given| {
            let set = self.table.iter().find_map(|option| option.set(options, given));
            set.unwrap_or_else(|| {
                Err(OptionError::Unknown {
                    given: given.text.to_owned(),
                    similar: similar(given.name, self.names()),
                    of: self.of,
                })
            })
        })
    }

    /// The list that sets `options`: what differs from the defaults, and what is always shown.
    pub fn show(&self, options: &T) -> String
    where
        T: Clone + Default,
    {
        // Values are read through the reference that sets them, so all of this is done to copies.
        let (mut options, mut said) = (options.clone(), T::default());
        let shown = self.table.iter().filter_map(|option| option.show(&mut options, &mut said));
        shown.collect::<Vec<_>>().join(",")
    }

    /// All names.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.table.iter().flat_map(|option| option.forms()).map(|(name, _)| name)
    }

    /// Whether there is an option of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
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

#[cfg(test)]
mod tests {
    use super::*;

    type Row<V> = super::Row<(bool, u8), V>;

    const TABLE: Options<(bool, u8)> = Options {
        of: "testfs",
        table: &[
            &Row::words(&[("ro", true)], |o| &mut o.0),
            &Row::one_of("mode", &[("low", 1), ("mid", 2), ("high", 3)], |o| &mut o.1),
            &Row::text(
                "level",
                "NUMBER",
                |to, text| put_number(to, text, .., "a number below 256"),
                ToString::to_string,
                |o| &mut o.1,
            ),
        ],
    };

    #[test]
    fn a_list_is_set_from_left_to_right() {
        let mut options = (false, 0);
        TABLE.set_list(&mut options, "ro,,level=9,mode=mid").unwrap();
        assert_eq!(options, (true, 2));
        assert!(TABLE.has("level") && !TABLE.has("rw"));
    }

    #[test]
    fn what_is_shown_says_everything_once() {
        for (options, shown) in [
            ((false, 0), ""),
            ((true, 0), "ro"),
            ((true, 2), "ro,mode=mid"),
            ((false, 9), "level=9"),
        ] {
            assert_eq!(TABLE.show(&options), shown);
            let mut again = (false, 0);
            TABLE.set_list(&mut again, shown).unwrap();
            assert_eq!(again, options);
        }
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
