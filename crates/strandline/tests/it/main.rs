//! The tests of the command without mounts, in one binary: each of its own would be linked alone.
//! Those with mounts are in `mounted`.

mod bench;
mod cli;
mod common;
mod cp;
mod crash;
mod deb;
mod devices;
mod docs;
mod ext4;
mod interrupted;
mod kernel_crash;
mod kernel_fsync;
mod mistakes;
#[cfg(feature = "auth")]
mod nvme_auth;
mod nvme_kernel;
mod nvme_suites;
mod packaging;
mod serve;
mod served;
mod sqlite;
mod tools;
