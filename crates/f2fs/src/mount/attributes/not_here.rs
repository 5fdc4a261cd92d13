//! What Linux 6.1 shows in `/sys/fs/f2fs/<disk>/` and this does not.

/// Names, and why each is missing.
pub const NOT_HERE: [(&str, &str); 18] = [
    ("ckpt_thread_ioprio", "checkpoints have no thread of their own"),
    ("committed_atomic_block", "atomic writes are counted by no statistics"),
    ("compr_new_inode", "new files are not compressed"),
    ("compr_saved_block", "new files are not compressed"),
    ("compr_written_block", "new files are not compressed"),
    ("current_atomic_write", "atomic writes are counted by no statistics"),
    ("data_io_flag", "data is written without FUA, and a flush makes it durable"),
    ("gc_reclaimed_segments", "cleaned sections are counted by who waited for them"),
    ("gc_segment_mode", "cleaned sections are counted by who waited for them"),
    (
        "gc_urgent_high_remaining",
        "'gc_remaining_trials', its name since Linux 6.2, counts for all modes",
    ),
    ("iostat_period_ms", "there are no trace events that would show the counts at intervals"),
    ("max_fragment_chunk", "'mode=fragment:block' has no effect"),
    ("max_fragment_hole", "'mode=fragment:block' has no effect"),
    ("max_io_bytes", "the block layer bounds its requests by what the drive takes"),
    ("node_io_flag", "nodes are written without FUA, and a flush makes them durable"),
    ("peak_atomic_write", "atomic writes are counted by no statistics"),
    ("revoked_atomic_block", "atomic writes are counted by no statistics"),
    ("seq_file_ra_mul", "FUSE tells no file system of POSIX_FADV_SEQUENTIAL, which it multiplies"),
];
