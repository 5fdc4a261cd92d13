//! Options of Linux's file systems that are taken and have no effect here, because lines of fstab
//! and of `/proc/mounts` hold them.

/// What follows an option's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// One of these, and no other.
    OneOf(&'static [&'static str]),
    /// A value, or nothing.
    Either,
}

/// Whether an option, as it was given, is one of these.
pub fn is_among(table: &[(&str, Takes)], given: &str) -> bool {
    let (name, value) =
        given.split_once('=').map_or((given, None), |(name, value)| (name, Some(value)));
    table.iter().any(|(known, takes)| {
        *known == name
            && match (takes, value) {
                (Takes::Nothing | Takes::Either, None) => true,
                (Takes::Value | Takes::Either, Some(_)) => true,
                (Takes::OneOf(values), Some(value)) => values.contains(&value),
                _ => false,
            }
    })
}
