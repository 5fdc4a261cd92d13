//! The rows of a table of mount options.

use std::ops::RangeBounds;
use std::str::FromStr;

use bitflags::Flags;

use super::{Given, MountOption, OptionError, parse_size};

/// What sets one value of `T`, which is a `V`.
pub struct Row<T: 'static, V: 'static> {
    form: Form<V>,
    field: fn(&mut T) -> &mut V,
    shown_if: Option<fn(&T) -> bool>,
    implies: Option<fn(&mut T)>,
}

enum Form<V: 'static> {
    /// Each of these names stands for a value.
    Words(&'static [(&'static str, V)]),
    /// A name, `=` and one of these.
    OneOf(&'static str, &'static [(&'static str, V)]),
    /// A name, `=` and some other text.
    Text(&'static str, Text<V>),
}

struct Text<V> {
    /// What stands for the value where it is missing.
    form: &'static str,
    /// Sets it, or says what it expected.
    set: fn(&mut V, &str) -> Result<(), String>,
    show: fn(&V) -> String,
}

impl<T, V> Row<T, V> {
    const fn new(form: Form<V>, field: fn(&mut T) -> &mut V) -> Self {
        Self { form, field, shown_if: None, implies: None }
    }

    /// Names that stand for a value each, such as a flag and its opposite. Of several for one value
    /// the first is shown.
    pub const fn words(words: &'static [(&'static str, V)], field: fn(&mut T) -> &mut V) -> Self {
        Self::new(Form::Words(words), field)
    }

    /// `name=` and one of these.
    pub const fn one_of(
        name: &'static str,
        values: &'static [(&'static str, V)],
        field: fn(&mut T) -> &mut V,
    ) -> Self {
        Self::new(Form::OneOf(name, values), field)
    }

    /// `name=` and some text: `form` stands for it where it is missing, `set` takes it or says what
    /// it expected.
    pub const fn text(
        name: &'static str,
        form: &'static str,
        set: fn(&mut V, &str) -> Result<(), String>,
        show: fn(&V) -> String,
        field: fn(&mut T) -> &mut V,
    ) -> Self {
        Self::new(Form::Text(name, Text { form, set, show }), field)
    }

    /// It is shown if `shown` says so, whatever the default is.
    pub const fn shown_if(self, shown: fn(&T) -> bool) -> Self {
        Self { shown_if: Some(shown), ..self }
    }

    /// It sets others, too, which can be given behind it.
    pub const fn implying(self, implies: fn(&mut T)) -> Self {
        Self { implies: Some(implies), ..self }
    }
}

impl<T> Row<T, u64> {
    /// `cache=BYTES`: the limit of the page cache, which holds at least all pages of one operation.
    pub const fn cache(field: fn(&mut T) -> &mut u64) -> Self {
        Self::text("cache", "BYTES", put_cache, u64::to_string, field)
    }
}

fn put_cache(to: &mut u64, text: &str) -> Result<(), String> {
    let bytes = parse_size(text).filter(|bytes| *bytes >= 1 << 20);
    put(to, bytes, "at least 1m, with k, m or g")
}

impl<T, V: Clone + PartialEq + Sync> MountOption<T> for Row<T, V> {
    fn forms(&self) -> Vec<(&'static str, Option<&'static str>)> {
        match &self.form {
            Form::Words(words) => words.iter().map(|(word, _)| (*word, None)).collect(),
            Form::OneOf(name, values) => {
                values.iter().map(|(value, _)| (*name, Some(*value))).collect()
            }
            Form::Text(name, text) => vec![(*name, Some(text.form))],
        }
    }

    fn set(&self, options: &mut T, given: Given<'_>) -> Option<Result<(), OptionError>> {
        if !self.forms().iter().any(|(name, _)| *name == given.name) {
            return None;
        }
        let set = self.form.set((self.field)(options), given);
        if let (Ok(()), Some(implies)) = (&set, self.implies) {
            implies(options);
        }
        Some(set)
    }

    fn show(&self, options: &mut T, said: &mut T) -> Option<String> {
        let asked = self.shown_if.map(|shown| shown(options));
        let (value, to) = ((self.field)(options), (self.field)(said));
        let shown = asked.unwrap_or(value != to).then(|| self.form.show(value)).flatten()?;
        *to = value.clone();
        if let Some(implies) = self.implies {
            implies(said);
        }
        Some(shown)
    }
}

impl<V: Clone + PartialEq> Form<V> {
    fn set(&self, to: &mut V, given: Given<'_>) -> Result<(), OptionError> {
        match (self, given.value) {
            (Self::Words(_), Some(_)) => {
                return Err(OptionError::TakesNoValue { given: given.text.to_owned() });
            }
            (Self::Words(words), None) => {
                let word = words.iter().find(|(word, _)| *word == given.name);
                to.clone_from(&word.ok_or_else(|| given.wrong(listed(words)))?.1);
            }
            (Self::OneOf(_, values), value) => {
                let found = values.iter().find(|(name, _)| Some(*name) == value);
                to.clone_from(&found.ok_or_else(|| given.wrong(listed(values)))?.1);
            }
            (Self::Text(_, text), None) => return Err(given.wrong(text.form)),
            (Self::Text(_, text), Some(value)) => {
                (text.set)(to, value).map_err(|expected| given.wrong(expected))?;
            }
        }
        Ok(())
    }

    /// How the value is given, if it can be.
    fn show(&self, value: &V) -> Option<String> {
        let name_of = |all: &[(&'static str, V)]| {
            all.iter().find(|(_, known)| known == value).map(|(name, _)| *name)
        };
        match self {
            Self::Words(words) => name_of(words).map(str::to_owned),
            Self::OneOf(name, values) => name_of(values).map(|value| format!("{name}={value}")),
            Self::Text(name, text) => Some(format!("{name}={}", (text.show)(value))),
        }
    }
}

/// `a, b or c`.
fn listed<V>(all: &[(&'static str, V)]) -> String {
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Sets `to` to `value`, or says what was `expected`.
pub fn put<V>(to: &mut V, value: Option<V>, expected: impl ToString) -> Result<(), String> {
    *to = value.ok_or_else(|| expected.to_string())?;
    Ok(())
}

/// Sets `to` to the number that `text` is, if it lies in `range`, or says what was `expected`.
pub fn put_number<N: FromStr + PartialOrd>(
    to: &mut N,
    text: &str,
    range: impl RangeBounds<N>,
    expected: impl ToString,
) -> Result<(), String> {
    put(to, text.parse().ok().filter(|number| range.contains(number)), expected)
}

/// A value that there may be, as it is given.
pub fn show_some<V: ToString>(value: &Option<V>) -> String {
    value.as_ref().map_or_else(String::new, V::to_string)
}

/// Names of faults, as the option `inject` has them: `DROP_FLUSH` is `drop-flush`.
pub fn fault_names<F: Flags>(faults: &F) -> Vec<String> {
    faults.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
}

/// Adds the fault called `name`, if there is one.
pub fn set_faults<F: Flags + Copy>(to: &mut F, name: &str) -> bool {
    let all = F::all();
    let found = all.iter_names().find(|(_, fault)| fault_names(fault).concat() == name);
    if let Some((_, fault)) = &found {
        to.insert(*fault);
    }
    found.is_some()
}
