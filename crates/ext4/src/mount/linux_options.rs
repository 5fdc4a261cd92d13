//! Mount options of Linux's ext4, up to 6.18, that are taken and have no effect here.

use vfs::options::takes::Takes::{Either, Nothing, OneOf, Value};
use vfs::options::takes::{self, Takes};

const WITHOUT_EFFECT: [(&str, Takes); 44] = [
    // Always so: attributes, delayed allocation, flushes, checks of block numbers.
    ("user_xattr", Nothing),
    ("nouser_xattr", Nothing),
    ("acl", Nothing),
    ("noacl", Nothing),
    ("delalloc", Nothing),
    ("nodelalloc", Nothing),
    ("barrier", Either),
    ("nobarrier", Nothing),
    ("block_validity", Nothing),
    ("noblock_validity", Nothing),
    ("bsddf", Nothing),
    ("lazytime", Nothing),
    ("nolazytime", Nothing),
    ("i_version", Nothing),
    ("dax", OneOf(&["never", "inode"])),
    // The journal: its checksums are always there, and what a failed write of data does.
    ("journal_checksum", Nothing),
    ("nojournal_checksum", Nothing),
    ("journal_async_commit", Nothing),
    ("journal_ioprio", Value),
    ("data_err", OneOf(&["ignore", "abort"])),
    // Where blocks go, what is read ahead, when tables are zeroed.
    ("stripe", Value),
    ("inode_readahead_blks", Value),
    ("init_itable", Either),
    ("noinit_itable", Nothing),
    ("mb_optimize_scan", Value),
    ("prefetch_block_bitmaps", Nothing),
    ("no_prefetch_block_bitmaps", Nothing),
    ("mbcache", Nothing),
    ("nombcache", Nothing),
    ("no_mbcache", Nothing),
    // Of old.
    ("orlov", Nothing),
    ("oldalloc", Nothing),
    ("bh", Nothing),
    ("nobh", Nothing),
    ("mblk_io_submit", Nothing),
    ("nomblk_io_submit", Nothing),
    ("reservation", Nothing),
    ("noreservation", Nothing),
    ("nocheck", Nothing),
    ("check", OneOf(&["none"])),
    // What is said and counted.
    ("debug", Nothing),
    ("warn_on_error", Nothing),
    ("nowarn_on_error", Nothing),
    ("noquota", Nothing),
];

/// Whether this is an option of Linux's ext4 that has no effect here.
pub(super) fn has_no_effect(given: &str) -> bool {
    takes::is_among(&WITHOUT_EFFECT, given)
}

/// An option that Linux also writes in another way, as it is here.
pub(super) fn in_our_words(given: &str) -> &str {
    match given {
        "auto_da_alloc=0" => "noauto_da_alloc",
        "auto_da_alloc=1" => "auto_da_alloc",
        _ => given,
    }
}
