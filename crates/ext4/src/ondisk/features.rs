//! The feature words of the superblock, by the names that dumpe2fs prints.

use std::fmt;

/// Declares one feature word: its flags, and their names.
macro_rules! features {
    ($(#[$doc:meta])* $word:ident $letter:literal {
        $(#[doc = $flag_doc:literal] $flag:ident = $bit:literal $name:literal;)*
    }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $word: u32 {
                $(#[doc = $flag_doc] const $flag = $bit;)*
                const _ = !0;
            }
        }

        impl $word {
            const NAMES: &[(Self, &str)] = &[$((Self::$flag, $name)),*];

            /// The flag called `name`.
            pub fn named(name: &str) -> Option<Self> {
                Self::NAMES.iter().find(|known| known.1 == name).map(|known| known.0)
            }

            /// The names of the flags that are set, lowest bit first; `FEATURE_I17` and the like
            /// for a bit without a name.
            pub fn names(self) -> impl Iterator<Item = String> {
                (0..u32::BITS).filter(move |bit| self.bits() >> bit & 1 == 1).map(|bit| {
                    let flag = Self::from_bits_retain(1 << bit);
                    let known = Self::NAMES.iter().find(|known| known.0 == flag);
                    known.map_or_else(|| format!(concat!("FEATURE_", $letter, "{}"), bit),
                        |known| known.1.to_owned())
                })
            }
        }

        impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.names().collect::<Vec<_>>().join(" "))
            }
        }
    };
}

features! {
    /// `s_feature_compat`: a volume with unknown bits can be written.
    Compat "C" {
        /// Blocks preallocated for directories.
        DIR_PREALLOC = 0x1 "dir_prealloc";
        /// Inodes of AFS servers.
        IMAGIC_INODES = 0x2 "imagic_inodes";
        /// There is a journal.
        HAS_JOURNAL = 0x4 "has_journal";
        /// Inodes have extended attributes.
        EXT_ATTR = 0x8 "ext_attr";
        /// Blocks are reserved for a larger descriptor table.
        RESIZE_INODE = 0x10 "resize_inode";
        /// Directories may have hash trees.
        DIR_INDEX = 0x20 "dir_index";
        /// Backups of the superblock are in two groups only (`s_backup_bgs`).
        SPARSE_SUPER2 = 0x200 "sparse_super2";
        /// The journal may have a fast-commit area.
        FAST_COMMIT = 0x400 "fast_commit";
        /// Inode numbers and UUID may not change.
        STABLE_INODES = 0x800 "stable_inodes";
        /// Orphans are in a file (`s_orphan_file_inum`).
        ORPHAN_FILE = 0x1000 "orphan_file";
    }
}

features! {
    /// `s_feature_incompat`: a volume with unknown bits cannot be mounted.
    Incompat "I" {
        /// Files may be compressed; never built.
        COMPRESSION = 0x1 "compression";
        /// Directory entries have a type.
        FILETYPE = 0x2 "filetype";
        /// The journal holds changes that are not in their places.
        RECOVER = 0x4 "needs_recovery";
        /// The drive is the journal of another volume.
        JOURNAL_DEV = 0x8 "journal_dev";
        /// Descriptor blocks are in the groups that they describe.
        META_BG = 0x10 "meta_bg";
        /// Files may map blocks with extents.
        EXTENTS = 0x40 "extent";
        /// Block numbers have 48 bits.
        BIT64 = 0x80 "64bit";
        /// A block prevents a second mount.
        MMP = 0x100 "mmp";
        /// Bitmaps and inode tables may be in another group.
        FLEX_BG = 0x200 "flex_bg";
        /// A value of an extended attribute may be in an inode of its own.
        EA_INODE = 0x400 "ea_inode";
        /// Data in directory entries; never built.
        DIRDATA = 0x1000 "dirdata";
        /// Checksums start from `s_checksum_seed` instead of the UUID.
        CSUM_SEED = 0x2000 "metadata_csum_seed";
        /// Hash trees of three levels, directories beyond 2 GiB.
        LARGEDIR = 0x4000 "large_dir";
        /// Small files are in the inode.
        INLINE_DATA = 0x8000 "inline_data";
        /// Files may be encrypted.
        ENCRYPT = 0x1_0000 "encrypt";
        /// Directories may ignore case.
        CASEFOLD = 0x2_0000 "casefold";
    }
}

features! {
    /// `s_feature_ro_compat`: a volume with unknown bits can only be read.
    RoCompat "R" {
        /// Backups of the superblock are in some groups only.
        SPARSE_SUPER = 0x1 "sparse_super";
        /// A file may have 2 GiB and more.
        LARGE_FILE = 0x2 "large_file";
        /// Never used.
        BTREE_DIR = 0x4 "btree_dir";
        /// `i_blocks` has 48 bits, and may count blocks.
        HUGE_FILE = 0x8 "huge_file";
        /// Descriptors have a CRC-16, and groups may not be initialized.
        GDT_CSUM = 0x10 "uninit_bg";
        /// A directory may have more than 65,000 subdirectories.
        DIR_NLINK = 0x20 "dir_nlink";
        /// Inodes have fields behind the first 128 bytes.
        EXTRA_ISIZE = 0x40 "extra_isize";
        /// Quota files are inodes of the volume.
        QUOTA = 0x100 "quota";
        /// Bitmaps count clusters of several blocks.
        BIGALLOC = 0x200 "bigalloc";
        /// Metadata has CRC-32C checksums.
        METADATA_CSUM = 0x400 "metadata_csum";
        /// It may only be mounted for reading.
        READONLY = 0x1000 "read-only";
        /// Files belong to projects.
        PROJECT = 0x2000 "project";
        /// A block may be in several files.
        SHARED_BLOCKS = 0x4000 "shared_blocks";
        /// Files may have a hash tree over their contents.
        VERITY = 0x8000 "verity";
        /// The orphan file may have entries.
        ORPHAN_PRESENT = 0x1_0000 "orphan_present";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_dumpe2fs() {
        let compat = Compat::from_bits_retain(0x143c);
        assert_eq!(
            compat.to_string(),
            "has_journal ext_attr resize_inode dir_index fast_commit orphan_file"
        );
        let incompat = Incompat::from_bits_retain(0x20_02c2);
        assert_eq!(incompat.to_string(), "filetype extent 64bit flex_bg FEATURE_I21");
        assert_eq!(RoCompat::named("metadata_csum"), Some(RoCompat::METADATA_CSUM));
        assert_eq!(RoCompat::named("metadata"), None);
    }
}
