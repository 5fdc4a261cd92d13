//! The Linux kernel as judge.
//!
//! The kernel mounts what we wrote and recovers what a crash left; [`Guest`] is the machine it does
//! so in. [`Linux`] applies the operations of model tests to a directory of the kernel's,
//! [`Manifest`] is what a tree holds to the last nanosecond, and [`WriteLog`] knows the disks a
//! crash can leave. The tests of this crate are the verdicts.

#![forbid(unsafe_code)]

mod guest;
mod linux;
mod manifest;
pub mod speed;
mod write_log;
pub mod zoned;

pub use guest::{Guest, Output};
pub use linux::Linux;
pub use manifest::{Entry, Manifest, Time};
pub use write_log::WriteLog;
