//! Machine profiles: sockets, cores and what everything costs.

use std::sync::Arc;

use thiserror::Error;

/// A machine described in numbers; cheap to clone.
#[derive(Clone, Debug)]
pub struct Profile {
    name: Arc<str>,
}

/// What is wrong with a profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile has that name.
    #[error("no machine profile {name:?}; there are {}", known.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The text is not TOML of a profile's shape.
    #[error("machine profile: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A field has a value it must not have.
    #[error("machine profile: {field}: {problem}")]
    Field {
        /// The field, as a path in the file.
        field: String,
        /// What is wrong and what was expected.
        problem: String,
    },
}

impl Profile {
    /// The built-in profiles' names.
    pub const NAMES: &'static [&'static str] =
        &["uniform-1", "xeon-4116", "e7-8870v2-120", "gold-6138-80", "e7-8890v4-192"];

    /// A built-in profile.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Unknown`] when there is none of that name.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        match Self::NAMES.iter().find(|known| **known == name) {
            Some(&name) => Ok(Profile { name: name.into() }),
            None => {
                Err(ProfileError::Unknown { name: name.to_owned(), known: Self::NAMES.to_vec() })
            }
        }
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
