//! The Linux kernel as judge: a guest to run it in.
//!
//! The kernel mounts what we wrote and recovers what a crash left; [`Guest`] is the machine it does
//! so in. The tests of this crate are the verdicts.

#![forbid(unsafe_code)]

mod guest;

pub use guest::{Guest, Output};
