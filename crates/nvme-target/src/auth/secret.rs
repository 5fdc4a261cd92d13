//! Secrets as `nvme gen-dhchap-key` prints them, and hashes (NVMe base 2.0, section 8.13.5.8).
//!
//! `DHHC-1:HH:base64:` is a key and its CRC-32. `HH` names the hash with which the key is
//! transformed, together with its owner's name, before it is used; 00 means that it is not.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use thiserror::Error;

/// Hash functions, by their identifiers in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256 = 1,
    Sha384 = 2,
    Sha512 = 3,
}

impl Hash {
    /// The strongest first.
    pub(super) const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Bytes of a digest.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The digest of `bytes`.
    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// The keyed digest of all `parts` in order.
    pub(super) fn keyed(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        }
    }
}

fn mac<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // A key may have any length.
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// Why a text is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// It does not have the form of one.
    #[error("a secret is DHHC-1:00:...: as nvme gen-dhchap-key prints it")]
    Form,
    /// It names an unknown hash.
    #[error("its hash is {0}, not 00 (none), 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)")]
    Hash(u8),
    /// It is not base64.
    #[error("its key is not base64")]
    Base64,
    /// Its key has an invalid length.
    #[error("its key has {0} bytes, not 32, 48 or 64")]
    Length(usize),
    /// It was mistyped.
    #[error("its checksum is {found:08x}, and should be {expected:08x}: mistyped?")]
    Checksum {
        /// The checksum in the text.
        found: u32,
        /// The checksum of the key.
        expected: u32,
    },
}

/// A secret that a host and this server share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Vec<u8>,
    hash: Option<Hash>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl std::str::FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text.strip_prefix("DHHC-1:").ok_or(SecretError::Form)?;
        let (hash, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let encoded = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let id = u8::from_str_radix(hash, 16).map_err(|_| SecretError::Form)?;
        let hash = match id {
            0 => None,
            id => Some(Hash::with_id(id).ok_or(SecretError::Hash(id))?),
        };
        let mut key =
            data_encoding::BASE64.decode(encoded.as_bytes()).map_err(|_| SecretError::Base64)?;
        let length = key.len().saturating_sub(4);
        if !matches!(length, 32 | 48 | 64) {
            return Err(SecretError::Length(length));
        }
        let (bytes, checksum) = key.split_last_chunk::<4>().ok_or(SecretError::Form)?;
        let (found, expected) = (u32::from_le_bytes(*checksum), crc32fast::hash(bytes));
        if found != expected {
            return Err(SecretError::Checksum { found, expected });
        }
        key.truncate(length);
        Ok(Self { key, hash })
    }
}

impl Secret {
    /// The key in the form that its owner, with the qualified name `owner`, uses.
    pub(super) fn key_of(&self, owner: &str) -> Vec<u8> {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => hash.keyed(&self.key, &[owner.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}
