//! What a real program did, recorded as a workload's script: on a mount that watches it
//! ([`Watched`]), or from what strace(1) wrote down ([`strace`]).

pub mod harness;
mod known;
pub mod strace;
mod watched;

pub use watched::{Listener, Marker, Run, Watched};
