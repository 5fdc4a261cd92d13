//! How a name is looked up in a directory: by its bytes, by its folded form, or without the key.

use vfs::Errno;

use crate::dir::casefold;
use crate::dir::nokey::NoKeyName;
use crate::error::Result;
use crate::ondisk::encoding::Casefold;
use crate::ondisk::hash::dentry_hash;
use crate::ondisk::inode::{Advise, FileFlags, RawInode};

/// How a directory stores names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As they are.
    Exact,
    /// As given, but any name that folds to the same matches.
    Folded(Casefold),
    /// As ciphertext. If they are folded too, only the key gives their hashes.
    Encrypted { folded: bool },
}

impl Naming {
    /// How directory `dir` stores names, on a volume that folds by `casefold`.
    pub(crate) fn of(dir: &RawInode, casefold: Option<Casefold>) -> Naming {
        let folded = casefold.filter(|_| dir.file_flags().contains(FileFlags::CASEFOLD));
        if dir.advise().contains(Advise::ENCRYPT) {
            return Naming::Encrypted { folded: folded.is_some() };
        }
        folded.map_or(Naming::Exact, Naming::Folded)
    }

    /// What to look for under a user's `name`. `None` if no entry of the directory can have this
    /// name.
    pub(crate) fn wanted(self, name: &[u8]) -> Result<Option<Wanted<'_>>> {
        if name == b"." || name == b".." {
            return Ok(Some(Wanted::Exact(name)));
        }
        Ok(match self {
            Naming::Exact => Some(Wanted::Exact(name)),
            Naming::Folded(casefold) => match casefold::fold(name) {
                Some(folded) => Some(Wanted::Folded { name, folded, rules: casefold }),
                None if casefold.strict => return Err(Errno::INVAL.into()),
                None => Some(Wanted::Exact(name)),
            },
            Naming::Encrypted { .. } => NoKeyName::decode(name).map(Wanted::NoKey),
        })
    }

    /// The hash of the stored `name`. `None` if it depends on the key, or if a strict encoding does
    /// not allow the name.
    pub(crate) fn hash_of(self, name: &[u8]) -> Option<u32> {
        self.stored(name).ok().flatten().map(|wanted| wanted.hash())
    }

    /// The same, but only if it is the hash of the bytes themselves.
    pub(crate) fn hash_of_exact(self, name: &[u8]) -> Option<u32> {
        let exact = matches!(self, Naming::Exact | Naming::Encrypted { folded: false });
        exact.then(|| dentry_hash(name))
    }

    /// What to look for under a stored `name`, read from the volume.
    pub(crate) fn stored(self, name: &[u8]) -> Result<Option<Wanted<'_>>> {
        match self {
            Naming::Encrypted { folded: false } => Ok(Some(Wanted::Exact(name))),
            Naming::Encrypted { folded: true } => Ok(None),
            other => other.wanted(name),
        }
    }
}

/// A name to find in a directory, or to add to it.
pub(crate) enum Wanted<'a> {
    /// These very bytes.
    Exact(&'a [u8]),
    /// A name that folds to the same.
    Folded {
        /// As the user wrote it.
        name: &'a [u8],
        /// Folded.
        folded: Vec<u8>,
        /// If strict, stored names that cannot be folded match nothing.
        rules: Casefold,
    },
    /// Ciphertext, given by its no-key name.
    NoKey(NoKeyName),
}

impl Wanted<'_> {
    /// The hash its entry has.
    pub(crate) fn hash(&self) -> u32 {
        match self {
            Wanted::Exact(name) => dentry_hash(name),
            Wanted::Folded { folded, .. } => dentry_hash(folded),
            Wanted::NoKey(name) => name.hash(),
        }
    }

    /// Whether it may have an entry that is not where its hash says (`f2fs_find_entry`).
    pub(crate) fn may_be_elsewhere(&self) -> bool {
        matches!(self, Wanted::Folded { rules: Casefold { linear: true, .. }, .. })
    }

    /// Whether an entry called `stored`, of any hash, matches. All agree on the hash of ASCII.
    pub(crate) fn matches_elsewhere(&self, stored: &[u8]) -> bool {
        !stored.is_ascii() && self.matches(stored)
    }

    /// Whether an entry called `stored` matches (`f2fs_match_name`).
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        match self {
            Wanted::Exact(name) => *name == stored,
            Wanted::Folded { name, folded, rules } => match casefold::fold(stored) {
                Some(other) => *folded == other,
                None => !rules.strict && *name == stored,
            },
            Wanted::NoKey(name) => name.matches(stored),
        }
    }
}
