//! What this crate can do with each optional part of the format, in one table for mkfs, mount and
//! the tools. Names are those of `mkfs.f2fs -O`.

use super::superblock::Features;

/// How a volume with a feature may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Read and written.
    ReadWrite,
    /// Read-only, because writing would have to maintain more than this crate does.
    ReadOnly,
    /// Only by a build with the feature `foreign`.
    Foreign,
}

/// How a volume gets a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// `-O` asks for it.
    Asked,
    /// From something else: the drive, or a program at run time.
    Implied,
    /// It cannot be made here.
    Never,
}

/// One optional part of the format.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its bit.
    pub bit: Features,
    /// Its name.
    pub name: &'static str,
    /// How mkfs makes it.
    pub make: Make,
    /// How it can be mounted.
    pub mount: Mount,
}

const fn feature(bit: Features, name: &'static str, make: Make, mount: Mount) -> Feature {
    Feature { bit, name, make, mount }
}

const ENCRYPT: (Make, Mount) = if cfg!(feature = "foreign") {
    (Make::Asked, Mount::ReadWrite)
} else {
    (Make::Never, Mount::Foreign)
};

/// All of them, by bit.
pub const FEATURES: [Feature; 15] = {
    use Make::{Asked, Implied, Never};
    use Mount::{ReadOnly, ReadWrite};
    [
        feature(Features::ENCRYPT, "encrypt", ENCRYPT.0, ENCRYPT.1),
        feature(Features::BLKZONED, "blkzoned", Implied, ReadWrite),
        feature(Features::ATOMIC_WRITE, "atomic_write", Implied, ReadWrite),
        feature(Features::EXTRA_ATTR, "extra_attr", Asked, ReadWrite),
        feature(Features::PRJQUOTA, "project_quota", Asked, ReadWrite),
        feature(Features::INODE_CHKSUM, "inode_checksum", Asked, ReadWrite),
        feature(Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr", Asked, ReadWrite),
        feature(Features::QUOTA_INO, "quota", Asked, ReadWrite),
        feature(Features::INODE_CRTIME, "inode_crtime", Asked, ReadWrite),
        feature(Features::LOST_FOUND, "lost_found", Asked, ReadWrite),
        feature(Features::VERITY, "verity", Asked, ReadWrite),
        feature(Features::SB_CHKSUM, "sb_checksum", Asked, ReadWrite),
        feature(Features::CASEFOLD, "casefold", Asked, ReadWrite),
        feature(Features::COMPRESSION, "compression", Asked, ReadWrite),
        // Its layout has no room for changes: no summaries, two logs, no reserve.
        feature(Features::RO, "ro", Never, ReadOnly),
    ]
};

/// The names of `features`, separated by commas.
pub fn names(features: Features) -> String {
    let named = FEATURES.iter().filter(|f| features.contains(f.bit)).map(|f| f.name);
    named.collect::<Vec<_>>().join(", ")
}

/// The features that `wanted` selects.
pub fn all(wanted: impl Fn(&Feature) -> bool) -> Features {
    FEATURES.iter().filter(|f| wanted(f)).map(|f| f.bit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_one_line() {
        assert_eq!(all(|_| true), Features::all());
        assert_eq!(FEATURES.len(), Features::all().bits().count_ones() as usize);
        assert_eq!(names(Features::RO | Features::ENCRYPT), "encrypt, ro");
    }
}
