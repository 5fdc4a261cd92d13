//! The settings of a mounted volume, as in the files below `/sys/fs`: numbers, each with its range.

use std::ops::RangeInclusive;

use thiserror::Error;

/// One attribute of `T`.
pub struct Attribute<T> {
    /// Its name.
    pub name: &'static str,
    /// The values it can have.
    pub range: RangeInclusive<u64>,
    /// Sets it to a number within the range.
    pub set: fn(&mut T, u64),
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

/// Sets several attributes by name: all of them or, if one is wrong, none.
pub fn set<T: Clone>(
    table: &[Attribute<T>],
    values: &mut T,
    settings: &[(&str, &str)],
) -> Result<(), AttributeError> {
    let mut changed = values.clone();
    for (name, value) in settings {
        let attribute = table.iter().find(|attribute| attribute.name == *name);
        let attribute = attribute.ok_or_else(|| AttributeError::Unknown {
            name: (*name).to_owned(),
            known: table.iter().map(|attribute| attribute.name).collect(),
        })?;
        let number = value.trim().parse().ok().filter(|n| attribute.range.contains(n));
        let number = number.ok_or_else(|| AttributeError::Value {
            name: attribute.name,
            value: (*value).to_owned(),
            expected: expected(&attribute.range),
        })?;
        (attribute.set)(&mut changed, number);
    }
    *values = changed;
    Ok(())
}

fn expected(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (0, &u64::MAX) => "a number".to_owned(),
        (least, &u64::MAX) => format!("{least} or more"),
        (least, most) => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [Attribute<(u64, u64)>; 3] = [
        Attribute { name: "first", range: 0..=u64::MAX, set: |v, n| v.0 = n },
        Attribute { name: "second", range: 1..=u64::MAX, set: |v, n| v.1 = n },
        Attribute { name: "percent", range: 0..=100, set: |v, n| v.1 = n },
    ];

    #[test]
    fn all_or_nothing_is_set() {
        let mut values = (0, 0);
        set(&TABLE, &mut values, &[("first", " 7\n"), ("percent", "100")]).unwrap();
        assert_eq!(values, (7, 100));
        for (name, value, said) in [
            (
                "third",
                "1",
                "third: no such attribute, or not writable; there are first, second, percent",
            ),
            ("first", "-1", "first: \"-1\" is not a value for it; expected a number"),
            ("second", "0", "second: \"0\" is not a value for it; expected 1 or more"),
            ("percent", "101", "percent: \"101\" is not a value for it; expected 0 to 100"),
        ] {
            let error = set(&TABLE, &mut values, &[("first", "8"), (name, value)]).unwrap_err();
            assert_eq!((error.to_string().as_str(), values), (said, (7, 100)));
        }
    }
}
