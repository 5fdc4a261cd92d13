//! The tests of volumes that are mounted, in one binary, where none runs beside another: a process
//! that one test starts has all files of this one open until it executes its program, and a mount
//! with an open file can be neither unmounted nor made read-only. [`mounting::Rig`] locks the
//! others out, and a test without a rig that starts processes takes [`mounting::alone`].

mod atomic_mount;
mod attributes;
mod check_program;
#[path = "../it/common/mod.rs"]
mod common;
mod cut_under_load;
mod lazyfs;
mod loads;
mod mount;
mod mount_cached;
mod mount_direct;
mod mount_fuzzed;
mod mount_like_linux;
mod mount_limits;
mod mount_lost;
mod mount_quota;
mod mount_rings;
mod mounting;
#[cfg(feature = "plainfs")]
mod plainfs;
mod pm_killed;
mod pm_mount;
mod readme;
mod shipped;
mod suite_fsx;
mod suite_mariadb;
mod suite_posix;
mod suite_programs;
mod suite_sqlite;
