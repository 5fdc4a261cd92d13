//! The integration tests of this crate, in one binary: each of its own would be linked alone.

mod advise;
mod canaries;
mod databases;
mod every_cut;
mod every_state;
mod failing;
mod fast;
mod harness;
mod memory;
#[cfg(feature = "plainfs")]
mod plainfs;
mod records;
mod schedules;
mod small_blocks;
mod threads;
