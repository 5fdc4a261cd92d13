//! Mount options of Linux's F2FS, up to 6.18, that are taken and have no effect here, because lines
//! of fstab and of `/proc/mounts` hold them; and one for volumes of some of its versions.

use vfs::options::takes::Takes::{Either, Nothing, OneOf, Value};
use vfs::options::takes::{self, Takes};

use crate::mount::faults::ALL_TYPES;
use crate::ondisk::encoding::Casefold;

/// `lookup_mode=`: whether a name of a directory that folds case is looked for everywhere when it
/// is not where its hash says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupMode {
    /// As the superblock says.
    #[default]
    Auto,
    /// Never.
    Perf,
    /// Always.
    Compat,
}

impl LookupMode {
    /// How names are looked up on a volume that says `folding`.
    pub(crate) fn applied_to(self, folding: Casefold) -> Casefold {
        let linear = match self {
            Self::Auto => folding.linear,
            Self::Perf => false,
            Self::Compat => true,
        };
        Casefold { linear, ..folding }
    }
}

const WITHOUT_EFFECT: [(&str, Takes); 43] = [
    // Always so: extended attributes, checkpoints that callers share, one cleaner for all.
    ("user_xattr", Nothing),
    ("nouser_xattr", Nothing),
    ("acl", Nothing),
    ("noacl", Nothing),
    ("checkpoint_merge", Nothing),
    ("nocheckpoint_merge", Nothing),
    ("gc_merge", Nothing),
    ("nogc_merge", Nothing),
    ("lazytime", Nothing),
    ("nolazytime", Nothing),
    // Caches, which are others here.
    ("age_extent_cache", Nothing),
    ("memory", OneOf(&["normal", "low"])),
    ("nat_bits", Nothing),
    ("fastboot", Nothing),
    // Where blocks go, and when.
    ("active_logs", OneOf(&["2", "4", "6"])),
    ("alloc_mode", OneOf(&["default", "reuse"])),
    ("mode", OneOf(&["fragment:segment", "fragment:block"])),
    ("heap", Nothing),
    ("no_heap", Nothing),
    ("disable_ext_identify", Nothing),
    ("inline_xattr_size", Value),
    ("data_flush", Nothing),
    ("discard_unit", OneOf(&["block", "segment", "section"])),
    ("whint_mode", OneOf(&["off", "user-based", "fs-based"])),
    ("io_bits", Value),
    ("checkpoint", Value),
    // Room kept for some users, and quota files with names.
    ("reserve_node", Value),
    ("usrjquota", Value),
    ("grpjquota", Value),
    ("prjjquota", Value),
    ("offusrjquota", Nothing),
    ("offgrpjquota", Nothing),
    ("offprjjquota", Nothing),
    ("jqfmt", Value),
    // Compression and encryption of new files.
    ("compress_algorithm", Value),
    ("compress_log_size", Value),
    ("compress_extension", Value),
    ("nocompress_extension", Value),
    ("compress_chksum", Nothing),
    ("compress_mode", OneOf(&["fs", "user"])),
    ("compress_cache", Nothing),
    ("test_dummy_encryption", Either),
    ("inlinecrypt", Nothing),
];

/// Options of Linux that set attributes, as these settings; others as they are.
pub(crate) fn in_our_words(given: &str) -> Vec<String> {
    match given.split_once('=') {
        Some(("fault_injection", rate)) => {
            vec![format!("inject_rate={rate}"), format!("inject_type={ALL_TYPES}")]
        }
        Some(("fault_type", kinds)) => vec![format!("inject_type={kinds}")],
        _ => vec![given.to_owned()],
    }
}

/// Whether this is an option of Linux's F2FS that has no effect here.
pub(crate) fn has_no_effect(given: &str) -> bool {
    takes::is_among(&WITHOUT_EFFECT, given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountOptions;

    /// As Linux 6.18 shows a mount without options, and what fstab may hold.
    #[test]
    fn lines_of_linux_are_taken() {
        for line in [
            "rw,lazytime,background_gc=on,nogc_merge,discard,discard_unit=block,user_xattr,\
             inline_xattr,acl,inline_data,inline_dentry,flush_merge,barrier,extent_cache,\
             mode=adaptive,active_logs=6,alloc_mode=reuse,checkpoint_merge,fsync_mode=posix,\
             memory=normal,errors=continue",
            "compress_algorithm=zstd:6,compress_extension=txt,checkpoint=disable:10%,atgc,\
             test_dummy_encryption,usrjquota=u,jqfmt=vfsv1,lookup_mode=perf,mode=fragment:block",
        ] {
            let taken: MountOptions = line.parse().unwrap_or_else(|e| panic!("{e}"));
            assert!(!taken.read_only);
        }
        assert!(has_no_effect("lazytime") && !has_no_effect("lazytime=1"));
        assert!(!has_no_effect("mode=adaptive") && !has_no_effect("memory=high"));
        assert!("memory=high".parse::<MountOptions>().is_err());
    }
}
