//! Z-Journal: what a journal per core is worth where many cores change one ext4.
//!
//! Time is simulated: ext4 on a virtual machine of 4 x Xeon Gold 6138 with a Samsung SZ985, as in
//! the study. A run there lasts a minute, with a commit every five seconds; here commits are so
//! much closer that a window of some milliseconds has [`COMMITS_MIN`] and more.
//!
//! Three journals: none, which is the ceiling; JBD2; and Z-Journal. Two ways to begin
//! transactions: that of the study's kernel, 4.14, where each page written begins a handle and
//! handles are counted in lines that cores share (`linux=4.14`), and that of kernels since 5.15,
//! where an overwrite meets no journal at all.

mod baselines;
mod fileserver;
mod overwrite;
mod window;

use super::Figure;

/// Those of the study.
pub const ZJOURNAL: &[Figure] = &[
    Figure {
        name: "fig-2a",
        about: "DWOL on 80 cores: each core overwrites its own file (figure 2a)",
        run: overwrite::own_files,
        simulated: true,
    },
    Figure {
        name: "fig-2b",
        about: "DWOM on 80 cores: all cores overwrite one file (figure 2b)",
        run: overwrite::one_file,
        simulated: true,
    },
    Figure {
        name: "fig-2b-why",
        about: "figure 2b with commits more and less often",
        run: overwrite::one_file_why,
        simulated: true,
    },
    Figure {
        name: "fig-2c",
        about: "Filebench's fileserver on 80 cores, and with blocks apart (figure 2c)",
        run: fileserver::run,
        simulated: true,
    },
    Figure {
        name: "fig-2-baselines",
        about: "figure 2's loads on 80 cores, by the kernel that JBD2 is of",
        run: baselines::run,
        simulated: true,
    },
    Figure {
        name: "fig-2c-why",
        about: "figure 2c with rarer commits, and where cores share nothing",
        run: fileserver::why,
        simulated: true,
    },
];

const MACHINE: &str = "gold-6138-80";
const DRIVE: &str = "sz985";
/// Commits that a window must have.
const COMMITS_MIN: u64 = 10;

/// Without a journal the flusher alone writes, too late for any window.
const NONE: &str = "journal=none";
const JBD2: &str = "journal=jbd2";
const Z: &str = "journal=zjournal";
/// A commit every half a millisecond, and every ten where operations are rare: a commit of all
/// areas closes 80 gates, and more often than that it would be what is measured.
const OFTEN: &str = ",commit=0.0005";
const RARELY: &str = ",commit=0.01";
/// The study's kernel.
const V4_14: &str = ",linux=4.14";
