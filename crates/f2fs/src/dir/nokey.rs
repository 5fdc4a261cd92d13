//! Names in encrypted directories, as they appear without the key (`fs/crypto/fname.c`).
//!
//! The directory stores ciphertext. The kernel shows base64url, without padding, of `struct
//! fscrypt_nokey_name`: the entry's hash, a second hash F2FS does not use, and the ciphertext or,
//! if it is longer than 149 bytes, its beginning and the SHA-256 of the rest. A file with such a
//! name can be looked up, examined and removed; nothing can be made or moved without the key.

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// How many bytes of ciphertext a no-key name has.
const BYTES: usize = 149;
/// Bytes of the two hashes.
const HASHES: usize = 8;
/// Shortest ciphertext (`FSCRYPT_FNAME_MIN_MSG_LEN`).
const MIN_CIPHERTEXT: usize = 16;

/// An encrypted name, as much of it as its no-key form shows.
pub(crate) struct NoKeyName {
    /// Hash of the directory entry.
    hash: u32,
    bytes: Vec<u8>,
    /// Of the ciphertext after `bytes`, if there is more.
    rest: Option<[u8; 32]>,
}

/// The no-key form of `ciphertext`, which block `at` stores with `hash`.
pub(crate) fn encode(hash: u32, ciphertext: &[u8], at: impl Into<u64>) -> Result<Vec<u8>> {
    if ciphertext.len() < MIN_CIPHERTEXT {
        let found = ciphertext.len();
        return Err(Error::corrupt("encrypted name", at, found, "16 bytes or more"));
    }
    let (bytes, rest) = ciphertext.split_at(ciphertext.len().min(BYTES));
    let mut raw = [&hash.to_le_bytes()[..], &[0; 4], bytes].concat();
    if !rest.is_empty() {
        raw.extend_from_slice(&Sha256::digest(rest));
    }
    Ok(BASE64URL_NOPAD.encode(&raw).into_bytes())
}

impl NoKeyName {
    /// Parses `name`; `None` if it is not a no-key name.
    pub(crate) fn decode(name: &[u8]) -> Option<Self> {
        let raw = BASE64URL_NOPAD.decode(name).ok()?;
        let (hashes, bytes) = raw.split_at_checked(HASHES)?;
        let hash = u32::from_le_bytes(*hashes.first_chunk()?);
        let (bytes, rest) = match bytes.split_at_checked(BYTES) {
            Some((bytes, [])) => (bytes, None),
            Some((bytes, rest)) => (bytes, Some(rest.try_into().ok()?)),
            None => (bytes, None),
        };
        Some(Self { hash, bytes: bytes.to_vec(), rest })
    }

    /// Hash of the directory entry.
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Whether this stands for `ciphertext`.
    pub(crate) fn matches(&self, ciphertext: &[u8]) -> bool {
        match self.rest {
            None => self.bytes == ciphertext,
            Some(digest) => ciphertext.split_at_checked(BYTES).is_some_and(|(bytes, rest)| {
                self.bytes == bytes && *Sha256::digest(rest) == digest
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_come_back() {
        for len in 16..=255_usize {
            let ciphertext: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            let name = encode(0x1234_5678, &ciphertext, 0_u32).unwrap();
            assert!(name.len() <= 255 && name.starts_with(b"eFY0EgAAAA"), "{len}");
            let decoded = NoKeyName::decode(&name).unwrap();
            assert_eq!(decoded.hash, 0x1234_5678);
            assert!(decoded.matches(&ciphertext));
            let mut other = ciphertext;
            other[len - 1] ^= 1;
            assert!(!decoded.matches(&other));
        }
    }

    #[test]
    fn other_names_are_none() {
        for name in [&b"a.txt"[..], b"", b"AAAA", b"a name with spaces"] {
            assert!(NoKeyName::decode(name).is_none());
        }
        assert!(encode(1, b"short", 0_u32).is_err());
    }
}
