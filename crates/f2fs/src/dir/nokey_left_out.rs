//! Takes the place of `nokey` in a build without the feature `foreign`. Such a build mounts no
//! volume with encryption, so no name can be a no-key name.

use crate::error::{Result, foreign};

/// An encrypted name, of which there is none.
pub(crate) enum NoKeyName {}

/// Refuses: only a damaged volume leads here.
pub(crate) fn encode(_: u32, _: &[u8], _: impl Into<u64>) -> Result<Vec<u8>> {
    Err(foreign("an encrypted name"))
}

impl NoKeyName {
    pub(crate) fn decode(_: &[u8]) -> Option<Self> {
        None
    }

    pub(crate) fn hash(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn matches(&self, _: &[u8]) -> bool {
        match *self {}
    }
}
