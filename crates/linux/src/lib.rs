//! The Linux kernel as judge and as subject.
//!
//! As judge it mounts what we wrote and recovers what a crash left; [`Guest`] is the machine in
//! which it does so. [`Directory`] applies the operations of model tests to a directory of the
//! kernel's, [`Manifest`] is what a tree holds to the last nanosecond, and [`WriteLog`] knows the
//! disks a crash can leave. The tests of this crate are the verdicts.
//!
//! As subject it takes its own file systems through crash campaigns. This process serves an
//! emulated drive over NVMe/TCP; a [`machine`], a guest in QEMU or the user's own, connects to it
//! and runs an [`agent`]. In a [`campaign`] the workload runs once on the kernel's file system,
//! through the agent, and while it does the drive's states after a power cut are taken, each with
//! how far the oracle's log was: what the agent had reported by then was acknowledged. Then each
//! state is put into the drive, the kernel mounts it and recovers, and the oracle reads it back
//! through the same agent. So there is one boot and one run of the workload for many cuts.

#![forbid(unsafe_code)]

pub mod agent;
mod apply;
pub mod campaign;
mod error;
mod guest;
pub mod machine;
mod manifest;
mod write_log;

pub use apply::Directory;
pub use error::{Error, Result};
pub use guest::{Guest, Output};
pub use manifest::{Entry, Manifest, Time};
pub use write_log::WriteLog;
